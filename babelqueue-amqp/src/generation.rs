use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use babelqueue_core::transport::{Delivery, Fence};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::{BasicProperties, Channel};
use tokio::sync::Notify;

use crate::project;

/// How often a generation that is being closed is looked at, for what nobody tells it.
const TICK: Duration = Duration::from_millis(50);

/// One channel, and what came over it. Its delivery tags mean nothing on any other: every delivery
/// holds on to its own generation, so that nothing can be settled over a later one.
pub(crate) struct Generation {
    number: u64,
    channel: Channel,
    /// What has been given out and is not settled, by delivery tag.
    out: Mutex<BTreeMap<u64, Weak<Delivery>>>,
    came_home: Notify,
}

/// What a delivery of ours carries for its own settlement.
pub(crate) struct Origin {
    pub(crate) generation: Arc<Generation>,
    pub(crate) tag: u64,
    /// As received: a copy of the message carries them on.
    pub(crate) properties: BasicProperties,
}

impl Origin {
    /// Whether the delivery is ours to settle: neither lost nor settled.
    pub(crate) fn is_out(&self) -> bool {
        self.generation.lock().contains_key(&self.tag)
    }
}

impl Generation {
    pub(crate) fn new(number: u64, channel: Channel) -> Self {
        Self {
            number,
            channel,
            out: Mutex::default(),
            came_home: Notify::new(),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// A message of the client's as a delivery, which is out from now on.
    pub(crate) fn give_out(
        self: &Arc<Self>,
        queue: &Arc<str>,
        message: lapin::message::Delivery,
    ) -> Arc<Delivery> {
        let tag = message.delivery_tag;
        let mut delivery = Delivery::new(queue.clone(), message.data.into());
        delivery.headers = project::surfaced(&message.properties);
        delivery.facts = project::facts(&message.properties);
        delivery.fence = Fence {
            generation: self.number,
            id: tag,
        };
        let delivery = Arc::new(delivery.with_native(Origin {
            generation: self.clone(),
            tag,
            properties: message.properties,
        }));
        self.lock().insert(tag, Arc::downgrade(&delivery));
        delivery
    }

    /// The channel is gone: whatever is out is lost, and the broker gives it out again.
    pub(crate) fn lose(&self) {
        let out = std::mem::take(&mut *self.lock());
        for delivery in out.values().filter_map(Weak::upgrade) {
            delivery.mark_lost();
        }
        self.came_home.notify_waiters();
    }

    /// Acknowledges `acks` and gives back `nacks`, and waits until both are on the wire. The broker
    /// answers neither. What is not out any more is left alone.
    ///
    /// # Errors
    ///
    /// The channel is gone, and with it all that was out.
    pub(crate) async fn settle(&self, acks: &[u64], nacks: &[u64]) -> lapin::Result<()> {
        let written = join_all(self.send(acks, nacks)).await;
        written.into_iter().collect()
    }

    /// Gives back without waiting.
    pub(crate) fn give_back_now(&self, tags: &[u64]) {
        // They are on their way when this returns; nobody can be told of a failure.
        drop(self.send(&[], tags));
    }

    /// Waits until nothing is out, or the channel is gone.
    pub(crate) async fn all_home(&self) {
        while self.is_anything_out() {
            let home = self.came_home.notified();
            if !self.channel.status().connected() {
                return self.lose();
            }
            // Nobody tells us of a delivery that was dropped, nor now of a channel that closes.
            _ = tokio::time::timeout(TICK, home).await;
        }
    }

    /// Puts the frames in order on their way while nobody else can: an acknowledgement "up to here"
    /// must not overtake the return of what is below it.
    fn send(&self, acks: &[u64], nacks: &[u64]) -> Vec<Written> {
        let mut out = self.lock();
        let mut written = Vec::new();
        for tag in nacks.iter().filter(|tag| out.remove(tag).is_some()) {
            written.push(start(nack(self.channel.clone(), *tag)));
        }
        let mut acks: Vec<_> = acks
            .iter()
            .filter(|tag| out.remove(tag).is_some())
            .collect();
        acks.sort_unstable();
        // All below the lowest that is still out can be acknowledged in one.
        let lowest = out.keys().next().copied().unwrap_or(u64::MAX);
        let (below, above) = acks.split_at(acks.partition_point(|tag| **tag < lowest));
        if let Some(last) = below.last() {
            let multiple = below.len() > 1;
            written.push(start(ack(self.channel.clone(), **last, multiple)));
        }
        for tag in above {
            written.push(start(ack(self.channel.clone(), **tag, false)));
        }
        let none_left = out.is_empty();
        drop(out);
        if none_left {
            self.came_home.notify_waiters();
        }
        written
    }

    fn is_anything_out(&self) -> bool {
        self.lock()
            .values()
            .any(|delivery| delivery.strong_count() > 0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Delivery>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame on its way to the socket.
type Written = BoxFuture<'static, lapin::Result<()>>;

/// The client queues the frame when its future is polled first.
fn start(future: impl Future<Output = lapin::Result<()>> + Send + 'static) -> Written {
    let mut future = future.boxed();
    match (&mut future).now_or_never() {
        Some(result) => std::future::ready(result).boxed(),
        None => future,
    }
}

async fn ack(channel: Channel, tag: u64, multiple: bool) -> lapin::Result<()> {
    channel.basic_ack(tag, BasicAckOptions { multiple }).await
}

async fn nack(channel: Channel, tag: u64) -> lapin::Result<()> {
    let options = BasicNackOptions {
        multiple: false,
        requeue: true,
    };
    channel.basic_nack(tag, options).await
}
