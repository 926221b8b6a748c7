//! Publishing: typed messages, one or many.
//!
//! ```no_run
//! use std::time::Duration;
//! use babelqueue_core::producer::Producer;
//! use babelqueue_core::urn::Message;
//! # use babelqueue_core::transport::Transport;
//!
//! #[derive(serde::Serialize)]
//! struct OrderCreated { order_id: u64 }
//!
//! impl Message for OrderCreated {
//!     const URN: &'static str = "urn:babel:orders:created";
//! }
//!
//! # async fn publish(transport: impl Transport) -> Result<(), babelqueue_core::Error> {
//! let producer = Producer::new(transport).queue("orders");
//! let id = producer.publish(&OrderCreated { order_id: 1042 }).await?;
//! println!("published {id}");
//!
//! producer
//!     .message(&OrderCreated { order_id: 1043 })
//!     .delay(Duration::from_mins(1))
//!     .header("tenant", "acme")
//!     .send()
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod draft;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tracing::warn;

pub use draft::{Draft, MessageId};

use crate::clock::{Clock, SystemClock};
use crate::envelope::Envelope;
use crate::handler::Context;
use crate::schema::{self, Provider};
use crate::transport::{Outgoing, PublishOptions, Transport};
use crate::urn::Message;
use crate::{Error, Headers};

/// Publishes messages to a queue.
///
/// Cheap to clone; the clones share the transport.
#[derive(Clone)]
pub struct Producer {
    outlet: Arc<Outlet>,
    queue: Arc<str>,
    trace_id: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    schemas: Option<Arc<dyn Provider>>,
}

/// What the clones of a producer share.
struct Outlet {
    transport: Arc<dyn Transport>,
    /// Whether the one warning about headers that cannot be carried has been given.
    warned: AtomicBool,
}

impl Producer {
    /// A producer that publishes over `transport` to the queue `default` (contract §7.1).
    pub fn new(transport: impl Transport) -> Self {
        Self::shared(Arc::new(transport))
    }

    /// The same over a transport whose type is erased already.
    pub fn shared(transport: Arc<dyn Transport>) -> Self {
        Self {
            outlet: Arc::new(Outlet {
                transport,
                warned: AtomicBool::new(false),
            }),
            queue: Arc::from("default"),
            trace_id: None,
            clock: Arc::new(SystemClock),
            schemas: None,
        }
    }

    /// Publishes to this queue. It is also what `meta.queue` says (contract §5.5).
    #[must_use]
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Reads `meta.created_at` from this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks each message against the schema of its URN before it is sent (contract §17A). What
    /// breaks its schema is refused with [`Error::Message`], and
    /// [`InvalidPayload`](crate::schema::InvalidPayload) as its source.
    #[must_use]
    pub fn schemas(mut self, schemas: Arc<dyn Provider>) -> Self {
        self.schemas = Some(schemas);
        self
    }

    /// Gives this trace id to every message that is not given one of its own, instead of a new one
    /// each.
    #[must_use]
    pub fn trace_id(mut self, trace_id: impl Into<Arc<str>>) -> Self {
        self.trace_id = Some(trace_id.into());
        self
    }

    /// A producer whose messages carry on the trace id of the one being handled (contract §5.5).
    /// [`Context::producer`] is the shorter way where the producer is in the worker's state.
    #[must_use]
    pub fn continuing(&self, context: &Context) -> Self {
        let mut continuing = self.clone();
        if let Some(trace_id) = context.trace_id() {
            continuing.trace_id = Some(Arc::from(&*trace_id));
        }
        continuing
    }

    /// Publishes one message, and gives its `meta.id` when the broker has confirmed it.
    ///
    /// # Errors
    ///
    /// [`Error::Message`] where it cannot be encoded; else the transport's own.
    pub async fn publish<M: Message + Serialize>(&self, message: &M) -> Result<MessageId, Error> {
        self.message(message).send().await
    }

    /// Publishes `data` under a URN that is known only at run time.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish); also where the URN is blank, or `data` is no JSON object.
    pub async fn publish_urn(
        &self,
        urn: &str,
        data: &(impl Serialize + ?Sized),
    ) -> Result<MessageId, Error> {
        self.message_urn(urn, data).send().await
    }

