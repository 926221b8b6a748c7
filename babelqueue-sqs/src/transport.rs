use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::envelope::Projection;
use babelqueue_core::transport::{
    Capabilities, Delay, Outgoing, Prefetch, PublishFeatures, PublishOptions, Rules,
    SubscribeOptions, Subscription, Transport, Unready,
};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::batch::Parcel;
use crate::client::Link;
use crate::content::MAX_ENTRIES;
use crate::out::Out;
use crate::polls::{Missing, Source};
use crate::project::Attributes;
use crate::publisher::Publisher;
use crate::queues::{Queue, Queues};
use crate::receiver::SqsReceiver;
use crate::settler::{Origin, SqsSettler};
use crate::{Config, content, delay, project};

/// Amazon SQS: a handle that is cheap to clone. All clones share one client, and what is published
/// over them shares requests.
#[derive(Clone)]
pub struct Sqs {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    link: Arc<Link>,
    capabilities: Capabilities,
    queues: Queues,
    publishers: Mutex<HashMap<String, Arc<Publisher>>>,
}

impl Sqs {
    /// A handle for `url`; [`Config`] has its form. SQS has no connection to be made: that a queue is
    /// there, and that we may use it, shows when it is used first.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a bad URL, and where nothing says the region.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let sqs = Self::open(Config::from_url(url)?);
        sqs.shared.link.client().await?;
        Ok(sqs)
    }

    /// A handle whose region and credentials are looked for when it is used first.
    pub fn open(config: Config) -> Self {
        let shared = Shared {
            link: Arc::new(Link::new(Arc::new(config))),
            capabilities: capabilities(),
            queues: Queues::default(),
            publishers: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes sure that `queue` is there, and that we may read what it says of itself.
    ///
    /// # Errors
    ///
    /// A refusal where it is not, or we may not; a transient error where SQS cannot be reached.
    pub async fn check(&self, queue: &str) -> Result<(), Error> {
        self.shared.queues.forget(queue);
        self.shared.queue(queue, "check").await.map(|_| ())
    }
}

impl std::fmt::Debug for Sqs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqs")
            .field("config", &self.shared.link.config)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for Sqs {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let mut letters = Vec::with_capacity(batch.len());
        let mut unready = Unready::default();
        for outgoing in batch {
            let letter = match unready.error(&outgoing.queue) {
                Some(error) => Err(error),
                None => self.shared.published(&outgoing).await,
            };
            unready.note(outgoing.queue, &letter);
            letters.push(letter);
        }
        self.shared.send(letters).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let queue = self.shared.queue(queue, "subscribe").await?;
        if let Some(dead_letter) = &options.dead_letter {
            let dead_letter = self.shared.queue(dead_letter, "subscribe").await?;
            check_kinds(&queue, &dead_letter)?;
        }
        let link = self.shared.link.clone();
        let visibility = link.config.visibility_timeout.unwrap_or(queue.visibility);
        let source = Arc::new(Source {
            link,
            queue,
            out: Arc::new(Out::new()),
            visibility,
            missing: Missing::default(),
        });
        Ok(Subscription {
            receiver: Box::new(SqsReceiver::new(source.clone())),
            settler: Arc::new(SqsSettler {
                shared: self.shared.clone(),
                source,
            }),
        })
    }
}

/// A message that is ready, and the queue that it goes to.
type Letter = Result<(Arc<Queue>, Parcel), Error>;

impl Shared {
    /// Sends copies of received messages; one result each, in order.
    pub(crate) async fn send_copies(
        &self,
        copies: Vec<(Arc<str>, Bytes, Attributes, Origin)>,
    ) -> Vec<Result<(), Error>> {
        let mut letters = Vec::with_capacity(copies.len());
        let mut unready = Unready::default();
        for (queue, body, attributes, origin) in copies {
            let letter = match unready.error(&queue) {
                Some(error) => Err(error),
                None => self.copied(&queue, &body, attributes, origin).await,
            };
            unready.note(queue, &letter);
            letters.push(letter);
        }
        self.send(letters).await
    }

    async fn queue(&self, name: &str, operation: &'static str) -> Result<Arc<Queue>, Error> {
        self.queues.get(&self.link, name, operation).await
    }

    async fn published(&self, outgoing: &Outgoing) -> Letter {
        let queue = self.queue(&outgoing.queue, "publish").await?;
        let options = &outgoing.options;
        check(options, &queue)?;
        let delay_seconds = delay::publish_seconds(options.delay, queue.is_fifo)?;
        let attributes = project::published(&outgoing.body, &outgoing.headers)?;
        let mut parcel = parcel(&queue, &outgoing.body, attributes)?;
        parcel.delay_seconds = delay_seconds;
        if queue.is_fifo {
            let group = options
                .group
                .as_deref()
                .or(self.link.config.group.as_deref());
            parcel.group = Some(group.unwrap_or_else(|| default_group(&queue.name)).into());
            parcel.deduplication_id = match options.deduplication_id.as_deref() {
                Some(id) => Some(id.into()),
                None if queue.dedups_by_content => None,
                None => Some(deduplication_id(&outgoing.body)),
            };
        }
        Ok((queue, parcel))
    }

    async fn copied(
        &self,
        queue: &str,
        body: &[u8],
        attributes: Attributes,
        origin: Origin,
    ) -> Letter {
        let queue = self.queue(queue, "settle").await?;
        let mut parcel = parcel(&queue, body, attributes)?;
        if queue.is_fifo {
            let group = origin
                .group
                .unwrap_or_else(|| default_group(&queue.name).into());
            parcel.group = Some(group);
            parcel.deduplication_id = Some(origin.message_id);
        }
        Ok((queue, parcel))
    }

