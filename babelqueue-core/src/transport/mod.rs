//! The seam between the core and a broker: three verbs, each shaped for many.
//!
//! A broker crate implements [`Transport`], and through it a [`Receiver`] and a [`Settler`] for
//! each queue that a worker subscribes to. A receive that waits for messages must never keep a
//! finished handler from settling, so the two are separate: the worker's loop owns the receiver,
//! and shares the settler. All three are dyn-safe and know nothing of envelopes beyond the bytes.
//!
//! # The laws
//!
//! Each is the cure of a bug that a simulation or a killed server found; the test kit
//! (feature `test-kit`) holds a transport to them.
//!
//! 1. Nothing is acknowledged before its copy is confirmed.
//! 2. `Err` from [`Settler::settle`] means that the transport has seen to it that the message comes
//!    back without the worker (it lets the lease run out, nacks, rewinds or drops the connection).
//!    It includes "done, but the answer was lost". The worker settles a delivery once.
//! 3. A receiver that loses a connection or a lane marks what came over it as lost *at once*,
//!    before it connects again ([`Delivery::mark_lost`]).
//! 4. A transport that answers anything but [`Settled::Done`] for a delivery with a lane, or refuses
//!    [`begin`](Settler::begin) or [`extend`](Settler::extend) for it, has *already* taken back what
//!    it gave out after it in that run of the lane: `lost` is set on those, and `begin` refuses
//!    them.
//! 5. [`Receiver::receive`] is cancel-safe: what the broker has handed out is kept for the next
//!    call, or given back by [`Receiver::close`].
//! 6. Publish options that a broker lacks are refused, never ignored; headers, where they cannot be
//!    carried, are left out with one warning (contract §10.1).

mod background;
mod capabilities;
mod delivery;
mod lane_book;
mod outgoing;
mod rules;
mod settlement;
mod unready;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

pub use background::Background;
pub use capabilities::{Capabilities, Delay, Prefetch, PublishFeatures};
pub use delivery::{Delivery, Facts, Fence, Lane, VersionProperty};
pub use lane_book::LaneBook;
pub use outgoing::{Outgoing, PublishOptions};
pub use rules::{AttemptsRule, DeadLetterNaming, GateRule, PoisonRule, Rules};
pub use settlement::{Settled, Settlement};
pub use unready::Unready;

use crate::Error;

/// A broker, connected: where messages are published, and queues are subscribed to.
///
/// Implementations are cheap to clone (a handle); a program makes one and shares it.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// What this broker can do. The worker, the test kit and the READMEs read it.
    fn capabilities(&self) -> &Capabilities;

    /// Publishes in order, and resolves when the broker has confirmed each message, as far as it
    /// confirms at all; many may be on their way at once. One result per message, in the order of
    /// `batch`. Waits where the broker's window is full, and never drops.
    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>>;

    /// Opens a subscription to `queue`.
    ///
    /// # Errors
    ///
    /// A refusal (no such queue, no right to read it), or a transient failure to connect.
    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error>;
}

#[async_trait]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        (**self).publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        (**self).subscribe(queue, options).await
    }
}

/// What a worker tells a transport of its subscription.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// The most deliveries that the worker holds unsettled at a time beside those it is settling: a
    /// push broker's prefetch or credit. At least 1.
    pub prefetch: usize,
    /// The most deliveries of one [`Lane::scope`] that the receiver has given out and that have
    /// neither been settled nor been refused by [`begin`](Settler::begin), as far as the broker can
    /// choose what it gives out. What a scope holds beyond that waits, and the other scopes go on:
    /// one slow lane would otherwise fill the worker's buffer. At least 1.
    ///
    /// It is the transport that counts: it alone knows, the moment that a message is settled, which
    /// scope may give the next, without a receive that has to be cancelled and asked again.
    pub scope_share: usize,
    /// The dead-letter queue that the worker may write to, where it may: a broker whose queues have
    /// to exist before they are written to checks it at the start, rather than when the first
    /// message has failed for good.
    pub dead_letter: Option<Arc<str>>,
    /// Whether deliveries may be settled with [`Settlement::Retry`].
    pub retries: bool,
    /// Whether messages are only to be moved away, as out of a dead-letter queue. A broker that
    /// delays by way of other queues (Kafka's tiers) checks those of a worker's queue at the start,
    /// and serves them meanwhile, whether or not the worker itself retries: producers delay as
    /// well. A queue that is drained has no such others.
    pub drains: bool,
}

