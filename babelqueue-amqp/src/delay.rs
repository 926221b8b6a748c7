//! Delays without a plugin: a queue for each distinct delay, whose messages expire back into the
//! queue that they are meant for.
//!
//! One queue with mixed times to live would hold back short delays behind long ones, since RabbitMQ
//! only expires what stands at the head. So each delay has a queue of its own, and delays are
//! rounded up to a small number of steps.

use std::time::Duration;

/// The leading digits of the steps: 13 in each factor of ten, no two further apart than a quarter.
/// The usual back-offs (1, 2, 4, 8, 16, 32, 64; 5, 10, 30, 60, 300 …) are steps themselves.
const STEPS: [u64; 13] = [10, 12, 15, 16, 20, 25, 30, 32, 40, 50, 60, 64, 80];

/// Nothing shorter is told apart.
const SHORTEST_MS: u64 = 100;

/// The longest step whose expiry, too, is below RabbitMQ's limit of 2^32 − 1 ms.
const LONGEST_MS: u64 = 4_000_000_000;

/// The longest delay: a little more than 46 days.
pub(crate) const MAX: Duration = Duration::from_millis(LONGEST_MS);

/// How much longer than its own delay an unused delay queue lives. RabbitMQ deletes a queue that was
/// neither declared nor consumed for its `x-expires`, whatever it holds: it has to be declared again
/// before that, see [`Step::is_fresh`].
const GRACE: Duration = Duration::from_mins(10);

/// How long a declaration serves. Far below [`GRACE`], so that a message published at its end has
/// expired into its target long before its queue does.
const REDECLARE: Duration = Duration::from_mins(1);

/// How late a publish may be confirmed after its delay queue was declared; later, and the queue may
/// have expired with the message in it.
const CONFIRM_BY: Duration = Duration::from_mins(5);

/// A delay, rounded up: what one delay queue waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Step {
    ms: u64,
}

impl Step {
    /// The shortest step that is not shorter than `delay`; `None` for no delay at all. What is longer
    /// than [`MAX`] waits [`MAX`].
    pub(crate) fn at_least(delay: Duration) -> Option<Self> {
        if delay.is_zero() {
            return None;
        }
        let wanted = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let wanted = wanted.clamp(SHORTEST_MS, LONGEST_MS);
        let mut unit = SHORTEST_MS / STEPS[0];
        while wanted > unit * 80 {
            unit *= 10;
        }
        // Above 80 of the unit below, 10 of this one is the first step there is.
        let digits = STEPS.iter().find(|digits| *digits * unit >= wanted)?;
        Some(Self { ms: digits * unit })
    }

    /// How long it waits, in milliseconds: the `x-message-ttl` of its queue.
    pub(crate) fn ttl_ms(self) -> u64 {
        self.ms
    }

    /// The `x-expires` of its queue, in milliseconds.
    pub(crate) fn expires_ms(self) -> u64 {
        self.ms + u64::try_from(GRACE.as_millis()).unwrap_or(0)
    }

    /// The name of its queue before `queue`.
    pub(crate) fn queue_name(self, queue: &str) -> String {
        format!("{queue}.delay.{}", self.ms)
    }
}

/// The longest suffix that [`Step::queue_name`] adds, in bytes.
pub(crate) const LONGEST_SUFFIX: usize = ".delay.4000000000".len();

/// Whether a delay queue declared this long ago need not be declared again before a publish.
pub(crate) fn is_fresh(age: Duration) -> bool {
    age < REDECLARE
}

/// Whether a publish that was confirmed this long after its delay queue's declaration is sure to
/// reach its target.
pub(crate) fn is_in_time(age: Duration) -> bool {
    age < CONFIRM_BY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(delay: Duration) -> Option<u64> {
        Step::at_least(delay).map(Step::ttl_ms)
    }

    #[test]
    fn the_usual_delays_are_kept_as_they_are() {
        for seconds in [1, 2, 4, 5, 8, 10, 16, 30, 32, 60, 64, 120, 300, 600] {
            assert_eq!(ms(Duration::from_secs(seconds)), Some(seconds * 1000));
        }
    }

    #[test]
    fn a_delay_is_never_shortened_and_at_most_a_quarter_longer() {
        let mut wanted = 100_u64;
        while wanted < LONGEST_MS {
            let got = ms(Duration::from_millis(wanted)).unwrap();
            assert!(got >= wanted && got * 4 <= wanted * 5, "{wanted}: {got}");
            wanted += 1 + wanted / 97;
        }
    }

    #[test]
    fn there_are_few_steps() {
        let mut steps = std::collections::BTreeSet::new();
        let mut wanted = 1;
        while wanted <= 80_000_000 {
            steps.insert(ms(Duration::from_millis(wanted)));
            wanted += 1 + wanted / 97;
        }
        assert_eq!(steps.len(), 6 * STEPS.len(), "from 100 ms to 22 hours");
    }

    #[test]
    fn the_ends_are_bounded() {
        assert_eq!(ms(Duration::ZERO), None);
        assert_eq!(ms(Duration::from_nanos(1)), Some(100));
        assert_eq!(ms(Duration::from_nanos(100_000_001)), Some(120));
        assert_eq!(ms(Duration::MAX), Some(LONGEST_MS));
        assert_eq!(ms(MAX), Some(LONGEST_MS));
        let longest = Step::at_least(Duration::MAX).unwrap();
        assert!(longest.expires_ms() < u64::from(u32::MAX));
        assert_eq!(longest.queue_name("").len(), LONGEST_SUFFIX);
    }

    #[test]
    fn a_message_outlives_no_delay_queue() {
        let step = Step::at_least(Duration::from_secs(30)).unwrap();
        assert_eq!(step.queue_name("orders"), "orders.delay.30000");
        let expires = Duration::from_millis(step.expires_ms());
        let delay = Duration::from_millis(step.ttl_ms());
        // Declared, published as late as it may be, confirmed as late as it may be, then waited.
        assert!(CONFIRM_BY + delay + Duration::from_mins(1) < expires);
        assert!(REDECLARE < CONFIRM_BY);
    }
}
