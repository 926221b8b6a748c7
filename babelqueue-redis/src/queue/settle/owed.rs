//! What could not be settled and that nothing else brings back as it came (contract §7.8): a reservation
//! that never ends, and one of the Laravel layout, which Redis's JSON library would bring back altered.
//! We owe those to the queue, and give them back ourselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use babelqueue_core::Error;
use babelqueue_core::transport::Delivery;

use super::{Answer, Plan, Queue};
use crate::queue::reservation_of;

/// The deliveries of a queue that we have to give back.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    deliveries: Mutex<Vec<Arc<Delivery>>>,
}

impl Owed {
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes them all out. Those that are left in there when it is dropped are owed still.
    fn take(&self) -> Taken<'_> {
        Taken {
            deliveries: std::mem::take(&mut *self.lock()),
            owed: self,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Delivery>>> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deliveries that are being given back, by one at a time.
struct Taken<'o> {
    deliveries: Vec<Arc<Delivery>>,
    owed: &'o Owed,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.owed.lock().append(&mut self.deliveries);
    }
}

impl Queue {
    /// Sees to it that what could not be settled comes back. At once where the server refused it; where
    /// the server cannot be reached, the next call gives it back.
    pub(super) async fn owe<'d>(
        &self,
        settled: impl Iterator<Item = (&'d Arc<Delivery>, &Answer)>,
    ) {
        let mut refused = false;
        for (delivery, answer) in settled {
            let Err(error) = answer else { continue };
            if way_back(delivery, 0).is_some() {
                refused |= !error.is_transient();
                self.owed.lock().push(Arc::clone(delivery));
            }
        }
        if refused && let Err(error) = self.give_back_owed().await {
            tracing::warn!(queue = %self.name, %error, "what could not be settled is given back later");
        }
    }

    /// Gives back what is owed; tried once. What cannot be given back stays owed.
    ///
    /// # Errors
    ///
    /// The server could not be reached, or runs no script.
    pub(crate) async fn give_back_owed(&self) -> Result<(), Error> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let mut taken = self.owed.take();
        // Recovery has it, or will.
        taken
            .deliveries
            .retain(|delivery| !delivery.lease_is_over() && !delivery.is_lost());
        let batch = taken.deliveries.clone();
        let plans: Vec<_> = batch
            .iter()
            .enumerate()
            .filter_map(|(at, delivery)| way_back(delivery, at))
            .collect();
        for chunk in super::chunks(&plans) {
            let answers = match self.send(chunk, true).await {
                Ok(answer) => self.answers(chunk, answer, true),
                Err(failure) => {
                    if failure.may_have_run && !chunk[0].may_go_again() {
                        taken.settle(chunk.iter());
                    }
                    return Err(failure.into_error("settle", &self.describe()));
                }
            };
            let done = chunk
                .iter()
                .zip(&answers)
                .filter(|(_, answer)| answer.is_ok());
            taken.settle(done.map(|(plan, _)| plan));
        }
        Ok(())
    }
}

impl Taken<'_> {
    /// These are not owed any more, nor ours.
    fn settle<'p>(&mut self, plans: impl Iterator<Item = &'p Plan<'p>>) {
        for plan in plans {
            plan.delivery.mark_lost();
        }
        self.deliveries.retain(|delivery| !delivery.is_lost());
    }
}

/// How a delivery comes back as it came, where that is up to us and it is still ours.
fn way_back(delivery: &Delivery, at: usize) -> Option<Plan<'_>> {
    if delivery.is_lost() {
        return None;
    }
    let member = &reservation_of(delivery)?.member;
    Some(Plan {
        at,
        delivery,
        member,
        copy: super::way_back(delivery, member)?,
    })
}
