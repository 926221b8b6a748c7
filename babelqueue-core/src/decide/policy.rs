use std::str::FromStr;
use std::time::Duration;

use crate::retry::Retry;
use crate::transport::{GateRule, PoisonRule, Rules};
use crate::{Error, dead_letter};

/// How one queue's messages are treated.
///
/// The default is the contract's (§7.1): 3 deliveries without delay, dead-lettering off, a URN
/// without a handler counts as a failure.
///
/// ```
/// use std::time::Duration;
/// use babelqueue_core::decide::{Policy, UnknownUrn};
/// use babelqueue_core::retry::Retry;
///
/// let policy = Policy::default()
///     .retry(Retry::attempts(5).backoff(Duration::from_secs(1), 2.0))
///     .dead_letter(true)
///     .on_unknown_urn(UnknownUrn::DeadLetter);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Policy {
    /// How often and how late a message is tried again.
    pub retry: Retry,
    /// Whether what has used up its deliveries goes to the dead-letter queue, rather than being
    /// dropped.
    pub dead_letter: bool,
    /// The dead-letter queue's name, in place of the default made from the source's.
    pub dead_letter_queue: Option<String>,
    /// What a dead-letter queue's default name ends in, in place of the binding's own suffix.
    pub dead_letter_suffix: Option<String>,
    /// What becomes of a message whose URN no handler takes. Also settles what becomes of bodies
    /// that do not decode and of foreign schema versions (contract §8, §9.5).
    pub on_unknown_urn: UnknownUrn,
    /// How long [`UnknownUrn::Release`] holds a message back.
    pub unknown_urn_release_delay: Duration,
}

impl Policy {
    /// Sets [`retry`](Self::retry).
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets [`dead_letter`](Self::dead_letter).
    #[must_use]
    pub fn dead_letter(mut self, on: bool) -> Self {
        self.dead_letter = on;
        self
    }

    /// Sets [`dead_letter_queue`](Self::dead_letter_queue). An empty name counts as unset.
    #[must_use]
    pub fn dead_letter_queue(mut self, queue: impl Into<String>) -> Self {
        self.dead_letter_queue = Some(queue.into()).filter(|queue| !queue.is_empty());
        self
    }

    /// Sets [`dead_letter_suffix`](Self::dead_letter_suffix). An empty suffix counts as unset
    /// (contract §6.3).
    #[must_use]
    pub fn dead_letter_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.dead_letter_suffix = Some(suffix.into()).filter(|suffix| !suffix.is_empty());
        self
    }

    /// Sets [`on_unknown_urn`](Self::on_unknown_urn).
    #[must_use]
    pub fn on_unknown_urn(mut self, strategy: UnknownUrn) -> Self {
        self.on_unknown_urn = strategy;
        self
    }

    /// Sets [`unknown_urn_release_delay`](Self::unknown_urn_release_delay).
    #[must_use]
    pub fn unknown_urn_release_delay(mut self, delay: Duration) -> Self {
        self.unknown_urn_release_delay = delay;
        self
    }

    /// The name of the dead-letter queue of `queue` (contract §6.3). It is asked for also where
    /// dead-lettering is off: Redis writes poison there whatever is configured.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where it is `queue` itself.
    pub fn dead_letter_queue_for(&self, queue: &str, rules: Rules) -> Result<String, Error> {
        dead_letter::queue_name(
            queue,
            self.dead_letter_queue.as_deref(),
            self.dead_letter_suffix.as_deref(),
            rules.dead_letter,
        )
    }

    /// Whether the dead-letter queue may be written to at all on a binding with these rules, so that
    /// it has to exist.
    pub fn may_dead_letter(&self, rules: Rules) -> bool {
        self.dead_letter
            || self.on_unknown_urn == UnknownUrn::DeadLetter
            || rules.poison == PoisonRule::AlwaysDeadLetter
            || rules.gate == GateRule::AlwaysDeadLetter
    }

    /// Whether the settings can be, for `queue` on a binding with these rules.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the setting.
    pub fn validate(&self, queue: &str, rules: Rules) -> Result<(), Error> {
        self.retry.validate()?;
        self.dead_letter_queue_for(queue, rules).map(drop)
    }
}

