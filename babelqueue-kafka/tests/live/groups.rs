//! Members that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use babelqueue_core::prelude::*;
use babelqueue_core::transport::{SubscribeOptions, Transport as _};
use babelqueue_kafka::{Config, Kafka};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::numbered::Numbered;
use crate::{Fault, Outcome, broker, numbered};

crate::trials!(
    a_member_joins_with_the_clients_own_assignors,
    a_member_joins_cooperatively,
    a_member_joins_by_the_newer_protocol,
    a_long_handler_keeps_its_membership,
    a_dropped_receiver_leaves_its_group,
);

async fn a_member_joins_with_the_clients_own_assignors() -> Outcome {
    a_member_joins(|config| config).await
}

async fn a_member_joins_cooperatively() -> Outcome {
    a_member_joins(|config| config.property("partition.assignment.strategy", "cooperative-sticky"))
        .await
}

async fn a_member_joins_by_the_newer_protocol() -> Outcome {
    let unique = broker::unique();
    // Sessions are the broker's matter there.
    let config = Config::new(broker::servers())
        .group(format!("g-{unique}"))
        .connect_timeout(Duration::from_mins(1))
        .property("group.protocol", "consumer");
    rebalance(config, &unique).await
}

async fn a_member_joins(with: impl Fn(Config) -> Config) -> Outcome {
    let unique = broker::unique();
    rebalance(with(broker::config(&unique)), &unique).await
}

/// Three partitions, two workers, the second of which joins in the middle: each message is handled
/// once, for what goes is finished and committed before it goes.
async fn rebalance(config: Config, unique: &str) -> Outcome {
    const COUNT: u32 = 3_000;
    let kafka = broker::connect(config).await?;
    let topic = format!("rebalance-{unique}");
    broker::create(&topic, 3).await?;
    let messages = (0..u64::from(COUNT)).map(|sequence| Numbered {
        key: format!("k{}", sequence % 50),
        sequence,
        millis: 0,
    });
    numbered::publish(&kafka, &topic, messages).await?;

    let seen = Seen::default();
    let first = Member::start(&kafka, &topic, 1, &seen);
    seen.wait_for(COUNT / 4).await?;
    // There is something left for the second, however long it takes to join.
    seen.slow_until(2);
    let second = Member::start(&kafka, &topic, 2, &seen);
    seen.wait_for(COUNT).await?;
    first.stop().await?;
    second.stop().await?;

    let runs = seen.runs();
    let again = runs.values().filter(|run| run.len() > 1).count();
    if runs.len() != usize::try_from(COUNT).unwrap_or_default() || again > 0 {
        return Err(format!("{} of {COUNT} were handled, {again} twice", runs.len()).into());
    }
    let by_second = runs.values().filter(|run| run[0] == 2).count();
    if by_second == 0 {
        return Err("the second worker had nothing to do".into());
    }
    broker::remove(&[&topic]).await
}

/// The polling thread polls on while a handler takes longer than the group allows between polls.
async fn a_long_handler_keeps_its_membership() -> Outcome {
    let unique = broker::unique();
    let config = broker::config(&unique)
        .property("max.poll.interval.ms", "6000")
        .property("session.timeout.ms", "6000");
    let kafka = broker::connect(config).await?;
    let topic = format!("long-{unique}");
    broker::create(&topic, 1).await?;
    let producer = Producer::new(kafka.clone()).queue(topic.as_str());
    for (sequence, millis) in [(0, 8_000), (1, 0)] {
        let key = "k".to_owned();
        producer
            .publish(&Numbered {
                key,
                sequence,
                millis,
            })
            .await?;
    }
    let seen = Seen::default();
    let member = Member::start(&kafka, &topic, 1, &seen);
    seen.wait_for(2).await?;
    member.stop().await?;
    let runs = seen.runs();
    if runs.values().any(|run| run.len() > 1) {
        return Err(format!("a message was handled twice: {runs:?}").into());
    }
    broker::remove(&[&topic]).await
}

/// Without a `close`: the next member gets the partitions soon, so the first has left. (A list of
/// partitions that is kept makes the client's end hang for ever.)
async fn a_dropped_receiver_leaves_its_group() -> Outcome {
    let unique = broker::unique();
    let config = broker::config(&unique).property("session.timeout.ms", "120000");
    let kafka = broker::connect(config).await?;
    let topic = format!("dropped-{unique}");
    broker::create(&topic, 2).await?;
    let producer = Producer::new(kafka.clone()).queue(topic.as_str());
    let message = |sequence| Numbered {
        key: "k".to_owned(),
        sequence,
        millis: 0,
    };
    for round in 0..3 {
        producer.publish(&message(round)).await?;
        let started = Instant::now();
        let mut subscription = kafka
            .subscribe(&topic, SubscribeOptions::with_prefetch(8))
            .await?;
        let received =
            tokio::time::timeout(Duration::from_mins(1), subscription.receiver.receive(8)).await;
        if received.is_err() {
            let waited = started.elapsed();
            return Err(format!("round {round}: nothing after {waited:?}").into());
        }
        drop(subscription);
    }
    broker::remove(&[&topic]).await
}

/// Which workers handled each message.
#[derive(Debug, Clone, Default)]
struct Seen {
    runs: Arc<std::sync::Mutex<BTreeMap<u64, Vec<u32>>>>,
    count: Arc<AtomicU32>,
    /// Handlers take their time until this worker has had one; 0 for nobody.
    awaited: Arc<AtomicU32>,
}

impl Seen {
    fn note(&self, sequence: u64, worker: u32) {
        let mut runs = self.runs.lock().expect("nobody panics with it");
        let run = runs.entry(sequence).or_default();
        run.push(worker);
        if worker == self.awaited.load(Ordering::Acquire) {
            self.awaited.store(0, Ordering::Release);
        }
        if run.len() == 1 {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Has handlers take their time until `worker` has handled something.
    fn slow_until(&self, worker: u32) {
        self.awaited.store(worker, Ordering::Release);
    }

    async fn pace(&self) {
        if self.awaited.load(Ordering::Acquire) != 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn runs(&self) -> BTreeMap<u64, Vec<u32>> {
        self.runs.lock().expect("nobody panics with it").clone()
    }

    async fn wait_for(&self, count: u32) -> Result<(), Fault> {
        let deadline = Instant::now() + Duration::from_mins(3);
        while self.count.load(Ordering::Acquire) < count {
            if Instant::now() > deadline {
                let seen = self.count.load(Ordering::Acquire);
                return Err(format!("{seen} of {count} after three minutes").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// A worker of this process.
struct Member {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<babelqueue_core::worker::Stopped, babelqueue_core::Error>>,
}

impl Member {
    fn start(kafka: &Kafka, topic: &str, number: u32, seen: &Seen) -> Self {
        let seen = seen.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = Worker::new(kafka.clone())
            .queue(topic)
            .concurrency(8)
            .handle(move |message: Incoming<Numbered>| {
                let seen = seen.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(message.millis)).await;
                    seen.pace().await;
                    seen.note(message.sequence, number);
                    Ok(())
                }
            });
        let task = tokio::spawn(worker.run_until(stopped));
        Self { stop, task }
    }

    async fn stop(self) -> Result<(), Fault> {
        let _ = self.stop.send(());
        match self.task.await {
            Ok(ended) => {
                ended?;
                Ok(())
            }
            Err(error) => Err(error.to_string().into()),
        }
    }
}
