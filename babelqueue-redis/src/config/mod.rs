//! How to reach Redis, and how queues lie in it.

mod url;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::clock::{Clock, SystemClock};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::Layout;
use crate::layout::{Keys, LARAVEL_PREFIX};

/// How to reach Redis, and how queues lie in it. Made from a URL, then adjusted.
///
/// ```
/// use std::time::Duration;
/// use babelqueue_redis::{Config, Layout};
///
/// # fn main() -> Result<(), babelqueue_core::Error> {
/// let config = Config::from_url("redis://127.0.0.1?layout=laravel&retry_after=90")?
///     .response_timeout(Duration::from_secs(5))?;
/// assert_eq!(config.layout(), Layout::Laravel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) nodes: Vec<ConnectionInfo>,
    pub(crate) cluster: bool,
    /// Whether the URL named a protocol; otherwise RESP3 is tried, and RESP2 where it is not known.
    pub(crate) protocol_is_fixed: bool,
    pub(crate) layout: Layout,
    pub(crate) prefix: Arc<str>,
    pub(crate) retry_after: Option<u64>,
    pub(crate) migration_batch_size: Option<NonZeroU32>,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) time: Time,
    #[cfg(feature = "tls")]
    pub(crate) certificates: crate::tls::Certificates,
}

/// Whose clock scores are made of and compared with.
#[derive(Debug, Clone)]
pub(crate) enum Time {
    Ours(Arc<dyn Clock>),
    Server,
}

/// The shortest lease: scores are whole seconds, so one of a second may last a moment.
const SHORTEST_RETRY_AFTER: u64 = 2;

/// The longest lease, a leap year. Beyond lie slips, and times that cannot be told.
const LONGEST_RETRY_AFTER: u64 = 366 * 24 * 60 * 60;

/// The limits of a time-out: an hour is more than any call takes.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_hours(1);

impl Config {
    /// Reads a URL.
    ///
    /// `redis://[user][:password@]host[:port][/db]`, `rediss://…` for TLS (feature `tls`;
    /// `#insecure` turns off the checks of the certificate), `redis+unix:///path` with `db`, `user`
    /// and `pass` in the query. Further query keys, each at most once:
    ///
    /// | key | value | default |
    /// |---|---|---|
    /// | `layout` | `sdk` or `laravel` | `sdk` |
    /// | `laravel`, `laravel_compat` | `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off`, as the peers write it | off |
    /// | `prefix` | key prefix of the Laravel layout | `queues:` |
    /// | `retry_after` | whole seconds, 2 to 31622400 (366 days); `null` or `none` turns recovery off | 90 |
    /// | `migration_batch_size` | how many overdue messages one call brings back; `-1` is all | -1 |
    /// | `server_time` | as `laravel`: scores by the server's clock | off |
    /// | `response_timeout_ms`, `connect_timeout_ms` | milliseconds, 1 to 3600000 (an hour) | 10000, 5000 |
    /// | `cluster` | as `laravel`: the host is a node of a cluster (feature `cluster`) | off |
    /// | `node` | `host:port` of one more node of the cluster; may be repeated | – |
    /// | `protocol` | `resp2` or `resp3` | `resp3`, or 2 where the server does not know it |
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL that does not parse, a key that is not known (the known ones are
    /// listed), a value that is not allowed, or a feature that is not compiled in.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    fn at(info: ConnectionInfo) -> Self {
        Self {
            nodes: vec![info],
            cluster: false,
            protocol_is_fixed: false,
            layout: Layout::default(),
            prefix: LARAVEL_PREFIX.into(),
            retry_after: Some(90),
            migration_batch_size: None,
            response_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            time: Time::Ours(Arc::new(SystemClock)),
            #[cfg(feature = "tls")]
            certificates: crate::tls::Certificates::default(),
        }
    }

    /// Sets the layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Sets the key prefix of the Laravel layout. The SDK layout has none.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a delivery is ours before it may be given out again; a running handler's is
    /// renewed. `None` turns recovery off: what a killed consumer held stays where it is for ever.
    ///
    /// Scores are whole seconds (contract §11), so a lease is up to one second shorter than this,
    /// and is reported so.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] below 2 s or above 366 days, or for parts of a second.
    pub fn retry_after(mut self, retry_after: Option<Duration>) -> Result<Self, Error> {
        self.retry_after = retry_after.map(lease_seconds).transpose()?;
        Ok(self)
    }

