use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::stage::number;
use super::{Failed, ensure};
use crate::Error;
use crate::transport::{
    Delivery, Receiver, Settled, Settlement, Settler, SubscribeOptions, Subscription, Transport,
};

/// A subscription, used as a patient worker would: for the tests here, and for a transport's own.
pub struct Consumer {
    /// Its receiving half.
    pub receiver: Box<dyn Receiver>,
    /// Its settling half.
    pub settler: Arc<dyn Settler>,
    patience: Duration,
}

impl Consumer {
    pub(super) fn new(subscription: Subscription, patience: Duration) -> Self {
        Self {
            receiver: subscription.receiver,
            settler: subscription.settler,
            patience,
        }
    }

    /// Subscribes, and waits up to three minutes for what it is to get: a busy machine is slow.
    ///
    /// # Errors
    ///
    /// The transport's.
    pub async fn open(
        transport: &dyn Transport,
        queue: &str,
        prefetch: usize,
    ) -> Result<Self, Error> {
        let options = SubscribeOptions::with_prefetch(prefetch);
        let subscription = transport.subscribe(queue, options).await?;
        Ok(Self::new(subscription, Duration::from_mins(3)))
    }

    /// At least one delivery, and at most `max`. Errors that pass are waited out.
    pub(super) async fn some(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Failed> {
        let end = Instant::now() + self.patience;
        loop {
            let answer = timeout_at(end, self.receiver.receive(max))
                .await
                .map_err(|_| Failed(format!("nothing came within {:?}", self.patience)))?;
            match answer {
                Ok(deliveries) => {
                    ensure!(
                        (1..=max).contains(&deliveries.len()),
                        "receive({max}) gave {} deliveries",
                        deliveries.len()
                    );
                    return Ok(deliveries);
                }
                Err(error) if error.is_transient() && Instant::now() < end => {
                    // A broker that is away answers at once; it needs a moment.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next delivery. Errors that pass are waited out.
    ///
    /// # Errors
    ///
    /// Nothing came in time, or the transport's error that does not pass.
    pub async fn one(&mut self) -> Result<Arc<Delivery>, Failed> {
        Ok(self.some(1).await?.remove(0))
    }

    /// This many deliveries.
    pub(super) async fn take(&mut self, count: usize) -> Result<Vec<Arc<Delivery>>, Failed> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let more = self.some(count - taken.len()).await.map_err(|failed| {
                Failed(format!(
                    "{failed}, after {} of {count} messages",
                    taken.len()
                ))
            })?;
            taken.extend(more);
        }
        Ok(taken)
    }

    /// This many deliveries, each acknowledged as it comes; gives their numbers.
    pub(super) async fn take_and_ack(&mut self, count: usize) -> Result<Vec<u32>, Failed> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            let more = self.some(count - numbers.len()).await.map_err(|failed| {
                Failed(format!(
                    "{failed}, after {} of {count} messages",
                    numbers.len()
                ))
            })?;
            for delivery in more {
                self.ack(&delivery).await?;
                numbers.extend(number(&delivery));
            }
        }
        Ok(numbers)
    }

    /// Settles one delivery; the transport's answer.
    ///
    /// # Errors
    ///
    /// There was no answer in time, or not just one.
    pub async fn settle(
        &mut self,
        delivery: &Arc<Delivery>,
        settlement: Settlement,
    ) -> Result<Result<Settled, Error>, Failed> {
        let batch = vec![(Arc::clone(delivery), settlement)];
        let settled = timeout_at(Instant::now() + self.patience, self.settler.settle(batch));
        let mut answers = settled
            .await
            .map_err(|_| Failed(format!("settle gave no answer within {:?}", self.patience)))?;
        ensure!(
            answers.len() == 1,
            "settle gave {} answers for one",
            answers.len()
        );
        Ok(answers.remove(0))
    }

    /// Acknowledges, and fails unless that is done.
    ///
    /// # Errors
    ///
    /// The answer was another one.
    pub async fn ack(&mut self, delivery: &Arc<Delivery>) -> Result<(), Failed> {
        let answer = self.settle(delivery, Settlement::Ack).await??;
        ensure!(
            answer == Settled::Done,
            "an ack of what is ours was answered {answer:?}"
        );
        Ok(())
    }

    /// Closes it, with time for what is out.
    ///
    /// # Errors
    ///
    /// The transport's, or it does not come back.
    pub async fn close(&mut self) -> Result<(), Failed> {
        let within = self.patience;
        let closing = self.receiver.close(within);
        timeout_at(Instant::now() + within * 2, closing)
            .await
            .map_err(|_| Failed(format!("close({within:?}) did not come back")))??;
        Ok(())
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
