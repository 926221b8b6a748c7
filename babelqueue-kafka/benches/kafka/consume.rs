//! Reading and handling.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use babelqueue_core::prelude::*;
use babelqueue_kafka::{Config, Kafka, Order, RetryTiers};
use rdkafka::Message as _;
use serde::Deserialize;
use tokio::sync::Notify;

use crate::pairs::Pair;
use crate::python::Python;
use crate::topic::Topic;
use crate::{PAIRS, bare};

/// How many records one side of a pair reads.
const COUNT: usize = 600_000;
/// How many are copied to a tier.
const COPIES: usize = 60_000;
/// How many our side of a pair with Python reads, and Python at its pace.
const COUNT_BESIDE_PYTHON: usize = 200_000;
const COUNT_OF_PYTHON: u32 = 2_000;
const CONCURRENCY: usize = 64;

#[derive(Debug, Deserialize)]
struct OrderCreated {
    #[expect(dead_code, reason = "a payload like any other")]
    order_id: u64,
}

impl Message for OrderCreated {
    const URN: &'static str = "urn:babel:orders:created";
}

/// The rate beside a bare loop that copies each record, and the CPU of one record.
pub(crate) async fn worker(servers: &str, order: Order) -> [Pair; 2] {
    let topic = Topic::filled(servers, COUNT).await;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let ours = run(config(servers).order(order), &topic, COUNT, false).await;
        let rival = rival(servers, &topic).await;
        rates.push((ours.rate, rival.rate));
        costs.push((ours.cpu, rival.cpu));
    }
    topic.remove().await;
    let name = match order {
        Order::Key => "consume and ack, N = 64, by key",
        _ => "consume and ack, N = 64, by partition",
    };
    [
        Pair::of(name, "k/s", &rates),
        Pair::of("the CPU of it", "µs", &costs),
    ]
}

/// Beside the Python SDK, which handles one message after another.
pub(crate) async fn beside_python(servers: &str, python: &Python) -> Pair {
    let topic = Topic::filled(servers, COUNT_BESIDE_PYTHON).await;
    let mut rates = Vec::new();
    for _ in 0..PAIRS {
        let ours = run(config(servers), &topic, COUNT_BESIDE_PYTHON, false).await;
        let group = uuid::Uuid::new_v4();
        let url = format!("kafka://{servers}/?group=bench-{group}");
        let theirs = python.consume(&url, &topic.name, COUNT_OF_PYTHON) / 1_000.0;
        rates.push((ours.rate, theirs));
    }
    topic.remove().await;
    Pair::of("consume and ack, beside Python", "k/s", &rates)
}

/// Confirmed copies to a tier a second, beside the same number of acks. By key: by partition there are
/// only as many on their way as there are partitions.
pub(crate) async fn tier_copies(servers: &str) -> Pair {
    let topic = Topic::filled(servers, COPIES).await;
    let tier = format!("{}.retry.1", topic.name);
    let admin = Topic::named(servers, &tier).await;
    let tiers = RetryTiers::new([Duration::from_hours(1)]).expect("a tier");
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let config = || config(servers).order(Order::Key);
        let copying = config().retry_tiers(tiers.clone()).reinjector(false);
        let copies = run(copying, &topic, COPIES, true).await;
        let acks = run(config(), &topic, COPIES, false).await;
        pairs.push((copies.rate, acks.rate));
    }
    admin.remove().await;
    topic.remove().await;
    Pair::of(
        "confirmed tier copies beside acks, N = 64, by key",
        "k/s",
        &pairs,
    )
}

/// What a run came to: thousands of records a second, microseconds of CPU a record.
struct Run {
    rate: f64,
    cpu: f64,
}

fn config(servers: &str) -> Config {
    Config::new(servers).group(format!("bench-{}", uuid::Uuid::new_v4()))
}

/// From the first message on: joining the group takes seconds.
async fn run(config: Config, topic: &Topic, count: usize, fail: bool) -> Run {
    let kafka = Kafka::open(config).await.expect("a broker");
    let meter = Arc::new(Meter::default());
    let done = Arc::clone(&meter);
    let stop = Arc::clone(&meter);
    Worker::new(kafka)
        .queue(topic.name.as_ref())
        .concurrency(CONCURRENCY)
        .retry(Retry::attempts(100))
        .handle(move |_: Incoming<OrderCreated>| {
            done.count(count);
            async move {
                if fail {
                    Err(Failure::msg("again"))
                } else {
                    Ok(())
                }
            }
        })
        .run_until(async move { stop.complete.notified().await })
        .await
        .expect("a run");
    meter.run(count)
}

async fn rival(servers: &str, topic: &Topic) -> Run {
    let consumer = bare::consumer(servers, &topic.name);
    let meter = Meter::default();
    let meter = tokio::task::spawn_blocking(move || {
        let mut read = 0;
        while read < COUNT {
            if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                let owned = message.detach();
                assert!(owned.payload().is_some());
                read += 1;
                meter.count(COUNT);
            }
        }
        meter
    })
    .await
    .expect("a loop");
    meter.run(COUNT)
}

/// Time and CPU between the first record and the last.
#[derive(Default)]
struct Meter {
    count: AtomicUsize,
    begin: std::sync::OnceLock<(Instant, Duration)>,
    end: std::sync::OnceLock<(Instant, Duration)>,
    complete: Notify,
}

impl Meter {
    fn count(&self, of: usize) {
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        if count == 1 {
            let _ = self.begin.set((Instant::now(), cpu()));
        }
        if count == of {
            let _ = self.end.set((Instant::now(), cpu()));
            self.complete.notify_one();
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    fn run(&self, count: usize) -> Run {
        let (begin, cpu_before) = self.begin.get().expect("a first record");
        let (end, cpu_after) = self.end.get().expect("a last record");
        let count = count as f64;
        Run {
            rate: count / end.duration_since(*begin).as_secs_f64() / 1_000.0,
            cpu: cpu_after.saturating_sub(*cpu_before).as_secs_f64() * 1e6 / count,
        }
    }
}

/// What this process has used so far, in hundredths of a second.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a command");
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 10)
}
