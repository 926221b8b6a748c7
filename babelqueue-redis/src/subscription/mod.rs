//! A subscription: receiving, settling, renewing.
//!
//! A reservation is a mark in the server, not a tie to a connection: what was handed out over a
//! connection that breaks stays ours until its lease ends, and is settled over the next. So a broken
//! connection loses no delivery, and only a refused renewal or a shut gate marks one as lost.

mod wait;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver, Settled, Settlement, Settler, Subscription};
use tokio::time::{Instant, timeout};

use crate::queue::{Queue, Reserved, reservation_of};

pub(crate) use wait::Wait;

/// The two halves of a subscription to `queue`.
pub(crate) fn open(queue: Queue) -> Subscription {
    let wait = queue.shared.wait(&queue);
    Subscription {
        receiver: Box::new(RedisReceiver {
            intake: Intake::of(queue.clone()),
            wait: Arc::clone(&wait),
        }),
        settler: Arc::new(RedisSettler { queue, wait }),
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Reserved, Error>> + Send>>;

/// The receiving half.
struct RedisReceiver {
    intake: Intake,
    wait: Arc<Wait>,
}

/// What is taken from the server and not given out yet. It has no `Drop` of its own: what outlives the
/// receiver is one of these, and must not be able to start another.
struct Intake {
    queue: Queue,
    /// The reserve call on its way. Kept here, so that a dropped `receive` does not lose its answer.
    call: Option<Call>,
    /// Answers that a dropped `receive` has not given out.
    held: VecDeque<Arc<Delivery>>,
}

#[async_trait]
impl Receiver for RedisReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        if let Some(taken) = self.intake.reserve(max).await?.into_taken() {
            return Ok(taken);
        }
        // Empty. One receiver of this process waits at the server; the others queue up behind it,
        // so that a push wakes one of them and not all.
        let wait = Arc::clone(&self.wait);
        let mut turn = wait.turn().await;
        loop {
            match self.intake.reserve(max).await?.into_outcome() {
                Ok(taken) => return Ok(taken),
                Err(due_in) => turn.wait(due_in).await?,
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let intake = &mut self.intake;
        let mut given_back = Err(intake.too_late());
        let left = timeout(within, async {
            given_back = intake.give_back().await;
            intake.queue.out.all_home().await;
            intake.queue.give_back_owed().await
        });
        match left.await {
            Ok(owed) => given_back.and(owed),
            Err(_) if !intake.queue.owed.is_empty() => Err(intake.too_late()),
            // Whoever is still out is left: its lease brings it back.
            Err(_) => given_back,
        }
    }
}

impl Intake {
    fn of(queue: Queue) -> Self {
        Self {
            queue,
            call: None,
            held: VecDeque::new(),
        }
    }

    /// What is held, or what the server gives without waiting: at most `max`.
    async fn reserve(&mut self, max: usize) -> Result<Reserved, Error> {
        let max = max.max(1);
        if self.held.is_empty() {
            let due_in = self.finish_call(max).await?;
            if self.held.is_empty() {
                return Ok(Reserved {
                    deliveries: Vec::new(),
                    due_in,
                });
            }
        }
        let count = self.held.len().min(max);
        Ok(Reserved {
            deliveries: self.held.drain(..count).collect(),
            due_in: None,
        })
    }

    /// Ends the call on its way, or one for `max`, and keeps what it gave.
    async fn finish_call(&mut self, max: usize) -> Result<Option<Duration>, Error> {
        let answer = poll_fn(|cx| {
            // Out of its place while it is polled: a call that panics is not polled again.
            let mut call = self.call.take().unwrap_or_else(|| {
                let queue = self.queue.clone();
                Box::pin(async move { queue.reserve(max).await })
            });
            let polled = call.as_mut().poll(cx);
            if polled.is_pending() {
                self.call = Some(call);
            }
            polled
        });
        let reserved = answer.await?;
        self.held.extend(reserved.deliveries);
        Ok(reserved.due_in)
    }

    fn is_empty(&self) -> bool {
        self.call.is_none()
            && self.held.is_empty()
            && self.queue.owed.is_empty()
            && self.queue.unanswered.is_empty()
    }

    fn too_late(&self) -> Error {
        Error::transient("close", self.queue.describe())
    }

    /// Releases all that was taken and not given out.
    async fn give_back(&mut self) -> Result<(), Error> {
        if self.call.is_some() {
            self.finish_call(1).await?;
        }
        // What is held goes back whether or not there is an answer to this.
        let unanswered = self.queue.find_unanswered().await;
        let asked = unanswered.map(|found| self.held.extend(found.deliveries));
        let batch: Vec<_> = self
            .held
            .drain(..)
            .map(|delivery| (delivery, Settlement::release()))
            .collect();
        let answers = if batch.is_empty() {
            Vec::new()
        } else {
            self.queue.settle(&batch).await
        };
        let owed = self.queue.give_back_owed().await;
        answers
            .into_iter()
            .find_map(Result::err)
            .map_or(owed.and(asked), Err)
    }
}

/// Gives back in the background what was taken and not given out. Outside a runtime, and in one that
/// ends, the leases do it.
impl Drop for RedisReceiver {
    fn drop(&mut self) {
        if self.intake.is_empty() {
            return;
        }
        let queue = self.intake.queue.clone();
        let shared = Arc::clone(&queue.shared);
        let mut left = std::mem::replace(&mut self.intake, Intake::of(queue));
        shared.background.spawn(async move {
            if let Err(error) = left.give_back().await {
                tracing::warn!(%error, "what a dropped receiver held comes back at its deadline");
            }
        });
    }
}

impl fmt::Debug for RedisReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReceiver")
            .field("queue", &self.intake.queue.name)
            .field("held", &self.intake.held.len())
            .finish_non_exhaustive()
    }
}

