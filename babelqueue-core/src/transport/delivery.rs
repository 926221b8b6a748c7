use std::any::Any;
use std::cmp;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Headers;

/// One message as a broker handed it out, with everything that its settlement needs.
///
/// Shared (`Arc`) by the worker, the handler's task and the transport. Only two things about it
/// change: the end of its lease, and whether it is lost.
pub struct Delivery {
    /// The logical name of the queue that it was consumed from.
    pub queue: Arc<str>,
    /// The received bytes; nothing is assumed of them.
    pub body: Bytes,
    /// What travelled beside the body, without the binding's own properties (contract §10.2).
    pub headers: Headers,
    /// The partition or routing key; null and empty differ.
    pub key: Option<Bytes>,
    /// What the broker itself says of it.
    pub facts: Facts,
    /// Its lane, where its handler must not overlap with its neighbours' (a Kafka partition or key,
    /// an SQS FIFO group, a session).
    pub lane: Option<Lane>,
    /// What a settlement is fenced with.
    pub fence: Fence,
    native: Option<Box<dyn Any + Send + Sync>>,
    received: Instant,
    /// Nanoseconds from `received` to the lease's end; `NO_LEASE` where there is none.
    lease: AtomicU64,
    lost: AtomicBool,
    lost_wakeup: Notify,
}

const NO_LEASE: u64 = u64::MAX;

impl Delivery {
    /// A delivery received now, without headers, key, facts, lane, lease or fence.
    pub fn new(queue: Arc<str>, body: Bytes) -> Self {
        Self::received_at(queue, body, Instant::now())
    }

    /// The same, received at `received`: one reading of the clock for a batch.
    pub fn received_at(queue: Arc<str>, body: Bytes, received: Instant) -> Self {
        Self {
            queue,
            body,
            headers: Headers::new(),
            key: None,
            facts: Facts::default(),
            lane: None,
            fence: Fence::default(),
            native: None,
            received,
            lease: AtomicU64::new(NO_LEASE),
            lost: AtomicBool::new(false),
            lost_wakeup: Notify::new(),
        }
    }

    /// The same with what its own transport alone understands: a receipt handle, a delivery tag, the
    /// native properties that a copy has to carry.
    #[must_use]
    pub fn with_native(mut self, native: impl Any + Send + Sync) -> Self {
        self.native = Some(Box::new(native));
        self
    }

    /// Becomes `next`, with this `native`, in the memory that it has: for a transport that makes very
    /// many, once nobody else holds the one that it was ([`Arc::get_mut`]).
    pub fn become_next<N: Any + Send + Sync>(&mut self, next: Self, native: N) {
        let place = self.native.take();
        *self = next;
        self.native = match place.map(<Box<dyn Any + Send + Sync>>::downcast) {
            Some(Ok(mut place)) => {
                *place = native;
                Some(place)
            }
            _ => Some(Box::new(native)),
        };
    }

    /// The same with a lease that ends at `end`.
    #[must_use]
    pub fn with_lease(self, end: Instant) -> Self {
        self.set_lease_end(end);
        self
    }

    /// What [`with_native`](Self::with_native) put here, if it is a `T`.
    pub fn native<T: Any>(&self) -> Option<&T> {
        self.native
            .as_deref()
            .and_then(<dyn Any + Send + Sync>::downcast_ref)
    }

    /// When it came in.
    pub fn received(&self) -> Instant {
        self.received
    }

    /// When its lease ends by our clock, or `None` where the broker has no lease.
    pub fn lease_end(&self) -> Option<Instant> {
        match self.lease.load(Ordering::Acquire) {
            NO_LEASE => None,
            nanos => Some(self.received + Duration::from_nanos(nanos)),
        }
    }

    /// Moves the end of its lease. An end before the receipt counts as the receipt.
    pub fn set_lease_end(&self, end: Instant) {
        let nanos = end.saturating_duration_since(self.received).as_nanos();
        let nanos = u64::try_from(nanos)
            .unwrap_or(NO_LEASE - 1)
            .min(NO_LEASE - 1);
        self.lease.store(nanos, Ordering::Release);
    }

    /// Whether its lease has passed by our clock; `false` where there is none.
    pub fn lease_is_over(&self) -> bool {
        self.lease_end().is_some_and(|end| end <= Instant::now())
    }

    /// Marks it lost: its lease, lane or connection is gone, and the broker gives the message out
    /// again. For the transport alone; it cannot be undone.
    pub fn mark_lost(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.lost_wakeup.notify_waiters();
        }
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits until it is lost; for ever where it never is.
    pub async fn lost(&self) {
        let wakeup = self.lost_wakeup.notified();
        tokio::pin!(wakeup);
        // Registered before the flag is read: a mark in between must not be missed.
        wakeup.as_mut().enable();
        if !self.is_lost() {
            wakeup.await;
        }
    }
}

/// The body is shown by length: it is the user's data.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("queue", &self.queue)
            .field("body_len", &self.body.len())
            .field("facts", &self.facts)
            .field("lane", &self.lane)
            .field("fence", &self.fence)
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// What the broker itself says of a delivery, apart from the body; which of it counts, and how, is
/// the binding's [`Rules`](super::Rules).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// How often the broker has given the message out *before*, by its own count (SQS receive count
    /// − 1, Service Bus `delivery-count` header, Pulsar redelivery count …).
    pub deliveries: Option<u32>,
    /// The attempts property that travelled beside the body (`x-attempts`, `bq-attempts`,
    /// `bq_attempts`), where it is a valid count.
    pub attempts: Option<u32>,
    /// The schema version property (contract §9).
    pub version: VersionProperty,
    /// A route that overrides the body's URN where the body decodes (Pulsar's `bq-job`, §15.3).
    pub route: Option<Box<str>>,
    /// The queue that it was first consumed from, where the broker says so (Kafka's
    /// `bq-original-topic`).
    pub original_queue: Option<Arc<str>>,
    /// What made the transport itself call the body poison (§11B.5), in words.
    pub poison: Option<&'static str>,
}

/// The schema version property of a delivery, as received: `bq-schema-version` or
/// `bq_schema_version` (contract §9.1–2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionProperty {
    /// Not there, or null.
    #[default]
    Absent,
    /// A string, untrimmed. Bytes that are not UTF-8 come as [`Other`](Self::Other).
    Text(Box<str>),
    /// A native integer of any width.
    Integer(i64),
    /// Any other type or value, shown as text for the log.
    Other(Box<str>),
}

/// Deliveries of one lane are handled one after another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    /// What lanes share a fetch: a Kafka partition. No scope may fill a worker's buffer
    /// ([`SubscribeOptions::scope_share`](super::SubscribeOptions::scope_share)). Where the broker
    /// has nothing of the kind, each lane has a scope of its own.
    pub scope: u64,
    /// The lane within its scope: a record key, a group id. Empty where the scope is the lane.
    pub key: Bytes,
}

impl Ord for Lane {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.scope.cmp(&other.scope).then_with(|| {
            // Where the scope is the lane, each look-up compares two empty keys. Empty bytes may
            // point nowhere, and what the C library compares them with then takes a processor with
            // masked loads as long as the rest of the look-up.
            if self.key.is_empty() && other.key.is_empty() {
                cmp::Ordering::Equal
            } else {
                self.key.cmp(&other.key)
            }
        })
    }
}

impl PartialOrd for Lane {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What tells this delivery from an earlier or a later one of the same message, so that a late
/// settlement is dropped and counted, never sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Rises with each connection, channel, assignment or rewind.
    pub generation: u64,
    /// The delivery within its generation: a delivery tag, an offset, a running number.
    pub id: u64,
}
