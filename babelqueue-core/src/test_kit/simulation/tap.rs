//! The seam as the worker uses it, written down: every call over it passes here on its way to the
//! broker.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::log::{Answer, LifeId, Log, Note};
use crate::Error;
use crate::memory::{Memory, Verb};
use crate::transport::{
    Capabilities, Delivery, Outgoing, Receiver, Settled, Settlement, Settler, SubscribeOptions,
    Subscription, Transport,
};

/// How many calls of a verb one life may make.
const CALLS: u32 = 4_000;

/// One life's way to the broker.
#[derive(Debug, Clone)]
pub(super) struct Tap {
    line: Arc<Line>,
}

#[derive(Debug)]
struct Line {
    memory: Memory,
    log: Arc<Log>,
    life: LifeId,
    calls: Mutex<BTreeMap<&'static str, u32>>,
    spun: AtomicU32,
}

impl Tap {
    pub(super) fn new(memory: Memory, log: Arc<Log>, life: LifeId) -> Self {
        Self {
            line: Arc::new(Line {
                memory,
                log,
                life,
                calls: Mutex::default(),
                spun: AtomicU32::new(0),
            }),
        }
    }
}

impl Line {
    /// Counts a call; a call too many never returns, and fails the run.
    async fn pass(&self, verb: Verb, name: &'static str) {
        let count = {
            let mut calls = self
                .calls
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let count = calls.entry(name).or_default();
            *count += 1;
            *count
        };
        if count > CALLS {
            if self.spun.fetch_add(1, Ordering::Relaxed) == 0 {
                self.log.note(Note::Spun { verb });
            }
            pending::<()>().await;
        }
    }

    fn failed(&self, error: &Error) {
        self.note(Note::ReceiveFailed);
        if !error.is_transient() {
            // What no retry can mend tells a worker to stop.
            self.note(Note::StopTold { life: self.life });
        }
    }

    fn note(&self, note: Note) {
        self.log.note(note);
    }
}

#[async_trait]
impl Transport for Tap {
    fn capabilities(&self) -> &Capabilities {
        self.line.memory.capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        self.line.memory.publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        self.line.pass(Verb::Subscribe, "subscribe").await;
        let subscription = self.line.memory.subscribe(queue, options).await;
        let subscription = subscription.inspect_err(|error| self.line.failed(error))?;
        Ok(Subscription {
            receiver: Box::new(TappedReceiver {
                inner: subscription.receiver,
                line: Arc::clone(&self.line),
            }),
            settler: Arc::new(TappedSettler {
                inner: subscription.settler,
                line: Arc::clone(&self.line),
            }),
        })
    }
}

struct TappedReceiver {
    inner: Box<dyn Receiver>,
    line: Arc<Line>,
}

#[async_trait]
impl Receiver for TappedReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        self.line.pass(Verb::Receive, "receive").await;
        let deliveries = self.inner.receive(max).await;
        let deliveries = deliveries.inspect_err(|error| self.line.failed(error))?;
        for delivery in &deliveries {
            self.line.note(Note::Received {
                life: self.line.life,
                delivery: Arc::clone(delivery),
            });
        }
        Ok(deliveries)
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        self.line.note(Note::Closing {
            life: self.line.life,
        });
        self.inner.close(within).await
    }
}

struct TappedSettler {
    inner: Arc<dyn Settler>,
    line: Arc<Line>,
}

#[async_trait]
impl Settler for TappedSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        let granted = self.inner.begin(delivery);
        if !granted {
            self.line.note(Note::Refused {
                life: self.line.life,
                fence: delivery.fence,
            });
        }
        granted
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        self.line.pass(Verb::Settle, "settle").await;
        let life = self.line.life;
        let fences: Vec<_> = batch.iter().map(|(delivery, _)| delivery.fence).collect();
        for (delivery, settlement) in &batch {
            self.line.note(Note::Settling {
                life,
                fence: delivery.fence,
                settlement: settlement.clone(),
            });
        }
        let answers = self.inner.settle(batch).await;
        for (fence, answer) in fences.into_iter().zip(&answers) {
            let answer = Answer::from(answer);
            self.line.note(Note::Settled {
                life,
                fence,
                answer,
            });
        }
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        self.line.pass(Verb::Extend, "extend").await;
        for delivery in batch {
            self.line.note(Note::Extending {
                life: self.line.life,
                fence: delivery.fence,
            });
        }
        let answers = self.inner.extend(batch).await;
        for (delivery, answer) in batch.iter().zip(&answers) {
            self.line.note(Note::Extended {
                fence: delivery.fence,
                answer: match answer {
                    Ok(_) => Answer::Renewed,
                    Err(error) if error.is_lost() => Answer::Lost,
                    Err(_) => Answer::Failed,
                },
            });
        }
        answers
    }
}
