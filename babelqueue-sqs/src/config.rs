use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use babelqueue_core::Error;
use url::Url;

use crate::delay;

/// How to reach Amazon SQS, or what speaks its protocol.
///
/// # URL
///
/// `sqs://region?…`; without a region it is the SDK's own chain that says it (environment, profile).
/// Query keys:
///
/// | key | sets |
/// |---|---|
/// | `endpoint` | [`endpoint`](Self::endpoint) |
/// | `prefix` | [`prefix`](Self::prefix) |
/// | `group_id` | [`group`](Self::group) |
/// | `wait_time` | [`wait_time`](Self::wait_time), in seconds |
/// | `visibility_timeout` | [`visibility_timeout`](Self::visibility_timeout), in seconds |
/// | `max_receives` | [`max_receives`](Self::max_receives) |
/// | `publish_window` | [`publish_window`](Self::publish_window) |
/// | `request_timeout` | [`request_timeout`](Self::request_timeout), in milliseconds |
///
/// `fifo` and `content_dedup`, which other SDKs have, change nothing: a FIFO queue is known by its
/// name, and the queue itself says whether it removes duplicates by content. Another key is left
/// alone, with a warning in the log.
#[derive(Clone)]
pub struct Config {
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) wait_time: Duration,
    pub(crate) visibility_timeout: Option<Duration>,
    pub(crate) max_receives: usize,
    pub(crate) publish_window: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) client: Option<Client>,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// Region and credentials from the SDK's own chain, and every other option at its default.
    pub fn new() -> Self {
        Self {
            region: None,
            endpoint: None,
            prefix: None,
            group: None,
            wait_time: Duration::from_secs(20),
            visibility_timeout: None,
            max_receives: 8,
            publish_window: 16,
            request_timeout: Duration::from_secs(10),
            credentials: None,
            client: None,
        }
    }

    /// The configuration that `url` describes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for what is no such URL, for one with credentials in it, and for a bad value.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let form = "is not of the form `sqs://region?endpoint=…`";
        let parsed = Url::parse(url).map_err(|_| Error::config("url", form))?;
        if parsed.scheme() != "sqs" {
            return Err(Error::config("url", form));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let problem = "has credentials in it; they come from the SDK's own chain, or from \
                           `Config::credentials`";
            return Err(Error::config("url", problem));
        }
        let mut config = Self::new();
        config.region = parsed.host_str().map(str::to_owned);
        for (key, value) in parsed.query_pairs() {
            config = config.with_query(&key, &value)?;
        }
        Ok(config)
    }

    fn with_query(self, key: &str, value: &str) -> Result<Self, Error> {
        let number = |option| {
            let problem = || Error::config(option, "in the URL is not a whole number");
            value.parse::<u32>().map_err(|_| problem())
        };
        let seconds = |option| Ok::<_, Error>(Duration::from_secs(number(option)?.into()));
        let count = |option| Ok::<_, Error>(usize::try_from(number(option)?).unwrap_or(usize::MAX));
        match key {
            "endpoint" => self.endpoint(value),
            "prefix" => self.prefix(value),
            "group_id" => Ok(self.group(value)),
            "wait_time" => self.wait_time(seconds("wait_time")?),
            "visibility_timeout" => self.visibility_timeout(seconds("visibility_timeout")?),
            "max_receives" => self.max_receives(count("max_receives")?),
            "publish_window" => self.publish_window(count("publish_window")?),
            "request_timeout" => {
                let millis = number("request_timeout")?;
                self.request_timeout(Duration::from_millis(millis.into()))
            }
            "fifo" | "content_dedup" => Ok(self),
            other => {
                tracing::warn!(key = other, "unknown key in the SQS URL");
                Ok(self)
            }
        }
    }

    /// Sets the region.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets where requests go: an emulator, or a private endpoint. The SDK finds the region's own
    /// unless it is set.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] unless it is `http://` or `https://`.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Result<Self, Error> {
        self.endpoint = Some(web_address("endpoint", endpoint.into())?);
        Ok(self)
    }

    /// Sets what the URLs of all queues begin with: `https://sqs.eu-west-1.amazonaws.com/123456789012`.
    /// A queue's URL is then this, a `/` and its name, and SQS is not asked for it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] unless it is `http://` or `https://`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        let mut prefix = web_address("prefix", prefix.into())?;
        prefix.truncate(prefix.trim_end_matches('/').len());
        self.prefix = Some(prefix);
        Ok(self)
    }

    /// Sets the message group of what is published to a FIFO queue without one of its own; the queue's
    /// name unless set.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets how long a receive waits for a message: whole seconds, 1 to 20; 20 unless set. A stop waits
    /// for the receives under way, for SQS may answer them with messages until the end.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] outside of that.
    pub fn wait_time(mut self, wait: Duration) -> Result<Self, Error> {
        let limits = Duration::from_secs(1)..=Duration::from_secs(20);
        self.wait_time = whole_seconds("wait_time", wait, limits)?;
        Ok(self)
    }

    /// Sets for how long a received message is ours, unless renewed: whole seconds, 2 s to 12 h. The
    /// queue's own visibility timeout unless set.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] outside of that.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        let limits = MIN_VISIBILITY..=delay::MAX_VISIBILITY;
        self.visibility_timeout = Some(whole_seconds("visibility_timeout", timeout, limits)?);
        Ok(self)
    }

    /// Sets how many receives one subscription has under way at a time, at most; 8 unless set. There
    /// are that many only while messages come in, and handlers are free for ten messages each.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for zero.
    pub fn max_receives(mut self, receives: usize) -> Result<Self, Error> {
        self.max_receives = not_zero("max_receives", receives)?;
        Ok(self)
    }

    /// Sets how many batches are on their way to one standard queue at a time, at most; 16 unless set.
    /// To a FIFO queue it is one, which keeps the order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for zero.
    pub fn publish_window(mut self, batches: usize) -> Result<Self, Error> {
        self.publish_window = not_zero("publish_window", batches)?;
        Ok(self)
    }

    /// Sets how long SQS may take to answer one try of a request, the wait of a receive aside; 10 s
    /// unless set. A request is tried four times.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for zero.
    pub fn request_timeout(mut self, limit: Duration) -> Result<Self, Error> {
        if limit.is_zero() {
            return Err(Error::config("request_timeout", "is zero"));
        }
        self.request_timeout = limit;
        Ok(self)
    }

    /// Sets the credentials, in place of what the SDK's own chain finds.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Sets the client, which then has its own region, credentials, endpoint, retries and time-outs:
    /// those of this configuration are left unheeded. It needs a time-out of its own, longer than
    /// [`wait_time`](Self::wait_time).
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }
}

