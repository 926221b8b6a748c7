use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use babelqueue_core::Error;
use lapin::uri::{AMQPScheme, AMQPUri};

use crate::QueueArguments;
use crate::delay;

/// How to reach a RabbitMQ server, and how its queues are declared.
///
/// # URL
///
/// `amqp://user:password@host:port/vhost?…`, or `amqps://` with feature `tls`. Without a vhost, or
/// with an empty one, it is the default vhost `/`, as for the other SDKs. Query keys:
///
/// | key | sets |
/// |---|---|
/// | `declare` | [`declare`](Self::declare): `active` or `passive` |
/// | `queue_type` | `quorum`: [`queue_arguments`](Self::queue_arguments) of [`QueueArguments::quorum`]; `classic`: none |
/// | `publish_window` | [`publish_window`](Self::publish_window) |
/// | `confirm_timeout` | [`confirm_timeout`](Self::confirm_timeout), in milliseconds |
/// | `connection_timeout` | [`connect_timeout`](Self::connect_timeout), in milliseconds |
/// | `heartbeat` | [`heartbeat`](Self::heartbeat), in seconds |
/// | `frame_max`, `channel_max`, `auth_mechanism` | as RabbitMQ's own URLs have them |
///
/// Another key is left alone, with a warning in the log: such URLs are shared with other programs.
#[derive(Clone)]
pub struct Config {
    pub(crate) uri: AMQPUri,
    pub(crate) connect_timeout: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) publish_window: usize,
    pub(crate) declare: Declare,
    pub(crate) name: String,
    queues: QueueArguments,
    named: BTreeMap<String, QueueArguments>,
    #[cfg(feature = "tls")]
    pub(crate) tls: crate::tls::Tls,
}

/// Whether queues are declared by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Declare {
    /// Each queue is declared before its first use, dead-letter queues and the queues of delays
    /// among them.
    #[default]
    Active,
    /// No queue is declared: for users without the right to. A queue that is consumed from is
    /// checked, a publish to a missing one comes back as an error, and there are no delays.
    Passive,
}

/// What RabbitMQ recommends between 5 and 20 s: a dead peer is noticed within twice this.
const HEARTBEAT_S: u16 = 20;

