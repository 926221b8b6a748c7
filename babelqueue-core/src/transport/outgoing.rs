use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Headers;

/// One message on its way to a broker.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The logical name of the target queue.
    pub queue: Arc<str>,
    /// The encoded envelope.
    pub body: Bytes,
    /// What travels beside it (contract §10).
    pub headers: Headers,
    /// What only some brokers can do.
    pub options: PublishOptions,
}

impl Outgoing {
    /// A message without headers or options.
    pub fn new(queue: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        Self {
            queue: queue.into(),
            body: body.into(),
            headers: Headers::new(),
            options: PublishOptions::default(),
        }
    }
}

/// Options that only some brokers have; a transport refuses those that it lacks with
/// [`Error::Unsupported`](crate::Error::Unsupported) and sends nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishOptions {
    /// Deliver no sooner than this from now.
    pub delay: Option<Duration>,
    /// The partition or routing key of Kafka and Pulsar. An empty key is a key.
    pub key: Option<Bytes>,
    /// The partition of a Kafka topic.
    pub partition: Option<i32>,
    /// The message group (SQS FIFO, Artemis, memory) or session (Service Bus): its members are
    /// handled one after another.
    pub group: Option<String>,
    /// SQS FIFO's deduplication id, in place of `meta.id`.
    pub deduplication_id: Option<String>,
    /// A priority, higher first.
    pub priority: Option<u8>,
    /// How long the broker keeps it.
    pub time_to_live: Option<Duration>,
}

impl PublishOptions {
    /// No option at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`delay`](Self::delay).
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets [`key`](Self::key).
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets [`partition`](Self::partition).
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Sets [`group`](Self::group).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets [`deduplication_id`](Self::deduplication_id).
    #[must_use]
    pub fn deduplication_id(mut self, id: impl Into<String>) -> Self {
        self.deduplication_id = Some(id.into());
        self
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets [`time_to_live`](Self::time_to_live).
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = Some(time_to_live);
        self
    }
}
