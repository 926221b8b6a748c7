use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tracing::Level;

use super::routes::Routes;
use super::status::Fate;
use super::task::Reports;
use crate::bounded_text::cut;
use crate::decide::{Case, Decision, Dispatch, Event, Material, Policy, Refused, decide};
use crate::envelope::Envelope;
use crate::flag::Flag;
use crate::handler::{Failure, Outcome, Surroundings};
use crate::random::Random;
use crate::transport::{Delivery, Rules, Settlement, Settler};

/// What the deliveries of one queue are handled with, and where their settlements are made out.
pub(super) struct Desk {
    /// The queue's place among the worker's.
    pub(super) queue: usize,
    pub(super) policy: Policy,
    pub(super) dead_letter_queue: Arc<str>,
    pub(super) settler: Arc<dyn Settler>,
    pub(super) shared: Arc<Shared>,
    pub(super) reports: UnboundedSender<Reports>,
}

/// What the queues of a worker share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: Rules,
    pub(super) routes: Routes,
    pub(super) random: Random,
    pub(super) surroundings: Arc<Surroundings>,
    /// Raised where the worker was dropped: the loop, and with it the tasks, may go a little later.
    pub(super) dropped: Flag,
}

impl Shared {
    /// Whether no handler is to begin any more.
    pub(super) fn is_ending(&self) -> bool {
        self.surroundings.stopping.is_raised() || self.dropped.is_raised()
    }
}

/// A settlement, and how it counts.
pub(super) type Settling = (Settlement, Fate);

/// What is kept of an envelope while its handler runs. Little, for it is copied into every task: the
/// envelope itself goes to the handler, and is read again where the handler fails.
pub(super) struct Sorted {
    attempts: i64,
    /// The envelope, where reading it again would say its warnings again.
    rewritten: Option<Box<Envelope>>,
}

impl Sorted {
    pub(super) fn of(dispatch: &Dispatch) -> Self {
        Self {
            attempts: dispatch.attempts,
            rewritten: dispatch
                .rewritten
                .then(|| Box::new(dispatch.envelope.clone())),
        }
    }

    fn envelope(&self, delivery: &Delivery) -> Option<Envelope> {
        match &self.rewritten {
            Some(envelope) => Some((**envelope).clone()),
            // It was decoded before: this cannot fail.
            None => Some(Envelope::decode(delivery.body.clone()).ok()?.envelope),
        }
    }
}

impl Desk {
    /// For what no handler may see.
    pub(super) fn refuse(&self, delivery: &Delivery, refused: &Refused) -> Settling {
        let why = Why {
            error: Some(&refused.error),
            exception: Some(refused.exception),
        };
        self.settle(refused.case, delivery, None, why)
    }

    /// For what no handler takes.
    pub(super) fn unknown(&self, delivery: &Delivery, dispatch: &Dispatch) -> Settling {
        let route = dispatch.route(&delivery.facts);
        let error = format!("no handler takes `{route}`");
        let why = Why {
            error: Some(&error),
            exception: Some("UnknownUrn"),
        };
        let case = Case {
            event: Event::UnknownUrn,
            attempts: dispatch.attempts,
        };
        self.settle(case, delivery, Some(&dispatch.envelope), why)
    }

    /// For what a handler has handled, or failed to.
    pub(super) fn conclude(
        &self,
        delivery: &Delivery,
        sorted: &Sorted,
        result: &Result<Outcome, Failure>,
    ) -> Settling {
        let (outcome, failure) = match result {
            // By far the most frequent, and nothing to decide.
            Ok(Outcome::Done) => return (Settlement::Ack, Fate::Handled),
            Ok(outcome) => (*outcome, None),
            Err(failure) => (failure.outcome(), Some(failure)),
        };
        let (event, without_failure) = match outcome {
            Outcome::Done => (Event::Succeeded, ""),
            Outcome::Drop => (Event::Dropped, "the handler dropped it"),
            Outcome::Retry => (Event::Failed, "the handler asked for another try"),
            Outcome::RetryAfter(delay) => (
                Event::FailedRetryAfter(delay),
                "the handler asked for another try",
            ),
            Outcome::Reject => (Event::Rejected, "the handler rejected it"),
        };
        let report = failure.map(Failure::report);
        let why = Why {
            error: Some(report.as_deref().unwrap_or(without_failure)),
            exception: failure.map(Failure::exception),
        };
        let case = Case {
            event,
            attempts: sorted.attempts,
        };
        let envelope = sorted.envelope(delivery);
        self.settle(case, delivery, envelope.as_ref(), why)
    }

    fn settle(
        &self,
        case: Case,
        delivery: &Delivery,
        envelope: Option<&Envelope>,
        why: Why<'_>,
    ) -> Settling {
        let shared = &*self.shared;
        // A sender's text (a URN, a member's name) can be as long as the message.
        let error = why.error.map(cut);
        let why = Why {
            error: error.as_deref(),
            ..why
        };
        let decision = decide(case, &self.policy, shared.rules, shared.random.unit());
        log(decision, case, delivery, envelope, why);
        let settlement = decision.settlement(&Material {
            delivery,
            envelope,
            rewritten: envelope.is_some_and(|envelope| *envelope.bytes() != delivery.body),
            dead_letter_queue: &self.dead_letter_queue,
            error: why.error,
            exception: why.exception,
            now_ms: shared.surroundings.clock.unix_millis(),
        });
        (settlement, fate(decision))
    }
}

/// What went wrong, in words, and the type of the error.
#[derive(Debug, Clone, Copy)]
struct Why<'a> {
    error: Option<&'a str>,
    exception: Option<&'a str>,
}

fn fate(decision: Decision) -> Fate {
    match decision {
        Decision::Ack => Fate::Handled,
        Decision::Drop => Fate::Dropped,
        Decision::Retry { .. } => Fate::Retried,
        Decision::Release { .. } | Decision::GiveBack => Fate::Released,
        Decision::DeadLetter { .. } | Decision::DeadLetterVerbatim => Fate::DeadLettered,
        Decision::Native { .. } => Fate::Native,
    }
}

/// Says in the log what becomes of a message that was not simply handled. The body is never shown.
fn log(
    decision: Decision,
    case: Case,
    delivery: &Delivery,
    envelope: Option<&Envelope>,
    why: Why<'_>,
) {
    let queue = &*delivery.queue;
    let id = envelope.and_then(Envelope::id);
    let id = id.as_deref();
    let urn = envelope.map(Envelope::urn);
    let urn = urn.as_deref();
    let attempts = case.attempts;
    let error = why.error;
    macro_rules! say {
        ($level:expr, $text:literal) => {
            tracing::event!($level, queue, id, urn, attempts, error, $text)
        };
    }
    match decision {
        Decision::Ack | Decision::GiveBack => {}
        Decision::Retry { .. } => say!(Level::WARN, "failed, and is tried again"),
        Decision::Release { .. } => say!(Level::DEBUG, "given back: nobody here takes its URN"),
        Decision::DeadLetter { .. } => say!(Level::WARN, "goes to the dead-letter queue"),
        Decision::DeadLetterVerbatim => {
            say!(Level::ERROR, "goes to the dead-letter queue as it came");
        }
        Decision::Native { .. } => {
            say!(Level::ERROR, "is left to the broker's own dead-lettering");
        }
        Decision::Drop => match case.event {
            Event::Dropped => say!(Level::DEBUG, "is dropped, as the handler wishes"),
            Event::Gated | Event::Poison => say!(Level::ERROR, "is dropped"),
            _ => say!(Level::WARN, "is dropped"),
        },
    }
}
