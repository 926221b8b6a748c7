//! Bringing dead-lettered messages back (contract §17A, ADR-0026).
//!
//! A [`Redrive`] takes messages off a dead-letter queue and moves each to the queue that it failed
//! in, or to another, as if it had never been tried: without its `dead_letter` block, with `attempts`
//! 0, everything else as it was. What is not to be moved stays in the dead-letter queue unchanged.
//!
//! ```
//! use babelqueue_core::dead_letter::Reason;
//! use babelqueue_core::memory::Memory;
//! use babelqueue_core::redrive::Redrive;
//! # use babelqueue_core::transport::{Outgoing, Transport};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let memory = Memory::new();
//! # let failed = r#"{"job":"urn:babel:orders:created","attempts":3,"dead_letter":{"reason":"failed","failed_at":1,"original_queue":"orders","attempts":3}}"#;
//! # memory.publish(vec![Outgoing::new("orders.dlq", failed)]).await.remove(0)?;
//! let plan = Redrive::new(memory.clone(), "orders.dlq")
//!     .reason(Reason::Failed)
//!     .dry_run(true)
//!     .run()
//!     .await?;
//! for item in &plan.items {
//!     println!("{:?} would go to {:?}", item.message_id, item.to);
//! }
//!
//! let report = Redrive::new(memory, "orders.dlq").bypass(true).run().await?;
//! assert_eq!(report.summary.redriven, 1);
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What is moved
//!
//! A body is judged by its verdict (§2A), on every broker alike; what is poison stays, and so does
//! what the transport itself calls poison. Of the rest, the selection decides
//! ([`urn`](Redrive::urn), [`reason`](Redrive::reason), [`select`](Redrive::select): all of them have
//! to hold). The target is [`to_queue`](Redrive::to_queue), else `dead_letter.original_queue`, else
//! `meta.queue`; without one, or where it is the dead-letter queue itself, the message stays. A copy
//! of a foreign schema version goes back byte for byte, with its version property, and meets the gate
//! again (§9.6).
//!
//! A message leaves the dead-letter queue only when its copy is confirmed
//! ([`Settlement::Redrive`](crate::transport::Settlement::Redrive)). Where a move fails, it stays
//! where it was, the run puts back what it holds, and ends with the error. It can be run again at any
//! time; like every delivery, a redrive is at least once.
//!
//! # How a run ends, and what it does to the rest
//!
//! Messages are taken and moved in batches, in order. What is to stay is *held*: kept unsettled, its
//! lease renewed, so that it does not come round again. The run ends when nothing new has come for a
//! while ([`idle`](Redrive::idle)), or [`max`](Redrive::max) messages have been looked at; then what
//! is held is given back, in order. How that looks depends on the broker: RabbitMQ and Kafka have it
//! where it was, SQS makes it visible, Redis appends it to the queue.
//!
//! Holding is bounded by [`window`](Redrive::window). When the window is full (or where a lane gives
//! out nothing more while something of it is held, as an SQS FIFO group does), what is held goes to
//! the tail of the dead-letter queue as confirmed copies, byte for byte with headers, key and
//! properties, and so out of the way; their order among themselves is kept. Such copies do come round
//! again. They are known by their content, copies of one content by their number: the first ones put
//! back are remembered (as many as the window has, at least 1,000), in each lane's scope (a
//! partition), and when they have been met again the scope has gone round. Where all could be
//! remembered, what is not among them is new, and a second round without anything new ends the run;
//! where there are more, nothing that the scope gives out is new any more. On a queue without order
//! (SQS) that is an estimate: a message beyond the window may be reported twice, or be left for the
//! next run; and so is it where more than twice the window of messages that are to stay are the same
//! byte for byte, and cannot be told apart. None is moved that was not selected, and none is lost.
//!
//! A message that was dead-lettered after the run began is left alone ([`Fate::TooNew`]): one that
//! fails again at once would otherwise keep the run going. The clocks of the worker and of the run
//! should agree. Where they do not, a message is still moved once in a run: one with an id that was
//! moved before stays ([`Fate::MovedBefore`]), and so does a second letter with that id. So many
//! moves are remembered as fit into 17 MiB, 917,504; beyond that the clocks alone decide.
//!
//! Another consumer on the same dead-letter queue gets its share of the messages, and a run sees only
//! what it gets.

mod fingerprint;
mod held;
mod item;
mod judge;
mod rounds;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use item::{Fate, Interrupted, Item, Report, Summary};

use crate::Error;
use crate::clock::{Clock, SystemClock};
use crate::dead_letter::Reason;
use crate::envelope::Envelope;
use crate::transport::Transport;
use run::Run;

