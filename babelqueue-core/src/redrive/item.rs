use std::sync::Arc;

use crate::Error;
use crate::envelope::Envelope;

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// `meta.id`.
    pub message_id: Option<String>,
    /// `trace_id`.
    pub trace_id: Option<String>,
    /// The URN; `None` for poison.
    pub urn: Option<String>,
    /// `dead_letter.reason`, as it stands there.
    pub reason: Option<String>,
    /// The dead-letter queue.
    pub from: Arc<str>,
    /// The target, also on a dry run; `None` where it was not selected, or has none.
    pub to: Option<Arc<str>>,
    /// What became of it.
    pub fate: Fate,
    /// Whether it carries the replay mark now.
    pub bypassed: bool,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// It was moved.
    Redriven,
    /// It would have been moved, but for the dry run.
    Planned,
    /// It stays: the selection does not hold.
    NotSelected,
    /// It stays: it is poison, and a second try would end the same way.
    Poison,
    /// It stays: it was dead-lettered after the run began, most likely because it was moved and has
    /// failed again. The next run looks at it.
    TooNew,
    /// It stays: the run has moved it already, or another copy of it: one with the same `meta.id`, or
    /// without an id with the same content. Most likely it has failed again. The next run looks at
    /// it.
    MovedBefore,
    /// It stays: nothing says where it came from, or it came from the dead-letter queue itself.
    NoTarget,
    /// It was no longer ours when it was to be moved; it is back in the dead-letter queue.
    Lost,
}

impl Item {
    /// An item of which nothing is known but where it is.
    pub(super) fn unread(from: &Arc<str>) -> Self {
        Self {
            message_id: None,
            trace_id: None,
            urn: None,
            reason: None,
            from: Arc::clone(from),
            to: None,
            fate: Fate::Poison,
            bypassed: false,
        }
    }

    pub(super) fn of(from: &Arc<str>, envelope: &Envelope) -> Self {
        let block = envelope.dead_letter().unwrap_or_default();
        Self {
            message_id: envelope.id().map(Into::into),
            trace_id: envelope.trace_id().map(Into::into),
            urn: Some(envelope.urn().into_owned()),
            reason: block.reason.map(Into::into),
            ..Self::unread(from)
        }
    }

    /// Whether it was moved.
    pub fn redriven(&self) -> bool {
        self.fate == Fate::Redriven
    }
}

/// How many messages a run moved, and how many it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Moved.
    pub redriven: usize,
    /// Looked at, and left in the dead-letter queue; on a dry run, all.
    pub skipped: usize,
}

impl Summary {
    pub(super) fn count(&mut self, item: &Item) {
        if item.redriven() {
            self.redriven += 1;
        } else {
            self.skipped += 1;
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// In numbers.
    pub summary: Summary,
    /// Each message, in the order in which their fates were known.
    pub items: Vec<Item>,
}

/// A run that the broker ended.
#[derive(Debug, thiserror::Error)]
#[error("the redrive stopped after {} messages were moved and {} left: {source}", summary.redriven, summary.skipped)]
#[non_exhaustive]
pub struct Interrupted {
    /// What was done until then.
    pub summary: Summary,
    /// Why it ended.
    pub source: Error,
}

impl Interrupted {
    pub(super) fn new(summary: Summary, source: Error) -> Self {
        Self { summary, source }
    }
}
