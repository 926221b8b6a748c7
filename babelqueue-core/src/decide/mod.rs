//! What becomes of a delivery (contract §7, §8, §9.5).
//!
//! Pure functions, in the order in which a delivery meets them:
//!
//! 1. [`classify`]: gate, then the verdict on the received bytes, then the body's own version, then
//!    the attempts. It gives either a [`Dispatch`], which goes to a handler, or a [`Refused`].
//! 2. [`decide`]: what happened ([`Event`]) and how often it was delivered before, held against the
//!    queue's [`Policy`] and the binding's [`Rules`], gives a [`Decision`].
//! 3. [`Decision::settlement`]: the decision with bytes: which body goes where.
//!
//! Where brokers differ, they differ by a row of [`Rules`], never by a branch on a broker's name.

mod attempts;
mod classify;
mod policy;
mod settlement;

use std::time::Duration;

pub use attempts::{parse_count, poison_count, reconcile};
pub use classify::{Dispatch, Refused, classify};
pub use policy::{Policy, UnknownUrn};
pub use settlement::Material;

use crate::dead_letter::Reason;
use crate::transport::{GateRule, PoisonRule, Rules};

/// What happened to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Its schema version is not ours; nothing was decoded (contract §9).
    Gated,
    /// Its body is no envelope (§2A).
    Poison,
    /// No handler takes its URN (§7.7).
    UnknownUrn,
    /// The handler is done.
    Succeeded,
    /// The handler wants no more of it: acknowledged, and nothing kept.
    Dropped,
    /// The handler failed, or asked for another try.
    Failed,
    /// The handler failed, and says how long to wait before the next try.
    FailedRetryAfter(Duration),
    /// The handler wants it in the dead-letter queue at once.
    Rejected,
    /// The worker stopped before the handler was done, or started (§7.9).
    Interrupted,
}

/// An [`Event`], and how often the message was delivered before: [`reconcile`]d, or the
/// [`poison_count`] of a body that does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What happened.
    pub event: Event,
    /// Deliveries before this one.
    pub attempts: i64,
}

/// What is to be done with a delivery, without the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Acknowledge it: it was handled.
    Ack,
    /// Acknowledge it, keep nothing, and say so in the log.
    Drop,
    /// Deliver it again, counted.
    Retry {
        /// The new count.
        attempts: i64,
        /// How long to wait first.
        delay: Duration,
    },
    /// Give it back without a count of ours, because nobody here takes its URN.
    Release {
        /// How long to hold it back first.
        delay: Duration,
    },
    /// Give it back as it came, because the worker stops.
    GiveBack,
    /// Write a record that says why, then acknowledge.
    DeadLetter {
        /// Why.
        reason: Reason,
        /// The count that the record states.
        attempts: i64,
        /// Whether the record names an error; a URN that goes to the dead-letter queue by strategy
        /// has none (contract §6.2).
        with_error: bool,
    },
    /// Write the received body byte for byte, without a block, then acknowledge.
    DeadLetterVerbatim,
    /// Leave it to the broker's own dead-lettering.
    Native {
        /// A short word for the broker.
        reason: &'static str,
    },
}

/// Decides. `draw` is a number in `[0, 1)`, which spreads the delay of a retry where the policy
/// asks for it.
///
/// ```
/// use babelqueue_core::decide::{Case, Decision, Event, Policy, decide};
/// use babelqueue_core::transport::Rules;
///
/// let policy = Policy::default().dead_letter(true); // 3 deliveries
/// let failed = |attempts| {
///     let case = Case { event: Event::Failed, attempts };
///     decide(case, &policy, Rules::MEMORY, 0.0)
/// };
/// assert!(matches!(failed(0), Decision::Retry { attempts: 1, .. }));
/// assert!(matches!(failed(2), Decision::DeadLetter { attempts: 3, .. }));
/// ```
pub fn decide(case: Case, policy: &Policy, rules: Rules, draw: f64) -> Decision {
    let failed = Failure {
        counted: case.attempts.max(0).saturating_add(1),
        policy,
        rules,
        draw,
    };
    match case.event {
        Event::Succeeded => Decision::Ack,
        Event::Dropped => Decision::Drop,
        Event::Interrupted => Decision::GiveBack,
        Event::Failed => failed.retry_or_end(Reason::Failed, None),
        Event::FailedRetryAfter(delay) => failed.retry_or_end(Reason::Failed, Some(delay)),
        Event::Rejected => failed.end(Reason::Failed),
        Event::UnknownUrn => unknown_urn(&failed, case.attempts.max(0)),
        Event::Poison => poison(&failed, case.attempts.max(0)),
        Event::Gated => gated(policy, rules),
    }
}

