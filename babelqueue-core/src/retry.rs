//! How often and how late a message is tried again (contract §7.4–5).
//!
//! After the n-th failed delivery a message waits
//! `d(n) = min(max, base · multiplier^(n-1))`, until the deliveries reach the cap.
//!
//! ```
//! use std::time::Duration;
//! use babelqueue_core::retry::{Jitter, Retry};
//!
//! let retry = Retry::attempts(5)
//!     .backoff(Duration::from_secs(1), 2.0)
//!     .max_delay(Duration::from_secs(30))
//!     .jitter(Jitter::Full);
//! assert!(retry.validate().is_ok());
//!
//! // The third failure waits at most four seconds; the draw says where in between.
//! assert_eq!(retry.delay(3, 0.5), Duration::from_secs(2));
//! ```

use std::time::Duration;

use crate::Error;

/// The longest delay there is, where no cap is set or the formula leaves the range of numbers: a
/// hundred years of 365 days.
pub const CEILING: Duration = Duration::from_hours(100 * 365 * 24);

/// How often a message is delivered, and how long it waits in between.
///
/// The default is the contract's: 3 deliveries, no delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    max_attempts: u32,
    // In seconds, as configuration files and the contract's formula have them: a `Duration` in
    // between would round the fractions of a power.
    base: f64,
    multiplier: f64,
    max: f64,
    jitter: Jitter,
}

/// How a delay is spread, so that what failed together does not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// Not at all: the delay is `d(n)` exactly.
    #[default]
    None,
    /// Anything from nothing to `d(n)`, each alike.
    Full,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base: 0.0,
            multiplier: 1.0,
            max: 0.0,
            jitter: Jitter::None,
        }
    }
}

