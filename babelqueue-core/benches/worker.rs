//! The worker beside bare loops over the same broker in memory:
//! `cargo bench -p babelqueue-core --bench worker`, with `-- --json` for one JSON object a line.
//!
//! Every side takes the same messages from a full queue and acknowledges them, and times that alone.
//! "Bare" is the least that a program could do by hand: receive, acknowledge, nothing decoded, one
//! after another; "spawning" reads each payload in a task of its own, as a worker has to.

#[allow(dead_code, reason = "a worker is timed as a whole, not call by call")]
#[path = "support/pairs.rs"]
mod pairs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use babelqueue_core::envelope::Envelope;
use babelqueue_core::memory::Memory;
use babelqueue_core::prelude::*;
use babelqueue_core::transport::{
    Delivery, Outgoing, Settlement, SubscribeOptions, Subscription, Transport,
};
use bytes::Bytes;
use pairs::Pair;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// How often each side is timed.
const PAIRS: usize = 9;

/// Messages in one go.
const MESSAGES: usize = 200_000;

const BATCH: usize = 128;

#[derive(Serialize, Deserialize)]
struct OrderCreated {
    order_id: u64,
}

impl Message for OrderCreated {
    const URN: &'static str = "urn:babel:orders:created";
}

fn main() {
    let one = Builder::new_current_thread().enable_time().build();
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    let (Ok(one), Ok(two)) = (one, two) else {
        return;
    };
    pairs::report(&[
        pair("worker N=64, 1 thread, beside bare", &one, 64, bare),
        pair("worker N=64, 1 thread, beside spawning", &one, 64, spawning),
        pair("worker N=1, 1 thread, beside bare", &one, 1, bare),
        pair("worker N=64, 2 threads, beside bare", &two, 64, bare),
        pair(
            "worker N=64, 2 threads, beside spawning",
            &two,
            64,
            spawning,
        ),
        pair("worker N=1, 2 threads, beside bare", &two, 1, bare),
    ]);
}

/// Thousands of messages a second of both sides.
fn pair<F: Future<Output = ()>>(
    name: &str,
    runtime: &Runtime,
    concurrency: usize,
    rival: impl Fn(Memory) -> F,
) -> Pair {
    let pairs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|pair| {
            let ours = || timed(runtime, |memory| worker(memory, concurrency));
            let theirs = || timed(runtime, &rival);
            // Who begins changes from pair to pair.
            if pair % 2 == 0 {
                let first = ours();
                (first, theirs())
            } else {
                let first = theirs();
                (ours(), first)
            }
        })
        .collect();
    Pair::of(name, "k/s", &pairs)
}

/// Has `side` empty a full queue; thousands a second.
fn timed<F: Future<Output = ()>>(runtime: &Runtime, side: impl FnOnce(Memory) -> F) -> f64 {
    let memory = Memory::new();
    runtime.block_on(async {
        let body = body();
        for _ in 0..MESSAGES / BATCH {
            let batch = (0..BATCH).map(|_| Outgoing::new("orders", body.clone()));
            memory.publish(batch.collect()).await;
        }
        let count = memory.depth("orders").ready;
        let started = Instant::now();
        side(memory.clone()).await;
        let took = started.elapsed();
        assert_eq!(memory.depth("orders").total(), 0, "something is left");
        #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
        let count = count as f64;
        count / took.as_secs_f64() / 1e3
    })
}

fn body() -> Bytes {
    Envelope::of(&OrderCreated { order_id: 1042 })
        .queue("orders")
        .build()
        .expect("an envelope")
        .into_bytes()
}

/// Ours: a typed handler that does nothing.
async fn worker(memory: Memory, concurrency: usize) {
    let (left, empty) = (
        Arc::new(AtomicUsize::new(memory.depth("orders").ready)),
        Arc::new(Notify::new()),
    );
    let is_empty = Arc::clone(&empty);
    let stopped = Worker::new(memory)
        .queue("orders")
        .concurrency(concurrency)
        .handle(move |order: Incoming<OrderCreated>| {
            assert_eq!(order.order_id, 1042);
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                empty.notify_one();
            }
            async { Ok(()) }
        })
        .run_until(is_empty.notified())
        .await;
    assert!(stopped.is_ok());
}

/// The least by hand: nothing decoded, nothing concurrent.
async fn bare(memory: Memory) {
    let mut left = memory.depth("orders").ready;
    let Subscription {
        mut receiver,
        settler,
    } = subscribe(&memory).await;
    while left > 0 {
        let batch = receiver.receive(BATCH).await.expect("deliveries");
        left -= batch.len();
        let acks = batch.into_iter().map(|one| (one, Settlement::Ack));
        settler.settle(acks.collect()).await;
    }
}

/// By hand, with a task for each message that reads its payload; settled by the batch.
async fn spawning(memory: Memory) {
    let mut left = memory.depth("orders").ready;
    let Subscription {
        mut receiver,
        settler,
    } = subscribe(&memory).await;
    while left > 0 {
        let batch = receiver.receive(BATCH).await.expect("deliveries");
        left -= batch.len();
        let tasks: Vec<_> = batch
            .into_iter()
            .map(|one| tokio::spawn(async { read(one) }))
            .collect();
        let mut acks = Vec::with_capacity(tasks.len());
        for task in tasks {
            acks.push((task.await.expect("no panic"), Settlement::Ack));
        }
        settler.settle(acks).await;
    }
}

fn read(delivery: Arc<Delivery>) -> Arc<Delivery> {
    let decoded = Envelope::decode(delivery.body.clone()).expect("an envelope");
    let order: OrderCreated = decoded.envelope.data().expect("an order");
    assert_eq!(order.order_id, 1042);
    delivery
}

async fn subscribe(memory: &Memory) -> Subscription {
    let options = SubscribeOptions::with_prefetch(BATCH);
    memory.subscribe("orders", options).await.expect("a queue")
}
