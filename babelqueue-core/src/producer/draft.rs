use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::{Parcel, Producer};
use crate::envelope::{Envelope, EnvelopeBuilder};
use crate::transport::{Outgoing, PublishOptions};
use crate::{Error, Headers};

/// The `meta.id` of a published message: what deduplication goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(String);

impl MessageId {
    /// The id as it stands in the envelope.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The envelope's id; empty where it has none.
    pub(super) fn of(envelope: &Envelope) -> Self {
        Self(envelope.id().unwrap_or_default().into_owned())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.0
    }
}

/// A message that is still being put together ([`Producer::message`]). Nothing is sent before
/// [`send`](Self::send).
#[derive(Debug)]
#[must_use = "a draft does nothing until it is sent"]
pub struct Draft {
    producer: Producer,
    envelope: EnvelopeBuilder<'static>,
    queue: Option<Arc<str>>,
    trace_id: Option<String>,
    headers: Headers,
    options: PublishOptions,
}

impl Draft {
    pub(super) fn new(producer: Producer, envelope: EnvelopeBuilder<'static>) -> Self {
        Self {
            producer,
            envelope,
            queue: None,
            trace_id: None,
            headers: Headers::new(),
            options: PublishOptions::new(),
        }
    }

    /// Sends it to this queue instead of the producer's.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Gives it this trace id. Blank is none: a new one is made (contract §5.2).
    pub fn trace_id(mut self, trace_id: impl Into<String>) -> Self {
        self.trace_id = Some(trace_id.into());
        self
    }

    /// Adds an extension member to `meta` (contract §5.4). A core key, a forbidden one, or the same
    /// one twice makes [`send`](Self::send) fail.
    pub fn meta(mut self, key: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        self.envelope = self.envelope.meta(key, value);
        self
    }

    /// Sets a header (contract §10). A blank name or value is left out, and so is every header where
    /// the broker carries none.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets all of these headers.
    pub fn headers(mut self, headers: &Headers) -> Self {
        for (name, value) in headers.iter() {
            self.headers.insert(name, value);
        }
        self
    }

    /// Has it delivered no sooner than this from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay = Some(delay);
        self
    }

    /// Sets the partition or routing key of Kafka and Pulsar.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// Sets the message group or session: its members are handled one after another.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.options.group = Some(group.into());
        self
    }

    /// Replaces all publish options, [`delay`](Self::delay) included. One that the broker lacks is
    /// an error, never ignored.
    pub fn options(mut self, options: PublishOptions) -> Self {
        self.options = options;
        self
    }

    /// Publishes it, and gives its `meta.id` when the broker has confirmed it.
    ///
    /// # Errors
    ///
    /// [`Error::Message`] where it cannot be encoded: a blank URN, data that is no JSON object, a
    /// meta key that is taken, or data that breaks its schema. Else the transport's own: [`Error::Unsupported`] for an option that
    /// it lacks.
    pub async fn send(self) -> Result<super::MessageId, Error> {
        let producer = self.producer.clone();
        producer.deliver_one(self.prepare()?).await
    }

    pub(super) fn prepare(self) -> Result<Parcel, Error> {
        let producer = self.producer;
        let queue = self.queue.unwrap_or_else(|| Arc::clone(&producer.queue));
        let mut envelope = self.envelope.queue(&*queue).clock(&*producer.clock);
        let inherited = || producer.trace_id.as_deref().map(str::to_owned);
        if let Some(trace_id) = self.trace_id.or_else(inherited) {
            envelope = envelope.trace_id(trace_id);
        }
        let envelope = envelope.build()?;
        producer.check_payload(&envelope)?;
        Ok(Parcel {
            id: MessageId::of(&envelope),
            outgoing: Outgoing {
                queue,
                body: envelope.into_bytes(),
                headers: self.headers,
                options: self.options,
            },
        })
    }
}
