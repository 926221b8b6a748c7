use std::time::Duration;

use tokio::time::Instant;

use crate::transport::Delivery;

/// When one delivery's lease is to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Renewal {
    due: Instant,
    /// The longest that the broker has granted at a time.
    length: Duration,
}

impl Renewal {
    /// The plan for a delivery that came in at `now`; none where it has no lease.
    pub(super) fn plan(delivery: &Delivery, now: Instant) -> Option<Self> {
        let end = delivery.lease_end()?;
        Some(Self::granted(Duration::ZERO, end, now))
    }

    /// The plan after a renewal until `end`.
    pub(super) fn renewed(self, end: Instant, now: Instant) -> Self {
        Self::granted(self.length, end, now)
    }

    /// The plan after a renewal that could not be asked for: soon again.
    pub(super) fn failed(self, now: Instant) -> Self {
        Self {
            due: now + self.soonest(),
            ..self
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// After a third of what is left, so that two more tries remain; but never sooner than a
    /// twentieth of the whole: a broker that grants whole seconds, or no more than what is left,
    /// would otherwise be asked without end.
    fn granted(length: Duration, end: Instant, now: Instant) -> Self {
        let left = end.saturating_duration_since(now);
        let mut renewal = Self {
            due: now,
            length: length.max(left),
        };
        renewal.due = now + (left / 3).max(renewal.soonest());
        renewal
    }

    fn soonest(&self) -> Duration {
        (self.length / 20).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn leased(now: Instant, length: Duration) -> Delivery {
        Delivery::new(Arc::from("q"), Bytes::new()).with_lease(now + length)
    }

    #[tokio::test(start_paused = true)]
    async fn a_third_of_what_is_left() {
        let now = Instant::now();
        let renewal = Renewal::plan(&leased(now, 60 * SECOND), now).unwrap();
        assert_eq!(renewal.due(), now + 20 * SECOND);
        let later = now + 20 * SECOND;
        let renewal = renewal.renewed(later + 30 * SECOND, later);
        assert_eq!(renewal.due(), later + 10 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn no_lease_is_never_renewed() {
        let delivery = Delivery::new(Arc::from("q"), Bytes::new());
        assert_eq!(Renewal::plan(&delivery, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_does_not_grow_is_not_asked_for_without_end() {
        let start = Instant::now();
        let end = start + 10 * SECOND;
        let mut renewal = Renewal::plan(&leased(start, 10 * SECOND), start).unwrap();
        let mut calls = 0;
        while renewal.due() < end {
            calls += 1;
            renewal = renewal.renewed(end, renewal.due());
        }
        assert!(calls <= 20, "{calls} renewals");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_failed_is_made_again_soon() {
        let now = Instant::now();
        let renewal = Renewal::plan(&leased(now, 60 * SECOND), now).unwrap();
        let later = renewal.due();
        assert_eq!(renewal.failed(later).due(), later + 3 * SECOND);
        // And still when the lease has passed: only the broker knows whether it is gone.
        let over = now + 90 * SECOND;
        assert_eq!(renewal.failed(over).due(), over + 3 * SECOND);
    }
}