/// What becomes of a valid envelope whose URN no handler takes (contract §7.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum UnknownUrn {
    /// It counts as a failure: tried again, then dead-lettered with reason `unknown_urn`.
    #[default]
    Fail,
    /// It is acknowledged and dropped.
    Delete,
    /// It is given back without a count, for ever, for a consumer that knows it.
    Release,
    /// It goes to the dead-letter queue at once, even where dead-lettering is off.
    DeadLetter,
}

impl UnknownUrn {
    /// The name of the strategy in a configuration: `fail`, `delete`, `release`, `dead_letter`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Delete => "delete",
            Self::Release => "release",
            Self::DeadLetter => "dead_letter",
        }
    }
}

impl FromStr for UnknownUrn {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        [Self::Fail, Self::Delete, Self::Release, Self::DeadLetter]
            .into_iter()
            .find(|strategy| strategy.as_str() == name)
            .ok_or_else(|| {
                let expected = "expected fail, delete, release or dead_letter";
                Error::config("on_unknown_urn", format!("is {name:?}, {expected}"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(policy: &Policy, rules: Rules) -> &'static str {
        match policy.validate("orders", rules) {
            Err(Error::Config { option, .. }) => option,
            other => panic!("{policy:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_contracts() {
        let policy = Policy::default();
        assert_eq!(policy.retry.max_attempts(), 3);
        assert_eq!(policy.retry.delay(2, 0.5), Duration::ZERO);
        assert!(!policy.dead_letter);
        assert_eq!(policy.on_unknown_urn, UnknownUrn::Fail);
        assert_eq!(policy.unknown_urn_release_delay, Duration::ZERO);
        assert!(policy.validate("orders", Rules::MEMORY).is_ok());
    }

    #[test]
    fn the_retry_settings_are_checked() {
        let policy = Policy::default().retry(Retry::attempts(0));
        assert_eq!(refused(&policy, Rules::MEMORY), "max_attempts");
    }

    #[test]
    fn a_dead_letter_queue_is_not_its_own_source() {
        let policy = Policy::default().dead_letter_queue("orders");
        refused(&policy, Rules::MEMORY);
        assert!(policy.validate("invoices", Rules::MEMORY).is_ok());
    }

    #[test]
    fn an_empty_name_or_suffix_is_unset() {
        let policy = Policy::default()
            .dead_letter_queue("")
            .dead_letter_suffix("");
        let name = |rules| policy.dead_letter_queue_for("orders", rules).ok();
        assert_eq!(name(Rules::MEMORY).as_deref(), Some("orders.dlq"));
        assert_eq!(name(Rules::SQS).as_deref(), Some("orders-dlq"));
    }

    #[test]
    fn a_dead_letter_queue_is_needed_where_it_may_be_written_to() {
        let off = Policy::default();
        assert!(!off.may_dead_letter(Rules::KAFKA));
        assert!(off.may_dead_letter(Rules::REDIS));
        assert!(off.clone().dead_letter(true).may_dead_letter(Rules::KAFKA));
        let strategy = off.on_unknown_urn(UnknownUrn::DeadLetter);
        assert!(strategy.may_dead_letter(Rules::KAFKA));
    }

    #[test]
    fn strategies_are_read_by_name() {
        for strategy in [
            UnknownUrn::Fail,
            UnknownUrn::Delete,
            UnknownUrn::Release,
            UnknownUrn::DeadLetter,
        ] {
            assert_eq!(strategy.as_str().parse::<UnknownUrn>().ok(), Some(strategy));
        }
        assert!("Fail".parse::<UnknownUrn>().is_err());
    }
}
