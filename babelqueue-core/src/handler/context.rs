use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::{MissingState, State, Turn};
use crate::clock::{Clock, SystemClock};
use crate::envelope::Envelope;
use crate::flag::Flag;
use crate::producer::Producer;
use crate::transport::Delivery;
use crate::{Headers, replay};

/// One message on its way through a handler and its layers, untyped: the envelope, what came beside
/// it, and what the worker shares.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Context {
    envelope: Envelope,
    delivery: Arc<Delivery>,
    attempts: u32,
    surroundings: Arc<Surroundings>,
    /// For a blocking handler under a worker, which wants to know whether it has begun.
    turn: Option<Arc<Turn>>,
}

/// What all messages of a worker have in common.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) state: State,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stopping: Arc<Flag>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            state: State::default(),
            clock: Arc::new(SystemClock),
            stopping: Arc::default(),
        }
    }
}

impl Context {
    /// A message outside any worker, for a test of a handler or a layer: no state, the system's
    /// clock. `attempts` is how often the message was delivered before.
    pub fn new(envelope: Envelope, delivery: Arc<Delivery>, attempts: u32) -> Self {
        Self::within(Arc::default(), envelope, delivery, attempts)
    }

    /// The same with `value` in its state, as a worker that was given it would have it: for a test.
    #[must_use]
    pub fn with_state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        let mut state = self.surroundings.state.clone();
        state.insert(value);
        self.surroundings = Arc::new(Surroundings {
            state,
            clock: Arc::clone(&self.surroundings.clock),
            stopping: Arc::clone(&self.surroundings.stopping),
        });
        self
    }

    pub(crate) fn within(
        surroundings: Arc<Surroundings>,
        envelope: Envelope,
        delivery: Arc<Delivery>,
        attempts: u32,
    ) -> Self {
        Self {
            envelope,
            delivery,
            attempts,
            surroundings,
            turn: None,
        }
    }

    pub(crate) fn with_turn(mut self, turn: Option<Arc<Turn>>) -> Self {
        self.turn = turn;
        self
    }

    pub(super) fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// The message.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// What the broker handed out: the received bytes, its own facts, the lease.
    pub fn delivery(&self) -> &Arc<Delivery> {
        &self.delivery
    }

    /// The logical name of the queue that it was consumed from.
    pub fn queue(&self) -> &str {
        &self.delivery.queue
    }

    /// How often it was delivered before, as the body and the broker together say.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Which delivery this is: 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.attempts.saturating_add(1)
    }

    /// `meta.id`, the message's own id: what deduplication goes by.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.envelope.id()
    }

    /// `trace_id`, which the whole chain of messages shares.
    pub fn trace_id(&self) -> Option<Cow<'_, str>> {
        self.envelope.trace_id()
    }

    /// What travelled beside the body, without the binding's own properties (contract §10.2).
    pub fn headers(&self) -> &Headers {
        &self.delivery.headers
    }

    /// Whether a redrive brought it back with the request to leave out external effects
    /// (contract §17A).
    pub fn is_replay(&self) -> bool {
        replay::is_replay(self.headers())
    }

    /// The worker's value of type `S` ([`Worker::state`](crate::worker::Worker::state)).
    ///
    /// # Errors
    ///
    /// The worker was not given one.
    pub fn state<S: Send + Sync + 'static>(&self) -> Result<&S, MissingState> {
        self.surroundings.state.get()
    }

    /// The [`Producer`] from the worker's state, set to carry this message's trace id forward.
    /// [`Producer::continuing`] does the same for any other.
    ///
    /// # Errors
    ///
    /// The worker was not given one.
    pub fn producer(&self) -> Result<Producer, MissingState> {
        Ok(self.state::<Producer>()?.continuing(self))
    }

    /// Waits until the delivery is lost: its lease, lane or connection is gone, and the broker gives
    /// the message out again. Whatever the handler does from then on is done twice.
    pub async fn lost(&self) {
        self.delivery.lost().await;
    }

    /// Whether the delivery is lost.
    pub fn is_lost(&self) -> bool {
        self.delivery.is_lost()
    }

    /// Waits until the worker is told to stop. The handler may go on until the stop's deadline.
    pub async fn stopping(&self) {
        self.surroundings.stopping.raised().await;
    }

    /// Whether the worker was told to stop: what a long blocking handler, which cannot be aborted,
    /// should look at now and then.
    pub fn is_stopping(&self) -> bool {
        self.surroundings.stopping.is_raised()
    }

    /// The worker's source of wall time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.surroundings.clock
    }
}

/// Without the payload: it is the user's data.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("delivery", &self.delivery)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