/// Without credentials.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("prefix", &self.prefix)
            .field("group", &self.group)
            .field("wait_time", &self.wait_time)
            .field("visibility_timeout", &self.visibility_timeout)
            .field("max_receives", &self.max_receives)
            .field("publish_window", &self.publish_window)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// Below this no renewal would be sure to come in time.
pub(crate) const MIN_VISIBILITY: Duration = Duration::from_secs(2);

fn web_address(option: &'static str, address: String) -> Result<String, Error> {
    let parsed = Url::parse(&address).ok();
    match parsed.filter(|url| matches!(url.scheme(), "http" | "https")) {
        Some(url) if url.username().is_empty() && url.password().is_none() => Ok(address),
        _ => Err(Error::config(
            option,
            "is no `http://` or `https://` address without credentials",
        )),
    }
}

fn whole_seconds(
    option: &'static str,
    time: Duration,
    limits: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, Error> {
    if limits.contains(&time) && time.subsec_nanos() == 0 {
        return Ok(time);
    }
    Err(Error::config(
        option,
        format_args!(
            "is {time:?}, not whole seconds from {} to {}",
            limits.start().as_secs(),
            limits.end().as_secs()
        ),
    ))
}

fn not_zero(option: &'static str, number: usize) -> Result<usize, Error> {
    if number == 0 {
        return Err(Error::config(option, "is zero"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_url_leaves_all_to_the_sdk() {
        let config = Config::from_url("sqs://").unwrap();
        assert_eq!((config.region, config.endpoint), (None, None));
        assert_eq!(config.wait_time, Duration::from_secs(20));
        assert_eq!(config.visibility_timeout, None);
    }

    #[test]
    fn keys_are_read_and_others_are_left_alone() {
        let config = Config::from_url(
            "sqs://eu-west-1?endpoint=http://127.0.0.1:9324&prefix=http://h/123/&group_id=g\
             &wait_time=5&visibility_timeout=60&max_receives=2&publish_window=3&request_timeout=1500\
             &fifo=1&content_dedup=0&laravel=1",
        )
        .unwrap();
        assert_eq!(config.region.as_deref(), Some("eu-west-1"));
        assert_eq!(config.endpoint.as_deref(), Some("http://127.0.0.1:9324"));
        assert_eq!(config.prefix.as_deref(), Some("http://h/123"));
        assert_eq!(config.group.as_deref(), Some("g"));
        assert_eq!(config.wait_time, Duration::from_secs(5));
        assert_eq!(config.visibility_timeout, Some(Duration::from_mins(1)));
        assert_eq!((config.max_receives, config.publish_window), (2, 3));
        assert_eq!(config.request_timeout, Duration::from_millis(1500));
    }

    #[test]
    fn a_bad_value_is_named_and_the_url_is_not_repeated() {
        for (url, needle) in [
            ("redis://secret", "url"),
            ("secret", "url"),
            ("sqs://u:secret@eu-west-1", "url"),
            ("sqs://r?endpoint=ftp://secret", "endpoint"),
            ("sqs://r?endpoint=http://u:secret@h", "endpoint"),
            ("sqs://r?prefix=secret", "prefix"),
            ("sqs://r?wait_time=0", "wait_time"),
            ("sqs://r?wait_time=21", "wait_time"),
            ("sqs://r?wait_time=x", "wait_time"),
            ("sqs://r?visibility_timeout=1", "visibility_timeout"),
            ("sqs://r?visibility_timeout=43201", "visibility_timeout"),
            ("sqs://r?max_receives=0", "max_receives"),
            ("sqs://r?publish_window=0", "publish_window"),
            ("sqs://r?request_timeout=0", "request_timeout"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(needle), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn no_secret_in_debug_output() {
        let credentials = Credentials::new("id", "hidden", None, None, "test");
        let config = Config::new().credentials(credentials);
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