impl Config {
    /// The configuration that `url` describes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for what is no AMQP URL, for a bad value, and for `amqps://` without feature
    /// `tls`. It never repeats the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let mut config = Self::of(parse(url)?);
        for (key, value) in pairs(url) {
            config = config.with_query(key, value)?;
        }
        Ok(config)
    }

    fn of(mut uri: AMQPUri) -> Self {
        // The client leaves it unheeded; `connect_timeout` is ours.
        let connect_timeout = uri.query.connection_timeout.take();
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        Self {
            uri,
            connect_timeout: connect_timeout.map_or(Duration::from_secs(10), Duration::from_millis),
            confirm_timeout: Duration::from_secs(30),
            publish_window: 1024,
            declare: Declare::Active,
            name: "babelqueue".to_owned(),
            queues: QueueArguments::new(),
            named: BTreeMap::new(),
            #[cfg(feature = "tls")]
            tls: crate::tls::Tls::default(),
        }
    }

    fn with_query(self, key: &str, value: &str) -> Result<Self, Error> {
        Ok(match (key, value) {
            ("declare", "active") => self.declare(Declare::Active),
            ("declare", "passive") => self.declare(Declare::Passive),
            ("queue_type", "classic") => self.queue_arguments(QueueArguments::new()),
            ("queue_type", "quorum") => self.queue_arguments(QueueArguments::quorum()),
            ("declare", _) => return Err(expected("declare", "`active` or `passive`")),
            ("queue_type", _) => return Err(expected("queue_type", "`classic` or `quorum`")),
            ("publish_window", _) => {
                let window = number(value).ok_or_else(|| expected("publish_window", "a number"))?;
                self.publish_window(usize::try_from(window).unwrap_or(usize::MAX))?
            }
            ("confirm_timeout", _) => {
                let ms =
                    number(value).ok_or_else(|| expected("confirm_timeout", "milliseconds"))?;
                self.confirm_timeout(Duration::from_millis(ms))?
            }
            (
                "heartbeat" | "frame_max" | "channel_max" | "auth_mechanism" | "connection_timeout",
                _,
            ) => self,
            (other, _) => {
                tracing::warn!(key = other, "unknown key in the AMQP URL");
                self
            }
        })
    }

    /// Sets how often both sides show that they live; a peer that is silent for twice as long is
    /// taken for dead. Whole seconds, at least 1; 20 unless set. The broker may ask for less.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] below 1 s or above 65,535 s.
    pub fn heartbeat(mut self, interval: Duration) -> Result<Self, Error> {
        let seconds = u16::try_from(interval.as_secs()).ok();
        let seconds = seconds.filter(|seconds| *seconds > 0);
        let problem = || Error::config("heartbeat", "is not between 1 s and 65535 s");
        self.uri.query.heartbeat = Some(seconds.ok_or_else(problem)?);
        Ok(self)
    }

    /// Sets how long the server may take to answer when connecting, opening a channel or declaring a
    /// queue; 10 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets how long the broker may take to confirm a message; 30 s unless set. After that the
    /// publish fails, and whether the broker has the message is unknown. While the broker holds its
    /// publishers back (memory or disk alarm) the time stands still.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for zero.
    pub fn confirm_timeout(mut self, limit: Duration) -> Result<Self, Error> {
        if limit.is_zero() {
            return Err(Error::config("confirm_timeout", "is zero"));
        }
        self.confirm_timeout = limit;
        Ok(self)
    }

    /// Sets how many messages may be on their way to the broker without a confirm; 1024 unless set.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for zero.
    pub fn publish_window(mut self, messages: usize) -> Result<Self, Error> {
        if messages == 0 {
            return Err(Error::config("publish_window", "is zero"));
        }
        self.publish_window = messages;
        Ok(self)
    }

    /// Sets whether queues are declared.
    #[must_use]
    pub fn declare(mut self, declare: Declare) -> Self {
        self.declare = declare;
        self
    }

    /// Sets the arguments of every queue that we declare, except where
    /// [`queue_arguments_for`](Self::queue_arguments_for) says otherwise.
    #[must_use]
    pub fn queue_arguments(mut self, arguments: QueueArguments) -> Self {
        self.queues = arguments;
        self
    }

    /// Sets the arguments of one queue.
    #[must_use]
    pub fn queue_arguments_for(
        mut self,
        queue: impl Into<String>,
        arguments: QueueArguments,
    ) -> Self {
        self.named.insert(queue.into(), arguments);
        self
    }

    /// Sets the name by which the broker's own tools show our connections; `babelqueue` unless set.
    #[must_use]
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Trusts the certificates of this PEM file's text beside the machine's own.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.tls.ca_certificates = Some(pem.into());
        self
    }

    /// Shows the server this certificate (PEM) and key (PEM, PKCS #8).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// The arguments that `queue` is declared with.
    pub(crate) fn arguments_of(&self, queue: &str) -> &QueueArguments {
        self.named.get(queue).unwrap_or(&self.queues)
    }

    /// Whether all arguments can be declared.
    pub(crate) fn check_arguments(&self) -> Result<(), Error> {
        let all = std::iter::once(&self.queues).chain(self.named.values());
        all.map(QueueArguments::to_table)
            .try_for_each(|table| table.map(|_| ()))
    }

    /// Whether queues count deliveries unless they are configured by name.
    pub(crate) fn is_quorum_by_default(&self) -> bool {
        self.queues.is_quorum()
    }

    /// Where it connects to, without credentials: for errors and logs.
    pub(crate) fn address(&self) -> String {
        let authority = &self.uri.authority;
        format!(
            "{}://{}:{}/{}",
            self.uri.scheme, authority.host, authority.port, self.uri.vhost
        )
    }

    /// A queue's name, if RabbitMQ and its delay queues can hold it.
    pub(crate) fn check_name(&self, queue: &str) -> Result<(), Error> {
        let limit = match self.declare {
            Declare::Active => 255 - delay::LONGEST_SUFFIX,
            Declare::Passive => 255,
        };
        let problem = if queue.is_empty() {
            "is empty".to_owned()
        } else if queue.len() > limit {
            format!("has {} bytes, limit {limit}", queue.len())
        } else if queue.starts_with("amq.") {
            "begins with `amq.`, which is the broker's".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::config("queue", problem))
    }
}