    /// Sets how many overdue messages one call brings back; `None` is all of them.
    #[must_use]
    pub fn migration_batch_size(mut self, size: Option<NonZeroU32>) -> Self {
        self.migration_batch_size = size;
        self
    }

    /// Sets how long an answer may take before the connection counts as lost. It has to be longer
    /// than the slowest script or command that anybody runs on this server.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] below 1 ms or above an hour.
    pub fn response_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.response_timeout = within_limits("response_timeout", timeout)?;
        Ok(self)
    }

    /// Sets how long connecting may take.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] below 1 ms or above an hour.
    pub fn connect_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.connect_timeout = within_limits("connect_timeout", timeout)?;
        Ok(self)
    }

    /// Sets the clock that scores are made of and compared with; the machine's own by default. All
    /// consumers of a queue have to agree on the time to within a fraction of `retry_after`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.time = Time::Ours(clock);
        self
    }

    /// Scores by the server's own clock, in place of this machine's: for consumers whose clocks
    /// differ.
    #[must_use]
    pub fn server_time(mut self) -> Self {
        self.time = Time::Server;
        self
    }

    /// Makes the host a node of a cluster, with more nodes to learn it from (`host:port`); they are
    /// reached with the same credentials.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] without the feature `cluster`, for a node that is no `host:port`, or for a
    /// database other than 0, which a cluster does not have.
    pub fn cluster<'n>(mut self, nodes: impl IntoIterator<Item = &'n str>) -> Result<Self, Error> {
        if cfg!(not(feature = "cluster")) {
            return Err(Error::config(
                "cluster",
                "needs the feature `cluster` of babelqueue-redis",
            ));
        }
        let first = &self.nodes[0];
        if first.redis_settings().db() != 0 {
            return Err(Error::config(
                "cluster",
                "has only database 0; leave the number out of the URL",
            ));
        }
        let more = nodes
            .into_iter()
            .map(|node| url::node(first, node))
            .collect::<Result<Vec<_>, _>>()?;
        self.nodes.extend(more);
        self.cluster = true;
        Ok(self)
    }

    /// Sets the certificates of TLS, each as PEM: what the server's has to go back to, in place of
    /// the system's roots, and what this client shows, with its key.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(
        mut self,
        root: Option<Vec<u8>>,
        client: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Self {
        self.certificates = crate::tls::Certificates { root, client };
        self
    }

    /// The keys of the logical `queue`.
    pub fn keys(&self, queue: &str) -> Keys {
        Keys::new(self.layout, &self.prefix, queue)
    }

    /// Where Redis is, without credentials.
    pub fn address(&self) -> String {
        address(&self.nodes[0])
    }

    pub(crate) fn with_protocol(mut self, protocol: ProtocolVersion) -> Self {
        self.nodes = self
            .nodes
            .into_iter()
            .map(|node| {
                let settings = node.redis_settings().clone().set_protocol(protocol);
                node.set_redis_settings(settings)
            })
            .collect();
        self
    }
}

/// Credentials are not shown.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("nodes", &self.nodes.iter().map(address).collect::<Vec<_>>())
            .field("cluster", &self.cluster)
            .field("layout", &self.layout)
            .field("prefix", &self.prefix)
            .field("retry_after", &self.retry_after)
            .field("migration_batch_size", &self.migration_batch_size)
            .field("response_timeout", &self.response_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

fn lease_seconds(retry_after: Duration) -> Result<u64, Error> {
    let limits = SHORTEST_RETRY_AFTER..=LONGEST_RETRY_AFTER;
    if !limits.contains(&retry_after.as_secs()) || retry_after.subsec_nanos() > 0 {
        return Err(Error::config(
            "retry_after",
            format_args!(
                "is {retry_after:?}; it has to be whole seconds, at least {SHORTEST_RETRY_AFTER} and \
                 at most {LONGEST_RETRY_AFTER}"
            ),
        ));
    }
    Ok(retry_after.as_secs())
}

fn within_limits(option: &'static str, timeout: Duration) -> Result<Duration, Error> {
    if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) {
        return Err(Error::config(
            option,
            format_args!(
                "is {timeout:?}; it has to be at least {SHORTEST_TIMEOUT:?} and at most \
                 {LONGEST_TIMEOUT:?}"
            ),
        ));
    }
    Ok(timeout)
}

