//! Reserving and acknowledging.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use babelqueue_core::prelude::{Incoming, Message};
use babelqueue_core::transport::Settlement;
use babelqueue_core::worker::Worker;
use babelqueue_redis::{Config, Layout, Redis};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::bare::{Bare, Queue};
use crate::pairs::Pair;
use crate::python::Python;
use crate::{in_turn, timed};

const QUEUE: &str = "bench-consume";

#[derive(Deserialize)]
struct Order {
    order_id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

/// A worker with 64 handlers that do nothing, beside a loop over the same scripts that always has the
/// acks of one batch and the reserve of the next on their way together. How fast, and at how much of
/// our own processors' time: that figure stands still when the machine is busy.
pub(crate) async fn worker(redis: &Redis, bare: &Bare, name: &str) -> [Pair; 2] {
    const COUNT: u32 = 60_000;
    let queue = Queue::new(redis.config().layout(), QUEUE);
    let ours = || async {
        bare.delete(&queue.keys).await;
        bare.fill(&queue.keys, COUNT).await;
        timed(consume(redis.clone(), COUNT)).await
    };
    let rival = || async {
        bare.delete(&queue.keys).await;
        bare.fill(&queue.keys, COUNT).await;
        timed(consume_bare(bare, &queue, COUNT)).await
    };
    let figures = in_turn(name, COUNT, ours, rival).await;
    bare.delete(&queue.keys).await;
    figures
}

async fn consume(redis: Redis, count: u32) {
    let left = Arc::new((AtomicU32::new(count), Notify::new()));
    let all_done = Arc::clone(&left);
    let worker =
        Worker::new(redis)
            .queue(QUEUE)
            .concurrency(64)
            .handle(move |order: Incoming<Order>| {
                debug_assert!(order.order_id >= 10_000_000);
                if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                    left.1.notify_one();
                }
                std::future::ready(Ok(()))
            });
    let stopped = worker
        .run_until(async move { all_done.1.notified().await })
        .await;
    let stopped = stopped.expect("no fatal error");
    assert_eq!(stopped.counts.handled, u64::from(count), "{stopped:?}");
}

async fn consume_bare(bare: &Bare, queue: &Queue, count: u32) {
    let mut done = 0;
    let mut held = Vec::new();
    while done < count as usize {
        let ((), taken) = tokio::join!(bare.ack(queue, &held), bare.reserve(queue, 64));
        done += held.len();
        held = taken;
    }
}

/// The same beside the Python SDK, which takes fewer messages, one at a time, as is its way.
pub(crate) async fn beside_python(redis: &Redis, bare: &Bare, python: &Python, name: &str) -> Pair {
    const COUNT: u32 = 60_000;
    const THEIRS: u32 = 2_000;
    let queue = Queue::new(redis.config().layout(), QUEUE);
    let url = match redis.config().layout() {
        Layout::Laravel => format!("{}?layout=laravel", redis.config().address()),
        _ => redis.config().address(),
    };
    let mut pairs = Vec::new();
    for _ in 0..crate::PAIRS {
        bare.delete(&queue.keys).await;
        bare.fill(&queue.keys, COUNT).await;
        let spent = timed(consume(redis.clone(), COUNT)).await;
        bare.delete(&queue.keys).await;
        bare.fill_for_python(&queue.keys, THEIRS).await;
        let theirs = python.consume(&url, QUEUE, THEIRS);
        pairs.push((f64::from(COUNT) / spent.seconds, theirs));
    }
    bare.delete(&queue.keys).await;
    Pair::of(name, "/s", &pairs)
}

/// What a settlement costs with much in flight: `LREM` walks `:processing` from its head. Settled
/// oldest first, ours, beside the same in random order.
pub(crate) async fn in_flight(url: &str, bare: &Bare) -> Vec<Pair> {
    let config = Config::from_url(url).expect("a good URL");
    let redis = Redis::open(config).expect("a good configuration");
    let mut figures = Vec::new();
    for count in [1_000_u32, 10_000, 50_000] {
        let name = format!("sdk: settle with {count} in flight, oldest first against random");
        let settled = 1_000.min(count);
        let turn = |shuffled: bool| {
            let redis = &redis;
            async move {
                let queue = redis.queue("bench-in-flight").expect("a queue");
                bare.delete(queue.keys()).await;
                bare.fill(queue.keys(), count).await;
                let mut held = Vec::new();
                while held.len() < count as usize {
                    held.extend(queue.reserve(1000).await.expect("a server").deliveries);
                }
                if shuffled {
                    shuffle(&mut held);
                }
                let batch: Vec<_> = held
                    .drain(..settled as usize)
                    .map(|d| (d, Settlement::Ack))
                    .collect();
                let started = std::time::Instant::now();
                for chunk in batch.chunks(64) {
                    for answer in queue.settle(chunk).await {
                        answer.expect("settled");
                    }
                }
                let rate = f64::from(settled) / started.elapsed().as_secs_f64();
                bare.delete(queue.keys()).await;
                rate
            }
        };
        let mut pairs = Vec::new();
        for _ in 0..crate::PAIRS {
            pairs.push((turn(false).await, turn(true).await));
        }
        figures.push(Pair::of(&name, "/s", &pairs));
    }
    figures
}

/// Fisher and Yates, from a fixed seed.
fn shuffle<T>(items: &mut [T]) {
    let random = babelqueue_core::random::Random::seeded(7);
    for at in (1..items.len()).rev() {
        let bound = u64::try_from(at + 1).unwrap_or(u64::MAX);
        let other = usize::try_from(random.next_u64() % bound).unwrap_or_default();
        items.swap(at, other);
    }
}
