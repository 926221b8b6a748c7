//! A flag that is raised once, and can be waited for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Raised once, never lowered.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    raised: AtomicBool,
    wakeup: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.wakeup.notify_waiters();
        }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Waits until it is raised.
    pub(crate) async fn raised(&self) {
        let wakeup = self.wakeup.notified();
        tokio::pin!(wakeup);
        // Registered before the flag is read: a raise in between must not be missed.
        wakeup.as_mut().enable();
        if !self.is_raised() {
            wakeup.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn every_waiter_wakes_and_a_late_one_does_not_wait() {
        let flag = Arc::new(Flag::default());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let flag = Arc::clone(&flag);
                tokio::spawn(async move { flag.raised().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!flag.is_raised());
        flag.raise();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        flag.raised().await;
    }
}
