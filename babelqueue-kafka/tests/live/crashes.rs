//! Workers and brokers that are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use babelqueue_core::envelope::Envelope;
use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_kafka::{Config, Kafka};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::broker::{self, Mortal};
use crate::child::{Job, Numbered};
use crate::log::{Log, distinct, first_completions_in_order, now};
use crate::{Fault, Outcome};

crate::trials!(nothing_is_lost, a_slow_record_does_not_hold_up_the_rest);

/// 100,000 in a soak; fewer otherwise.
fn count() -> u64 {
    match std::env::var_os("BQ_SOAK") {
        Some(_) => 100_000,
        None => 20_000,
    }
}

/// Six partitions; a worker is killed, another joins, the broker is killed and started again. An
/// auditor holds the committed offsets against what the handlers wrote down before they settled.
async fn nothing_is_lost() -> Outcome {
    const PARTITIONS: i32 = 6;
    let mortal = Mortal::find()?;
    let topic = format!("crash-{}", broker::unique());
    broker::create_at(&mortal.servers, &topic, PARTITIONS).await?;
    let count = count();
    let total = usize::try_from(count).unwrap_or_default();
    let messages = (0..count).map(|at| Numbered {
        key: format!("k{}", at % 200),
        sequence: at / 200,
        millis: at % 3,
    });
    publish(&mortal.servers, &topic, messages).await?;

    let log = Log::new(&topic);
    let job = |worker| Job {
        servers: mortal.servers.clone(),
        topic: topic.clone(),
        worker,
        log: log.0.clone(),
    };
    let auditor = Auditor::start(&mortal.servers, &topic, PARTITIONS, &log)?;
    let mut first = job(1).start()?;
    let second = job(2).start()?;
    handled(&log, total / 5, "two workers").await?;
    first.kill()?;
    handled(&log, total * 2 / 5, "one was killed").await?;
    let third = job(3).start()?;
    handled(&log, total * 3 / 5, "one has joined").await?;
    mortal.kill()?;
    mortal.up()?;
    handled(&log, total, "the broker was killed").await?;
    // What was not committed when the broker died, or its members were taken for dead, runs again
    // first.
    auditor
        .wait_for(i64::try_from(total).unwrap_or_default())
        .await?;
    second.stop()?;
    third.stop()?;
    auditor.finish()?;

    let lines = log.lines()?;
    let done = distinct(&lines).len();
    if done != total {
        return Err(format!("{done} of {total} records were handled").into());
    }
    first_completions_in_order(&lines)?;
    report(&format!(
        "{total} records, {} ran again",
        lines.len() - done
    ));
    Ok(())
}

/// One record of a partition takes five seconds; its worker is killed when the others are done.
async fn a_slow_record_does_not_hold_up_the_rest() -> Outcome {
    const COUNT: u64 = 10_000;
    const KEYS: u64 = 100;
    broker::connect(broker::config(&broker::unique())).await?;
    let servers = broker::servers();
    let topic = format!("slow-{}", broker::unique());
    broker::create(&topic, 1).await?;
    let messages = (0..COUNT).map(|at| Numbered {
        key: format!("k{}", at % KEYS),
        sequence: at / KEYS,
        millis: if at == 0 { 5_000 } else { 0 },
    });
    publish(&servers, &topic, messages).await?;

    let log = Log::new(&topic);
    let job = |worker| Job {
        servers: servers.clone(),
        topic: topic.clone(),
        worker,
        log: log.0.clone(),
    };
    let others = usize::try_from(COUNT - COUNT / KEYS).unwrap_or_default();
    let mut first = job(1).start()?;
    handled(&log, others, "beside the slow record").await?;
    first.kill()?;
    let killed_at = now();
    let before = log.lines()?;
    if let Some(slow) = before.iter().find(|line| line.key == "k0") {
        return Err(format!("{slow:?} was done before the others were").into());
    }

    let second = job(2).start()?;
    let total = usize::try_from(COUNT).unwrap_or_default();
    handled(&log, total, "after the kill").await?;
    second.stop()?;
    let lines = log.lines()?;
    first_completions_in_order(&lines)?;
    let done_before = distinct(&before);
    let again: Vec<i64> = lines[before.len()..]
        .iter()
        .map(|line| line.offset)
        .filter(|offset| done_before.contains(&(0, *offset)))
        .collect();
    // Commits go out five times a second.
    let fresh = before
        .iter()
        .filter(|line| killed_at.saturating_sub(line.at) < Duration::from_secs(1))
        .map(|line| line.offset)
        .collect::<Vec<_>>();
    if let Some(old) = again.iter().find(|offset| !fresh.contains(offset)) {
        return Err(format!("offset {old} ran again, though it was done a second before").into());
    }
    report(&format!("{COUNT} records, {} ran again", again.len()));
    broker::remove(&[&topic]).await
}

