use std::time::Duration;

use babelqueue_core::Error;

/// The tiers that the contract recommends, in milliseconds (§16.5): 5 s, 30 s, 5 min, 30 min.
pub const DEFAULT_RETRY_TIERS_MS: [u64; 4] = [5_000, 30_000, 300_000, 1_800_000];

/// The retry tiers of a binding: delays in ascending order, each with a topic of its own,
/// `<topic>.retry.<n>`, `n` counted from 1 (contract §16.5). May be empty: then nothing can be
/// delayed, and a retry fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryTiers {
    delays: Vec<Duration>,
}

/// One tier: its number from 1, and how long it holds a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The number in the topic's name, from 1; never a delay.
    pub index: usize,
    /// How long the re-injector holds a record of this tier.
    pub delay: Duration,
}

impl RetryTiers {
    /// No tiers.
    pub const NONE: Self = Self { delays: Vec::new() };

    /// The recommended four ([`DEFAULT_RETRY_TIERS_MS`]).
    pub fn recommended() -> Self {
        Self {
            delays: DEFAULT_RETRY_TIERS_MS.map(Duration::from_millis).to_vec(),
        }
    }

    /// Tiers of these delays, of millisecond resolution.
    ///
    /// # Errors
    ///
    /// A delay that is not a whole number of milliseconds above zero, or not longer than the one
    /// before it.
    pub fn new(delays: impl IntoIterator<Item = Duration>) -> Result<Self, Error> {
        let delays: Vec<Duration> = delays.into_iter().collect();
        let mut previous = Duration::ZERO;
        for delay in &delays {
            let millis = Duration::from_millis(millis(*delay));
            if *delay != millis || *delay <= previous {
                let problem = format!(
                    "holds {delay:?} after {previous:?}: expected whole milliseconds, ascending, \
                     above zero"
                );
                return Err(Error::config("retry_tiers", problem));
            }
            previous = *delay;
        }
        Ok(Self { delays })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.delays.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.delays.len()
    }

    /// The tiers, the shortest first.
    pub fn iter(&self) -> impl Iterator<Item = Tier> + '_ {
        (1..)
            .zip(&self.delays)
            .map(|(index, &delay)| Tier { index, delay })
    }

    /// The tier of a requested delay: the shortest one that is no shorter (the contract's first
    /// rule). `None` where every tier is shorter, or there is none.
    pub fn for_delay(&self, delay: Duration) -> Option<Tier> {
        self.iter().find(|tier| tier.delay >= delay)
    }

    /// The tier of a retry: `min(attempts_before, N − 1) + 1`, so that it climbs with each attempt
    /// and stays on the last one (the contract's second rule). `None` where there is none.
    pub fn for_retry(&self, attempts_before: u32) -> Option<Tier> {
        let last = self.delays.len().checked_sub(1)?;
        let at = usize::try_from(attempts_before).map_or(last, |before| before.min(last));
        Some(Tier {
            index: at + 1,
            delay: self.delays[at],
        })
    }
}

impl Tier {
    /// The tier's topic for records of `work_topic`.
    pub fn topic(&self, work_topic: &str) -> String {
        format!("{work_topic}.retry.{}", self.index)
    }

    /// The delay in milliseconds, as `bq-delay` carries it.
    pub fn millis(&self) -> u64 {
        millis(self.delay)
    }
}

/// The work topic that a tier topic's name begins with, and the tier's number; `None` for another
/// name.
pub(crate) fn stem(tier_topic: &str) -> Option<(&str, usize)> {
    let (stem, index) = tier_topic.rsplit_once(".retry.")?;
    let index = index.parse().ok().filter(|index| *index > 0)?;
    Some((stem, index))
}

/// Whole milliseconds, as the wire has them.
pub(crate) fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(millis: &[u64]) -> RetryTiers {
        RetryTiers::new(millis.iter().copied().map(Duration::from_millis)).unwrap()
    }

    #[test]
    fn a_requested_delay_takes_the_shortest_tier_that_is_long_enough() {
        let tiers = RetryTiers::recommended();
        let index = |ms| {
            tiers
                .for_delay(Duration::from_millis(ms))
                .map(|tier| tier.index)
        };
        assert_eq!(index(1), Some(1));
        assert_eq!(index(5_000), Some(1));
        assert_eq!(index(5_001), Some(2));
        assert_eq!(index(1_800_000), Some(4));
        assert_eq!(index(1_800_001), None);
        assert_eq!(RetryTiers::NONE.for_delay(Duration::ZERO), None);
    }

    #[test]
    fn a_retry_climbs_and_stays_on_the_last_tier() {
        let tiers = tiers(&[1_000, 60_000]);
        let index = |before| tiers.for_retry(before).map(|tier| tier.index);
        assert_eq!([0, 1, 2, u32::MAX].map(index), [1, 2, 2, 2].map(Some));
        assert_eq!(RetryTiers::NONE.for_retry(0), None);
    }

    #[test]
    fn tiers_ascend() {
        for bad in [&[0][..], &[5, 5], &[10, 5]] {
            let delays = bad.iter().copied().map(Duration::from_millis);
            assert!(matches!(
                RetryTiers::new(delays),
                Err(Error::Config {
                    option: "retry_tiers",
                    ..
                })
            ));
        }
        assert!(RetryTiers::new([Duration::from_micros(1_500)]).is_err());
        assert_eq!(tiers(&[]), RetryTiers::NONE);
    }

    #[test]
    fn a_tier_topic_names_its_work_topic() {
        let tier = Tier {
            index: 2,
            delay: Duration::from_secs(1),
        };
        assert_eq!(tier.topic("orders.v2"), "orders.v2.retry.2");
        assert_eq!(stem("orders.v2.retry.2"), Some(("orders.v2", 2)));
        assert_eq!(stem("a.retry.1.retry.3"), Some(("a.retry.1", 3)));
        for other in [
            "orders",
            "orders.retry.",
            "orders.retry.0",
            "orders.retry.x",
        ] {
            assert_eq!(stem(other), None, "{other}");
        }
    }
}