/// The settling half.
#[derive(Debug)]
struct RedisSettler {
    queue: Queue,
    wait: Arc<Wait>,
}

#[async_trait]
impl Settler for RedisSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        let may_start = !delivery.is_lost() && !delivery.lease_is_over();
        if !may_start && let Some(reservation) = reservation_of(delivery) {
            reservation.come_home();
        }
        may_start
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let answers = self.queue.settle(&batch).await;
        let failed = answers.iter().any(Result::is_err);
        if failed || batch.iter().any(|(_, settlement)| gives_back(settlement)) {
            self.wait.nudge();
        }
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        self.queue.extend(batch).await
    }
}

/// In the Laravel layout what is given back carries no wake-up: whoever waits here has to look again.
fn gives_back(settlement: &Settlement) -> bool {
    matches!(
        settlement,
        Settlement::Retry { .. } | Settlement::Release { .. }
    )
}

impl Reserved {
    fn into_taken(self) -> Option<Vec<Arc<Delivery>>> {
        (!self.deliveries.is_empty()).then_some(self.deliveries)
    }

    /// The deliveries, or how long until one is due.
    fn into_outcome(self) -> Result<Vec<Arc<Delivery>>, Option<Duration>> {
        let due_in = self.due_in;
        self.into_taken().ok_or(due_in)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use futures_util::FutureExt as _;
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::{Config, Redis};

    /// A queue whose server takes connections and never says a word.
    fn queue_at(server: &std::net::TcpListener) -> Queue {
        let address = server.local_addr().expect("a port");
        let config = Config::from_url(&format!("redis://{address}")).expect("a good URL");
        let redis = Redis::open(config).expect("nothing to connect to yet");
        redis.queue("orders").expect("a queue")
    }

    fn runtimes() -> [Runtime; 2] {
        let one = Builder::new_current_thread().enable_all().build();
        let many = Builder::new_multi_thread().enable_all().build();
        [one.expect("a runtime"), many.expect("a runtime")]
    }

    #[test]
    fn a_runtime_that_ends_takes_a_call_on_its_way_along() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        for runtime in runtimes() {
            let mut receiver = open(queue_at(&server)).receiver;
            let (started, has_started) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                assert!(receiver.receive(1).now_or_never().is_none());
                started.send(()).expect("it is waited for");
                receiver.receive(1).await
            });
            // A runtime of one thread runs only while somebody waits on it.
            runtime.block_on(async { tokio::task::yield_now().await });
            has_started.recv().expect("no panic");
            // In a thread of its own: should it recurse, the stack is small and soon at its end.
            let ending = thread::Builder::new().stack_size(256 << 10);
            let ended = ending
                .spawn(move || drop(runtime))
                .expect("a thread")
                .join();
            assert!(ended.is_ok());
        }
    }

    #[tokio::test]
    async fn a_call_that_panics_is_not_polled_again() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut intake = Intake::of(queue_at(&server));
        intake.call = Some(Box::pin(async { panic!("on purpose") }));
        let polled = catch_unwind(AssertUnwindSafe(|| intake.reserve(1).now_or_never()));
        assert!(polled.is_err() && intake.is_empty());
    }
}
