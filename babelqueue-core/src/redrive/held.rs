use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::transport::{Delivery, Settler};

/// Messages that are to stay in the dead-letter queue, unsettled in the meantime, in order.
pub(super) struct Held {
    messages: VecDeque<Kept>,
}

pub(super) struct Kept {
    pub(super) delivery: Arc<Delivery>,
    /// Whether it has come round: it is held for the second time.
    pub(super) again: bool,
    /// When its lease is to be renewed, where it has one.
    renewal: Option<Instant>,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            messages: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.messages.iter()
    }

    pub(super) fn push(&mut self, delivery: Arc<Delivery>, again: bool) {
        let renewal = renewal(&delivery);
        self.messages.push_back(Kept {
            delivery,
            again,
            renewal,
        });
    }

    /// Takes the first `most` out.
    pub(super) fn take(&mut self, most: usize) -> Vec<Kept> {
        let most = most.min(self.messages.len());
        self.messages.drain(..most).collect()
    }

    /// When the next lease is to be renewed.
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        self.messages.iter().filter_map(|kept| kept.renewal).min()
    }

    /// Renews the leases that are due. A message whose lease is gone is back in its queue; it is kept
    /// here all the same, and its settlement will be fenced.
    pub(super) async fn renew(&mut self, settler: &dyn Settler) {
        let now = Instant::now();
        let mut due = Vec::new();
        for kept in &mut self.messages {
            if kept.renewal.is_some_and(|renewal| renewal <= now) {
                kept.renewal = None;
                if !kept.delivery.is_lost() {
                    due.push(kept);
                }
            }
        }
        if due.is_empty() {
            return;
        }
        let batch: Vec<_> = due.iter().map(|kept| Arc::clone(&kept.delivery)).collect();
        for (kept, answer) in due.into_iter().zip(settler.extend(&batch).await) {
            match answer {
                Ok(end) => kept.delivery.set_lease_end(end),
                Err(error) if error.is_lost() => continue,
                Err(error) => tracing::warn!(%error, "a lease could not be renewed for now"),
            }
            kept.renewal = renewal(&kept.delivery);
        }
    }
}

/// After a third of what is left of its lease, and not at once where nothing is.
fn renewal(delivery: &Delivery) -> Option<Instant> {
    let now = Instant::now();
    let left = delivery.lease_end()?.saturating_duration_since(now);
    Some(now + (left / 3).max(Duration::from_millis(100)))
}
