//! The Kafka that the tests talk to.

use std::time::Duration;

use babelqueue_kafka::{Config, Kafka};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

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

/// A configuration for it with short patience: it is on this machine. The group is the test's own.
pub(crate) fn config(unique: &str) -> Config {
    Config::new(servers())
        .group(format!("g-{unique}"))
        .reinject_group(format!("r-{unique}"))
        .connect_timeout(Duration::from_secs(5))
        .property("session.timeout.ms", "6000")
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
    for made in admin(servers)?.create_topics([&topic], &options()).await? {
        made.map_err(|(topic, code)| Fault::from(format!("{topic}: {code}")))?;
    }
    Ok(())
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

fn admin(servers: &str) -> Result<AdminClient<DefaultClientContext>, Fault> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)))
}
