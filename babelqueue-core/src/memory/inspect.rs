use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Memory;
use super::order::Next;
use super::queue::{Due, Message, message_of};
use crate::Headers;
use crate::transport::Lane;

/// A message as it lies in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The body.
    pub body: Bytes,
    /// What travels beside it.
    pub headers: Headers,
    /// Its routing key.
    pub key: Option<Bytes>,
    /// Its lane.
    pub lane: Option<Lane>,
    /// How often it was handed out and came back by itself, as far as the
    /// [`Kind`](super::Kind) counts; goes on from `attempts`.
    pub deliveries: u32,
    /// The count that its last retry wrote.
    pub attempts: Option<u32>,
}

/// What a queue holds at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What is not handed out, lane by lane and in order within each; lanes that nobody may have at
    /// the moment are at the end.
    pub ready: Vec<Stored>,
    /// What is handed out and not settled, oldest first.
    pub reserved: Vec<Stored>,
    /// What waits for its time, with the time left, soonest first.
    pub delayed: Vec<(Duration, Stored)>,
}

/// How many messages a queue holds at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Not handed out.
    pub ready: usize,
    /// Handed out and not settled.
    pub reserved: usize,
    /// Waiting for their time.
    pub delayed: usize,
}

impl Depth {
    /// All of them.
    pub const fn total(self) -> usize {
        self.ready + self.reserved + self.delayed
    }
}

impl Memory {
    /// What `queue` holds now. A dead-letter queue is a queue. Empty where there is no such queue.
    pub fn snapshot(&self, queue: &str) -> Snapshot {
        let mut broker = self.lock();
        let Some(queue) = broker.find(queue) else {
            return Snapshot::default();
        };
        let now = Instant::now();
        queue.tick(now);
        let mut ready = Vec::new();
        for next in &queue.ready {
            match next {
                Next::Message(message) => ready.push(stored(message)),
                Next::Lane(lane) => {
                    let waiting = queue.lanes.get(lane).into_iter();
                    ready.extend(waiting.flat_map(|lane| &lane.messages).map(stored));
                }
            }
        }
        let standing = queue.lanes.values().filter(|lane| !lane.offered);
        ready.extend(standing.flat_map(|lane| &lane.messages).map(stored));
        let mut reserved: Vec<_> = queue.held.iter().collect();
        reserved.sort_unstable_by_key(|held| held.order);
        Snapshot {
            ready,
            reserved: reserved
                .into_iter()
                .map(|held| stored(&message_of(held)))
                .collect(),
            delayed: queue
                .delayed
                .iter()
                .filter_map(|(&(at, _), due)| match due {
                    Due::Enter(message) => Some((at - now, stored(message))),
                    Due::Unblock(_) => None,
                })
                .collect(),
        }
    }

    /// How much `queue` holds now; nothing where there is no such queue.
    pub fn depth(&self, queue: &str) -> Depth {
        let mut broker = self.lock();
        let Some(queue) = broker.find(queue) else {
            return Depth::default();
        };
        queue.tick(Instant::now());
        let plain = |next: &&Next| matches!(next, Next::Message(_));
        let in_lanes: usize = queue.lanes.values().map(|lane| lane.messages.len()).sum();
        Depth {
            ready: queue.ready.iter().filter(plain).count() + in_lanes,
            reserved: queue.held.len(),
            delayed: queue
                .delayed
                .values()
                .filter(|due| matches!(due, Due::Enter(_)))
                .count(),
        }
    }

    /// When the next lease or delay of `queue` ends.
    #[cfg(feature = "harness")]
    pub(crate) fn next_due(&self, queue: &str) -> Option<Instant> {
        self.lock().find(queue)?.next_due()
    }

    /// The names of all queues that were ever used, in order of first use.
    pub fn queues(&self) -> Vec<String> {
        self.lock()
            .queues()
            .map(|queue| queue.name.to_string())
            .collect()
    }
}

fn stored(message: &Message) -> Stored {
    Stored {
        body: message.body.clone(),
        headers: message.headers.clone(),
        key: message.key.clone(),
        lane: message.lane.clone(),
        deliveries: message.deliveries,
        attempts: message.attempts,
    }
}
