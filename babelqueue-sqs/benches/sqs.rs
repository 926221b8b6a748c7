//! SQS beside the bare SDK: `cargo xtask bench sqs`, or with a server at `BQ_SQS_URL`
//! `cargo bench -p babelqueue-sqs --bench sqs`, with `-- --json` for one JSON object a line.
//!
//! The two sides take turns in one run, on one server, over one runtime of two threads, with the same
//! batches of ten, as many requests under way, one standard queue, and bodies of 256 bytes. A ratio
//! above 1 is ours. The server is the emulator, and most of the time is its own.

#[path = "../../babelqueue-core/benches/support/order.rs"]
mod order;
#[expect(dead_code, reason = "what times work that does not wait")]
#[path = "../../babelqueue-core/benches/support/pairs.rs"]
mod pairs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageSystemAttributeName, SendMessageBatchRequestEntry,
};
use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_sqs::aws_sdk_sqs;
use babelqueue_sqs::prelude::*;
use order::{BODY, Order};
use pairs::Pair;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How many pairs are timed.
const PAIRS: usize = 7;

const MESSAGES: u32 = 1_000;

const BATCH: usize = 10;

/// Requests under way at a time, on both sides: sends, and receives.
const SENDS: usize = 16;
const RECEIVES: usize = 6;

const HANDLERS: usize = 64;

const QUEUE: &str = "bq-bench";

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = std::env::var("BQ_SQS_URL")
        .unwrap_or_else(|_| "sqs://us-east-1?endpoint=http://127.0.0.1:19324".to_owned());
    let endpoint = url.split("endpoint=").nth(1).expect("an endpoint");
    let credentials = Credentials::new("test", "test", None, None, "bench");
    let config = Config::from_url(&url).expect("a good URL");
    let config = config.credentials(credentials.clone());
    let config = config.wait_time(Duration::from_secs(1)).expect("a wait");
    let config = config.publish_window(SENDS).expect("a window");
    let sqs = Sqs::open(config.max_receives(RECEIVES).expect("some receives"));
    let bare = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(endpoint);
    let client = Client::from_conf(bare.build());
    let created = client.create_queue().queue_name(QUEUE).send().await;
    let url = created.expect("a queue").queue_url.expect("its URL");
    let bare = Arc::new(Bare { client, url });

    let (mut publish, mut consume) = (Vec::new(), Vec::new());
    // What the emulator has not compiled yet would count against who begins.
    both(&sqs, &bare).await;
    for pair in 0..PAIRS {
        // Who begins changes from pair to pair; what one has published it consumes.
        let (ours, rival);
        if pair % 2 == 0 {
            ours = (publish_ours(&sqs).await, consume_ours(&sqs).await);
            rival = (bare.publish().await, bare.consume().await);
        } else {
            rival = (bare.publish().await, bare.consume().await);
            ours = (publish_ours(&sqs).await, consume_ours(&sqs).await);
        }
        publish.push((ours.0, rival.0));
        consume.push((ours.1, rival.1));
    }
    let deleted = bare.client.delete_queue().queue_url(&bare.url);
    deleted.send().await.expect("deleted");
    pairs::report(&[
        Pair::of("publish, 16 batches of ten under way", "/s", &publish),
        Pair::of("consume and delete, worker, N = 64", "/s", &consume),
    ]);
}

async fn both(sqs: &Sqs, bare: &Arc<Bare>) {
    publish_ours(sqs).await;
    consume_ours(sqs).await;
    bare.publish().await;
    bare.consume().await;
}

async fn publish_ours(sqs: &Sqs) -> f64 {
    let started = Instant::now();
    let batch = (0..MESSAGES).map(|_| Outgoing::new(QUEUE, BODY));
    let published = sqs.publish(batch.collect()).await;
    assert!(published.iter().all(Result::is_ok), "not all were sent");
    rate(started)
}

