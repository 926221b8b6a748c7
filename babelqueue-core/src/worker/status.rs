use tokio::time::Instant;

/// What a worker is doing, as [`Worker::watch`](super::Worker::watch) shows it. Updated at each turn
/// of the worker's loop that changes something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when at least one queue cannot be received from, because the broker or the connection
    /// fails; the worker keeps trying. `None` while all is well.
    pub reconnecting_since: Option<Instant>,
    /// Deliveries whose handlers run.
    pub in_flight: usize,
    /// Deliveries that wait for a handler.
    pub buffered: usize,
    /// Deliveries whose handlers are done, and whose settlements the broker has not answered.
    pub settling: usize,
    /// What has become of the deliveries so far.
    pub counts: Counts,
}

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Phase {
    /// It has not begun to receive.
    #[default]
    Starting,
    /// It takes messages.
    Running,
    /// It takes no more, and lets the running handlers finish.
    Stopping,
    /// It has returned.
    Stopped,
}

/// What has become of a worker's deliveries since it started. Every delivery that was received ends
/// in exactly one of the other counts, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Deliveries that came in.
    pub received: u64,
    /// Handled and acknowledged.
    pub handled: u64,
    /// Sent round again after a failure.
    pub retried: u64,
    /// Moved to a dead-letter queue.
    pub dead_lettered: u64,
    /// Acknowledged without having been handled: by the handler's wish, by the strategy for unknown
    /// URNs, or because the attempts were used up and dead-lettering is off.
    pub dropped: u64,
    /// Given back uncounted: for another consumer, or because the worker stopped.
    pub released: u64,
    /// Left to the broker's own dead-lettering.
    pub native: u64,
    /// No longer ours, before the handler started or by the time it was done: the broker gives the
    /// message out again.
    pub lost: u64,
    /// Settlements that failed. The message comes back by itself.
    pub unsettled: u64,
}

/// What a settlement makes of its delivery, for the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Handled,
    Retried,
    DeadLettered,
    Dropped,
    Released,
    Native,
}

impl Counts {
    pub(super) fn count(&mut self, fate: Fate) {
        let count = match fate {
            Fate::Handled => &mut self.handled,
            Fate::Retried => &mut self.retried,
            Fate::DeadLettered => &mut self.dead_lettered,
            Fate::Dropped => &mut self.dropped,
            Fate::Released => &mut self.released,
            Fate::Native => &mut self.native,
        };
        *count += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.handled += other.handled;
        self.retried += other.retried;
        self.dead_lettered += other.dead_lettered;
        self.dropped += other.dropped;
        self.released += other.released;
        self.native += other.native;
        self.lost += other.lost;
        self.unsettled += other.unsettled;
    }

    /// How many deliveries have ended.
    pub fn ended(&self) -> u64 {
        self.handled
            + self.retried
            + self.dead_lettered
            + self.dropped
            + self.released
            + self.native
            + self.lost
            + self.unsettled
    }
}
