use std::sync::Arc;

use super::held::Key;
use super::status::Fate;
use crate::transport::{Delivery, Settlement};

/// What is done and waits for a settle call, in the order in which it was done.
#[derive(Default)]
pub(super) struct Finished {
    pub(super) keys: Vec<(Key, Fate)>,
    pub(super) batch: Vec<(Arc<Delivery>, Settlement)>,
    /// How many of them are acknowledgements.
    acks: usize,
}

impl Finished {
    pub(super) fn push(
        &mut self,
        key: Key,
        fate: Fate,
        delivery: Arc<Delivery>,
        settlement: Settlement,
    ) {
        self.acks += usize::from(settlement == Settlement::Ack);
        self.keys.push((key, fate));
        self.batch.push((delivery, settlement));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn has_acks(&self) -> bool {
        self.acks > 0
    }

    /// All of it; as much is expected for the next call.
    pub(super) fn take(&mut self) -> Self {
        let next = Self::with_capacity(self.keys.len());
        std::mem::replace(self, next)
    }

    /// The acknowledgements; the rest stays, in its order.
    pub(super) fn take_acks(&mut self) -> Self {
        if self.acks == self.keys.len() {
            return self.take();
        }
        let mut acks = Self::with_capacity(self.acks);
        let all = self.take();
        for ((key, fate), (delivery, settlement)) in all.keys.into_iter().zip(all.batch) {
            let side = if settlement == Settlement::Ack {
                &mut acks
            } else {
                &mut *self
            };
            side.push(key, fate, delivery, settlement);
        }
        acks
    }

    fn with_capacity(capacity: usize) -> Self {
        Self {
            keys: Vec::with_capacity(capacity),
            batch: Vec::with_capacity(capacity),
            acks: 0,
        }
    }
}
