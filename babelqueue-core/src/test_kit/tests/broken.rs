use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::memory::{Kind, Memory};
use crate::test_kit::Fixture;
use crate::transport::{
    Capabilities, Delay, Delivery, Outgoing, PublishOptions, Receiver, Settled, Settlement,
    Settler, SubscribeOptions, Subscription, Transport,
};
use crate::{BoxError, Error, Headers};

/// What is wrong with a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    Nothing,
    ReadsBodiesAsText,
    DropsSome,
    AnswersTooFew,
    IgnoresOptions,
    DropsHeaders,
    TakesEmptyKeysForNone,
    IgnoresDelays,
    DropsDelayed,
    ClaimsALimit,
    SleepsThroughAPublish,
    GivesTooMany,
    LosesWhatADroppedCallTook,
    ForgetsAcks,
    RetriesUncounted,
    CopiesBodiesOnly,
    CountsReleases,
    TidiesRecords,
    AcksBeforeItCopies,
    AcksWhatIsAbandoned,
    DropsDeadLetters,
    DropsRetries,
    AcksWhatIsReleased,
    SettlesByMessage,
    ForgetsRenewals,
    BeginsAnything,
    ReversesBatches,
    HidesLosses,
    AcksAtReceipt,
    KeepsItsBuffer,
    ClosesAtOnce,
    StaysDown,
}

type Known = (Arc<Delivery>, Arc<dyn Settler>);

/// A broker in memory, and transports to it that are broken in one way.
#[derive(Clone)]
pub(super) struct Broken {
    memory: Memory,
    how: Break,
    capabilities: Capabilities,
    down: Arc<AtomicBool>,
    published: Arc<AtomicU32>,
    /// The last delivery of each body: what `SettlesByMessage` settles.
    last: Arc<Mutex<HashMap<Bytes, Known>>>,
}

impl Broken {
    pub(super) fn new(kind: Kind, how: Break) -> Self {
        let memory = Memory::builder().kind(kind).build();
        let mut capabilities = memory.capabilities().clone();
        if how == Break::ClaimsALimit {
            capabilities.delay = Delay::Supported {
                max: Some(Duration::from_mins(15)),
            };
        }
        Self {
            memory,
            how,
            capabilities,
            down: Arc::default(),
            published: Arc::default(),
            last: Arc::default(),
        }
    }

    fn is(&self, how: Break) -> bool {
        self.how == how
    }

    fn spoil(&self, outgoing: &mut Outgoing) {
        let options = &mut outgoing.options;
        match self.how {
            Break::ReadsBodiesAsText => {
                let text = String::from_utf8_lossy(&outgoing.body).into_owned();
                outgoing.body = text.into();
            }
            Break::IgnoresOptions => {
                let delay = options.delay;
                *options = PublishOptions::new();
                options.delay = delay;
            }
            Break::DropsHeaders => outgoing.headers = Headers::new(),
            Break::TakesEmptyKeysForNone => {
                options.key = options.key.take().filter(|key| !key.is_empty());
            }
            Break::IgnoresDelays => options.delay = None,
            _ => {}
        }
    }
}

#[async_trait]
impl Fixture for Broken {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        Ok(Arc::new(self.clone()))
    }

    fn can_restart(&self) -> bool {
        true
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.memory.disconnect();
        self.down.store(self.is(Break::StaysDown), Ordering::SeqCst);
        Ok(())
    }

    fn can_fill(&self) -> bool {
        true
    }

    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        self.memory.set_full(queue, full);
        Ok(())
    }
}

#[async_trait]
impl Transport for Broken {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let mut answers = Vec::new();
        for mut outgoing in batch {
            self.spoil(&mut outgoing);
            let count = self.published.fetch_add(1, Ordering::SeqCst);
            let delayed = outgoing.options.delay.is_some();
            if self.is(Break::DropsSome) && count % 20 == 19
                || self.is(Break::DropsDelayed) && delayed
            {
                answers.push(Ok(()));
            } else {
                answers.extend(self.memory.publish(vec![outgoing]).await);
            }
        }
        if self.is(Break::AnswersTooFew) {
            answers.pop();
        }
        answers
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let subscription = self.memory.subscribe(queue, options).await?;
        let inner = subscription.settler;
        Ok(Subscription {
            receiver: Box::new(BrokenReceiver {
                inner: Some(subscription.receiver),
                settler: Arc::clone(&inner),
                buffer: Vec::new(),
                of: self.clone(),
            }),
            settler: Arc::new(BrokenSettler {
                inner,
                of: self.clone(),
            }),
        })
    }
}

struct BrokenReceiver {
    inner: Option<Box<dyn Receiver>>,
    settler: Arc<dyn Settler>,
    buffer: Vec<Arc<Delivery>>,
    of: Broken,
}

