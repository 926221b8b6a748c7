use std::time::Duration;

use crate::random::Random;

/// Draws for a scenario: each follows from the seed and the draws before it.
#[derive(Debug)]
pub(super) struct Dice {
    random: Random,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
        }
    }

    /// A number below `bound`; 0 where that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The bias is without meaning here.
        self.random.next_u64().checked_rem(bound).unwrap_or(0)
    }

    pub(super) fn below_u32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap_or(0)
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True this many times in a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn duration(&mut self, below: Duration) -> Duration {
        let millis = u64::try_from(below.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(millis))
    }
}