    /// Publishes many messages of one type in one go. One result each, in their order: what one
    /// message lacks stops no other.
    pub async fn publish_all<'m, M: Message + Serialize + 'm>(
        &self,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Vec<Result<MessageId, Error>> {
        let drafts: Vec<_> = messages.into_iter().map(|one| self.message(one)).collect();
        self.send_all(drafts).await
    }

    /// Publishes an envelope that is ready, byte for byte, to this producer's queue; `meta.queue`
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Message`] where it may not be sent (contract §3.1), or its data breaks its schema;
    /// [`Error::Config`] where the queue's name is empty; else the transport's own.
    pub async fn publish_envelope(
        &self,
        envelope: &Envelope,
        headers: Headers,
        options: PublishOptions,
    ) -> Result<MessageId, Error> {
        if self.queue.is_empty() {
            return Err(Error::config("queue", "is empty, expected a name"));
        }
        self.check_payload(envelope)?;
        let parcel = Parcel {
            id: MessageId::of(envelope),
            outgoing: Outgoing {
                queue: Arc::clone(&self.queue),
                body: envelope.encode()?,
                headers,
                options,
            },
        };
        self.deliver_one(parcel).await
    }

    fn check_payload(&self, envelope: &Envelope) -> Result<(), Error> {
        match &self.schemas {
            Some(schemas) => Ok(schema::check(&**schemas, envelope)?),
            None => Ok(()),
        }
    }

    /// A message to add options to before it is sent.
    pub fn message<M: Message + Serialize>(&self, message: &M) -> Draft {
        Draft::new(self.clone(), Envelope::of(message))
    }

    /// The same under a URN that is known only at run time.
    pub fn message_urn(&self, urn: &str, data: &(impl Serialize + ?Sized)) -> Draft {
        Draft::new(self.clone(), Envelope::builder(urn.to_owned()).data(data))
    }

    /// Sends many drafts, of any types and to any queues, in one go over this producer's transport.
    /// One result each, in their order.
    pub async fn send_all(
        &self,
        drafts: impl IntoIterator<Item = Draft>,
    ) -> Vec<Result<MessageId, Error>> {
        let mut results = Vec::new();
        let mut batch = Vec::new();
        for draft in drafts {
            results.push(draft.prepare().map(|parcel| {
                batch.push(self.stripped(parcel.outgoing));
                parcel.id
            }));
        }
        if batch.is_empty() {
            return results;
        }
        let mut answers = self.outlet.transport.publish(batch).await.into_iter();
        for result in &mut results {
            if result.is_ok()
                && let Err(error) = answers.next().unwrap_or_else(|| Err(no_answer()))
            {
                *result = Err(error);
            }
        }
        results
    }

    async fn deliver_one(&self, parcel: Parcel) -> Result<MessageId, Error> {
        let batch = vec![self.stripped(parcel.outgoing)];
        let answer = self.outlet.transport.publish(batch).await.pop();
        answer.unwrap_or_else(|| Err(no_answer()))?;
        Ok(parcel.id)
    }

    /// Leaves out headers that the transport cannot carry (contract §10.1).
    fn stripped(&self, mut outgoing: Outgoing) -> Outgoing {
        let capabilities = self.outlet.transport.capabilities();
        if !capabilities.headers && !outgoing.headers.is_empty() {
            outgoing.headers = Headers::new();
            if !self.outlet.warned.swap(true, Ordering::Relaxed) {
                warn!(
                    broker = capabilities.broker,
                    queue = &*outgoing.queue,
                    "headers cannot be carried here and are left out; said once"
                );
            }
        }
        outgoing
    }
}

/// A message that is encoded and addressed.
struct Parcel {
    id: MessageId,
    outgoing: Outgoing,
}

fn no_answer() -> Error {
    Error::transient("publish", "the transport gave no answer for this message")
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("broker", &self.outlet.transport.capabilities().broker)
            .field("queue", &self.queue)
            .field("trace_id", &self.trace_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