async fn publish(
    servers: &str,
    topic: &str,
    messages: impl Iterator<Item = Numbered>,
) -> Result<(), Fault> {
    let kafka = Kafka::open(Config::new(servers)).await?;
    let topic: Arc<str> = topic.into();
    let mut batch = Vec::new();
    for message in messages {
        let envelope = Envelope::of(&message)
            .build()
            .map_err(|error| Fault::from(error.to_string()))?;
        let mut outgoing = Outgoing::new(Arc::clone(&topic), envelope.into_bytes());
        outgoing.options.key = Some(message.key.into());
        batch.push(outgoing);
    }
    for answer in kafka.publish(batch).await {
        answer?;
    }
    Ok(())
}

/// Waits until so many different records were handled.
async fn handled(log: &Log, count: usize, when: &str) -> Result<(), Fault> {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let handled = log.handled()?;
        if handled >= count {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{when}: {handled} of {count} after two minutes").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads a group's committed offsets while it works, and finds the commit that goes past a record
/// that no handler has finished.
struct Auditor {
    thread: std::thread::JoinHandle<Result<(), Fault>>,
    done: Arc<AtomicBool>,
    consumer: Arc<BaseConsumer>,
    topic: String,
    partitions: i32,
}

impl Auditor {
    fn start(servers: &str, topic: &str, partitions: i32, log: &Log) -> Result<Self, Fault> {
        // It never joins: it only asks.
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("group.id", format!("g-{topic}"))
            .set("reconnect.backoff.max.ms", "500")
            .create()?;
        let consumer = Arc::new(consumer);
        let done = Arc::new(AtomicBool::new(false));
        // The file is removed by the test, not by this reader of it.
        let log = std::mem::ManuallyDrop::new(Log(log.0.clone()));
        let (asked, stop) = (Arc::clone(&consumer), Arc::clone(&done));
        let name = topic.to_owned();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(100));
                // Without a broker there is nothing to hold against the log.
                if let Ok(committed) = committed(&asked, &name, partitions) {
                    audit(&committed, &log)?;
                }
            }
            Ok(())
        });
        Ok(Self {
            thread,
            done,
            consumer,
            topic: topic.to_owned(),
            partitions,
        })
    }

    /// Waits until so much is committed in all.
    async fn wait_for(&self, total: i64) -> Result<(), Fault> {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            // A coordinator that was just started may still be reading its log.
            let committed = committed(&self.consumer, &self.topic, self.partitions);
            let sum: i64 = committed.unwrap_or_default().values().sum();
            if sum == total {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{sum} of {total} are committed after a minute").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends, with what it has found.
    fn finish(self) -> Result<(), Fault> {
        self.done.store(true, Ordering::Release);
        self.thread
            .join()
            .map_err(|_| Fault::from("the auditor panicked"))?
    }
}

fn committed(
    consumer: &BaseConsumer,
    topic: &str,
    partitions: i32,
) -> Result<BTreeMap<i32, i64>, Fault> {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition(topic, partition);
    }
    let list = consumer.committed_offsets(list, Duration::from_secs(3))?;
    let committed = list.elements();
    Ok(committed
        .iter()
        .filter_map(|element| match element.offset() {
            Offset::Offset(offset) => Some((element.partition(), offset)),
            _ => None,
        })
        .collect())
}

/// The log is read after the offsets, so all below them has to be in it.
fn audit(committed: &BTreeMap<i32, i64>, log: &Log) -> Result<(), Fault> {
    let done = distinct(&log.lines()?);
    for (&partition, &low) in committed {
        if let Some(gap) = (0..low).find(|offset| !done.contains(&(partition, *offset))) {
            let text =
                format!("partition {partition} is committed at {low}, but {gap} is not done");
            return Err(text.into());
        }
    }
    Ok(())
}

/// A figure for who runs the tests by hand.
#[expect(clippy::print_stderr, reason = "a test's figure")]
fn report(figure: &str) {
    eprintln!("{figure}");
}
