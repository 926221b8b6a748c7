use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{
    Capabilities, Outgoing, SubscribeOptions, Subscription, Transport,
};

use crate::config::Config;
use crate::producer::Producer;
use crate::project::{self, NewRecord};
use crate::reinject::Companion;
use crate::subscription::{self, GroupSettler, Membership, Writes};
use crate::tiers::RetryTiers;
use crate::topology;

/// A connection to Kafka: publishes, and joins consumer groups. Cheap to clone; a program makes one
/// and shares it.
///
/// Dropping the last clone waits a few seconds for what is still on its way;
/// [`close`](Self::close) does so without blocking a thread of the runtime.
#[derive(Clone)]
pub struct Kafka {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    capabilities: Capabilities,
    /// Replaced where the client has failed for good.
    producer: Mutex<Arc<Producer>>,
}

impl Kafka {
    /// Connects as a `kafka://` URL says ([`Config`] has its parts).
    ///
    /// # Errors
    ///
    /// The URL is wrong, or no broker answers.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(url.parse()?).await
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// A setting that cannot be, or no broker answers.
    pub async fn open(config: Config) -> Result<Self, Error> {
        config.validate()?;
        let producer = Arc::new(Producer::new(&config)?);
        topology::reach(&config).await?;
        let inner = Inner {
            capabilities: config.capabilities(),
            producer: Mutex::new(producer),
            config,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Waits until all that was published is confirmed or has failed, and for `within` at most.
    ///
    /// # Errors
    ///
    /// Something is still on its way.
    pub async fn close(&self, within: Duration) -> Result<(), Error> {
        let producer = self.current_producer();
        producer.flush(within).await
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(crate) fn tiers(&self) -> &RetryTiers {
        &self.inner.config.tiers
    }

    /// The names of a queue's tier topics.
    pub(crate) fn tier_topics(&self, queue: &str) -> Vec<String> {
        self.tiers().iter().map(|tier| tier.topic(queue)).collect()
    }

    pub(crate) async fn ensure_topics(&self, topics: Vec<String>) -> Result<(), Error> {
        topology::ensure(self.config(), topics).await
    }

    fn current_producer(&self) -> Arc<Producer> {
        let producer = self.inner.producer.lock();
        Arc::clone(&producer.unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes in order what can be written, and says of each whether it is confirmed.
    async fn write_all(
        &self,
        records: impl ExactSizeIterator<Item = Result<NewRecord, Error>>,
    ) -> Vec<Result<(), Error>> {
        match self.working_producer() {
            Ok(producer) => producer.write(records).await,
            Err(error) => {
                let text = error.to_string();
                let failed = |_| Err(Error::transient("publish", &text));
                records.map(|record| record.and_then(failed)).collect()
            }
        }
    }

    /// The producer, or another where this one has failed for good.
    fn working_producer(&self) -> Result<Arc<Producer>, Error> {
        let producer = self.inner.producer.lock();
        let mut producer = producer.unwrap_or_else(PoisonError::into_inner);
        if producer.has_failed() {
            *producer = Arc::new(Producer::new(&self.inner.config)?);
        }
        Ok(Arc::clone(&producer))
    }
}

#[async_trait]
impl Transport for Kafka {
    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let tiers = self.tiers();
        let records = batch.into_iter();
        self.write_all(records.map(|outgoing| project::publish(outgoing, tiers)))
            .await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let config = self.config();
        let tiers = !options.drains && !self.tiers().is_empty();
        if options.retries && !tiers {
            tracing::warn!(
                queue,
                "no retry tiers: a message whose handler fails holds its lane and comes again at \
                 once, uncounted, unless its first attempt is its last"
            );
        }
        let mut topics = vec![queue.to_owned()];
        if tiers {
            topics.extend(self.tier_topics(queue));
        }
        topics.extend(options.dead_letter.as_deref().map(str::to_owned));
        self.ensure_topics(topics).await?;

        let membership = Membership {
            group: config.group.clone(),
            topics: vec![queue.into()],
            order: config.order,
            share: options.scope_share,
        };
        let mut receiver = subscription::join(config, membership)?;
        let shared = Arc::clone(receiver.shared());
        if config.reinjector && tiers {
            let companion = Companion::start(self.clone(), queue, Arc::clone(&shared));
            receiver = receiver.beside(companion);
        }
        Ok(Subscription {
            receiver: Box::new(receiver),
            settler: Arc::new(GroupSettler::new(
                shared,
                self.clone(),
                self.tiers().clone(),
            )),
        })
    }
}

#[async_trait]
impl Writes for Kafka {
    async fn write(&self, records: Vec<NewRecord>) -> Vec<Result<(), Error>> {
        self.write_all(records.into_iter().map(Ok)).await
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("config", &self.inner.config)
            .finish_non_exhaustive()
    }
}
