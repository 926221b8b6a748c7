use std::hash::{BuildHasher, RandomState};

use crate::transport::Delivery;

/// A message's content in 128 bits.
pub(super) type Fingerprint = u128;

/// Makes fingerprints, each time seeded anew, so that nobody can prepare two contents that look
/// alike.
pub(super) struct Fingerprints {
    hashers: [RandomState; 2],
}

impl Fingerprints {
    pub(super) fn new() -> Self {
        Self {
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    pub(super) fn of(&self, delivery: &Delivery) -> Fingerprint {
        let [high, low] = &self.hashers;
        let content = (&delivery.body[..], &delivery.key);
        u128::from(high.hash_one(content)) << 64 | u128::from(low.hash_one(content))
    }
}
