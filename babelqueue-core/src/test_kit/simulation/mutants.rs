//! Deliberate bugs, to prove that the checker bites: each sits between the worker and the seam, and
//! does what a worker or a settlement with that bug would do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::scenario::LEASE;
use super::tap::Tap;
use crate::Error;
use crate::envelope::Envelope;
use crate::transport::{
    Capabilities, Delivery, Fence, Outgoing, Receiver, Settled, Settlement, Settler,
    SubscribeOptions, Subscription, Transport,
};

/// A bug that a worker or a settlement could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// Acknowledges first, and writes the retry or the dead letter after that.
    AckBeforeCopy,
    /// Acknowledges where a dead letter was to be written.
    DeadLetterDropped,
    /// Does not take notice that a delivery is lost.
    LostLeaseIgnored,
    /// Does not ask whether a handler may start.
    BeginIgnored,
    /// Does not see that deliveries share a lane.
    LaneBroken,
    /// Sends each settlement twice.
    SettledTwice,
    /// Takes a failed settlement for done.
    ErrorTakenForDone,
    /// Writes a retry that counts from the start again.
    AttemptsLowered,
    /// Writes a retry without the headers.
    RetryLosesHeaders,
    /// Writes a retry of the members that it knows.
    RetryLosesMembers,
    /// Keeps what it should give back.
    ReleaseDropped,
    /// Does not renew leases.
    RenewalsForgotten,
    /// Leaves without closing the receiver.
    CloseForgotten,
    /// Loses what a dropped receive had taken.
    ReceiveNotCancelSafe,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::AckBeforeCopy,
        Self::DeadLetterDropped,
        Self::LostLeaseIgnored,
        Self::BeginIgnored,
        Self::LaneBroken,
        Self::SettledTwice,
        Self::ErrorTakenForDone,
        Self::AttemptsLowered,
        Self::RetryLosesHeaders,
        Self::RetryLosesMembers,
        Self::ReleaseDropped,
        Self::RenewalsForgotten,
        Self::CloseForgotten,
        Self::ReceiveNotCancelSafe,
    ];
}

/// A life's way to the broker, with a bug on it.
#[derive(Clone)]
pub(super) struct Mutated {
    inner: Tap,
    bug: Mutant,
    /// The deliveries behind the doubles that the worker has.
    behind: Arc<Mutex<HashMap<Fence, Arc<Delivery>>>>,
    /// Receivers that were forgotten, not dropped.
    forgotten: Arc<Mutex<Vec<Box<dyn Receiver>>>>,
}

impl Mutated {
    pub(super) fn new(inner: Tap, bug: Mutant) -> Self {
        Self {
            inner,
            bug,
            behind: Arc::default(),
            forgotten: Arc::default(),
        }
    }

    fn is(&self, bug: Mutant) -> bool {
        self.bug == bug
    }

    /// What the worker gets to see of a delivery.
    fn shown(&self, delivery: Arc<Delivery>) -> Arc<Delivery> {
        let lane = match self.bug {
            Mutant::LaneBroken => None,
            Mutant::LostLeaseIgnored => delivery.lane.clone(),
            _ => return delivery,
        };
        let received = delivery.received();
        let mut double =
            Delivery::received_at(Arc::clone(&delivery.queue), delivery.body.clone(), received);
        double.headers = delivery.headers.clone();
        double.key.clone_from(&delivery.key);
        double.facts = delivery.facts.clone();
        double.fence = delivery.fence;
        double.lane = lane;
        if let Some(end) = delivery.lease_end() {
            double.set_lease_end(end);
        }
        lock(&self.behind).insert(delivery.fence, delivery);
        Arc::new(double)
    }

    fn original(&self, shown: &Delivery) -> Option<Arc<Delivery>> {
        lock(&self.behind).get(&shown.fence).cloned()
    }
}

#[async_trait]
impl Transport for Mutated {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        self.inner.publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let subscription = self.inner.subscribe(queue, options).await?;
        Ok(Subscription {
            receiver: Box::new(MutatedReceiver {
                inner: Some(subscription.receiver),
                of: self.clone(),
            }),
            settler: Arc::new(MutatedSettler {
                inner: subscription.settler,
                of: self.clone(),
            }),
        })
    }
}

struct MutatedReceiver {
    inner: Option<Box<dyn Receiver>>,
    of: Mutated,
}

#[async_trait]
impl Receiver for MutatedReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let Some(inner) = &mut self.inner else {
            return Err(Error::refused("receive", "closed"));
        };
        let deliveries = inner.receive(max).await?;
        if self.of.is(Mutant::ReceiveNotCancelSafe) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(deliveries
            .into_iter()
            .map(|delivery| self.of.shown(delivery))
            .collect())
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let Some(mut inner) = self.inner.take() else {
            return Ok(());
        };
        if self.of.is(Mutant::CloseForgotten) {
            lock(&self.of.forgotten).push(inner);
            return Ok(());
        }
        inner.close(within).await
    }
}

struct MutatedSettler {
    inner: Arc<dyn Settler>,
    of: Mutated,
}

