use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// What the core wants done with a delivery. How a broker does it (one script, a visibility change,
/// a confirmed copy and then the ack) is that broker crate's business; its README has the table.
#[derive(Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Done: the broker forgets the message.
    Ack,

    /// Deliver it again, counted. Headers, key, route and native properties go along.
    Retry {
        /// The envelope with `attempts` raised to `attempts`; for a poison body on the bounded path
        /// (contract §8) the received bytes, untouched.
        body: Bytes,
        /// The new count, for the broker's own property where it has one.
        attempts: u32,
        /// How long to wait first. Zero where no back-off is configured.
        delay: Duration,
    },

    /// Give it back uncounted, as far as the broker lets us.
    Release {
        /// A body to give back instead of the received one, where the transport writes one: only
        /// set when the received one carries a forbidden key (contract §7.7).
        body: Option<Bytes>,
        /// How long to hold it back first.
        delay: Duration,
    },

    /// Move it to a dead-letter queue: a confirmed copy, then the ack.
    DeadLetter {
        /// The dead-letter queue's logical name.
        queue: Arc<str>,
        /// What to write there.
        record: Bytes,
        /// Whether the record is the received body, byte for byte, whose native properties have to
        /// go along unchanged (contract §9.6), rather than be projected from the record.
        verbatim: bool,
        /// The count to write into the broker's own property, where it has one.
        attempts: u32,
    },

    /// Move it to another queue to be handled again: what a redrive does with a dead letter
    /// (contract §17A). As for [`DeadLetter`](Self::DeadLetter) a confirmed copy, then the ack;
    /// headers, key, route and native properties go along, and a count property says 0.
    Redrive {
        /// The target queue's logical name.
        queue: Arc<str>,
        /// What to write there: the envelope with `attempts` 0.
        body: Bytes,
        /// Whether the copy carries the replay mark beside the delivery's headers; an older mark goes
        /// where it does not ([`replay::marked`](crate::replay::marked)).
        bypass: bool,
        /// Whether the body is the received one, byte for byte, whose version property has to go
        /// along unchanged (contract §9.6), rather than be projected from the body.
        verbatim: bool,
    },

    /// Leave it to the broker's own dead-lettering (contract §8, §9.5): no ack, no copy.
    Native {
        /// A short word: `poison`, `unsupported schema version`.
        reason: &'static str,
        /// What was wrong, in words.
        description: String,
    },

    /// Leave it unsettled: the broker gives it out again.
    Abandon,
}

impl Settlement {
    /// An immediate release of the received body.
    pub const fn release() -> Self {
        Self::Release {
            body: None,
            delay: Duration::ZERO,
        }
    }
}

/// Bodies are shown by length: they are the user's data.
impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack => f.write_str("Ack"),
            Self::Retry {
                body,
                attempts,
                delay,
            } => f
                .debug_struct("Retry")
                .field("body_len", &body.len())
                .field("attempts", attempts)
                .field("delay", delay)
                .finish(),
            Self::Release { body, delay } => f
                .debug_struct("Release")
                .field("body_len", &body.as_ref().map(Bytes::len))
                .field("delay", delay)
                .finish(),
            Self::DeadLetter {
                queue,
                record,
                verbatim,
                attempts,
            } => f
                .debug_struct("DeadLetter")
                .field("queue", queue)
                .field("record_len", &record.len())
                .field("verbatim", verbatim)
                .field("attempts", attempts)
                .finish(),
            Self::Redrive {
                queue,
                body,
                bypass,
                verbatim,
            } => f
                .debug_struct("Redrive")
                .field("queue", queue)
                .field("body_len", &body.len())
                .field("bypass", bypass)
                .field("verbatim", verbatim)
                .finish(),
            Self::Native {
                reason,
                description,
            } => f
                .debug_struct("Native")
                .field("reason", reason)
                .field("description", description)
                .finish(),
            Self::Abandon => f.write_str("Abandon"),
        }
    }
}

/// A broker's answer to a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Done as asked.
    Done,
    /// The delivery was no longer ours (its lease, lane or connection was gone); nothing was done.
    Fenced,
    /// Done, and the rest of the delivery's lane was taken back with it: the broker gives those
    /// messages out again, in order.
    LaneRewound,
}
