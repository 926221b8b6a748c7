use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::broker::{Broker, failure};
use super::faults::{Fault, Verb};
use super::queue::later;
use super::{Kind, Shared};
use crate::Error;
use crate::transport::{
    Delivery, Receiver, Settled, Settlement, Settler, SubscribeOptions, Subscription,
};

/// Opens a subscription to the queue of this name.
pub(super) async fn subscribe(
    shared: &Arc<Shared>,
    queue: &str,
    options: &SubscribeOptions,
) -> Result<Subscription, Error> {
    let latency = shared.lock().faults.latency(Verb::Subscribe);
    pause(latency.there).await;
    let link = Arc::new(Link::open(Arc::clone(shared), queue, options)?);
    pause(latency.back).await;
    Ok(Subscription {
        receiver: Box::new(MemoryReceiver {
            link: Arc::clone(&link),
            arriving: Vec::new(),
            arrive_at: Instant::now(),
        }),
        settler: Arc::new(MemorySettler { link }),
    })
}

/// The connection that both halves share; the subscription ends with the last of them.
struct Link {
    shared: Arc<Shared>,
    queue: usize,
    subscription: u64,
    /// Woken when there may be something to receive.
    wakeup: Arc<Notify>,
    /// Woken when the last delivery has come home.
    home: Arc<Notify>,
}

