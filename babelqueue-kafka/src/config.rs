use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::clock::{Clock, SystemClock};
use babelqueue_core::transport::{Capabilities, Delay, Prefetch, PublishFeatures, Rules};
use rdkafka::ClientConfig;

use crate::tiers::RetryTiers;

/// Which records are handled one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// Those of a partition: as many handlers as there are partitions.
    #[default]
    Partition,
    /// Those of a key: one partition feeds many handlers. Records without a key have no order.
    Key,
}

/// How topics that are missing at the start are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTopics {
    /// The partitions of each.
    pub partitions: i32,
    /// The replicas of each partition; −1 for the broker's default.
    pub replication: i32,
}

/// Everything that a connection to Kafka can be told. Each setting has the contract's default.
///
/// ```
/// use std::time::Duration;
/// use babelqueue_kafka::{Config, Order, RetryTiers};
///
/// let config = Config::new("127.0.0.1:9092")
///     .group("billing")
///     .order(Order::Key)
///     .retry_tiers(RetryTiers::recommended())
///     .property("client.id", "billing-1");
/// # let _ = config;
/// ```
///
/// The same as a URL: `kafka://127.0.0.1:9092/?group=billing&order=key&retry_tiers=5000,30000&client.id=billing-1`.
#[derive(Clone)]
pub struct Config {
    servers: String,
    pub(crate) group: String,
    pub(crate) order: Order,
    pub(crate) tiers: RetryTiers,
    pub(crate) reinjector: bool,
    pub(crate) reinject_group: String,
    pub(crate) new_topics: Option<NewTopics>,
    pub(crate) commit_interval: Duration,
    pub(crate) revoke_timeout: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    properties: BTreeMap<String, String>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The group of a worker that names none (contract §16.2).
pub const DEFAULT_GROUP: &str = "babelqueue";

/// The group of the re-injectors (contract §16.7).
pub const REINJECT_GROUP: &str = "babelqueue-retry-reinject";

/// Properties that the transport's own promises rest on.
const OURS: [(&str, &str); 4] = [
    ("bootstrap.servers", "give them to `Config::new`"),
    ("group.id", "use `Config::group`"),
    ("enable.auto.commit", "commits follow the settlements"),
    ("enable.auto.offset.store", "commits follow the settlements"),
];

impl Config {
    /// The brokers to ask first, as `host:port`, several with commas between.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            group: DEFAULT_GROUP.to_owned(),
            order: Order::default(),
            tiers: RetryTiers::NONE,
            reinjector: true,
            reinject_group: REINJECT_GROUP.to_owned(),
            new_topics: None,
            commit_interval: Duration::from_millis(200),
            revoke_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            properties: BTreeMap::new(),
            clock: Arc::new(SystemClock),
        }
    }

    /// The consumer group; [`DEFAULT_GROUP`] where it is not set.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Which records are handled one after another; those of a partition where it is not set.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The retry tiers. Without them, which is the default, nothing can be delayed, and **a message
    /// whose handler fails is tried again at once and for ever, and holds its lane**, unless its
    /// first attempt is its last (contract §16.5).
    pub fn retry_tiers(mut self, tiers: RetryTiers) -> Self {
        self.tiers = tiers;
        self
    }

    /// Whether a worker also runs the re-injector of its queue's tiers. On by default where tiers
    /// are set; switch it off where [`Reinjector`](crate::Reinjector) runs as a program of its own.
    pub fn reinjector(mut self, beside_the_worker: bool) -> Self {
        self.reinjector = beside_the_worker;
        self
    }

    /// The group of the re-injectors; [`REINJECT_GROUP`] where it is not set. One for all of a
    /// cluster's queues will do; one of its own keeps a queue out of the others' rebalances.
    pub fn reinject_group(mut self, group: impl Into<String>) -> Self {
        self.reinject_group = group.into();
        self
    }

    /// Makes the topics that are missing when a worker starts: the queue's, its tiers' and its
    /// dead-letter queue's. By default a missing one is an error.
    pub fn create_topics(mut self, topics: NewTopics) -> Self {
        self.new_topics = Some(topics);
        self
    }

    /// How often progress is committed, 200 ms by default. What a worker settled since the last
    /// commit runs again when it is killed.
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// How long a partition that goes to another member waits for its running handlers, 10 s by
    /// default. Then they are given up, and their messages run again over there.
    pub fn revoke_timeout(mut self, timeout: Duration) -> Self {
        self.revoke_timeout = timeout;
        self
    }

    /// How long a written record may take to be confirmed, 30 s by default (contract §16.6).
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// How long connecting and the checks at the start may take, 10 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A property of the client library itself (librdkafka), for producer and consumers alike:
    /// `security.protocol`, `sasl.password`, `group.protocol` … It wins over our own defaults.
    /// Those that only one of the two knows are given to that one.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// The clock that delays are counted by.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What a connection with this configuration can do.
    pub fn capabilities(&self) -> Capabilities {
        let (rules, delay) = if self.tiers.is_empty() {
            (Rules::KAFKA, Delay::Unsupported)
        } else {
            (Rules::KAFKA_WITH_TIERS, Delay::Tiers)
        };
        let mut options = PublishFeatures::NONE;
        (options.key, options.partition) = (true, true);
        let mut capabilities = Capabilities::new(crate::BROKER, rules);
        capabilities.delay = delay;
        capabilities.headers = true;
        capabilities.lanes = true;
        capabilities.prefetch = Prefetch::Deep;
        capabilities.publish_batch = 10_000;
        capabilities.receive_batch = 4_096;
        // Acknowledgements are noted as a call begins. The rest are copies, of which the client makes
        // requests whichever call they are from: more calls at once were faster up to some 16, and no
        // slower beyond.
        capabilities.settle_calls = 64;
        capabilities.options = options;
        capabilities
    }

    /// Finds what cannot be.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.servers.trim().is_empty() {
            return Err(Error::config("servers", "is empty: expected host:port"));
        }
        if self.group.is_empty() {
            return Err(Error::config("group", "is empty: expected a group's name"));
        }
        for (name, instead) in OURS {
            if self.properties.contains_key(name) {
                let problem = format!("`{name}` cannot be set: {instead}");
                return Err(Error::config("property", problem));
            }
        }
        Ok(())
    }

    /// The producer's own configuration: every write confirmed by all replicas, once, in order.
    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // Five times better for a lone message, and no worse in bulk.
            .set("linger.ms", "0")
            .set("message.timeout.ms", millis(self.confirm_timeout))
            // How long a topic may be missing before a publish says so: with the default of 30 s the
            // publish had timed out by then, which reads as if a retry could mend it.
            .set(
                "topic.metadata.propagation.max.ms",
                millis(LONGEST_MISSING.min(self.confirm_timeout / 4)),
            )
            .set("reconnect.backoff.max.ms", "500");
        self.apply(&mut config, CONSUMER_ONLY);
        config
    }

    /// A consumer's own configuration.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            // The default of a second stalls a partition that was full for that long.
            .set("fetch.queue.backoff.ms", "5")
            // One fetch is under way at a time, and one of partitions that have nothing waits this
            // long: with the default of 500 those that were full when it went out ran dry.
            .set("fetch.wait.max.ms", "100")
            // Counted for each partition, as each has a queue of its own.
            .set("queued.max.messages.kbytes", "8192")
            .set("reconnect.backoff.max.ms", "500");
        self.apply(&mut config, PRODUCER_ONLY);
        config
    }

    fn apply(&self, config: &mut ClientConfig, not_these: &[&str]) {
        for (name, value) in &self.properties {
            if !not_these.contains(&name.as_str()) {
                config.set(name, value);
            }
        }
    }
}

