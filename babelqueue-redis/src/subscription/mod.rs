//! A subscription: receiving, settling, renewing.
//!
//! A reservation is a mark in the server, not a tie to a connection: what was handed out over a
//! connection that breaks stays ours until its lease ends, and is settled over the next. So a broken
//! connection loses no delivery, and only a refused renewal or a shut gate marks one as lost.

mod wait;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver, Settled, Settlement, Settler, Subscription};
use tokio::time::{Instant, timeout_at};

use crate::queue::{Queue, Reserved, reservation_of};

pub(crate) use wait::Wait;

/// The two halves of a subscription to `queue`.
pub(crate) fn open(queue: Queue) -> Subscription {
    let wait = queue.shared.wait(&queue);
    Subscription {
        receiver: Box::new(RedisReceiver {
            queue: queue.clone(),
            wait: Arc::clone(&wait),
            call: None,
            held: VecDeque::new(),
        }),
        settler: Arc::new(RedisSettler { queue, wait }),
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Reserved, Error>> + Send>>;

/// The receiving half.
struct RedisReceiver {
    queue: Queue,
    wait: Arc<Wait>,
    /// The reserve call on its way. Kept here, so that a dropped `receive` does not lose its answer.
    call: Option<Call>,
    /// Answers that a dropped `receive` has not given out.
    held: VecDeque<Arc<Delivery>>,
}

#[async_trait]
impl Receiver for RedisReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        if let Some(taken) = self.reserve(max).await?.into_taken() {
            return Ok(taken);
        }
        // Empty. One receiver of this process waits at the server; the others queue up behind it,
        // so that a push wakes one of them and not all.
        let wait = Arc::clone(&self.wait);
        let mut turn = wait.turn().await;
        loop {
            match self.reserve(max).await?.into_outcome() {
                Ok(taken) => return Ok(taken),
                Err(due_in) => turn.wait(due_in).await?,
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        let given_back = match timeout_at(deadline, self.give_back()).await {
            Ok(given_back) => given_back,
            Err(_) => Err(Error::transient("close", self.queue.describe())),
        };
        // Whoever is still out at the deadline is left: its lease brings it back.
        let _ = timeout_at(deadline, self.queue.out.all_home()).await;
        given_back
    }
}

impl RedisReceiver {
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
        let call = self.call.get_or_insert_with(|| {
            let queue = self.queue.clone();
            Box::pin(async move { queue.reserve(max).await })
        });
        let answer = call.await;
        self.call = None;
        let reserved = answer?;
        self.held.extend(reserved.deliveries);
        Ok(reserved.due_in)
    }

    /// Releases all that was taken and not given out.
    async fn give_back(&mut self) -> Result<(), Error> {
        if self.call.is_some() {
            self.finish_call(1).await?;
        }
        let batch: Vec<_> = self
            .held
            .drain(..)
            .map(|delivery| (delivery, Settlement::release()))
            .collect();
        if batch.is_empty() {
            return Ok(());
        }
        let answers = self.queue.settle(&batch).await;
        answers
            .into_iter()
            .find_map(Result::err)
            .map_or(Ok(()), Err)
    }
}

/// Gives back in the background what was taken and not given out. Outside a runtime the leases do it.
impl Drop for RedisReceiver {
    fn drop(&mut self) {
        if self.call.is_none() && self.held.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut left = Self {
            queue: self.queue.clone(),
            wait: Arc::clone(&self.wait),
            call: self.call.take(),
            held: std::mem::take(&mut self.held),
        };
        // Joined by nobody, as the seam allows for a drop: it ends with its one call.
        runtime.spawn(async move {
            if let Err(error) = left.give_back().await {
                tracing::warn!(%error, "what a dropped receiver held comes back at its deadline");
                left.held.clear();
            }
        });
    }
}

impl fmt::Debug for RedisReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReceiver")
            .field("queue", &self.queue.name)
            .field("held", &self.held.len())
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
        if batch.iter().any(|(_, settlement)| gives_back(settlement)) {
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
