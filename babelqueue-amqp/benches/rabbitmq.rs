//! RabbitMQ beside the bare client: `cargo xtask bench rabbitmq`, or with a server at
//! `BQ_RABBITMQ_URL` `cargo bench -p babelqueue-amqp --bench rabbitmq`, with `-- --json` for one JSON
//! object a line.
//!
//! The two sides take turns in one run, on one server, over one runtime of two threads, with the same
//! window and the same prefetch, one classic queue, and bodies of 256 bytes. A ratio above 1 is ours.
//! The Python SDK takes its turn with fewer messages where `BQ_PYTHON` names an interpreter that has it;
//! it waits for no confirm.

#[path = "../../babelqueue-core/benches/support/order.rs"]
mod order;
#[expect(dead_code, reason = "what times work that does not wait")]
#[path = "../../babelqueue-core/benches/support/pairs.rs"]
mod pairs;
#[path = "../../babelqueue-core/benches/support/python.rs"]
mod python;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use babelqueue_amqp::prelude::*;
use babelqueue_core::transport::{Outgoing, Transport as _};
use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Confirmation, Connection, ConnectionProperties};
use order::{BODY, Order};
use pairs::Pair;
use python::Python;
use serde::Deserialize;
use tokio::sync::Notify;

/// How many pairs are timed.
const PAIRS: usize = 7;

const MESSAGES: u32 = 20_000;

/// At its pace.
const MESSAGES_OF_PYTHON: u32 = 2_000;

const WINDOW: usize = 1024;

const HANDLERS: usize = 64;

const QUEUE: &str = "bq-bench";

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = std::env::var("BQ_RABBITMQ_URL")
        .unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:25672".to_owned());
    let config = Config::from_url(&url).expect("a good URL");
    let config = config.publish_window(WINDOW).expect("a good window");
    let amqp = Amqp::open(config).expect("a good configuration");
    let bare = Connection::connect(&url, ConnectionProperties::default()).await;
    let bare = bare.expect("a server");

    let python = Python::installed();
    let (mut publish, mut consume) = (Vec::new(), Vec::new());
    let (mut publish_beside_python, mut consume_beside_python) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // Who begins changes from pair to pair; what one has published the other consumes.
        let (ours, rival);
        empty(&bare).await;
        if pair % 2 == 0 {
            ours = (publish_ours(&amqp).await, consume_ours(&amqp).await);
            rival = (publish_bare(&bare).await, consume_bare(&bare).await);
        } else {
            rival = (publish_bare(&bare).await, consume_bare(&bare).await);
            ours = (publish_ours(&amqp).await, consume_ours(&amqp).await);
        }
        publish.push((ours.0, rival.0));
        consume.push((ours.1, rival.1));
        if let Some(python) = &python {
            let rate = python.publish(&url, QUEUE, MESSAGES_OF_PYTHON);
            publish_beside_python.push((ours.0, rate));
            let rate = python.consume(&url, QUEUE, MESSAGES_OF_PYTHON);
            consume_beside_python.push((ours.1, rate));
        }
    }
    let channel = bare.create_channel().await.expect("a channel");
    delete(&channel).await;
    let mut figures = vec![
        Pair::of("publish, window of 1024, confirmed", "/s", &publish),
        Pair::of("consume and ack, worker, N = 64", "/s", &consume),
    ];
    if python.is_some() {
        let name = "publish, beside Python unconfirmed";
        figures.push(Pair::of(name, "/s", &publish_beside_python));
        let name = "consume and ack, beside Python";
        figures.push(Pair::of(name, "/s", &consume_beside_python));
    }
    pairs::report(&figures);
}

async fn publish_ours(amqp: &Amqp) -> f64 {
    let started = Instant::now();
    let batch = (0..MESSAGES).map(|_| Outgoing::new(QUEUE, BODY));
    let published = amqp.publish(batch.collect()).await;
    assert!(
        published.iter().all(Result::is_ok),
        "not all were confirmed"
    );
    rate(started)
}

/// One channel, and as many confirms open as the window holds.
async fn publish_bare(bare: &Connection) -> f64 {
    let channel = bare.create_channel().await.expect("a channel");
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .expect("confirms");
    let started = Instant::now();
    let mut open = VecDeque::with_capacity(WINDOW);
    for _ in 0..MESSAGES {
        if open.len() == WINDOW {
            confirmed(open.pop_front()).await;
        }
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = babelqueue_amqp::project::projected(BODY.as_bytes());
        let sent = channel.basic_publish(
            "".into(),
            QUEUE.into(),
            options,
            BODY.as_bytes(),
            properties,
        );
        open.push_back(sent.await.expect("sent"));
    }
    while !open.is_empty() {
        confirmed(open.pop_front()).await;
    }
    rate(started)
}

async fn confirmed(confirm: Option<lapin::PublisherConfirm>) {
    if let Some(confirm) = confirm {
        let confirmation = confirm.await.expect("a confirm");
        assert_eq!(confirmation, Confirmation::Ack(None));
    }
}

/// Handlers that do nothing.
async fn consume_ours(amqp: &Amqp) -> f64 {
    let left = Arc::new((AtomicU32::new(MESSAGES), Notify::new()));
    let all_done = Arc::clone(&left);
    let started = Instant::now();
    let worker = Worker::new(amqp.clone()).queue(QUEUE).concurrency(HANDLERS);
    let worker = worker.handle(move |order: Incoming<Order>| {
        let left = Arc::clone(&left);
        async move {
            assert_eq!(order.order_id, 1042);
            if left.0.fetch_sub(1, Ordering::Relaxed) == 1 {
                left.1.notify_one();
            }
            Ok(())
        }
    });
    let stopped = worker
        .run_until(async move { all_done.1.notified().await })
        .await;
    assert_eq!(stopped.expect("a clean stop").in_flight, 0);
    rate(started)
}

/// A loop that parses each body and acknowledges it, with the worker's prefetch.
async fn consume_bare(bare: &Connection) -> f64 {
    let channel = bare.create_channel().await.expect("a channel");
    let prefetch = u16::try_from(2 * HANDLERS).expect("a small number");
    channel
        .basic_qos(prefetch, BasicQosOptions::default())
        .await
        .expect("a prefetch");
    let started = Instant::now();
    let consumer = channel.basic_consume(
        QUEUE.into(),
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut consumer = consumer.await.expect("a consumer");
    for _ in 0..MESSAGES {
        let delivery = consumer
            .next()
            .await
            .expect("a message")
            .expect("a message");
        let order: Envelope = serde_json::from_slice(&delivery.data).expect("an envelope");
        assert_eq!(order.data.order_id, 1042);
        delivery
            .acker
            .ack(BasicAckOptions::default())
            .await
            .expect("an ack");
    }
    rate(started)
}

#[derive(Deserialize)]
struct Envelope {
    data: Order,
}

async fn empty(bare: &Connection) {
    let channel = bare.create_channel().await.expect("a channel");
    delete(&channel).await;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(QUEUE.into(), options, FieldTable::default());
    declared.await.expect("a queue");
}

async fn delete(channel: &Channel) {
    let deleted = channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default());
    deleted.await.expect("deleted");
}

fn rate(started: Instant) -> f64 {
    f64::from(MESSAGES) / started.elapsed().as_secs_f64()
}