/// A new topic is known everywhere by then.
const LONGEST_MISSING: Duration = Duration::from_secs(5);

/// librdkafka warns of a property that the other kind of client has; these are the common ones.
const CONSUMER_ONLY: &[&str] = &[
    "auto.offset.reset",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "session.timeout.ms",
];
const PRODUCER_ONLY: &[&str] = &[
    "acks",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "message.send.max.retries",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.linger.ms",
];

/// `kafka://[user:password@]host:port[,host:port …][/][?…]`. Own query keys: `group`, `order`
/// (`partition`, `key`), `retry_tiers` (milliseconds, commas between), `reinjector` (`true`,
/// `false`), `create_topics` (a number of partitions); every other with a dot in its name is a
/// [property](Config::property) of the client. User and password mean SASL with mechanism PLAIN,
/// unless `sasl.mechanism` says otherwise.
impl FromStr for Config {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        let rest = url
            .strip_prefix("kafka://")
            .ok_or_else(|| Error::config("url", "does not begin with `kafka://`"))?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let address = address.trim_end_matches('/');
        let (login, servers) = match address.rsplit_once('@') {
            Some((login, servers)) => (Some(login), servers),
            None => (None, address),
        };
        let mut config = Self::new(servers);
        if let Some(login) = login {
            config = config.login(login)?;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            config = config.query(&decoded(name)?, &decoded(value)?)?;
        }
        config.validate()?;
        Ok(config)
    }
}

