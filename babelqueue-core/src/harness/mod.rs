//! Stepping a worker message by message in a unit test.
//!
//! A [`Harness`] runs a worker, as the program itself builds it, over a broker in memory. No message
//! moves until the test says so: [`step`](Harness::step) lets one through, to the end of its
//! settlement, and says what became of it. What the handlers published on the way can be asked for.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use babelqueue_core::harness::Harness;
//! use babelqueue_core::prelude::*;
//! use babelqueue_core::transport::Transport;
//! # use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { order_id: u64 }
//! impl Message for Order { const URN: &'static str = "urn:babel:orders:created"; }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Invoice { order_id: u64 }
//! impl Message for Invoice { const URN: &'static str = "urn:babel:invoices:due"; }
//!
//! /// The program's own: it knows nothing of the test.
//! fn worker(broker: Arc<dyn Transport>) -> Worker {
//!     Worker::shared(Arc::clone(&broker))
//!         .queue("orders")
//!         .retry(Retry::attempts(2).backoff(Duration::from_secs(60), 1.0))
//!         .dead_letter(true)
//!         .state(Producer::shared(broker).queue("invoices"))
//!         .handle(|order: Incoming<Order>| async move {
//!             if order.order_id == 13 {
//!                 return Err(Failure::msg("not that one"));
//!             }
//!             let invoice = Invoice { order_id: order.order_id };
//!             order.producer()?.publish(&invoice).await?;
//!             Ok(())
//!         })
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
//! # runtime.block_on(async {
//! // In a `#[tokio::test(start_paused = true)]`, where a minute of back-off takes no time:
//! let mut harness = Harness::start(worker);
//! let orders = harness.producer("orders");
//!
//! orders.publish(&Order { order_id: 7 }).await?;
//! assert!(harness.step().await.unwrap().is_handled());
//! assert_eq!(harness.published::<Invoice>()[0].order_id, 7);
//!
//! orders.publish(&Order { order_id: 13 }).await?;
//! assert!(harness.step().await.unwrap().is_retried());
//! let last = harness.step().await.unwrap();
//! assert!(last.is_dead_lettered());
//! let record = last.record().unwrap();
//! assert_eq!(record.dead_letter().unwrap().error.as_deref(), Some("not that one"));
//!
//! assert!(harness.step().await.is_none(), "nothing is left");
//! # Ok(()) }) }
//! ```

mod gate;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

pub use step::{Became, Step};

use self::gate::{Gated, Gates};
use crate::Error;
use crate::envelope::Envelope;
use crate::memory::Memory;
use crate::producer::Producer;
use crate::transport::{Outgoing, Transport};
use crate::urn::Message;
use crate::watched::Watched;
use crate::worker::{Phase, Status, Stopped, Worker};

/// A worker under test, over a broker in memory.
///
/// Dropping it aborts the worker and its handlers; [`stop`](Self::stop) ends them as a program would.
#[derive(Debug)]
pub struct Harness {
    memory: Memory,
    watched: Watched,
    gates: Gates,
    /// The queue that is looked at first for the next step.
    turn: usize,
    steps: Vec<Step>,
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    running: Running,
}

/// The worker's task, which does not outlive the harness.
#[derive(Debug)]
struct Running(JoinHandle<Result<Stopped, Error>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Harness {
    /// Starts the worker that `build` makes over the transport it is given. It takes no message
    /// before [`step`](Self::step).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(build: impl FnOnce(Arc<dyn Transport>) -> Worker) -> Self {
        Self::start_over(Memory::new(), build)
    }

    /// The same over a broker that was set up otherwise, or has messages in it already.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start_over(memory: Memory, build: impl FnOnce(Arc<dyn Transport>) -> Worker) -> Self {
        let watched = Watched::new(Arc::new(memory.clone()));
        let gates = Gates::default();
        let worker = build(Arc::new(Gated::new(watched.clone(), gates.clone())));
        gates.set(worker.queue_names());
        let status = worker.watch();
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            memory,
            watched,
            gates,
            turn: 0,
            steps: Vec::new(),
            status,
            stop,
            running: Running(tokio::spawn(worker.run_until(stopped))),
        }
    }

    /// The broker: to look into its queues, to break its connections, to have its calls fail.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A producer to `queue`, for what the test itself publishes.
    pub fn producer(&self, queue: &str) -> Producer {
        Producer::new(self.watched.clone()).queue(queue)
    }

    /// Lets the worker take one message, and waits until that is settled. With several queues they
    /// take turns. Where all messages wait for their time, so does the step: in a runtime whose time
    /// is paused that is no time at all.
    ///
    /// `None` where nothing is left in the worker's queues, or the worker has ended.
    pub async fn step(&mut self) -> Option<Step> {
        let queue = self.next_queue().await?;
        let before = self.status.borrow().counts;
        let settled = self.watched.ended().len();
        self.gates.open(queue);
        let status = self
            .status
            .wait_for(|now| now.counts.ended() > before.ended() || now.phase == Phase::Stopped)
            .await
            .ok()?
            .clone();
        if status.counts.ended() == before.ended() {
            return None;
        }
        let ended = self.watched.ended().into_iter().nth(settled);
        let step = Step::of(ended, before, status.counts);
        self.steps.push(step.clone());
        Some(step)
    }

    /// Steps until nothing is left, retries included. It does not end where the worker gives a
    /// message back for ever.
    pub async fn run(&mut self) -> Vec<Step> {
        let from = self.steps.len();
        while self.step().await.is_some() {}
        self.steps[from..].to_vec()
    }

    /// All steps so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The payloads of all messages of this type that were published so far, by the test and by the
    /// handlers, in order. Retries and dead letters are not published.
    pub fn published<M: Message + DeserializeOwned>(&self) -> Vec<M> {
        self.outgoing()
            .into_iter()
            .filter_map(|outgoing| {
                let envelope = Envelope::decode(outgoing.body).ok()?.envelope;
                (envelope.urn() == M::URN).then(|| envelope.data().ok())?
            })
            .collect()
    }

    /// The same as they went out: with queue, headers and options.
    pub fn outgoing(&self) -> Vec<Outgoing> {
        self.watched.published()
    }

    /// Stops the worker in good order, and says how it ended.
    ///
    /// # Errors
    ///
    /// What ended the worker early; see [`Worker::run_until`].
    pub async fn stop(self) -> Result<Stopped, Error> {
        drop(self.stop);
        let mut running = self.running;
        match (&mut running.0).await {
            Ok(ended) => ended,
            Err(error) => {
                Err(Error::transient("run", "the worker's task ended").with_source(error))
            }
        }
    }

    /// The queue whose turn it is and that has something to take, when it has.
    async fn next_queue(&mut self) -> Option<usize> {
        loop {
            let names = self.gates.names();
            let (mut left, mut due) = (0, None::<Instant>);
            for at in 0..names.len() {
                let at = (self.turn + at) % names.len();
                let depth = self.memory.depth(&names[at]);
                if depth.ready > 0 {
                    self.turn = (at + 1) % names.len();
                    return Some(at);
                }
                left += depth.total();
                let next = self.memory.next_due(&names[at]);
                due = due.map_or(next, |due| Some(next.map_or(due, |next| next.min(due))));
            }
            match due {
                Some(due) if left > 0 => sleep_until(due).await,
                _ => return None,
            }
        }
    }
}