impl Retry {
    /// At most `max_attempts` deliveries in all, the first included; at least 1.
    pub fn attempts(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            ..Self::default()
        }
    }

    /// Waits `base` after the first failure, and `multiplier` times as long after each further one.
    #[must_use]
    pub fn backoff(self, base: Duration, multiplier: f64) -> Self {
        self.backoff_seconds(base.as_secs_f64(), multiplier)
    }

    /// [`backoff`](Self::backoff) with the base in seconds, as a configuration file has it.
    #[must_use]
    pub fn backoff_seconds(mut self, base: f64, multiplier: f64) -> Self {
        self.base = base;
        self.multiplier = multiplier;
        self
    }

    /// Waits no longer than `max`. Zero is no cap.
    #[must_use]
    pub fn max_delay(self, max: Duration) -> Self {
        self.max_delay_seconds(max.as_secs_f64())
    }

    /// [`max_delay`](Self::max_delay) in seconds.
    #[must_use]
    pub fn max_delay_seconds(mut self, max: f64) -> Self {
        self.max = max;
        self
    }

    /// Spreads the delays.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The cap on deliveries, the first included.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How long to wait after `n` failed deliveries (`n` is the new value of `attempts`, from 1).
    /// `draw` is a number in `[0, 1)`, which only full jitter looks at.
    pub fn delay(&self, n: u32, draw: f64) -> Duration {
        // In range by `delay_seconds`.
        Duration::try_from_secs_f64(self.delay_seconds(n, draw)).unwrap_or(CEILING)
    }

    /// [`delay`](Self::delay) in seconds, unrounded. Between 0 and [`CEILING`], whatever the
    /// settings.
    pub fn delay_seconds(&self, n: u32, draw: f64) -> f64 {
        let full = self.unspread_seconds(n);
        match self.jitter {
            Jitter::None => full,
            Jitter::Full => full * draw.clamp(0.0, 1.0),
        }
    }

    /// Whether the settings can be.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the setting: a cap below 1, or a number that is negative or not
    /// finite.
    pub fn validate(&self) -> Result<(), Error> {
        if self.max_attempts < 1 {
            return Err(Error::config("max_attempts", "is 0, expected at least 1"));
        }
        for (option, value) in [
            ("retry_backoff", self.base),
            ("retry_backoff_multiplier", self.multiplier),
            ("retry_backoff_max", self.max),
        ] {
            if !value.is_finite() || value < 0.0 {
                let problem = format!("is {value}, expected a finite number of at least 0");
                return Err(Error::config(option, problem));
            }
        }
        Ok(())
    }

    fn unspread_seconds(&self, n: u32) -> f64 {
        // Before the power is taken: 0 · ∞ is no number.
        if self.base <= 0.0 {
            return 0.0;
        }
        let ceiling = CEILING.as_secs_f64();
        let cap = if self.max > 0.0 {
            self.max.min(ceiling)
        } else {
            ceiling
        };
        let delay = self.base * self.multiplier.powf(f64::from(n.saturating_sub(1)));
        // Written so that NaN, which compares with nothing, is the cap too.
        if delay < cap { delay.max(0.0) } else { cap }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the contract asks for exact delays")]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_exact_without_jitter() {
        for (base, multiplier, max, n, expected) in [
            (0.0, 1.0, 0.0, 1, 0.0),
            (0.0, 1.0, 0.0, 5, 0.0),
            (5.0, 1.0, 0.0, 1, 5.0),
            (5.0, 1.0, 0.0, 4, 5.0),
            (1.0, 2.0, 0.0, 1, 1.0),
            (1.0, 2.0, 0.0, 6, 32.0),
            (1.0, 2.0, 10.0, 4, 8.0),
            (1.0, 2.0, 10.0, 5, 10.0),
            (1.0, 2.0, 10.0, 20, 10.0),
            (0.5, 3.0, 0.0, 3, 4.5),
            (2.0, 10.0, 0.0, 4, 2000.0),
            (0.1, 1.0, 0.0, 9, 0.1),
            (4.0, 0.5, 0.0, 3, 1.0),
            (4.0, 0.0, 0.0, 1, 4.0),
            (4.0, 0.0, 0.0, 2, 0.0),
        ] {
            let retry = Retry::attempts(3)
                .backoff_seconds(base, multiplier)
                .max_delay_seconds(max);
            assert_eq!(retry.delay_seconds(n, 0.9), expected, "{retry:?}, n = {n}");
        }
    }

    #[test]
    fn durations_and_seconds_say_the_same() {
        let retry = Retry::attempts(3)
            .backoff(Duration::from_millis(500), 3.0)
            .max_delay(Duration::from_secs(4));
        assert_eq!(
            retry,
            Retry::attempts(3)
                .backoff_seconds(0.5, 3.0)
                .max_delay_seconds(4.0)
        );
        assert_eq!(retry.delay(2, 0.0), Duration::from_millis(1500));
        assert_eq!(retry.delay(3, 0.0), Duration::from_secs(4));
    }

    #[test]
    fn full_jitter_spreads_from_nothing_to_the_delay() {
        let retry = Retry::attempts(3)
            .backoff_seconds(1.0, 2.0)
            .jitter(Jitter::Full);
        assert_eq!(retry.delay_seconds(3, 0.0), 0.0);
        assert_eq!(retry.delay_seconds(3, 0.25), 1.0);
        assert!(retry.delay_seconds(3, 1.0 - f64::EPSILON) < 4.0);
    }

    #[test]
    fn a_zero_base_stays_zero_when_the_power_is_infinite() {
        let retry = Retry::attempts(3).backoff_seconds(0.0, 1e308);
        assert_eq!(retry.delay_seconds(u32::MAX, 0.0), 0.0);
    }

    #[test]
    fn what_leaves_the_range_becomes_the_cap_or_the_ceiling() {
        let growing = Retry::attempts(3).backoff_seconds(1.0, 10.0);
        assert_eq!(growing.delay(u32::MAX, 0.0), CEILING);
        assert_eq!(growing.delay(300, 0.0), CEILING);
        let capped = growing.max_delay(Duration::from_mins(1));
        assert_eq!(capped.delay(u32::MAX, 0.0), Duration::from_mins(1));
        let beyond = growing.max_delay_seconds(f64::MAX);
        assert_eq!(beyond.delay(u32::MAX, 0.0), CEILING);
    }

    #[test]
    fn unvalidated_nonsense_still_gives_a_delay_in_range() {
        for base in [f64::NAN, f64::INFINITY, -1.0, 1.0] {
            for multiplier in [f64::NAN, f64::NEG_INFINITY, -2.0] {
                for n in [0, 1, 2, u32::MAX] {
                    let retry = Retry::attempts(0).backoff_seconds(base, multiplier);
                    assert!(retry.delay(n, 0.0) <= CEILING);
                }
            }
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let refused = |retry: Retry| match retry.validate() {
            Err(Error::Config { option, .. }) => option,
            other => panic!("{retry:?} gave {other:?}"),
        };
        assert_eq!(refused(Retry::attempts(0)), "max_attempts");
        for bad in [-0.5, f64::NAN, f64::INFINITY] {
            let retry = Retry::default();
            assert_eq!(refused(retry.backoff_seconds(bad, 1.0)), "retry_backoff");
            assert_eq!(
                refused(retry.backoff_seconds(1.0, bad)),
                "retry_backoff_multiplier"
            );
            assert_eq!(refused(retry.max_delay_seconds(bad)), "retry_backoff_max");
        }
        assert!(Retry::attempts(1).validate().is_ok());
        assert!(Retry::default().validate().is_ok());
    }
}