impl Config {
    fn login(self, login: &str) -> Result<Self, Error> {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Ok(self
            .property("security.protocol", "SASL_PLAINTEXT")
            .property("sasl.mechanism", "PLAIN")
            .property("sasl.username", decoded(user)?)
            .property("sasl.password", decoded(password)?))
    }

    fn query(self, name: &str, value: &str) -> Result<Self, Error> {
        match name {
            "group" => Ok(self.group(value)),
            "order" => match value {
                "partition" => Ok(self.order(Order::Partition)),
                "key" => Ok(self.order(Order::Key)),
                _ => Err(not_one_of("order", value, "partition or key")),
            },
            "reinjector" => match value {
                "true" => Ok(self.reinjector(true)),
                "false" => Ok(self.reinjector(false)),
                _ => Err(not_one_of("reinjector", value, "true or false")),
            },
            "retry_tiers" => {
                let tiers: Result<Vec<Duration>, Error> = value
                    .split(',')
                    .map(|ms| match ms.trim().parse() {
                        Ok(ms) => Ok(Duration::from_millis(ms)),
                        Err(_) => Err(not_one_of("retry_tiers", ms, "milliseconds")),
                    })
                    .collect();
                Ok(self.retry_tiers(RetryTiers::new(tiers?)?))
            }
            "create_topics" => match value.parse() {
                Ok(partitions) => Ok(self.create_topics(NewTopics {
                    partitions,
                    replication: -1,
                })),
                Err(_) => Err(not_one_of("create_topics", value, "a number of partitions")),
            },
            _ if name.contains('.') => Ok(self.property(name, value)),
            _ => {
                let problem = format!(
                    "has the unknown key `{name}`: expected group, order, retry_tiers, \
                     reinjector, create_topics, or a property of the client with a dot in its name"
                );
                Err(Error::config("url", problem))
            }
        }
    }
}

/// Properties by name only: their values may be secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.servers)
            .field("group", &self.group)
            .field("order", &self.order)
            .field("retry_tiers", &self.tiers)
            .field("properties", &self.properties.keys())
            .finish_non_exhaustive()
    }
}

fn not_one_of(option: &'static str, value: &str, expected: &str) -> Error {
    Error::config(option, format!("is `{value}`: expected {expected}"))
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// `text` with its `%XX` resolved.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let pair = (digit(bytes.next()), digit(bytes.next()));
        let value = match pair {
            (Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        // The text may be a password: it is not shown.
        decoded.push(value.ok_or_else(|| {
            Error::config("url", "has a `%` that two hexadecimal digits do not follow")
        })?);
    }
    String::from_utf8(decoded).map_err(|_| Error::config("url", "has an escape that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_the_builder_says() {
        let url = "kafka://bob:p%40ss@a:1,b:2/?group=g&order=key&retry_tiers=5,10&reinjector=false\
                   &security.protocol=SASL_SSL&linger.ms=3";
        let config: Config = url.parse().unwrap();
        assert_eq!(config.servers, "a:1,b:2");
        assert_eq!((config.group.as_str(), config.order), ("g", Order::Key));
        assert_eq!((config.tiers.len(), config.reinjector), (2, false));
        let producer = config.producer();
        assert_eq!(producer.get("sasl.password"), Some("p@ss"));
        assert_eq!(producer.get("security.protocol"), Some("SASL_SSL"));
        assert_eq!(producer.get("linger.ms"), Some("3"));
        assert_eq!(config.consumer("g").get("linger.ms"), None);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (url, option) in [
            ("redis://a", "url"),
            ("kafka://", "servers"),
            ("kafka://a:1?group=", "group"),
            ("kafka://a:1?order=both", "order"),
            ("kafka://a:1?retry_tiers=5,x", "retry_tiers"),
            ("kafka://a:1?retry_tiers=5,5", "retry_tiers"),
            ("kafka://a:1?reinjector=1", "reinjector"),
            ("kafka://a:1?create_topics=many", "create_topics"),
            ("kafka://a:1?groop=x", "url"),
            ("kafka://a:1?group=%4", "url"),
            ("kafka://a:1?group.id=x", "property"),
            ("kafka://a:1?enable.auto.commit=true", "property"),
        ] {
            match url.parse::<Config>() {
                Err(Error::Config { option: named, .. }) => assert_eq!(named, option, "{url}"),
                other => panic!("{url}: {other:?}"),
            }
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let config: Config = "kafka://bob:hunter2@a:1?ssl.key.password=hunter3"
            .parse()
            .unwrap();
        let shown = format!("{config:?}");
        assert!(
            shown.contains("ssl.key.password") && !shown.contains("hunter"),
            "{shown}"
        );
    }
}
