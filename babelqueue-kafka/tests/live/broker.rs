//! The Kafka that the tests talk to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use babelqueue_kafka::{Config, Kafka};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::MetadataTopic;

use crate::Fault;

/// Where it is, if not at the default.
pub(crate) const VARIABLE: &str = "BQ_KAFKA_URL";

/// Its address.
pub(crate) fn servers() -> String {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| "kafka://127.0.0.1:19092".to_owned());
    url.trim_start_matches("kafka://").to_owned()
}

/// One that a test may kill, and how.
pub(crate) struct Mortal {
    pub(crate) servers: String,
    xtask: String,
}

impl Mortal {
    pub(crate) fn find() -> Result<Self, Fault> {
        let variable = |name| {
            std::env::var(name)
                .map_err(|_| Fault::NoBroker(format!("no Kafka to kill: {name} is not set")))
        };
        Ok(Self {
            servers: variable("BQ_KAFKA_MORTAL_URL")?
                .trim_start_matches("kafka://")
                .to_owned(),
            xtask: variable("BQ_XTASK")?,
        })
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&self) -> Result<(), Fault> {
        self.brokers("kill")
    }

    /// Starts it again with its data.
    pub(crate) fn up(&self) -> Result<(), Fault> {
        self.brokers("up")
    }

    fn brokers(&self, step: &str) -> Result<(), Fault> {
        let output = std::process::Command::new(&self.xtask)
            .args(["brokers", step, "kafka-mortal"])
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}

/// A configuration for it. The group is the test's own. A member that the machine has no time for is
/// not taken for dead: a test that wants that says so.
pub(crate) fn config(unique: &str) -> Config {
    Config::new(servers())
        .group(format!("g-{unique}"))
        .reinject_group(format!("r-{unique}"))
        .connect_timeout(Duration::from_mins(1))
        .property("session.timeout.ms", "60000")
        // A member hears of a rebalance with its heartbeat.
        .property("heartbeat.interval.ms", "500")
}

/// A connection, or in words why there is none.
pub(crate) async fn connect(config: Config) -> Result<Kafka, Fault> {
    // The client takes its time with an address where nobody is.
    let address = servers();
    if let Err(error) = tokio::net::TcpStream::connect(&address).await {
        let why = format!("no Kafka at {address} ({VARIABLE}): {error}");
        return Err(Fault::NoBroker(why));
    }
    Ok(Kafka::open(config).await?)
}

/// Makes a topic, as the tests' administrator.
pub(crate) async fn create(topic: &str, partitions: i32) -> Result<(), Fault> {
    create_at(&servers(), topic, partitions).await
}

/// The same at another broker.
pub(crate) async fn create_at(servers: &str, topic: &str, partitions: i32) -> Result<(), Fault> {
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let admin = admin(servers)?;
    for made in admin.create_topics([&topic], &options()).await? {
        made.map_err(|(topic, code)| Fault::from(format!("{topic}: {code}")))?;
    }
    // Made, and not known to the broker's clients yet.
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let (asked, name) = (admin.clone(), topic.name.to_owned());
        let known = tokio::task::spawn_blocking(move || is_known(&asked, &name, partitions));
        if known.await.map_err(|error| error.to_string())? {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{} is not known after a minute", topic.name).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes topics.
pub(crate) async fn remove(topics: &[&str]) -> Result<(), Fault> {
    // One that was never made is as good as removed.
    admin(&servers())?.delete_topics(topics, &options()).await?;
    Ok(())
}

/// A name that no other run uses.
pub(crate) fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..12].to_owned()
}

type Admin = AdminClient<DefaultClientContext>;

/// Whether all partitions of a topic have a leader. Blocks.
fn is_known(admin: &Admin, topic: &str, partitions: i32) -> bool {
    let within = Duration::from_secs(10);
    let Ok(metadata) = admin.inner().fetch_metadata(Some(topic), within) else {
        return false;
    };
    let topics = metadata.topics().iter();
    let led = topics.flat_map(MetadataTopic::partitions);
    let led = led.filter(|partition| partition.leader() >= 0 && partition.error().is_none());
    i32::try_from(led.count()) == Ok(partitions)
}

fn admin(servers: &str) -> Result<Arc<Admin>, Fault> {
    let admin: Admin = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()?;
    Ok(Arc::new(admin))
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(Duration::from_mins(1)))
        .operation_timeout(Some(Duration::from_mins(1)))
}
