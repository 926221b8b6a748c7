//! A transport that passes everything on, and tells what was published and what became of each
//! delivery.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Error;
use crate::transport::{
    Capabilities, Delivery, Outgoing, Settled, Settlement, Settler, SubscribeOptions, Subscription,
    Transport,
};

/// A transport under watch.
#[derive(Clone)]
pub(crate) struct Watched {
    inner: Arc<dyn Transport>,
    log: Arc<Log>,
}

/// A delivery that was settled, and what the transport answered.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) settlement: Settlement,
    /// `None` for an error.
    pub(crate) answer: Option<Settled>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Log {
    entries: Mutex<Entries>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    published: Vec<Outgoing>,
    ended: Vec<Ended>,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn Transport>) -> Self {
        Self {
            inner,
            log: Arc::default(),
        }
    }

    /// What was published and confirmed, in order.
    #[cfg(feature = "harness")]
    pub(crate) fn published(&self) -> Vec<Outgoing> {
        self.log.lock().published.clone()
    }

    /// What was settled, in order.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.log.lock().ended.clone()
    }

    /// Waits until what was settled is `enough`.
    #[cfg(feature = "test-kit")]
    pub(crate) async fn until(&self, mut enough: impl FnMut(&[Ended]) -> bool) {
        loop {
            let news = self.log.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if enough(&self.log.lock().ended) {
                return;
            }
            news.await;
        }
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Watched {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let sent = batch.clone();
        let answers = self.inner.publish(batch).await;
        let confirmed = sent.into_iter().zip(&answers);
        let confirmed =
            confirmed.filter_map(|(outgoing, answer)| answer.is_ok().then_some(outgoing));
        self.log.lock().published.extend(confirmed);
        answers
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let subscription = self.inner.subscribe(queue, options).await?;
        Ok(Subscription {
            receiver: subscription.receiver,
            settler: Arc::new(WatchedSettler {
                inner: subscription.settler,
                log: Arc::clone(&self.log),
            }),
        })
    }
}

struct WatchedSettler {
    inner: Arc<dyn Settler>,
    log: Arc<Log>,
}

#[async_trait]
impl Settler for WatchedSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        self.inner.begin(delivery)
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let asked = batch.clone();
        let answers = self.inner.settle(batch).await;
        let ended = asked.into_iter().zip(&answers);
        let ended = ended.map(|((delivery, settlement), answer)| Ended {
            delivery,
            settlement,
            answer: answer.as_ref().ok().copied(),
        });
        self.log.lock().ended.extend(ended);
        self.log.news.notify_waiters();
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        self.inner.extend(batch).await
    }
}
