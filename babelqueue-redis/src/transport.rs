//! The transport: connecting, publishing, subscribing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::random::Random;
use babelqueue_core::transport::{
    Background, Capabilities, Delay, Outgoing, Prefetch, Rules, SubscribeOptions, Subscription,
    Transport,
};
use redis::Cmd;

use crate::connection::Link;
use crate::publish::publish;
use crate::queue::Queue;
use crate::scripts::MOST_PER_CALL;
use crate::subscription::{self, Wait};
use crate::time::Now;
use crate::{Config, Layout};

/// Redis as a transport. Cheap to clone: a handle to one shared connection, which is made when it is
/// first needed and again when it breaks.
///
/// ```no_run
/// use babelqueue_redis::Redis;
///
/// # async fn example() -> Result<(), babelqueue_core::Error> {
/// let redis = Redis::connect("redis://127.0.0.1").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

impl Redis {
    /// Connects to the server at `url`, whose form is told at [`Config::from_url`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a bad URL, [`Error::Refused`] for wrong credentials, and a transient
    /// error where the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let redis = Self::open(Config::from_url(url)?)?;
        redis.ping().await?;
        Ok(redis)
    }

    /// Makes a handle that connects when it is first used: for a program that may start before its
    /// server.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for what the client cannot use, such as a certificate that is none.
    pub fn open(config: Config) -> Result<Self, Error> {
        let link = Link::new(&config)?;
        let shared = Shared {
            capabilities: capabilities(&config),
            link,
            config,
            background: Background::default(),
            waits: Mutex::default(),
            counts: Counts::default(),
            random: Random::from_entropy(),
            ids: AtomicU64::new(0),
            warned_of_headers: AtomicBool::new(false),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Asks the server whether it is there.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for wrong credentials, and a transient error where the server cannot be
    /// reached.
    pub async fn ping(&self) -> Result<(), Error> {
        let mut ping = Cmd::new();
        ping.arg("PING");
        let link = &self.shared.link;
        let answer = link.query(&ping).await;
        answer
            .map(drop)
            .map_err(|failure| failure.into_error("connect", link.address()))
    }

    /// How it was configured.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What has been counted since this handle was made.
    pub fn counts(&self) -> CountsSnapshot {
        self.shared.counts.snapshot()
    }

    /// The single steps of a queue, without a worker.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] in a cluster, where the queue's keys fall into several slots.
    #[doc(hidden)]
    pub fn queue(&self, name: &str) -> Result<Queue, Error> {
        Queue::new(&self.shared, name)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

#[async_trait]
impl Transport for Redis {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        publish(&self.shared, batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let queue = Queue::new(&self.shared, queue)?;
        if let Some(dead_letter) = &options.dead_letter {
            queue.check_target(dead_letter)?;
        }
        self.ping().await?;
        Ok(subscription::open(queue))
    }
}

/// What all clones of a handle, and all its queues, share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) link: Link,
    pub(crate) counts: Counts,
    pub(crate) background: Background,
    capabilities: Capabilities,
    /// One wait for each ready list, however many receivers stand behind it.
    waits: Mutex<HashMap<String, Weak<Wait>>>,
    pub(crate) random: Random,
    ids: AtomicU64,
    warned_of_headers: AtomicBool,
}

impl Shared {
    /// The wait at `queue`'s ready list, shared with whoever waits there already.
    pub(crate) fn wait(&self, queue: &Queue) -> Arc<Wait> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| wait.strong_count() > 0);
        let key = queue.keys.ready();
        if let Some(wait) = waits.get(key).and_then(Weak::upgrade) {
            return wait;
        }
        let wait = Arc::new(Wait::at(queue));
        waits.insert(key.to_owned(), Arc::downgrade(&wait));
        wait
    }

    /// The time that a call of now goes by.
    pub(crate) fn now(&self) -> Now {
        Now::by(&self.config.time)
    }

    /// A queue in an error's words.
    pub(crate) fn describe(&self, queue: &str) -> String {
        format!("queue `{queue}` at {}", self.link.address())
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Headers that cannot travel are left out with one warning (contract §10.1).
    pub(crate) fn warn_of_headers_once(&self, why: &str) {
        if !self.warned_of_headers.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "headers are left out of what is published");
        }
    }
}

/// What the transport counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    fenced: AtomicU64,
    unconfirmed: AtomicU64,
}

impl Counts {
    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unconfirmed(&self) {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> CountsSnapshot {
        CountsSnapshot {
            fenced: self.fenced.load(Ordering::Relaxed),
            unconfirmed: self.unconfirmed.load(Ordering::Relaxed),
        }
    }
}

/// What has been counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountsSnapshot {
    /// Settlements without effect, because the reservation had expired: the handler took longer than
    /// its lease lasted, and the message was given out again.
    pub fenced: u64,
    /// Settlements whose answer was lost with a connection, and that found themselves done, or
    /// expired, when they were sent again.
    pub unconfirmed: u64,
}

fn capabilities(config: &Config) -> Capabilities {
    let recovers = config.retry_after.is_some();
    let mut capabilities = match config.layout {
        Layout::Sdk => Capabilities::new("redis", Rules::REDIS),
        Layout::Laravel => Capabilities::new("redis", Rules::REDIS_LARAVEL),
    };
    match config.layout {
        Layout::Sdk => capabilities.headers = true,
        Layout::Laravel => {
            capabilities.delay = Delay::Supported { max: None };
            // The member in `:reserved` has counted the delivery already.
            capabilities.counts_crashes = recovers;
        }
    }
    capabilities.lease = recovers;
    capabilities.prefetch = Prefetch::Double;
    capabilities.publish_batch = MOST_PER_CALL;
    capabilities.receive_batch = MOST_PER_CALL;
    capabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_letter_queue_in_a_key_of_its_source_is_refused_before_anything_is_read() {
        for (query, suffix) in [
            ("", ":processing"),
            ("", ":processing:deadlines"),
            ("?layout=laravel", ":delayed"),
            ("?layout=laravel", ":reserved"),
            ("?layout=laravel", ":notify"),
        ] {
            // Nobody is there: the answer comes without asking.
            let config = Config::from_url(&format!("redis://127.0.0.1:1{query}"));
            let redis = Redis::open(config.expect("a good URL")).expect("not connected yet");
            let dead = format!("orders{suffix}");
            let options = SubscribeOptions::with_prefetch(1).dead_letter(&*dead);
            let refused = redis.subscribe("orders", options).await.expect_err(&dead);
            assert!(matches!(refused, Error::Config { .. }), "{refused:?}");
            let told = refused.to_string();
            let parts = ["`dead_letter_queue`", &*dead, "queue `orders`"];
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
    }
}
