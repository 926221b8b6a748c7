//! Randomness for jitter, injected so that a simulated run replays from its seed.
//!
//! Not for secrets or ids: those come from the operating system (`uuid`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A small shared generator (`SplitMix64`): each draw is one atomic addition and a mix.
#[derive(Debug)]
pub struct Random {
    state: AtomicU64,
}

impl Random {
    /// A generator whose draws follow from `seed` alone.
    pub fn seeded(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// A generator seeded by the operating system.
    pub fn from_entropy() -> Self {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        Self::seeded(high ^ low.rotate_left(32))
    }

    /// Any 64 bits.
    pub fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`, uniform.
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what an f64 holds exactly"
    )]
    pub fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between half of `pause` and all of it, so that those who wait for the same do not come at
    /// once.
    pub fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(0.5 + self.unit() / 2.0)
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::from_entropy()
    }
}
