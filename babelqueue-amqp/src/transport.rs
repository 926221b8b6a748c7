use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{
    Capabilities, Delay, Outgoing, Prefetch, PublishFeatures, Rules, SubscribeOptions,
    Subscription, Transport, Unready,
};
use bytes::Bytes;
use lapin::BasicProperties;

use crate::delay::{self, Step};
use crate::link::Link;
use crate::publisher::{Letter, Posted, Publisher, Taken};
use crate::topology::Topology;
use crate::{Config, Declare, project, subscription};

/// How many messages of a batch are made ready before they are given to the publisher: it sends them
/// while the next ones are made ready.
const PREPARED_AT_ONCE: usize = 128;

/// A RabbitMQ server: a handle that is cheap to clone. All clones share two connections, one to
/// publish and one to consume.
///
/// A connection that was lost is made anew when it is needed next; a publish or a receive in between
/// fails with a transient error. Dropping the last clone closes both.
#[derive(Clone)]
pub struct Amqp {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    capabilities: Capabilities,
    publishing: Arc<Link>,
    pub(crate) consuming: Arc<Link>,
    pub(crate) topology: Topology,
    /// Started with the first message, so that a handle can be made outside of a runtime.
    publisher: OnceLock<Publisher>,
}

/// Letters of which those that were ready are being sent.
pub(crate) struct Post {
    /// Where each is sent to, or why it was not ready.
    queues: Vec<Result<Arc<str>, Error>>,
    taken: Taken,
}

impl Amqp {
    /// Connects to the server at `url`; [`Config`] has its form.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a bad URL. A refusal for wrong credentials, an unknown vhost or missing
    /// rights; a transient error where the server cannot be reached.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let amqp = Self::open(Config::from_url(url)?)?;
        amqp.ping().await?;
        Ok(amqp)
    }

    /// Makes a handle that connects when it is first used: for a program that may start before its
    /// server.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for queue arguments that AMQP cannot hold.
    pub fn open(config: Config) -> Result<Self, Error> {
        config.check_arguments()?;
        let config = Arc::new(config);
        let publishing = Arc::new(Link::new(config.clone(), "publish"));
        let shared = Shared {
            capabilities: capabilities(&config),
            consuming: Arc::new(Link::new(config.clone(), "consume")),
            topology: Topology::new(config.clone(), publishing.clone()),
            publisher: OnceLock::new(),
            publishing,
            config,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Makes sure that the server is there and lets us in.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn ping(&self) -> Result<(), Error> {
        let connection = self.shared.publishing.connection().await;
        let address = self.shared.config.address();
        connection
            .map(|_| ())
            .map_err(|failure| failure.into_error("connect", &address))
    }

    /// Closes both connections in order. What is still on its way is lost sight of; a worker over
    /// them should have stopped. The handle connects again when it is used again.
    pub async fn close(&self) {
        self.shared.publishing.close().await;
        self.shared.consuming.close().await;
    }
}

/// Where it connects to, without credentials.
impl std::fmt::Debug for Amqp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Amqp")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for Amqp {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let count = batch.len();
        let mut posts = Vec::with_capacity(count.div_ceil(PREPARED_AT_ONCE));
        let mut unready = Unready::default();
        let mut batch = batch.into_iter();
        while batch.len() > 0 {
            let mut prepared = Vec::with_capacity(PREPARED_AT_ONCE.min(batch.len()));
            for outgoing in batch.by_ref().take(PREPARED_AT_ONCE) {
                let queue = outgoing.queue.clone();
                let letter = match unready.error(&queue) {
                    Some(error) => Err(error),
                    None => self.shared.prepare(outgoing).await,
                };
                unready.note(queue, &letter);
                prepared.push(letter);
            }
            posts.push(self.shared.post(prepared).await);
        }
        let mut results = Vec::with_capacity(count);
        for post in posts {
            results.append(&mut self.shared.results(post).await);
        }
        results
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        self.shared.config.check_name(queue)?;
        subscription::open(self.shared.clone(), queue, options).await
    }
}

impl Shared {
    /// A message that is published for the first time, ready to be sent.
    async fn prepare(&self, outgoing: Outgoing) -> Result<Letter, Error> {
        self.config.check_name(&outgoing.queue)?;
        let properties = project::published(&outgoing.body, &outgoing.headers, &outgoing.options)?;
        let step = Step::at_least(outgoing.options.delay.unwrap_or_default());
        if let (Some(_), Some(delay)) = (&step, outgoing.options.delay)
            && (self.config.declare == Declare::Passive || delay > delay::MAX)
        {
            return Err(no_delay(self.config.declare));
        }
        self.letter(outgoing.queue, outgoing.body, properties, step)
            .await
    }