/// Without credentials.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address())
            .field("heartbeat_s", &self.uri.query.heartbeat)
            .field("connect_timeout", &self.connect_timeout)
            .field("confirm_timeout", &self.confirm_timeout)
            .field("publish_window", &self.publish_window)
            .field("declare", &self.declare)
            .field("queues", &self.queues)
            .field("named", &self.named)
            .finish_non_exhaustive()
    }
}

fn parse(url: &str) -> Result<AMQPUri, Error> {
    check_keys_of_the_client(url)?;
    // The client's own error may repeat the URL, and with it the password.
    let problem = "is not of the form `amqp://user:password@host:port/vhost`";
    let mut uri: AMQPUri = url.parse().map_err(|_| Error::config("url", problem))?;
    if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
        let problem = "is `amqps://`, which needs feature `tls` of babelqueue-amqp";
        return Err(Error::config("url", problem));
    }
    if let Some(host) = bracketed_host(url) {
        host.clone_into(&mut uri.authority.host);
    }
    if uri.vhost.is_empty() {
        "/".clone_into(&mut uri.vhost);
    }
    Ok(uri)
}

/// The IPv6 address between brackets, which the client's parser takes for no host at all.
fn bracketed_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.strip_prefix('[')?;
    host.split_once(']').map(|(host, _)| host)
}

/// The client reads these itself, and does not say which of them it could not.
fn check_keys_of_the_client(url: &str) -> Result<(), Error> {
    for (key, value) in pairs(url) {
        let (option, most, what) = match key {
            "heartbeat" => ("heartbeat", u64::from(u16::MAX), "seconds, at most 65535"),
            "channel_max" => ("channel_max", u64::from(u16::MAX), "a number up to 65535"),
            "frame_max" => (
                "frame_max",
                u64::from(u32::MAX),
                "bytes, at most 4294967295",
            ),
            "connection_timeout" => ("connection_timeout", u64::MAX, "milliseconds"),
            _ => continue,
        };
        if number(value).is_none_or(|number| number > most) {
            return Err(expected(option, what));
        }
    }
    Ok(())
}

