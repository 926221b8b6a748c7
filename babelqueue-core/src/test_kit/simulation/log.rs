//! What the run saw from the worker's side, in step with the broker's own journal.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::Headers;
use crate::memory::journal::Journal;
use crate::memory::{Fault, Verb};
use crate::transport::{Delivery, Fence, Settled, Settlement};
use crate::worker::Counts;

/// One thing seen, and how many events the broker's journal held then: the two make one history.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) after: usize,
    pub(super) at: Instant,
    pub(super) note: Note,
}

/// A worker's life, by number. The publisher has none.
pub(super) type LifeId = usize;

#[derive(Debug)]
pub(super) enum Note {
    Publishing {
        number: usize,
    },
    /// The broker said that it has it.
    Confirmed {
        number: usize,
    },
    /// Something goes wrong with the next call, whosesoever it is.
    Fault {
        fault: Fault,
    },
    /// Every connection was cut.
    Cut,
    Received {
        life: LifeId,
        delivery: Arc<Delivery>,
    },
    /// A receive, or a subscribe, failed.
    ReceiveFailed,
    Refused {
        life: LifeId,
        fence: Fence,
    },
    Started {
        life: LifeId,
        fence: Fence,
        attempts: u32,
        lost: bool,
        body: Bytes,
        headers: Headers,
    },
    Ended {
        fence: Fence,
        ending: Ending,
    },
    Settling {
        life: LifeId,
        fence: Fence,
        settlement: Settlement,
    },
    Settled {
        life: LifeId,
        fence: Fence,
        answer: Answer,
    },
    Extending {
        life: LifeId,
        fence: Fence,
    },
    Extended {
        fence: Fence,
        answer: Answer,
    },
    Closing {
        life: LifeId,
    },
    /// The life was told to stop.
    StopTold {
        life: LifeId,
    },
    /// The life was dropped.
    Killed {
        life: LifeId,
    },
    /// The life ended by itself.
    LifeEnded {
        life: LifeId,
        outcome: LifeOutcome,
    },
    /// A call too many: something spins.
    Spun {
        verb: Verb,
    },
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Drop,
    Failed,
    RetryAfter,
    Reject,
    /// Dropped before it was done.
    Aborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Fenced,
    LaneRewound,
    Renewed,
    Lost,
    Failed,
}

impl From<&Result<Settled, crate::Error>> for Answer {
    fn from(answer: &Result<Settled, crate::Error>) -> Self {
        match answer {
            Ok(Settled::Done) => Self::Done,
            Ok(Settled::Fenced) => Self::Fenced,
            Ok(Settled::LaneRewound) => Self::LaneRewound,
            Err(_) => Self::Failed,
        }
    }
}

#[derive(Debug)]
pub(super) enum LifeOutcome {
    Stopped { in_flight: usize, counts: Counts },
    Failed,
}

#[derive(Debug)]
pub(super) struct Log {
    journal: Journal,
    seen: Mutex<Vec<Seen>>,
}

impl Log {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            seen: Mutex::new(Vec::with_capacity(1024)),
        }
    }

    pub(super) fn note(&self, note: Note) {
        let seen = Seen {
            after: self.journal.len(),
            at: Instant::now(),
            note,
        };
        self.lock().push(seen);
    }

    pub(super) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
