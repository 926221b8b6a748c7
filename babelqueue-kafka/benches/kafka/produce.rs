//! Confirmed writes.

use std::time::{Duration, Instant};

use babelqueue_core::Error;
use babelqueue_core::transport::Transport as _;
use babelqueue_kafka::{Config, Kafka};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::pairs::Pair;
use crate::python::Python;
use crate::topic::{Topic, key};
use crate::{BODY, PAIRS, bare};

/// How many messages one side of a pair writes, about a second's worth, and how many are on their way
/// at once.
const COUNT: usize = 300_000;
const WINDOW: usize = 10_000;
const BATCH: usize = 1_000;
/// At its pace.
const COUNT_OF_PYTHON: u32 = 10_000;

pub(crate) async fn confirmed(servers: &str) -> Pair {
    let topic = Topic::new(servers).await;
    let kafka = Kafka::open(Config::new(servers)).await.expect("a broker");
    let producer = bare::producer(servers);
    // The first idempotent write takes half a second.
    ours(&kafka, &topic).await;
    rival(&producer, &topic).await;
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        // Who begins changes from pair to pair.
        pairs.push(if pair % 2 == 0 {
            let first = ours(&kafka, &topic).await;
            (first, rival(&producer, &topic).await)
        } else {
            let first = rival(&producer, &topic).await;
            (ours(&kafka, &topic).await, first)
        });
    }
    topic.remove().await;
    Pair::of("produce, confirmed", "k/s", &pairs)
}

/// Beside the Python SDK, which hands one message after another to its client, and does not wait for
/// the broker before the end.
pub(crate) async fn beside_python(servers: &str, python: &Python) -> Pair {
    let topic = Topic::new(servers).await;
    let kafka = Kafka::open(Config::new(servers)).await.expect("a broker");
    ours(&kafka, &topic).await;
    let url = format!("kafka://{servers}");
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let theirs = python.publish(&url, &topic.name, COUNT_OF_PYTHON) / 1_000.0;
        pairs.push((ours(&kafka, &topic).await, theirs));
    }
    topic.remove().await;
    Pair::of("produce, beside Python unconfirmed", "k/s", &pairs)
}

/// As many on their way at once as the rival has, in batches.
async fn ours(kafka: &Kafka, topic: &Topic) -> f64 {
    let started = Instant::now();
    let mut flying = FuturesUnordered::new();
    for _ in 0..COUNT / BATCH {
        if flying.len() == WINDOW / BATCH {
            confirmed_all(flying.next().await);
        }
        flying.push(kafka.publish(topic.outgoing(BATCH)));
    }
    while let Some(answers) = flying.next().await {
        confirmed_all(Some(answers));
    }
    rate(started.elapsed())
}

fn confirmed_all(answers: Option<Vec<Result<(), Error>>>) {
    let answers = answers.expect("a batch on its way");
    assert!(answers.iter().all(Result::is_ok));
}

async fn rival(producer: &FutureProducer, topic: &Topic) -> f64 {
    let started = Instant::now();
    let mut flying = FuturesUnordered::new();
    for at in 0..COUNT {
        if flying.len() == WINDOW {
            let answer = flying.next().await;
            assert!(matches!(answer, Some(Ok(Ok(_)))));
        }
        let key = key(at);
        let record = FutureRecord::to(&topic.name)
            .key(&key)
            .payload(BODY)
            .headers(bare::headers());
        match producer.send_result(record) {
            Ok(delivery) => flying.push(delivery),
            Err((error, _)) => panic!("{error}"),
        }
    }
    while let Some(answer) = flying.next().await {
        assert!(matches!(answer, Ok(Ok(_))));
    }
    rate(started.elapsed())
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rate(took: Duration) -> f64 {
    COUNT as f64 / took.as_secs_f64() / 1_000.0
}
