use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use babelqueue_core::Error;
use babelqueue_core::transport::Delivery;
use tokio::sync::Notify;

use super::assignment::Assignment;
use crate::config::Order;

/// What the polling thread, the receiver and the settler share.
#[derive(Debug)]
pub(crate) struct Shared {
    assignment: Mutex<Assignment>,
    /// Rung when there may be something to give out.
    bell: Notify,
    /// The polling thread, to be woken when there is room or work for it.
    poller: OnceLock<Thread>,
    /// The refusal that ended the subscription.
    refusal: OnceLock<String>,
}

impl Shared {
    pub(crate) fn new(share: usize, order: Order) -> Self {
        Self {
            assignment: Mutex::new(Assignment::new(share, order)),
            bell: Notify::new(),
            poller: OnceLock::new(),
            refusal: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Assignment> {
        self.assignment
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which thread polls.
    pub(crate) fn polled_by(&self, thread: Thread) {
        let _ = self.poller.set(thread);
    }

    /// Wakes the polling thread.
    pub(crate) fn wake_poller(&self) {
        if let Some(poller) = self.poller.get() {
            poller.unpark();
        }
    }

    /// Tells the receiver that there may be something for it.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Ends the subscription with a refusal.
    pub(crate) fn refuse(&self, context: String) {
        let _ = self.refusal.set(context);
        self.ring();
    }

    /// The next deliveries; waits for the first. Cancel-safe: nothing is given out before it
    /// returns.
    pub(crate) async fn receive(&self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        loop {
            let rung = self.bell.notified();
            if let Some(context) = self.refusal.get() {
                return Err(Error::refused("receive", context));
            }
            let given = self.lock().give(max.max(1));
            if !given.is_empty() {
                return Ok(given);
            }
            rung.await;
        }
    }

    /// After settlements: there may be room to read, and lanes to go on with.
    pub(crate) fn settled(&self) {
        let assignment = self.lock();
        let (give, poll) = (assignment.can_give(), assignment.wants_polling());
        drop(assignment);
        if poll {
            self.wake_poller();
        }
        if give {
            self.ring();
        }
    }
}
