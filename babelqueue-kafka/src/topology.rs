//! Whether the topics are there, and making them.

use std::time::{Duration, Instant};

use babelqueue_core::Error;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{Client, ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use crate::config::{Config, NewTopics};
use crate::error::{classified, is_missing_topic};
use crate::subscription::context::Context;

/// How often a missing topic is looked for again, and how long after the last time.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);

/// How long a question is waited for before the client's complaints are looked at.
const SLICE: Duration = Duration::from_millis(500);

/// Waits for an answer of any broker. The end of it where one refuses the login; the end of it, once
/// the time is up, where TLS fails.
pub(crate) async fn reach(config: &Config) -> Result<(), Error> {
    let within = config.connect_timeout;
    let asker = asker(config)?;
    blocking(move || {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Any topic's name will do: asking for all of them can be a long answer.
            let Err(cause) = asker.fetch_metadata(Some("babelqueue"), left.min(SLICE)) else {
                return Ok(());
            };
            hear_complaints(&asker);
            let heard = asker.context();
            if let Some(why) = heard.login_error() {
                return Err(
                    Error::refused("connect", format!("login refused: {why}")).with_source(cause)
                );
            }
            if left > SLICE {
                continue;
            }
            if let Some(why) = heard.tls_error() {
                return Err(
                    Error::refused("connect", format!("TLS failed: {why}")).with_source(cause)
                );
            }
            let why = heard.last_error().unwrap_or_default();
            let context = format!("no broker answers within {within:?} ({why})");
            return Err(Error::transient("connect", context).with_source(cause));
        }
    })
    .await?
}

/// The client tells of what it met on the way only to who polls it.
fn hear_complaints(asker: &BaseConsumer<Context>) {
    while asker.poll(Duration::ZERO).is_some() {}
}

/// Sees that all of `topics` exist, and makes those that do not where the configuration says so.
pub(crate) async fn ensure(config: &Config, topics: Vec<String>) -> Result<(), Error> {
    let missing = missing(config, topics).await?;
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
        missing = self::missing(config, missing).await?;
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

async fn missing(config: &Config, topics: Vec<String>) -> Result<Vec<String>, Error> {
    let within = config.connect_timeout;
    let asker = asker(config)?;
    blocking(move || {
        let mut missing = Vec::new();
        for topic in topics {
            let known = exists(asker.client(), &topic, within);
            let subject = || format!("topic `{topic}`");
            if !known.map_err(|cause| classified("subscribe", &subject(), cause))? {
                missing.push(topic);
            }
        }
        Ok(missing)
    })
    .await?
}

/// A client that asks. A consumer's question does not make the topic that it asks for, as a
/// producer's can.
fn asker(config: &Config) -> Result<BaseConsumer<Context>, Error> {
    config
        .consumer(&config.group)
        .create_with_context(Context::default())
        .map_err(|cause| classified("connect", "the client", cause))
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