/// A URN that no handler takes, by the configured strategy (contract §7.7).
fn unknown_urn(failed: &Failure<'_>, attempts: i64) -> Decision {
    match failed.policy.on_unknown_urn {
        UnknownUrn::Fail => failed.retry_or_end(Reason::UnknownUrn, None),
        UnknownUrn::Delete => Decision::Drop,
        UnknownUrn::Release if failed.rules.counted_release => Decision::Retry {
            attempts: failed.counted,
            delay: Duration::ZERO,
        },
        UnknownUrn::Release => Decision::Release {
            delay: failed
                .rules
                .delayed(failed.policy.unknown_urn_release_delay),
        },
        UnknownUrn::DeadLetter => Decision::DeadLetter {
            reason: Reason::UnknownUrn,
            attempts,
            with_error: false,
        },
    }
}

/// The table of contract §8, in its own order: Redis first, then `delete`, then on, then off.
fn poison(failed: &Failure<'_>, attempts: i64) -> Decision {
    let (policy, rule) = (failed.policy, failed.rules.poison);
    let record = Decision::DeadLetter {
        reason: Reason::Poison,
        attempts,
        with_error: true,
    };
    if rule == PoisonRule::AlwaysDeadLetter {
        return record;
    }
    match policy.on_unknown_urn {
        UnknownUrn::Delete => Decision::Drop,
        UnknownUrn::DeadLetter => record,
        UnknownUrn::Fail | UnknownUrn::Release if policy.dead_letter => record,
        UnknownUrn::Fail | UnknownUrn::Release => match rule {
            PoisonRule::AlwaysDeadLetter => record,
            PoisonRule::Native => Decision::Native { reason: "poison" },
            PoisonRule::Bounded => failed.retry(None).unwrap_or(Decision::Drop),
            PoisonRule::Drop => Decision::Drop,
        },
    }
}

/// The matrix of contract §9.5. Attempts do not come into it.
fn gated(policy: &Policy, rules: Rules) -> Decision {
    if rules.gate == GateRule::AlwaysDeadLetter {
        return Decision::DeadLetterVerbatim;
    }
    match policy.on_unknown_urn {
        UnknownUrn::Delete => Decision::Drop,
        UnknownUrn::DeadLetter => Decision::DeadLetterVerbatim,
        UnknownUrn::Fail | UnknownUrn::Release if policy.dead_letter => {
            Decision::DeadLetterVerbatim
        }
        UnknownUrn::Fail | UnknownUrn::Release => match rules.gate {
            GateRule::AlwaysDeadLetter => Decision::DeadLetterVerbatim,
            GateRule::Native => Decision::Native {
                reason: "unsupported schema version",
            },
            GateRule::Drop => Decision::Drop,
        },
    }
}

/// A delivery that failed, counted.
struct Failure<'a> {
    counted: i64,
    policy: &'a Policy,
    rules: Rules,
    draw: f64,
}

impl Failure<'_> {
    /// Rule 4 of contract §7.
    fn retry_or_end(&self, reason: Reason, after: Option<Duration>) -> Decision {
        self.retry(after).unwrap_or_else(|| self.end(reason))
    }

    /// Another try, `after` this long or after the back-off, unless the deliveries have reached the
    /// cap.
    fn retry(&self, after: Option<Duration>) -> Option<Decision> {
        let n = u32::try_from(self.counted).unwrap_or(u32::MAX);
        let retry = &self.policy.retry;
        (n < retry.max_attempts()).then(|| Decision::Retry {
            attempts: self.counted,
            delay: self
                .rules
                .delayed(after.unwrap_or_else(|| retry.delay(n, self.draw))),
        })
    }

    fn end(&self, reason: Reason) -> Decision {
        if self.policy.dead_letter {
            Decision::DeadLetter {
                reason,
                attempts: self.counted,
                with_error: true,
            }
        } else {
            Decision::Drop
        }
    }
}

#[cfg(test)]
mod tests;