fn address(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}/{db}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}/{db}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}?db={db}", path.display()),
        _ => "redis".to_owned(),
    }
}

/// What the client makes of a URL whose query holds only its own keys.
fn connection_info(url: &::url::Url) -> Result<ConnectionInfo, Error> {
    url.clone().into_connection_info().map_err(|error| {
        // The client's text names no part of the URL but a wrong protocol.
        Error::config("url", format_args!("is no Redis URL: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config::from_url(url).expect("a good URL")
    }

    #[test]
    fn a_lease_is_whole_seconds_and_at_least_two() {
        let config = config("redis://h");
        for bad in [0, 1, 1_999, 2_500] {
            let lease = Some(Duration::from_millis(bad));
            assert!(config.clone().retry_after(lease).is_err(), "{bad}");
        }
        let two = config.clone().retry_after(Some(Duration::from_secs(2)));
        assert_eq!(two.expect("allowed").retry_after, Some(2));
        let year = Duration::from_hours(366 * 24);
        let longest = config.clone().retry_after(Some(year));
        assert_eq!(longest.expect("allowed").retry_after, Some(31_622_400));
        for bad in [year + Duration::from_secs(1), Duration::from_secs(u64::MAX)] {
            let error = config.clone().retry_after(Some(bad)).expect_err("too long");
            let error = error.to_string();
            let parts = ["`retry_after`", &format!("{bad:?}"), "at most 31622400"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        assert_eq!(config.retry_after(None).expect("off").retry_after, None);
    }

    #[test]
    fn a_timeout_is_a_millisecond_to_an_hour() {
        for good in [Duration::from_millis(1), Duration::from_hours(1)] {
            let config = config("redis://h").response_timeout(good).expect("allowed");
            let config = config.connect_timeout(good).expect("allowed");
            assert_eq!(
                (config.response_timeout, config.connect_timeout),
                (good, good)
            );
        }
        for bad in [
            Duration::ZERO,
            Duration::from_hours(1) + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            let errors = [
                config("redis://h").response_timeout(bad),
                config("redis://h").connect_timeout(bad),
            ];
            for (error, option) in errors.into_iter().zip(["response", "connect"]) {
                let error = error.expect_err("outside").to_string();
                let option = format!("`{option}_timeout`");
                let parts = [&*option, &format!("{bad:?}"), "1ms", "3600s"];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }

    #[test]
    fn credentials_are_in_no_text() {
        let config = config("redis://alice:s3cret@h:7000/2?prefix=p:");
        let shown = format!("{config:?} {}", config.address());
        assert!(shown.contains("redis://h:7000/2"), "{shown}");
        assert!(
            !shown.contains("s3cret") && !shown.contains("alice"),
            "{shown}"
        );
    }

    #[cfg(not(feature = "cluster"))]
    #[test]
    fn a_cluster_needs_its_feature() {
        let error = config("redis://h").cluster([]).expect_err("no feature");
        assert!(error.to_string().contains("feature `cluster`"), "{error}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn nodes_share_the_credentials_of_the_first() {
        let config = config("redis://u:p@h:1?cluster=1&node=[::1]:2&node=g:3");
        let nodes: Vec<_> = config.nodes.iter().map(address).collect();
        assert_eq!(nodes, ["redis://h:1/0", "redis://::1:2/0", "redis://g:3/0"]);
        assert!(
            config
                .nodes
                .iter()
                .all(|node| node.redis_settings().password() == Some("p"))
        );
        assert!(Config::from_url("redis://h/3?cluster=1").is_err());
        assert!(Config::from_url("redis://h?cluster=1&node=nowhere").is_err());
    }
}