/// A redrive, to be configured and [`run`](Self::run).
pub struct Redrive {
    transport: Arc<dyn Transport>,
    queue: Arc<str>,
    to_queue: Option<Arc<str>>,
    urns: Vec<String>,
    reasons: Vec<Reason>,
    select: Option<Box<Select>>,
    dry_run: bool,
    bypass: bool,
    max: Option<usize>,
    batch: usize,
    window: usize,
    idle: Duration,
    first_idle: Duration,
    clock: Arc<dyn Clock>,
}

type Select = dyn Fn(&Envelope) -> bool + Send + Sync;

impl Redrive {
    /// Moves everything in `queue` that can be moved.
    pub fn new(transport: impl Transport, queue: impl Into<Arc<str>>) -> Self {
        Self::shared(Arc::new(transport), queue)
    }

    /// The same over a transport whose type is erased already.
    pub fn shared(transport: Arc<dyn Transport>, queue: impl Into<Arc<str>>) -> Self {
        Self {
            transport,
            queue: queue.into(),
            to_queue: None,
            urns: Vec::new(),
            reasons: Vec::new(),
            select: None,
            dry_run: false,
            bypass: false,
            max: None,
            batch: 100,
            window: 1_000,
            idle: Duration::from_secs(1),
            first_idle: Duration::from_secs(5),
            clock: Arc::new(SystemClock),
        }
    }

    /// Moves messages to this queue, whatever they say of where they came from: a sandbox.
    #[must_use]
    pub fn to_queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.to_queue = Some(queue.into());
        self
    }

    /// Moves only messages with this URN; asked for more than once, with any of them.
    #[must_use]
    pub fn urn(mut self, urn: impl Into<String>) -> Self {
        self.urns.push(urn.into());
        self
    }

    /// Moves only messages that were dead-lettered for this reason; asked for more than once, for
    /// any of them. A message without a `dead_letter` block has no reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reasons.push(reason);
        self
    }

    /// Moves only messages for which `select` says so.
    #[must_use]
    pub fn select(mut self, select: impl Fn(&Envelope) -> bool + Send + Sync + 'static) -> Self {
        self.select = Some(Box::new(select));
        self
    }

    /// Moves nothing, and reports what would be moved.
    #[must_use]
    pub fn dry_run(mut self, on: bool) -> Self {
        self.dry_run = on;
        self
    }

    /// Marks what it moves as a replay, so that a handler can leave out effects that have happened
    /// already ([`replay`](crate::replay)). Without effect where the broker carries no headers.
    #[must_use]
    pub fn bypass(mut self, on: bool) -> Self {
        self.bypass = on;
        self
    }

    /// Looks at no more than this many messages. 0 is no bound, as in the contract.
    #[must_use]
    pub fn max(mut self, messages: usize) -> Self {
        self.max = (messages > 0).then_some(messages);
        self
    }

    /// Takes and moves this many messages at a time; 100 unless set, at least 1.
    #[must_use]
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages.max(1);
        self
    }

    /// Holds at most this many messages that are to stay, and a batch; 1,000 unless set, at least 1.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// Ends when nothing new has come for this long; a second unless set. For the first message it
    /// waits five times as long, or what [`first_idle`](Self::first_idle) says afterwards.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self.first_idle = idle.saturating_mul(5);
        self
    }

    /// Ends when no first message has come for this long: a Kafka group takes some seconds to form.
    #[must_use]
    pub fn first_idle(mut self, idle: Duration) -> Self {
        self.first_idle = idle;
        self
    }

    /// Goes by this clock, where it compares `dead_letter.failed_at` with its own beginning.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Runs, and reports every message that it looked at. For queues whose report would not fit into
    /// memory there is [`for_each`](Self::for_each).
    ///
    /// # Errors
    ///
    /// As with [`for_each`](Self::for_each).
    pub async fn run(self) -> Result<Report, Interrupted> {
        let mut items = Vec::new();
        let summary = self.for_each(|item| items.push(item)).await?;
        Ok(Report { summary, items })
    }

    /// Runs, and gives each message that it looked at to `report` when its fate is known.
    ///
    /// # Errors
    ///
    /// The target is the dead-letter queue itself; or the broker failed, and what was done until then
    /// stands in the error. Whatever was not moved is still in the dead-letter queue.
    pub async fn for_each(self, report: impl FnMut(Item) + Send) -> Result<Summary, Interrupted> {
        if self.to_queue.as_ref() == Some(&self.queue) {
            let problem = format!("is {:?}, the queue to redrive itself", self.queue);
            let source = Error::config("to_queue", problem);
            return Err(Interrupted::new(Summary::default(), source));
        }
        Run::of(&self, report).await
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("queue", &self.queue)
            .field("to_queue", &self.to_queue)
            .field("urns", &self.urns)
            .field("reasons", &self.reasons)
            .field("dry_run", &self.dry_run)
            .field("bypass", &self.bypass)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}
