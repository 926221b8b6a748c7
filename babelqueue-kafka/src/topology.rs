//! Whether the topics are there, and making them.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{Client, ClientContext, DefaultClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use crate::config::{Config, NewTopics};
use crate::error::{classified, is_missing_topic};
use crate::producer::Producer;

/// How often a missing topic is looked for again, and how long after the last time.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);

/// Waits for an answer of any broker.
pub(crate) async fn reach(producer: Arc<Producer>, config: &Config) -> Result<(), Error> {
    let within = config.connect_timeout;
    let asked = blocking(move || {
        let client = producer.client();
        // Any topic's name will do: asking for all of them can be a long answer.
        client
            .fetch_metadata(Some("babelqueue"), within)
            .map(|_| ())
    })
    .await?;
    asked.map_err(|cause| {
        let context = format!(
            "no broker answers within {within:?} (a wrong password or certificate shows in no \
             other way than this)"
        );
        Error::transient("connect", context).with_source(cause)
    })
}

/// Sees that all of `topics` exist, and makes those that do not where the configuration says so.
pub(crate) async fn ensure(
    producer: Arc<Producer>,
    config: &Config,
    topics: Vec<String>,
) -> Result<(), Error> {
    let missing = missing(Arc::clone(&producer), config, topics).await?;
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(new) = config.new_topics {
        create(config, &missing, new).await?;
    }
    // Not all brokers hear at once of a topic that was just made.
    let mut missing = missing;
    for _ in 0..TRIES {
        tokio::time::sleep(PAUSE).await;
        missing = self::missing(Arc::clone(&producer), config, missing).await?;
        if missing.is_empty() {
            return Ok(());
        }
    }
    let context = format!(
        "these topics do not exist: {}. Create them, or let `Config::create_topics` do so",
        missing.join(", ")
    );
    Err(Error::refused("subscribe", context))
}

async fn missing(
    producer: Arc<Producer>,
    config: &Config,
    topics: Vec<String>,
) -> Result<Vec<String>, Error> {
    let within = config.connect_timeout;
    blocking(move || {
        let mut missing = Vec::new();
        for topic in topics {
            let known = exists(producer.client(), &topic, within);
            let subject = || format!("topic `{topic}`");
            if !known.map_err(|cause| classified("subscribe", &subject(), cause))? {
                missing.push(topic);
            }
        }
        Ok(missing)
    })
    .await?
}

/// Whether a topic exists. Blocks.
pub(crate) fn exists<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    within: Duration,
) -> Result<bool, KafkaError> {
    let metadata = client.fetch_metadata(Some(topic), within)?;
    let error = metadata.topics().first().and_then(MetadataTopic::error);
    match error.map(RDKafkaErrorCode::from) {
        None => Ok(true),
        Some(code) if is_missing_topic(code) => Ok(false),
        Some(code) => Err(KafkaError::MetadataFetch(code)),
    }
}

async fn create(config: &Config, topics: &[String], new: NewTopics) -> Result<(), Error> {
    let admin: AdminClient<DefaultClientContext> = config
        .producer()
        .create()
        .map_err(|cause| classified("create topics", "the admin client", cause))?;
    let wanted: Vec<NewTopic<'_>> = topics
        .iter()
        .map(|topic| {
            NewTopic::new(
                topic,
                new.partitions,
                TopicReplication::Fixed(new.replication),
            )
        })
        .collect();
    let options = AdminOptions::new().operation_timeout(Some(config.connect_timeout));
    let made = admin.create_topics(&wanted, &options).await;
    for made in made.map_err(|cause| classified("create topics", &topics.join(", "), cause))? {
        match made {
            // Another worker was quicker.
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                let subject = format!("topic `{topic}`");
                return Err(classified(
                    "create topics",
                    &subject,
                    KafkaError::AdminOpCreation(code.to_string()),
                ));
            }
        }
    }
    Ok(())
}

/// Runs a call of the client that blocks where it may block.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|cause| Error::transient("connect", "the call was lost").with_source(cause))
}
