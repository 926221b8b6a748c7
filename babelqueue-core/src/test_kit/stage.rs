use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::consumer::Consumer;
use super::{Failed, Fixture, ensure};
use crate::dead_letter;
use crate::envelope::Envelope;
use crate::transport::{
    Capabilities, Delivery, Outgoing, PublishOptions, SubscribeOptions, Transport,
};
use crate::{Error, Headers};

/// What one test runs on: a transport, and queues that no other test knows.
pub(super) struct Stage {
    pub(super) fixture: Arc<dyn Fixture>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) capabilities: Capabilities,
    run: String,
    made: Mutex<Vec<String>>,
}

/// A queue of the test, and its dead-letter queue.
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    pub(super) dead_letter: Arc<str>,
}

impl Stage {
    pub(super) async fn set(fixture: Arc<dyn Fixture>) -> Result<Self, Failed> {
        let transport = fixture.connect().await?;
        let capabilities = transport.capabilities().clone();
        let run = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            fixture,
            transport,
            capabilities,
            run: run[..12].to_owned(),
            made: Mutex::default(),
        })
    }

    /// Removes the queues.
    pub(super) async fn clear(&self) -> Result<(), Failed> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for queue in made.iter().rev() {
            self.fixture.remove(queue).await?;
        }
        Ok(())
    }

    /// A new queue and its dead-letter queue.
    pub(super) async fn queue(&self) -> Result<Queue, Failed> {
        self.make(false).await
    }

    /// The same for messages that can have lanes.
    pub(super) async fn queue_with_lanes(&self) -> Result<Queue, Failed> {
        self.make(true).await
    }

    async fn make(&self, lanes: bool) -> Result<Queue, Failed> {
        let count = self
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        let unique = format!("{}-{count}", self.run);
        let name = self.fixture.queue_name(&unique, lanes);
        let naming = self.capabilities.rules.dead_letter;
        let dead_letter = dead_letter::queue_name(&name, None, None, naming)?;
        for queue in [&dead_letter, &name] {
            self.fixture.create(queue).await?;
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push(queue.clone());
        }
        Ok(Queue {
            name: name.into(),
            dead_letter: dead_letter.into(),
        })
    }

    /// A consumer over this stage's own transport.
    pub(super) async fn consume(
        &self,
        queue: &Arc<str>,
        prefetch: usize,
    ) -> Result<Consumer, Failed> {
        self.consume_over(&*self.transport, queue, prefetch).await
    }

    /// A consumer over another transport.
    pub(super) async fn consume_over(
        &self,
        transport: &dyn Transport,
        queue: &Arc<str>,
        prefetch: usize,
    ) -> Result<Consumer, Failed> {
        let options = SubscribeOptions::with_prefetch(prefetch);
        let subscription = self
            .patiently("subscribe", transport.subscribe(queue, options))
            .await??;
        Ok(Consumer::new(subscription, self.patience()))
    }

    /// Publishes envelopes that carry these numbers.
    pub(super) async fn publish(&self, queue: &Arc<str>, numbers: &[u32]) -> Result<(), Failed> {
        let batch = numbers
            .iter()
            .map(|&number| Ok(Outgoing::new(Arc::clone(queue), envelope(number)?)))
            .collect::<Result<Vec<_>, Failed>>()?;
        self.publish_all(batch).await
    }

    /// Publishes envelopes that carry these numbers into one lane.
    pub(super) async fn publish_in_lane(
        &self,
        queue: &Arc<str>,
        lane: &str,
        numbers: &[u32],
    ) -> Result<(), Failed> {
        let batch = numbers
            .iter()
            .map(|&number| {
                let mut outgoing = Outgoing::new(Arc::clone(queue), envelope(number)?);
                outgoing.options = self.fixture.lane(lane);
                Ok(outgoing)
            })
            .collect::<Result<Vec<_>, Failed>>()?;
        self.publish_all(batch).await
    }

    /// Publishes one message, and gives the transport's answer.
    pub(super) async fn send(
        &self,
        queue: &Arc<str>,
        body: Bytes,
        headers: Headers,
        options: PublishOptions,
    ) -> Result<Result<(), Error>, Failed> {
        let outgoing = Outgoing {
            queue: Arc::clone(queue),
            body,
            headers,
            options,
        };
        self.answers(vec![outgoing])
            .await?
            .pop()
            .ok_or_else(|| Failed("publish gave no answer".to_owned()))
    }

    /// Publishes, and fails where a message was not confirmed.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Result<(), Failed> {
        for answer in self.answers(batch).await? {
            answer?;
        }
        Ok(())
    }

    /// Publishes, and gives an answer for each message.
    pub(super) async fn answers(
        &self,
        batch: Vec<Outgoing>,
    ) -> Result<Vec<Result<(), Error>>, Failed> {
        let count = batch.len();
        let answers = self
            .patiently("publish", self.transport.publish(batch))
            .await?;
        ensure!(
            answers.len() == count,
            "publish gave {} answers for {count} messages",
            answers.len()
        );
        Ok(answers)
    }

    /// That nothing is left in `queue`: what is published now is the next to come.
    pub(super) async fn expect_empty(
        &self,
        queue: &Arc<str>,
        consumer: &mut Consumer,
    ) -> Result<(), Failed> {
        const SENTINEL: u32 = u32::MAX;
        self.publish(queue, &[SENTINEL]).await?;
        let next = consumer.one().await?;
        ensure!(
            number(&next) == Some(SENTINEL),
            "the queue should be empty, but {next:?} came"
        );
        consumer.ack(&next).await
    }

    /// Fails if something is left in the queue that may not be; acknowledges what may.
    pub(super) async fn expect_only(
        &self,
        queue: &Arc<str>,
        may_be: impl Fn(u32) -> bool,
    ) -> Result<(), Failed> {
        const SENTINEL: u32 = u32::MAX;
        self.publish(queue, &[SENTINEL]).await?;
        let mut consumer = self.consume(queue, 8).await?;
        loop {
            let next = consumer.one().await?;
            let found = number(&next);
            ensure!(
                found.is_some_and(|found| found == SENTINEL || may_be(found)),
                "the queue should be empty, but {next:?} came"
            );
            consumer.ack(&next).await?;
            if found == Some(SENTINEL) {
                return consumer.close().await;
            }
        }
    }

    pub(super) fn patience(&self) -> Duration {
        self.fixture.patience()
    }

    /// Waits for a call as long as the fixture's patience lasts.
    pub(super) async fn patiently<T>(
        &self,
        what: &str,
        call: impl Future<Output = T>,
    ) -> Result<T, Failed> {
        timeout(self.patience(), call).await.map_err(|_| {
            Failed(format!(
                "{what} gave no answer within {:?}",
                self.patience()
            ))
        })
    }
}

/// The URN of the suite's envelopes.
pub(super) const URN: &str = "urn:babel:kit:numbered";

/// An envelope that carries a number.
pub(super) fn envelope(number: u32) -> Result<Bytes, Failed> {
    let data = serde_json::json!({ "number": number });
    let envelope = Envelope::builder(URN).data(&data).build();
    Ok(envelope.map_err(Error::from)?.into_bytes())
}

/// The number that a delivery's envelope carries.
pub(super) fn number(delivery: &Delivery) -> Option<u32> {
    let envelope = Envelope::decode(delivery.body.clone()).ok()?.envelope;
    let data: serde_json::Value = envelope.data().ok()?;
    u32::try_from(data.get("number")?.as_u64()?).ok()
}
