use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Memory;
use crate::Headers;
use crate::transport::{Fence, Lane};

/// One thing that happened in the broker, whatever the caller was told of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: Instant,
    /// In which queue.
    pub queue: Arc<str>,
    /// To which message: a number of the broker's own, which a copy does not share.
    pub message: u64,
    /// What.
    pub what: What,
}

/// What happened to a message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum What {
    /// It entered the queue.
    Entered {
        /// Its body.
        body: Bytes,
        /// What travels beside it.
        headers: Headers,
        /// Its lane, if it has one.
        lane: Option<Lane>,
        /// The message that it is a copy of: a retry, or a dead letter.
        copy_of: Option<u64>,
        /// How long it is held back first.
        delay: Duration,
    },
    /// It was handed out.
    Delivered {
        /// What its settlement is fenced with.
        fence: Fence,
        /// Its place in its lane: rises along the lane, and stays with a message that comes again.
        place: u64,
    },
    /// It was acknowledged, and is gone.
    Acked,
    /// It was put back, counted: with a new body in place, or by a copy, which
    /// [enters](Self::Entered) before the original is [acknowledged](Self::Acked).
    Retried {
        /// The new count.
        attempts: u32,
        /// The body that the next delivery has.
        body: Bytes,
    },
    /// It was given back uncounted.
    Released,
    /// Its copy went to the dead-letter queue before it is [acknowledged](Self::Acked).
    DeadLettered {
        /// Where to.
        queue: Arc<str>,
        /// The copy.
        copy: u64,
    },
    /// It was left unsettled on purpose, or because its settlement failed before it was done.
    Forsaken,
    /// Its lease ran out.
    Expired,
    /// Its connection, or its subscription, is gone.
    Disconnected,
    /// It was taken back because an earlier message of its lane comes again.
    Rewound,
    /// Its lease was renewed.
    Extended {
        /// The new end.
        until: Instant,
    },
}

impl Memory {
    /// What happened since the last call, in order. Empty unless the broker was built with
    /// [`journal`](super::MemoryBuilder::journal).
    pub fn take_journal(&self) -> Vec<Event> {
        self.lock().journal.take()
    }

    #[cfg(feature = "test-kit")]
    pub(crate) fn journal(&self) -> Journal {
        self.lock().journal.clone()
    }
}

/// The book of events, shared by the queues; absent where nobody wants it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    events: Option<Arc<Mutex<Vec<Event>>>>,
}

impl Journal {
    pub(super) fn kept() -> Self {
        Self {
            events: Some(Arc::default()),
        }
    }

    /// Notes an event; `what` is made only where the journal is kept.
    pub(super) fn note(
        &self,
        at: Instant,
        queue: &Arc<str>,
        message: u64,
        what: impl FnOnce() -> What,
    ) {
        if let Some(events) = &self.events {
            let event = Event {
                at,
                queue: Arc::clone(queue),
                message,
                what: what(),
            };
            events
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(event);
        }
    }

    /// How many events it holds.
    #[cfg(feature = "test-kit")]
    pub(crate) fn len(&self) -> usize {
        self.events.as_ref().map_or(0, |events| {
            events.lock().unwrap_or_else(PoisonError::into_inner).len()
        })
    }

    fn take(&self) -> Vec<Event> {
        match &self.events {
            Some(events) => {
                std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner))
            }
            None => Vec::new(),
        }
    }
}