/// The keys of the URL's query with their values.
fn pairs(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn number(value: &str) -> Option<u64> {
    value.parse().ok()
}

fn expected(option: &'static str, what: &str) -> Error {
    Error::config(option, format!("in the URL is not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Config {
        Config::from_url(url).unwrap()
    }

    #[test]
    fn a_bare_url_has_every_default() {
        let config = of("amqp://localhost");
        assert_eq!(config.address(), "amqp://localhost:5672//");
        assert_eq!(config.uri.authority.userinfo.username, "guest");
        assert_eq!(config.uri.query.heartbeat, Some(20));
        assert_eq!(config.publish_window, 1024);
        assert_eq!(config.declare, Declare::Active);
        assert_eq!(config.arguments_of("q"), &QueueArguments::new());
    }

    #[test]
    fn an_empty_vhost_is_the_default_one() {
        for (url, vhost) in [
            ("amqp://h", "/"),
            ("amqp://h/", "/"),
            ("amqp://h/%2f", "/"),
            ("amqp://h/a%2Fb", "a/b"),
            ("amqp://h/shop?heartbeat=5", "shop"),
            ("amqp://h?heartbeat=5", "/"),
        ] {
            assert_eq!(of(url).uri.vhost, vhost, "{url}");
        }
    }

    #[test]
    fn our_own_keys_are_read_and_others_are_left_alone() {
        let config = of(
            "amqp://u:p@h:1/v?declare=passive&queue_type=quorum&publish_window=7&confirm_timeout=1500\
             &connection_timeout=2500&heartbeat=3&laravel=1&frame_max=8192",
        );
        assert_eq!(config.declare, Declare::Passive);
        assert!(config.is_quorum_by_default());
        assert_eq!(config.publish_window, 7);
        assert_eq!(config.confirm_timeout, Duration::from_millis(1500));
        assert_eq!(config.connect_timeout, Duration::from_millis(2500));
        assert_eq!(config.uri.query.heartbeat, Some(3));
        assert_eq!(config.uri.query.frame_max, Some(8192));
        assert_eq!(config.uri.query.connection_timeout, None);
    }

    #[test]
    fn a_bad_value_is_named_and_the_url_is_not_repeated() {
        for (url, needle) in [
            ("redis://u:secret@h", "url"),
            ("amqp:secret", "url"),
            ("secret", "url"),
            ("amqp://u:secret@h?declare=sometimes", "declare"),
            ("amqp://u:secret@h?queue_type=stream", "queue_type"),
            ("amqp://u:secret@h?publish_window=0", "publish_window"),
            ("amqp://u:secret@h?publish_window=x", "publish_window"),
            ("amqp://u:secret@h?confirm_timeout=-1", "confirm_timeout"),
            ("amqp://u:secret@h?heartbeat=secret", "heartbeat"),
            ("amqp://u:secret@h?heartbeat=65536", "heartbeat"),
            ("amqp://u:secret@h?channel_max=-1", "channel_max"),
            ("amqp://u:secret@h?frame_max=", "frame_max"),
            (
                "amqp://u:secret@h?connection_timeout=1s",
                "connection_timeout",
            ),
            ("amqp://u:secret@h?auth_mechanism=secret", "url"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(needle), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn no_password_in_debug_output() {
        let config = of("amqp://user:secret@h/v");
        let text = format!("{config:?} {}", config.address());
        assert!(!text.contains("secret") && !text.contains("user"), "{text}");
    }

    #[test]
    fn an_ipv6_address_is_a_host() {
        let config = of("amqp://u:p@[::1]:5673/v");
        assert_eq!(config.uri.authority.host, "::1");
        assert_eq!(config.uri.authority.port, 5673);
    }

    #[test]
    fn a_queue_can_have_arguments_of_its_own() {
        let config =
            of("amqp://h?queue_type=quorum").queue_arguments_for("plain", QueueArguments::new());
        assert!(config.arguments_of("orders").is_quorum());
        assert!(!config.arguments_of("plain").is_quorum());
    }

    #[test]
    fn a_queue_name_leaves_room_for_its_delays() {
        let config = of("amqp://h");
        assert!(config.check_name(&"q".repeat(238)).is_ok());
        let error = config.check_name(&"q".repeat(239)).unwrap_err();
        assert!(error.to_string().contains("239 bytes"), "{error}");
        assert!(config.check_name("").is_err());
        assert!(config.check_name("amq.direct").is_err());
        let passive = config.declare(Declare::Passive);
        assert!(passive.check_name(&"q".repeat(255)).is_ok());
    }

    #[test]
    fn a_heartbeat_is_at_least_a_second() {
        let config = || of("amqp://h");
        assert!(config().heartbeat(Duration::from_millis(999)).is_err());
        let config = config().heartbeat(Duration::from_secs(2)).unwrap();
        assert_eq!(config.uri.query.heartbeat, Some(2));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn amqps_needs_its_feature() {
        let error = Config::from_url("amqps://h").unwrap_err();
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn amqps_has_its_own_port() {
        assert_eq!(of("amqps://h").uri.authority.port, 5671);
    }
}
