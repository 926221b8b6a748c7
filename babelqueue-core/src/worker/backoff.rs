use std::time::Duration;

use tokio::time::Instant;

use super::stop::later;
use crate::random::Random;

/// How long a worker waits after a failure of the broker's, before it tries again: doubled with each
/// failure in a row up to a cap, and spread so that workers which lost a broker together do not
/// come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            failures: 0,
        }
    }

    /// Counts one more failure, and says how long to wait: between half of the full delay and all of
    /// it.
    pub(super) fn next(&mut self, random: &Random) -> Duration {
        let doubled = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        let full = self.first.saturating_mul(doubled).min(self.cap);
        full.mul_f64(0.5 + random.unit() / 2.0)
    }

    /// It works again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A time in which nothing is received.
#[derive(Debug, Default)]
pub(super) struct Pause {
    end: Option<Instant>,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn end(&self) -> Option<Instant> {
        self.end
    }

    pub(super) fn end_if_over(&mut self, now: Instant) {
        self.end = self.end.filter(|&end| end > now);
    }

    /// Begins it, or makes it longer.
    pub(super) fn until(&mut self, end: Instant) {
        self.end = self.end.max(Some(end));
    }

    /// Begins one, and says for how long; not in another. What fails in a pause was under way when
    /// that began, and is part of the same failure: with many calls and handlers at once, one outage
    /// would otherwise count as that many in a row.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        backoff: &mut Backoff,
        random: &Random,
    ) -> Option<Duration> {
        self.end_if_over(now);
        if self.is_on() {
            return None;
        }
        let delay = backoff.next(random);
        self.until(later(now, delay));
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_cap_and_starts_over() {
        let random = Random::seeded(1);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for full in [100, 200, 400, 800, 1000, 1000] {
            let full = Duration::from_millis(full);
            let delay = backoff.next(&random);
            assert!(full / 2 <= delay && delay <= full, "{delay:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next(&random) <= Duration::from_millis(100));
    }

    #[test]
    fn it_is_spread_by_the_random_source_alone() {
        let delays = |seed| {
            let random = Random::seeded(seed);
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
            [(); 4].map(|()| backoff.next(&random))
        };
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));
    }

    #[test]
    fn a_long_row_of_failures_stays_at_the_cap() {
        let random = Random::seeded(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for _ in 0..100 {
            assert!(backoff.next(&random) <= Duration::from_secs(30));
        }
        assert!(backoff.next(&random) >= Duration::from_secs(15));
    }
}
