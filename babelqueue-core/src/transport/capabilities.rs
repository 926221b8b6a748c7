use std::time::Duration;

use super::Rules;

/// What a transport can do: read by the worker (its buffer, its warnings at start), by the test kit
/// (a test is registered only where the capability is claimed) and by the READMEs' tables.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Capabilities {
    /// The broker's name as it stands in errors, logs and tables: `redis`, `memory`.
    pub broker: &'static str,
    /// What the contract says of this binding, as data.
    pub rules: Rules,
    /// Whether a message or a retry can be delayed.
    pub delay: Delay,
    /// Whether headers travel with a message (contract §10.3).
    pub headers: bool,
    /// Whether deliveries have a lease that the worker renews.
    pub lease: bool,
    /// Whether deliveries can have a lane.
    pub lanes: bool,
    /// Whether a lane gives out nothing more, or not much, while one of its deliveries is unsettled
    /// (an SQS FIFO group): a redrive has to put back what it leaves there before it sees the rest.
    pub lane_waits: bool,
    /// How far a worker reads ahead.
    pub prefetch: Prefetch,
    /// Whether [`Settlement::Native`](super::Settlement::Native) hands the message to a dead-letter
    /// queue of the broker's own.
    pub native_dead_letter: bool,
    /// Whether the broker counts deliveries also when a consumer dies, so that a message that takes
    /// its process down reaches its cap like any other.
    pub counts_crashes: bool,
    /// The most messages that one publish call sends in one trip; more are split.
    pub publish_batch: usize,
    /// The most deliveries that one receive call gives; more are asked for in several.
    pub receive_batch: usize,
    /// How many settle calls a worker has in flight at once for a queue, 1 by default and at least;
    /// what finishes beyond that gathers for the next. More than 1 where copies wait for a confirmation
    /// and a larger call is no cheaper: then the last of them takes acknowledgements alone, so that
    /// these wait for no copy, however many copies wait. With lanes that asks something of
    /// [`settle`](super::Settler::settle).
    pub settle_calls: usize,
    /// Which publish options it takes.
    pub options: PublishFeatures,
}

impl Capabilities {
    /// A broker with these rules that can do nothing else: every capability off, batches of 1.
    pub const fn new(broker: &'static str, rules: Rules) -> Self {
        Self {
            broker,
            rules,
            delay: Delay::Unsupported,
            headers: false,
            lease: false,
            lanes: false,
            lane_waits: false,
            prefetch: Prefetch::Double,
            native_dead_letter: false,
            counts_crashes: false,
            publish_batch: 1,
            receive_batch: 1,
            settle_calls: 1,
            options: PublishFeatures::NONE,
        }
    }
}

/// Whether and how far a broker delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delay {
    /// Not at all: a delayed publish is refused, a retry comes at once.
    Unsupported,
    /// Any delay, up to `max` where there is a limit.
    Supported {
        /// The longest delay that a publish may ask for.
        max: Option<Duration>,
    },
    /// In fixed steps of the binding's own (Kafka's retry tiers); the worker's back-off is ignored.
    Tiers,
}

/// How many deliveries a worker with N handlers holds unsettled, running ones included, so that no
/// handler waits for a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prefetch {
    /// 2 N (N at N = 1).
    Double,
    /// N: where giving a message back counts as an attempt (SQS, Service Bus).
    Exact,
    /// `max(1024, 16 N)`: where holding is free and there are lanes (Kafka).
    Deep,
}

impl Prefetch {
    /// The number for `concurrency` handlers.
    pub fn for_concurrency(self, concurrency: usize) -> usize {
        match self {
            Self::Exact => concurrency,
            Self::Double if concurrency == 1 => 1,
            Self::Double => concurrency.saturating_mul(2),
            Self::Deep => concurrency.saturating_mul(16).max(1024),
        }
    }
}

/// Which of the [`PublishOptions`](super::PublishOptions) a broker takes; `delay` stands in
/// [`Capabilities::delay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a table of independent switches"
)]
pub struct PublishFeatures {
    /// `key`.
    pub key: bool,
    /// `partition`.
    pub partition: bool,
    /// `group`.
    pub group: bool,
    /// `deduplication_id`.
    pub deduplication_id: bool,
    /// `priority`.
    pub priority: bool,
    /// `time_to_live`.
    pub time_to_live: bool,
}

impl PublishFeatures {
    /// None of them.
    pub const NONE: Self = Self {
        key: false,
        partition: false,
        group: false,
        deduplication_id: false,
        priority: false,
        time_to_live: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_holds_a_little_more_than_it_runs() {
        for (prefetch, expected) in [
            (Prefetch::Exact, [1, 2, 64, 100]),
            (Prefetch::Double, [1, 4, 128, 200]),
            (Prefetch::Deep, [1024, 1024, 1024, 1600]),
        ] {
            let numbers = [1, 2, 64, 100].map(|n| prefetch.for_concurrency(n));
            assert_eq!(numbers, expected, "{prefetch:?}");
        }
    }
}
