//! A broker in memory, with real semantics.
//!
//! The embedded default, the reference that the test kit is tried on, and the broker of unit tests:
//! reservation, leases, redelivery with a count, delays, dead-letter queues, message groups, and
//! faults on demand. Nothing outlives the process.
//!
//! ```
//! use babelqueue_core::memory::Memory;
//! use babelqueue_core::transport::{Outgoing, Settlement, SubscribeOptions, Transport};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let memory = Memory::new();
//! memory.publish(vec![Outgoing::new("orders", "{}")]).await;
//!
//! let mut orders = memory.subscribe("orders", SubscribeOptions::with_prefetch(1)).await?;
//! let delivery = orders.receiver.receive(1).await?.remove(0);
//! assert_eq!(memory.depth("orders").reserved, 1);
//!
//! orders.settler.settle(vec![(delivery, Settlement::Ack)]).await;
//! assert_eq!(memory.depth("orders").total(), 0);
//! # Ok::<_, babelqueue_core::Error>(()) }).unwrap();
//! ```
//!
//! # How it settles
//!
//! | | [leased](Kind::Leased) | [bound](Kind::Bound) | [rewinding](Kind::Rewinding) |
//! |---|---|---|---|
//! | ack | remove | remove | remove, and at once: nothing travels |
//! | retry | re-queue with its delay; in a lane at its head, which waits | copy to the tail, then ack | copy to the lane's tail, then ack |
//! | release | re-queue, uncounted; in a lane at its head | the same | back to the lane's head |
//! | dead letter | move | copy, then ack | copy, then ack |
//! | abandon, or a failed settlement | stays reserved until its lease ends, then counted | back to the head, counted | rewind, uncounted |
//! | connection lost | the lease goes on | back to the head, counted | rewind, uncounted |
//! | late settlement | fenced once the lease is over | fenced once the connection is gone | fenced once the lane was rewound |
//!
//! # Faults
//!
//! [`Memory::fail`] plans the failure of the n-th call of a [`Verb`]; [`Memory::fail_by`] hands the
//! choice, and how long each call travels, to a [`FaultSource`]; [`Memory::disconnect`] breaks every
//! connection. Leases, delays and waits go by `tokio::time`, so that a paused runtime drives them.

mod broker;
mod builder;
mod faults;
mod held;
mod inspect;
pub(crate) mod journal;
mod order;
mod queue;
mod subscription;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use self::broker::Broker;
use self::journal::Journal;
use crate::Error;
use crate::transport::{Capabilities, Outgoing, SubscribeOptions, Subscription, Transport};

pub use builder::{Kind, MemoryBuilder};
pub use faults::{Fault, FaultSource, Latency, SeededFaults, Verb};
pub use inspect::{Depth, Snapshot, Stored};
pub use journal::{Event, What};

/// A handle of a broker in memory; clones are the same broker.
///
/// A queue is there as soon as it is named.
#[derive(Debug, Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    broker: Mutex<Broker>,
}

impl Memory {
    /// A broker with leases of 30 seconds and no faults.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings other than those of [`new`](Self::new).
    pub const fn builder() -> MemoryBuilder {
        MemoryBuilder::new()
    }

    /// Makes the `nth` call of `verb` from now fail, the next one being the first; what counts as a
    /// call stands at each [`Verb`].
    pub fn fail(&self, verb: Verb, nth: u64, fault: Fault) {
        self.lock().faults.plan(verb, nth, fault);
    }

    /// Lets `source` decide over every call that no [`fail`](Self::fail) planned, in place of an
    /// earlier source.
    pub fn fail_by(&self, source: impl FaultSource) {
        self.lock().faults.set_source(Some(Box::new(source)));
    }

    /// No source decides over calls any more.
    pub fn heal(&self) {
        self.lock().faults.set_source(None);
    }

    /// Whether `queue` takes no more, as if it were full: from then on a publish to it fails for now,
    /// and so does a settlement that writes a copy to it, which leaves its message unsettled.
    pub fn set_full(&self, queue: &str, full: bool) {
        let mut broker = self.lock();
        let index = broker.queue_index(&Arc::from(queue));
        broker.queue(index).full = full;
    }

    /// Breaks the connection of every subscription: its receive fails once and then connects again.
    /// What is bound to a connection goes back to its queue.
    pub fn disconnect(&self) {
        let now = Instant::now();
        for queue in self.lock().queues() {
            let subscriptions: Vec<_> = queue.subscriptions.keys().copied().collect();
            for subscription in subscriptions {
                queue.disconnect(now, subscription);
            }
        }
    }

    /// Where messages go that are left to the broker's own dead-lettering; see
    /// [`MemoryBuilder::native_dead_letter`].
    pub fn native_dead_letter_queue(queue: &str) -> String {
        format!("{queue}/dead-letter")
    }

    fn with(capabilities: Capabilities, kind: Kind, journal: Journal) -> Self {
        let broker = Broker::new(kind, capabilities.native_dead_letter, journal);
        Self {
            shared: Arc::new(Shared {
                capabilities,
                broker: Mutex::new(broker),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Broker> {
        self.shared.lock()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Transport for Memory {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let latency = self.lock().faults.latency(Verb::Publish);
        if !latency.there.is_zero() {
            sleep(latency.there).await;
        }
        let results = self.lock().publish(Instant::now(), batch);
        if !latency.back.is_zero() {
            sleep(latency.back).await;
        }
        results
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        subscription::subscribe(&self.shared, queue, &options).await
    }
}