impl Link {
    fn open(shared: Arc<Shared>, queue: &str, options: &SubscribeOptions) -> Result<Self, Error> {
        let mut broker = shared.lock();
        let queue = broker.queue_index(&Arc::from(queue));
        let subscription = broker.subscribe(queue, options.scope_share)?;
        let entry = broker.queue(queue);
        let wakeup = Arc::clone(&entry.wakeup);
        let home = entry
            .subscriptions
            .get(&subscription)
            .map(|known| Arc::clone(&known.home))
            .unwrap_or_default();
        drop(broker);
        Ok(Self {
            shared,
            queue,
            subscription,
            wakeup,
            home,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Broker> {
        self.shared.lock()
    }

    fn leave(&self) {
        self.lock()
            .queue(self.queue)
            .leave(Instant::now(), self.subscription);
    }

    fn is_home(&self) -> bool {
        let mut broker = self.lock();
        let queue = broker.queue(self.queue);
        queue.tick(Instant::now());
        queue
            .subscriptions
            .get(&self.subscription)
            .is_none_or(|known| known.outstanding == 0)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.leave();
    }
}

struct MemoryReceiver {
    link: Arc<Link>,
    /// Handed out by the broker and still on its way here; outlives a dropped call.
    arriving: Vec<Arc<Delivery>>,
    arrive_at: Instant,
}

/// What the broker said to a receive.
enum Taken {
    Some(Vec<Arc<Delivery>>),
    NothingUntil(Option<Instant>),
}

#[async_trait]
impl Receiver for MemoryReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let max = max.max(1);
        loop {
            if self.arriving.is_empty() {
                self.request(max).await?;
            }
            if self.arrive_at > Instant::now() {
                sleep_until(self.arrive_at).await;
                // What was lost on the way comes again.
                self.arriving.retain(|delivery| !delivery.is_lost());
            }
            if self.arriving.len() <= max && !self.arriving.is_empty() {
                return Ok(std::mem::take(&mut self.arriving));
            }
            if !self.arriving.is_empty() {
                return Ok(self.arriving.drain(..max).collect());
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let end = later(Instant::now(), within);
        self.give_back();
        loop {
            let home = self.link.home.notified();
            tokio::pin!(home);
            home.as_mut().enable();
            if self.link.is_home() {
                break;
            }
            // A lease that ends brings a delivery home without anybody's call.
            let due = self.link.lock().queue(self.link.queue).next_due();
            let wait = due.map_or(end, |due| due.min(end));
            if timeout_at(wait, home).await.is_err() && Instant::now() >= end {
                break;
            }
        }
        self.link.leave();
        Ok(())
    }
}

impl MemoryReceiver {
    /// Waits until the broker has handed out something, which then is in `arriving`.
    async fn request(&mut self, max: usize) -> Result<(), Error> {
        let (fault, latency) = {
            let mut broker = self.link.lock();
            let fault = broker.faults.draw(Verb::Receive);
            (fault, broker.faults.latency(Verb::Receive))
        };
        pause(latency.there).await;
        self.refuse(fault)?;
        loop {
            let wakeup = self.link.wakeup.notified();
            tokio::pin!(wakeup);
            // Before the look into the queue, so that a message in between is not missed.
            wakeup.as_mut().enable();
            match self.take(max, fault)? {
                Taken::Some(deliveries) => {
                    self.arriving = deliveries;
                    self.arrive_at = later(Instant::now(), latency.back);
                    return Ok(());
                }
                Taken::NothingUntil(None) => wakeup.await,
                Taken::NothingUntil(Some(due)) => {
                    let _woken_or_due = timeout_at(due, wakeup).await;
                }
            }
        }
    }

    /// A fault that hits before the broker was asked.
    fn refuse(&self, fault: Option<Fault>) -> Result<(), Error> {
        match fault {
            Some(fault @ (Fault::Before | Fault::Refuse)) => Err(failure("receive", fault)),
            Some(Fault::Disconnect) => {
                let mut broker = self.link.lock();
                let queue = self.link.queue;
                broker
                    .queue(queue)
                    .disconnect(Instant::now(), self.link.subscription);
                broker.reconnect(queue, self.link.subscription)
            }
            None | Some(Fault::After | Fault::Half) => Ok(()),
        }
    }

    fn take(&self, max: usize, fault: Option<Fault>) -> Result<Taken, Error> {
        let Link {
            queue,
            subscription,
            ..
        } = *self.link;
        let mut broker = self.link.lock();
        broker.reconnect(queue, subscription)?;
        let now = Instant::now();
        let leased = matches!(broker.queue(queue).kind, Kind::Leased { .. });
        let queue = broker.queue(queue);
        let deliveries = queue.take(now, subscription, max);
        if deliveries.is_empty() {
            return Ok(Taken::NothingUntil(queue.next_due()));
        }
        let Some(fault) = fault else {
            return Ok(Taken::Some(deliveries));
        };
        // Handed out, and the answer was lost on its way.
        if leased {
            for delivery in deliveries {
                queue.forsake(now, delivery.fence);
            }
        } else {
            queue.disconnect(now, subscription);
            broker.reconnect(self.link.queue, subscription)?;
        }
        Err(failure("receive", fault))
    }

    fn give_back(&mut self) {
        if self.arriving.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut broker = self.link.lock();
        let queue = broker.queue(self.link.queue);
        // The latest first, so that each takes its own place again.
        for delivery in self.arriving.drain(..).rev() {
            delivery.mark_lost();
            queue.hand_back(now, delivery.fence);
        }
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.give_back();
    }
}

struct MemorySettler {
    link: Arc<Link>,
}

#[async_trait]
impl Settler for MemorySettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        if delivery.is_lost() {
            return false;
        }
        if delivery.lease_is_over() {
            let now = Instant::now();
            let mut broker = self.link.lock();
            let queue = broker.queue(self.link.queue);
            queue.tick(now);
            // By the broker's book it may still be ours, where the answer to a renewal was lost.
            queue.forsake(now, delivery.fence);
            return false;
        }
        true
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let (latency, acks_stay) = {
            let mut broker = self.link.lock();
            (broker.faults.latency(Verb::Settle), broker.notes_acks())
        };
        // What is only noted is so before anything travels.
        let numbered = batch.into_iter().enumerate();
        let (noted, travelling): (Vec<_>, Vec<_>) =
            numbered.partition(|(_, (_, settlement))| acks_stay && *settlement == Settlement::Ack);
        let mut answers = self.settle_now(noted);
        if !travelling.is_empty() {
            pause(latency.there).await;
            answers.extend(self.settle_now(travelling));
            pause(latency.back).await;
            answers.sort_unstable_by_key(|(at, _)| *at);
        }
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let latency = self.link.lock().faults.latency(Verb::Extend);
        pause(latency.there).await;
        let answers = self.extend_now(batch);
        pause(latency.back).await;
        answers
    }
}

impl MemorySettler {
    /// The answers, each with its place in the call.
    fn settle_now(
        &self,
        batch: Vec<(usize, (Arc<Delivery>, Settlement))>,
    ) -> Vec<(usize, Result<Settled, Error>)> {
        let now = Instant::now();
        let mut cut_off = false;
        let mut broker = self.link.lock();
        let queue = self.link.queue;
        broker.queue(queue).tick(now);
        batch
            .into_iter()
            .map(|(at, (delivery, settlement))| {
                if !broker.queue(queue).is_out(delivery.fence) {
                    return (at, Ok(Settled::Fenced));
                }
                let fault = broker.draw(Verb::Settle, cut_off);
                cut_off |= fault == Some(Fault::Disconnect);
                let answer = broker.settle(now, queue, &delivery, settlement, fault);
                (at, answer)
            })
            .collect()
    }

    fn extend_now(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let now = Instant::now();
        let mut cut_off = false;
        let mut broker = self.link.lock();
        let queue = self.link.queue;
        broker.queue(queue).tick(now);
        batch
            .iter()
            .map(|delivery| {
                if !broker.queue(queue).is_out(delivery.fence) {
                    delivery.mark_lost();
                    return Err(Error::lost("its lease ran out"));
                }
                let fault = broker.draw(Verb::Extend, cut_off);
                cut_off |= fault == Some(Fault::Disconnect);
                broker.extend(now, queue, delivery, fault)
            })
            .collect()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Broker> {
        // A panic under the lock would be a bug of ours; what it guards is still whole enough.
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