impl MutatedSettler {
    async fn settle_one(&self, delivery: Arc<Delivery>, how: Settlement) -> Result<Settled, Error> {
        match (self.of.bug, how) {
            (Mutant::AckBeforeCopy, Settlement::Retry { body, delay, .. }) => {
                let queue = Arc::clone(&delivery.queue);
                self.ack_then_write(delivery, queue, body, delay).await
            }
            (Mutant::AckBeforeCopy, Settlement::DeadLetter { queue, record, .. }) => {
                self.ack_then_write(delivery, queue, record, Duration::ZERO)
                    .await
            }
            (Mutant::DeadLetterDropped, Settlement::DeadLetter { .. }) => {
                self.pass(delivery, Settlement::Ack).await
            }
            (Mutant::SettledTwice, how) => {
                let answer = self.pass(Arc::clone(&delivery), how.clone()).await;
                let _again = self.pass(delivery, how).await;
                answer
            }
            (Mutant::ErrorTakenForDone, how) => {
                self.pass(delivery, how).await.or(Ok(Settled::Done))
            }
            (Mutant::AttemptsLowered, Settlement::Retry { body, delay, .. }) => {
                let retry = Settlement::Retry {
                    body: altered(&body, |envelope| envelope.with_attempts(0)),
                    attempts: 0,
                    delay,
                };
                self.pass(delivery, retry).await
            }
            (Mutant::RetryLosesHeaders, Settlement::Retry { body, .. }) => {
                let copy = vec![Outgoing::new(Arc::clone(&delivery.queue), body)];
                for answer in self.of.inner.publish(copy).await {
                    answer?;
                }
                self.pass(delivery, Settlement::Ack).await
            }
            (
                Mutant::RetryLosesMembers,
                Settlement::Retry {
                    body,
                    attempts,
                    delay,
                },
            ) => {
                let retry = Settlement::Retry {
                    body: altered(&body, known_members),
                    attempts,
                    delay,
                };
                self.pass(delivery, retry).await
            }
            (Mutant::ReleaseDropped, Settlement::Release { .. }) => Ok(Settled::Done),
            (_, how) => self.pass(delivery, how).await,
        }
    }

    async fn pass(&self, delivery: Arc<Delivery>, how: Settlement) -> Result<Settled, Error> {
        let delivery = self.of.original(&delivery).unwrap_or(delivery);
        let mut answers = self.inner.settle(vec![(delivery, how)]).await;
        answers
            .pop()
            .unwrap_or_else(|| Err(Error::transient("settle", "no answer")))
    }

    async fn ack_then_write(
        &self,
        delivery: Arc<Delivery>,
        queue: Arc<str>,
        body: Bytes,
        delay: Duration,
    ) -> Result<Settled, Error> {
        let mut copy = Outgoing::new(queue, body);
        copy.headers = delivery.headers.clone();
        copy.options = copy.options.delay(delay);
        let answer = self.pass(delivery, Settlement::Ack).await?;
        for answer in self.of.inner.publish(vec![copy]).await {
            answer?;
        }
        Ok(answer)
    }
}

#[async_trait]
impl Settler for MutatedSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        match self.of.bug {
            Mutant::BeginIgnored => true,
            Mutant::LostLeaseIgnored => !delivery.lease_is_over(),
            _ => {
                let original = self.of.original(delivery);
                self.inner.begin(original.as_deref().unwrap_or(delivery))
            }
        }
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let mut answers = Vec::with_capacity(batch.len());
        for (delivery, how) in batch {
            answers.push(self.settle_one(delivery, how).await);
        }
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let renewed = Instant::now() + LEASE;
        if self.of.is(Mutant::RenewalsForgotten) {
            return batch.iter().map(|_| Ok(renewed)).collect();
        }
        let originals: Vec<_> = batch
            .iter()
            .map(|shown| self.of.original(shown).unwrap_or_else(|| Arc::clone(shown)))
            .collect();
        let mut answers = self.inner.extend(&originals).await;
        if self.of.is(Mutant::LostLeaseIgnored) {
            for answer in &mut answers {
                if answer.as_ref().is_err_and(Error::is_lost) {
                    *answer = Ok(renewed);
                }
            }
        }
        answers
    }
}

fn altered(body: &Bytes, change: impl FnOnce(Envelope) -> Envelope) -> Bytes {
    match Envelope::decode(body.clone()) {
        Ok(decoded) => change(decoded.envelope).into_bytes(),
        Err(_) => body.clone(),
    }
}

/// The envelope as a struct of the known members would have it.
fn known_members(envelope: Envelope) -> Envelope {
    let rebuilt = Envelope::builder(envelope.urn())
        .data_raw(envelope.data_json().unwrap_or("{}").to_owned())
        .id(envelope.id().unwrap_or_default())
        .trace_id(envelope.trace_id().unwrap_or_default())
        .build();
    match rebuilt {
        Ok(rebuilt) => rebuilt.with_attempts(envelope.attempts().unwrap_or_default()),
        Err(_) => envelope,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