/// Handlers that do nothing. The clock stops when the last has run: the stop waits for long polls.
async fn consume_ours(sqs: &Sqs) -> f64 {
    let left = Arc::new((AtomicU32::new(MESSAGES), Notify::new()));
    let all_done = Arc::clone(&left);
    let started = Instant::now();
    let worker = Worker::new(sqs.clone()).queue(QUEUE).concurrency(HANDLERS);
    let worker = worker.handle(move |order: Incoming<Order>| {
        assert_eq!(order.order_id, 1042);
        if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            left.1.notify_one();
        }
        std::future::ready(Ok(()))
    });
    let (ended, end) = tokio::sync::oneshot::channel();
    let stopped = worker
        .run_until(async move {
            all_done.1.notified().await;
            _ = ended.send(rate(started));
        })
        .await;
    assert_eq!(stopped.expect("a clean stop").in_flight, 0);
    end.await.expect("a rate")
}

/// The SDK alone, used as one would who knows it.
struct Bare {
    client: Client,
    url: String,
}

impl Bare {
    /// Batches of ten, as many under way as in ours, with the same attributes.
    async fn publish(self: &Arc<Self>) -> f64 {
        let started = Instant::now();
        let left = Arc::new(AtomicU32::new(MESSAGES));
        let mut tasks = JoinSet::new();
        for _ in 0..SENDS {
            let (bare, left) = (self.clone(), left.clone());
            tasks.spawn(async move {
                while take(&left, BATCH) {
                    bare.send().await;
                }
            });
        }
        tasks.join_all().await;
        rate(started)
    }

    async fn send(&self) {
        let entries = (0..BATCH).map(|at| {
            let attributes = babelqueue_sqs::project::projected(BODY.as_bytes());
            SendMessageBatchRequestEntry::builder()
                .id(at.to_string())
                .message_body(BODY)
                .set_message_attributes(Some(attributes.into_iter().collect()))
                .build()
                .expect("an entry")
        });
        let request = self.client.send_message_batch().queue_url(&self.url);
        let sent = request.set_entries(Some(entries.collect())).send().await;
        assert!(sent.expect("sent").failed.is_empty(), "not all were sent");
    }

    /// As many loops as we have receives under way; each deletes what it has received while it
    /// receives the next.
    async fn consume(self: &Arc<Self>) -> f64 {
        let started = Instant::now();
        let left = Arc::new(AtomicU32::new(MESSAGES));
        let mut tasks = JoinSet::new();
        for _ in 0..RECEIVES {
            let (bare, left) = (self.clone(), left.clone());
            tasks.spawn(async move {
                let mut held = Vec::new();
                while left.load(Ordering::Acquire) > 0 {
                    let (received, ()) = tokio::join!(bare.receive(), bare.delete(held));
                    let count = u32::try_from(received.len()).expect("a small number");
                    left.fetch_sub(count, Ordering::AcqRel);
                    held = received;
                }
                bare.delete(held).await;
            });
        }
        tasks.join_all().await;
        rate(started)
    }

    /// Receipt handles, of messages whose bodies were parsed. Without a wait, which would count at the
    /// end of a turn.
    async fn receive(&self) -> Vec<String> {
        let request = self.client.receive_message().queue_url(&self.url);
        let received = request
            .max_number_of_messages(10)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .send()
            .await;
        let messages = received.expect("an answer").messages.unwrap_or_default();
        let handles = messages.into_iter().map(|message| {
            let body = message.body.expect("a body");
            let order: Envelope = serde_json::from_str(&body).expect("an envelope");
            assert_eq!(order.data.order_id, 1042);
            message.receipt_handle.expect("a handle")
        });
        handles.collect()
    }

    async fn delete(&self, handles: Vec<String>) {
        if handles.is_empty() {
            return;
        }
        let entries = handles.into_iter().enumerate().map(|(at, handle)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
            entry.receipt_handle(handle).build().expect("an entry")
        });
        let request = self.client.delete_message_batch().queue_url(&self.url);
        let deleted = request.set_entries(Some(entries.collect())).send().await;
        assert!(deleted.expect("deleted").failed.is_empty(), "not all were");
    }
}

#[derive(Deserialize)]
struct Envelope {
    data: Order,
}

/// Takes `count` off, unless nothing is left.
fn take(left: &AtomicU32, count: usize) -> bool {
    let count = u32::try_from(count).expect("a small number");
    let taken = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
        left.checked_sub(count)
    });
    taken.is_ok()
}

fn rate(started: Instant) -> f64 {
    f64::from(MESSAGES) / started.elapsed().as_secs_f64()
}