    /// Sends what is ready, to each queue in order; the rest keeps its error. One result each.
    async fn send(&self, letters: Vec<Letter>) -> Vec<Result<(), Error>> {
        let mut results: Vec<_> = letters.iter().map(|_| None).collect();
        let mut by_queue: Vec<(Arc<Queue>, Vec<usize>, Vec<Parcel>)> = Vec::new();
        for (at, letter) in letters.into_iter().enumerate() {
            match letter {
                Err(error) => results[at] = Some(Err(error)),
                Ok((queue, parcel)) => {
                    let known = by_queue
                        .iter()
                        .position(|(other, ..)| other.url == queue.url);
                    let known = known.unwrap_or_else(|| {
                        by_queue.push((queue, Vec::new(), Vec::new()));
                        by_queue.len() - 1
                    });
                    by_queue[known].1.push(at);
                    by_queue[known].2.push(parcel);
                }
            }
        }
        let sends = by_queue
            .into_iter()
            .map(|(queue, places, parcels)| async move {
                let publisher = self.publisher(&queue);
                (queue, places, publisher.send(parcels).await)
            });
        for (queue, places, sent) in join_all(sends).await {
            for (at, sent) in places.into_iter().zip(sent) {
                if matches!(sent, Err(Error::Refused { .. })) {
                    // It may be there again, and another.
                    self.queues.forget(&queue.name);
                }
                results[at] = Some(sent);
            }
        }
        let unsent = || Err(Error::transient("publish", "no answer for the message"));
        let results = results.into_iter();
        results.map(|sent| sent.unwrap_or_else(unsent)).collect()
    }

    fn publisher(&self, queue: &Arc<Queue>) -> Arc<Publisher> {
        let start = || Arc::new(Publisher::start(self.link.clone(), queue.clone()));
        let mut publishers = self
            .publishers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let publisher = publishers.entry(queue.url.clone()).or_insert_with(start);
        if publisher.is_over() {
            *publisher = start();
        }
        publisher.clone()
    }
}

/// # Errors
///
/// [`Error::Message`] for a body that SQS does not hold, or that is too large with its attributes.
fn parcel(queue: &Queue, body: &[u8], attributes: Attributes) -> Result<Parcel, Error> {
    let body = content::text(body)?;
    let size = content::size(body, &attributes);
    if size > queue.max_message {
        return Err(Error::message(format!(
            "it has {size} bytes with its attributes; {} takes {}",
            queue.describe(),
            queue.max_message
        )));
    }
    Ok(Parcel {
        body: body.into(),
        attributes: Arc::new(attributes),
        group: None,
        deduplication_id: None,
        delay_seconds: None,
        size,
    })
}

fn check(options: &PublishOptions, queue: &Queue) -> Result<(), Error> {
    let unsupported = |feature, context: &str| {
        Err(Error::Unsupported {
            broker: crate::BROKER,
            feature,
            context: context.to_owned(),
        })
    };
    if options.key.is_some() {
        return unsupported("key", "a FIFO queue has message groups");
    }
    if options.partition.is_some() {
        return unsupported("partition", "queues have none");
    }
    if options.priority.is_some() {
        return unsupported("priority", "use a queue for each");
    }
    if options.time_to_live.is_some() {
        return unsupported(
            "time to live",
            "the queue's retention period is the same for all",
        );
    }
    let only_fifo = "the queue's name does not end in `.fifo`";
    if options.group.is_some() && !queue.is_fifo {
        return unsupported("group on a standard queue", only_fifo);
    }
    if options.deduplication_id.is_some() && !queue.is_fifo {
        return unsupported("deduplication id on a standard queue", only_fifo);
    }
    Ok(())
}

/// A FIFO queue's dead letters go to a FIFO queue, and a standard queue's to a standard one.
fn check_kinds(queue: &Queue, dead_letter: &Queue) -> Result<(), Error> {
    if queue.is_fifo == dead_letter.is_fifo {
        return Ok(());
    }
    Err(Error::config(
        "dead_letter_queue",
        format_args!(
            "is `{}`: a FIFO queue and a standard queue do not go together",
            dead_letter.name
        ),
    ))
}

/// The queue's name (contract §13.4), of a URL its last part.
fn default_group(queue: &str) -> &str {
    queue.rsplit('/').next().unwrap_or(queue)
}

/// `meta.id`, if SQS can take it; else a fresh one.
fn deduplication_id(body: &[u8]) -> Arc<str> {
    let projection = Projection::of(body);
    let id = projection
        .id
        .filter(|id| id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic()));
    match id {
        Some(id) => (*id).into(),
        None => uuid::Uuid::new_v4().to_string().into(),
    }
}

fn capabilities() -> Capabilities {
    let mut all = Capabilities::new(crate::BROKER, Rules::SQS);
    let max = Some(delay::MAX_PUBLISH);
    all.delay = Delay::Supported { max };
    all.headers = true;
    all.lease = true;
    all.lanes = true;
    all.lane_waits = true;
    all.prefetch = Prefetch::Exact;
    all.native_dead_letter = true;
    all.counts_crashes = true;
    all.publish_batch = MAX_ENTRIES;
    all.receive_batch = MAX_ENTRIES;
    let mut options = PublishFeatures::NONE;
    options.group = true;
    options.deduplication_id = true;
    all.options = options;
    all
}