impl SubscribeOptions {
    /// Options with this prefetch (at least 1) and every other option at its default: a scope may
    /// hold all of it.
    pub fn with_prefetch(prefetch: usize) -> Self {
        let prefetch = prefetch.max(1);
        Self {
            prefetch,
            scope_share: prefetch,
            dead_letter: None,
            retries: true,
            drains: false,
        }
    }

    /// The same with at most `share` (at least 1) unsettled deliveries of one scope.
    #[must_use]
    pub fn scope_share(mut self, share: usize) -> Self {
        self.scope_share = share.max(1);
        self
    }

    /// The same for who settles nothing with a retry.
    #[must_use]
    pub fn without_retries(mut self) -> Self {
        self.retries = false;
        self
    }

    /// The same for who only moves messages away: [`drains`](Self::drains), and no retries.
    #[must_use]
    pub fn draining(mut self) -> Self {
        self.drains = true;
        self.without_retries()
    }

    /// The same with [`dead_letter`](Self::dead_letter).
    #[must_use]
    pub fn dead_letter(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.dead_letter = Some(queue.into());
        self
    }
}

/// The two halves of a subscription.
pub struct Subscription {
    /// Takes deliveries in; owned by the worker's loop.
    pub receiver: Box<dyn Receiver>,
    /// Settles them; shared with the handlers' tasks.
    pub settler: Arc<dyn Settler>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// The receiving half of a subscription.
#[async_trait]
pub trait Receiver: Send + 'static {
    /// Waits for at least one delivery, and gives at most `max` (at least 1).
    ///
    /// Cancel-safe: a dropped call loses nothing. After a transient error the next call connects
    /// again.
    ///
    /// # Errors
    ///
    /// A transient failure of the connection, or a refusal, which ends the worker.
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error>;

    /// Takes no more, gives back what it holds, waits until each delivery that it gave out has been
    /// settled, and leaves. At `within` it leaves whatever is still out.
    ///
    /// Dropping the receiver does the same in the background, without the wait.
    ///
    /// # Errors
    ///
    /// The broker could not be told; what it gave out comes back by itself.
    async fn close(&mut self, within: Duration) -> Result<(), Error>;
}

/// The settling half of a subscription.
#[async_trait]
pub trait Settler: Send + Sync + 'static {
    /// Whether this delivery's handler may start. No I/O: it is asked in the handler's own task,
    /// right before the handler. `false` ends the delivery (lost, revoked, rewound, or its lease ran
    /// out in the buffer), and it is not settled.
    fn begin(&self, delivery: &Delivery) -> bool {
        !delivery.is_lost() && !delivery.lease_is_over()
    }

    /// Settles each delivery once; one answer each, in order. Called for every delivery that
    /// [`begin`](Self::begin) did not end, lost ones too, which are answered [`Settled::Fenced`]
    /// without I/O.
    ///
    /// Calls overlap where [`settle_calls`](Capabilities::settle_calls) is above 1; they begin in order.
    /// Deliveries of one lane can then be in several of them, as an acknowledgement does not keep the
    /// next of its lane waiting. So with lanes the acknowledgements of a call take effect before it
    /// first awaits: an earlier one could otherwise come again after a later one is done.
    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>>;

    /// Renews leases; gives the new end of each, in order. Only called for deliveries that have a
    /// lease.
    ///
    /// An error that [`is_lost`](Error::is_lost) says that the lease is gone, and `lost` is set
    /// already; a transient one asks to be called again soon.
    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>>;
}
