use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Counts;
use crate::Error;
use crate::flag::Flag;

/// What the future of [`Worker::run_until`](super::Worker::run_until) asks for when it is ready.
///
/// Most futures say `()`, or a result that nobody looks at, and mean: stop in good order.
#[derive(Default)]
pub struct StopRequest {
    force: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl StopRequest {
    /// Stops in good order; and when `force` is ready too, without waiting for the deadline: what
    /// still runs is aborted and given back at once (contract §7.9).
    pub fn with_force(force: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            force: Some(Box::pin(force)),
        }
    }

    /// Waits for the force; for ever where there is none.
    pub(super) async fn forced(self) {
        match self.force {
            Some(force) => force.await,
            None => std::future::pending().await,
        }
    }
}

impl From<()> for StopRequest {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// `tokio::signal::ctrl_c()` and a `oneshot::Receiver` say this. An error stops too: who would have
/// asked for the stop is gone.
impl<T, E> From<Result<T, E>> for StopRequest {
    fn from(_: Result<T, E>) -> Self {
        Self::default()
    }
}

impl fmt::Debug for StopRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopRequest")
            .field("force", &self.force.is_some())
            .finish()
    }
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Why.
    pub reason: StopReason,
    /// Deliveries that were neither settled nor given back when it returned: blocking handlers that
    /// still run, settlements without an answer. The broker gives these messages out again in its
    /// own time.
    pub in_flight: usize,
    /// What became of all deliveries.
    pub counts: Counts,
}

/// Why a worker ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It was told to, and every handler was done in time.
    Requested,
    /// It was told to; at the deadline handlers still ran, and were aborted.
    DeadlinePassed,
    /// It was told to, and then told not to wait.
    Forced,
}

/// What is told to a worker under way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    Stop,
    /// Do not wait for the deadline.
    Force,
}

impl Signal {
    pub(super) fn when(self, flag: Arc<Flag>) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            flag.raised().await;
            self
        })
    }
}

/// A stop under way: until the deadline for the handlers, then until the flush limit for the last
/// settlements.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) reason: StopReason,
    /// What no retry could mend, where that is why.
    pub(super) failure: Option<Error>,
    deadline: Instant,
    flush: Duration,
    /// When the wait for the last settlements ends, once no handler runs or all are aborted.
    flush_limit: Option<Instant>,
}

impl Stop {
    pub(super) fn new(
        now: Instant,
        shutdown: Duration,
        flush: Duration,
        failure: Option<Error>,
    ) -> Self {
        Self {
            reason: StopReason::Requested,
            failure,
            deadline: later(now, shutdown),
            flush,
            flush_limit: None,
        }
    }

    /// How long the receivers may take to leave.
    pub(super) fn close_within(&self, now: Instant) -> Duration {
        let end = self.flush_limit.unwrap_or(later(self.deadline, self.flush));
        end.saturating_duration_since(now)
    }

    pub(super) fn is_past_deadline(&self, now: Instant) -> bool {
        self.flush_limit.is_none() && self.deadline <= now
    }

    /// The handlers were aborted, this many of them.
    pub(super) fn aborted(&mut self, now: Instant, handlers: usize, reason: StopReason) {
        self.flush(now);
        if handlers > 0 {
            self.reason = reason;
        }
    }

    /// No handler is waited for from now on, or from earlier.
    pub(super) fn flush(&mut self, now: Instant) {
        if self.flush_limit.is_none() {
            self.flush_limit = Some(later(now, self.flush));
        }
    }

    pub(super) fn is_flushed(&self, now: Instant) -> bool {
        self.flush_limit.is_some_and(|limit| limit <= now)
    }

    pub(super) fn wake_at(&self) -> Instant {
        self.flush_limit.unwrap_or(self.deadline)
    }
}

/// `after` from `now`, or in a century where that is beyond what can be told.
pub(super) fn later(now: Instant, after: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
    now.checked_add(after).unwrap_or_else(|| now + CENTURY)
}