    /// A message with these properties, ready to be sent to a queue that is there, or to the delay
    /// queue before it.
    pub(crate) async fn letter(
        &self,
        queue: Arc<str>,
        body: Bytes,
        properties: BasicProperties,
        step: Option<Step>,
    ) -> Result<Letter, Error> {
        self.check_size(&properties)?;
        let (queue, delay_declared) = match step {
            None => {
                self.topology.ensure(&queue).await?;
                (queue, None)
            }
            Some(step) => {
                let (queue, at) = self.topology.ensure_delay(&queue, step).await?;
                (queue, Some(at))
            }
        };
        Ok(Letter {
            queue,
            body,
            properties,
            delay_declared,
        })
    }

    /// Has sent what is ready.
    pub(crate) async fn post(&self, letters: Vec<Result<Letter, Error>>) -> Post {
        let mut ready = Vec::with_capacity(letters.len());
        let letters = letters.into_iter().map(|letter| {
            let letter = letter?;
            let queue = letter.queue.clone();
            ready.push(letter);
            Ok(queue)
        });
        let queues = letters.collect();
        Post {
            queues,
            taken: self.publisher().take(ready).await,
        }
    }

    /// Waits for the answers. One result each, in order; what was not ready keeps its error.
    pub(crate) async fn results(&self, post: Post) -> Vec<Result<(), Error>> {
        let mut posted = post.taken.posted().await.into_iter();
        let results = post.queues.into_iter().map(|queue| {
            let queue = queue?;
            match posted.next() {
                Some(Posted::Confirmed) => Ok(()),
                Some(Posted::Returned) => Err(self.returned(&queue)),
                Some(Posted::Failed(error)) => Err(error),
                None => Err(Error::transient("publish", "no result for the message")),
            }
        });
        results.collect()
    }

    /// No queue took a message. Where we declare, the next publish declares the queue again.
    fn returned(&self, queue: &str) -> Error {
        self.topology.forget(queue);
        match self.config.declare {
            Declare::Active => Error::transient(
                "publish",
                format!("queue `{queue}` was deleted: the broker returned a message to it"),
            ),
            Declare::Passive => Error::refused("publish", format!("there is no queue `{queue}`")),
        }
    }

    /// A header frame that is larger than the broker's frames breaks the connection, and every
    /// message that is on its way over it.
    fn check_size(&self, properties: &BasicProperties) -> Result<(), Error> {
        let frame = self.config.uri.query.frame_max.filter(|max| *max > 0);
        let frame = usize::try_from(frame.unwrap_or(131_072)).unwrap_or(usize::MAX);
        let (size, limit) = (project::wire_size(properties), frame.saturating_sub(64));
        if size > limit {
            let context = format!("its headers take about {size} bytes, limit {limit}");
            return Err(Error::message(context));
        }
        Ok(())
    }

    fn publisher(&self) -> &Publisher {
        self.publisher
            .get_or_init(|| Publisher::start(self.config.clone(), self.publishing.clone()))
    }
}

fn no_delay(declare: Declare) -> Error {
    let context = match declare {
        Declare::Active => format!("at most {} s", delay::MAX.as_secs()),
        Declare::Passive => {
            "a delay needs a queue of its own, and `Declare::Passive` declares none".to_owned()
        }
    };
    Error::Unsupported {
        broker: crate::BROKER,
        feature: "delay",
        context,
    }
}

fn capabilities(config: &Config) -> Capabilities {
    let delays = config.declare == Declare::Active;
    let mut rules = Rules::AMQP;
    rules.backoff = delays;
    let mut all = Capabilities::new(crate::BROKER, rules);
    if delays {
        let max = Some(delay::MAX);
        all.delay = Delay::Supported { max };
    }
    all.headers = true;
    // A quorum queue counts what is given back to it.
    all.prefetch = if config.is_quorum_by_default() {
        Prefetch::Exact
    } else {
        Prefetch::Double
    };
    all.counts_crashes = config.is_quorum_by_default();
    all.publish_batch = config.publish_window;
    all.receive_batch = 1024;
    // Copies wait for their confirms, in a memory alarm for long; the acknowledgements that end the
    // alarm must not wait with them.
    all.settle_calls = 64;
    let mut options = PublishFeatures::NONE;
    options.priority = true;
    options.time_to_live = true;
    all.options = options;
    all
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn a_batch_does_not_try_an_absent_server_for_each_of_its_messages() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        let tries = Arc::new(AtomicU32::new(0));
        let counted = tries.clone();
        thread::spawn(move || {
            for hung_up in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(hung_up);
            }
        });
        let amqp = Amqp::open(Config::from_url(&url).unwrap()).unwrap();
        let batch = (0..100).map(|number| Outgoing::new(["a", "b"][number % 2], "{}"));
        let published = amqp.publish(batch.collect()).await;
        assert_eq!(published.len(), 100);
        for result in published {
            let error = result.unwrap_err();
            assert!(
                error.is_transient() && error.to_string().contains("connect"),
                "{error}"
            );
        }
        // Once a queue.
        assert_eq!(tries.load(Ordering::SeqCst), 2);
    }
}