#[async_trait]
impl Receiver for BrokenReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let of = &self.of;
        if of.down.load(Ordering::SeqCst) {
            return Err(Error::transient("receive", "down"));
        }
        if !self.buffer.is_empty() {
            let count = max.min(self.buffer.len());
            return Ok(self.buffer.drain(..count).collect());
        }
        let Some(inner) = &mut self.inner else {
            return Err(Error::refused("receive", "closed"));
        };
        let mut deliveries = match of.how {
            Break::SleepsThroughAPublish => {
                tokio::select! {
                    biased;
                    at_once = inner.receive(max) => at_once?,
                    () = std::future::ready(()) => std::future::pending().await,
                }
            }
            Break::GivesTooMany => inner.receive(max + 1).await?,
            Break::ReversesBatches => {
                let mut batch = inner.receive(8).await?;
                batch.reverse();
                self.buffer = batch.split_off(max.min(batch.len()));
                batch
            }
            Break::KeepsItsBuffer => {
                let mut all = inner.receive(100).await?;
                self.buffer = all.split_off(max.min(all.len()));
                all
            }
            _ => inner.receive(max).await?,
        };
        if of.is(Break::LosesWhatADroppedCallTook) {
            sleep(Duration::from_millis(3)).await;
        }
        if of.is(Break::AcksAtReceipt) {
            let acks = deliveries
                .iter()
                .map(|out| (Arc::clone(out), Settlement::Ack));
            self.settler.settle(acks.collect()).await;
        }
        for delivery in &mut deliveries {
            if of.is(Break::SettlesByMessage) {
                let known = (Arc::clone(delivery), Arc::clone(&self.settler));
                let mut last = of.last.lock().unwrap();
                last.insert(delivery.body.clone(), known);
            }
            if of.is(Break::HidesLosses) {
                *delivery = double(delivery);
            }
        }
        Ok(deliveries)
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        match self.of.how {
            Break::ClosesAtOnce => Ok(()),
            Break::KeepsItsBuffer => match &mut self.inner {
                Some(inner) => inner.close(Duration::ZERO).await,
                None => Ok(()),
            },
            _ => match self.inner.take() {
                Some(mut inner) => inner.close(within).await,
                None => Ok(()),
            },
        }
    }
}

/// The same delivery once more, with a loss of its own that nobody marks.
fn double(delivery: &Delivery) -> Arc<Delivery> {
    let mut double = Delivery::new(Arc::clone(&delivery.queue), delivery.body.clone());
    double.headers = delivery.headers.clone();
    double.facts = delivery.facts.clone();
    double.lane.clone_from(&delivery.lane);
    double.fence = delivery.fence;
    if let Some(end) = delivery.lease_end() {
        double.set_lease_end(end);
    }
    Arc::new(double)
}

struct BrokenSettler {
    inner: Arc<dyn Settler>,
    of: Broken,
}

impl BrokenSettler {
    async fn one(&self, delivery: Arc<Delivery>, settlement: Settlement) -> Result<Settled, Error> {
        let settlement = match (self.of.how, settlement) {
            (Break::ForgetsAcks, Settlement::Ack) => return Ok(Settled::Done),
            (Break::RetriesUncounted, Settlement::Retry { delay, .. }) => Settlement::Retry {
                body: delivery.body.clone(),
                attempts: 0,
                delay,
            },
            (Break::IgnoresDelays, Settlement::Retry { body, attempts, .. }) => Settlement::Retry {
                body,
                attempts,
                delay: Duration::ZERO,
            },
            (Break::CopiesBodiesOnly, Settlement::Retry { body, .. }) => {
                let queue = Arc::clone(&delivery.queue);
                return self.copy_then_ack(delivery, queue, body).await;
            }
            (
                Break::CopiesBodiesOnly,
                Settlement::DeadLetter {
                    queue,
                    record: body,
                    ..
                }
                | Settlement::Redrive { queue, body, .. },
            ) => {
                return self.copy_then_ack(delivery, queue, body).await;
            }
            (Break::AcksBeforeItCopies, Settlement::DeadLetter { queue, record, .. }) => {
                let ack = vec![(delivery, Settlement::Ack)];
                self.inner.settle(ack).await.remove(0)?;
                let copy = vec![Outgoing::new(queue, record)];
                self.of.memory.publish(copy).await.remove(0)?;
                return Ok(Settled::Done);
            }
            (Break::CountsReleases, Settlement::Release { .. }) => Settlement::Abandon,
            (
                Break::TidiesRecords,
                Settlement::DeadLetter {
                    queue,
                    record,
                    verbatim,
                    attempts,
                },
            ) => Settlement::DeadLetter {
                queue,
                record: Bytes::copy_from_slice(record.trim_ascii()),
                verbatim,
                attempts,
            },
            (Break::AcksWhatIsAbandoned, Settlement::Abandon)
            | (Break::AcksWhatIsReleased, Settlement::Release { .. })
            | (Break::DropsDeadLetters, Settlement::DeadLetter { .. })
            | (Break::DropsRetries, Settlement::Retry { .. }) => Settlement::Ack,
            (Break::SettlesByMessage, settlement) => {
                let last = self.of.last.lock().unwrap().get(&delivery.body).cloned();
                if let Some((delivery, settler)) = last {
                    return settler.settle(vec![(delivery, settlement)]).await.remove(0);
                }
                settlement
            }
            (_, settlement) => settlement,
        };
        self.inner
            .settle(vec![(delivery, settlement)])
            .await
            .remove(0)
    }

    async fn copy_then_ack(
        &self,
        delivery: Arc<Delivery>,
        queue: Arc<str>,
        body: Bytes,
    ) -> Result<Settled, Error> {
        let copy = vec![Outgoing::new(queue, body)];
        self.of.memory.publish(copy).await.remove(0)?;
        let ack = vec![(delivery, Settlement::Ack)];
        self.inner.settle(ack).await.remove(0)
    }
}

#[async_trait]
impl Settler for BrokenSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        match self.of.how {
            Break::BeginsAnything | Break::HidesLosses => true,
            _ => self.inner.begin(delivery),
        }
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let mut answers = Vec::new();
        for (delivery, settlement) in batch {
            answers.push(self.one(delivery, settlement).await);
        }
        if self.of.is(Break::AnswersTooFew) {
            answers.pop();
        }
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        if self.of.is(Break::ForgetsRenewals) {
            let end = Instant::now() + Duration::from_secs(2);
            return batch.iter().map(|_| Ok(end)).collect();
        }
        self.inner.extend(batch).await
    }
}
