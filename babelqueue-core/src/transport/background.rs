use std::future::Future;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// For transports: tasks that nobody waits for, because a drop started them, or because whoever did may
/// be dropped. Each has to end by itself, after a call or two. Those that have ended are joined when the
/// next one starts, so that a panic in one is told.
#[derive(Debug, Default)]
pub struct Background(Mutex<Vec<JoinHandle<()>>>);

impl Background {
    /// Runs `task` on the runtime of this thread. Without one, and on one that ends, it is dropped.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // Before the lock: a runtime that ends drops the task, and all that it holds, right here.
        let task = runtime.spawn(task);
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain_mut(|task| match task.now_or_never() {
            None => true,
            Some(ended) => {
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a task in the background panicked");
                }
                false
            }
        });
        running.push(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(background: &Background) -> usize {
        background.0.lock().expect("nobody panicked").len()
    }

    #[tokio::test]
    async fn what_has_ended_is_joined_when_the_next_one_starts() {
        let background = Background::default();
        background.spawn(async {});
        background.spawn(std::future::pending());
        // Both have been polled.
        tokio::task::yield_now().await;
        background.spawn(async { panic!("on purpose") });
        assert_eq!(running(&background), 2);
        tokio::task::yield_now().await;
        background.spawn(async {});
        assert_eq!(running(&background), 2);
    }

    #[test]
    fn without_a_runtime_a_task_is_dropped() {
        let background = Background::default();
        background.spawn(async {});
        assert_eq!(running(&background), 0);
    }
}
