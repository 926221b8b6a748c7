use std::hash::{BuildHasher, Hash, RandomState};

use bytes::Bytes;

use crate::transport::Delivery;

/// A message's content, or its id, in 128 bits.
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

    /// Of all that a message holds.
    pub(super) fn of(&self, delivery: &Delivery) -> Fingerprint {
        self.of_content(&delivery.body, delivery.key.as_ref())
    }

    pub(super) fn of_content(&self, body: &[u8], key: Option<&Bytes>) -> Fingerprint {
        self.hash((body, key))
    }

    pub(super) fn of_id(&self, id: &str) -> Fingerprint {
        self.hash(id)
    }

    fn hash(&self, content: impl Hash + Copy) -> Fingerprint {
        let [high, low] = &self.hashers;
        u128::from(high.hash_one(content)) << 64 | u128::from(low.hash_one(content))
    }
}
