//! Workers and brokers that are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use babelqueue_kafka::{Config, Kafka};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::broker::{self, Mortal};
use crate::child::Job;
use crate::log::{Log, distinct, first_completions_in_order, now};
use crate::numbered::{self, Numbered};
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
    let kafka = Kafka::open(Config::new(mortal.servers.as_str())).await?;
    numbered::publish(&kafka, &topic, messages).await?;

    let log = Log::new(&topic);
    let job = |worker| Job {
        servers: mortal.servers.clone(),
        topic: topic.clone(),
        worker,
        log: log.0.clone(),
        longest: u64::MAX,
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

/// One record of a partition takes far longer than all the others together; its worker is killed
/// when those are done.
async fn a_slow_record_does_not_hold_up_the_rest() -> Outcome {
    const COUNT: u64 = 10_000;
    const KEYS: u64 = 100;
    const SLOW: u64 = 10 * 60 * 1_000;
    let kafka = broker::connect(broker::config(&broker::unique())).await?;
    let servers = broker::servers();
    let topic = format!("slow-{}", broker::unique());
    broker::create(&topic, 1).await?;
    let messages = (0..COUNT).map(|at| Numbered {
        key: format!("k{}", at % KEYS),
        sequence: at / KEYS,
        millis: if at == 0 { SLOW } else { 0 },
    });
    numbered::publish(&kafka, &topic, messages).await?;

    let log = Log::new(&topic);
    let job = |worker, longest| Job {
        servers: servers.clone(),
        topic: topic.clone(),
        worker,
        log: log.0.clone(),
        longest,
    };
    let others = usize::try_from(COUNT - COUNT / KEYS).unwrap_or_default();
    let started = Instant::now();
    let mut first = job(1, SLOW).start()?;
    handled(&log, others, "beside the slow record").await?;
    first.kill()?;
    let (killed_at, took) = (now(), started.elapsed());
    let before = log.lines()?;
    if let Some(slow) = before.iter().find(|line| line.key == "k0") {
        return Err(format!("{slow:?} was done, and the slow one is before it").into());
    }
    let done = last_commit(&servers, &topic)?;

    let second = job(2, 0).start()?;
    let total = usize::try_from(COUNT).unwrap_or_default();
    handled(&log, total, "after the kill").await?;
    second.stop()?;
    let lines = log.lines()?;
    first_completions_in_order(&lines)?;
    // What was done, and runs again, was settled after the last commit.
    let finished: BTreeMap<i64, Duration> =
        before.iter().map(|line| (line.offset, line.at)).collect();
    let mut again = 0;
    for line in &lines[before.len()..] {
        let Some(at) = finished.get(&line.offset) else {
            continue;
        };
        again += 1;
        if done.contains(line.offset) {
            return Err(format!("{line:?}: the last commit says that it was done").into());
        }
        // Commits go out five times a second.
        if killed_at.saturating_sub(*at) > Duration::from_secs(10) {
            return Err(
                format!("{line:?}: no commit said for ten seconds that it was done").into(),
            );
        }
    }
    report(&format!(
        "{others} records beside a slow one in {took:?}, {again} ran again"
    ));
    broker::remove(&[&topic]).await
}

/// Waits until so many different records were handled.
async fn handled(log: &Log, count: usize, when: &str) -> Result<(), Fault> {
    let deadline = Instant::now() + Duration::from_mins(5);
    loop {
        let handled = log.handled()?;
        if handled >= count {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{when}: {handled} of {count} after five minutes").into());
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
        let deadline = Instant::now() + Duration::from_mins(3);
        loop {
            // A coordinator that was just started may still be reading its log.
            let committed = committed(&self.consumer, &self.topic, self.partitions);
            let sum: i64 = committed.unwrap_or_default().values().sum();
            if sum == total {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{sum} of {total} are committed after three minutes").into());
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

/// What a commit calls done: all below its offset, and above it the runs that its metadata names.
struct Done {
    low: i64,
    runs: Vec<std::ops::Range<i64>>,
}

impl Done {
    fn contains(&self, offset: i64) -> bool {
        offset < self.low || self.runs.iter().any(|run| run.contains(&offset))
    }

    /// Reads the metadata as it is documented: `bq1:`, then how many are not done, how many are, how
    /// many are not …, each in base 32 from its lowest digit on, where 32 more says that another
    /// digit follows.
    fn of(low: i64, metadata: &str) -> Option<Self> {
        const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let digits = metadata.strip_prefix("bq1:")?;
        let (mut at, mut length, mut scale) = (low, 0, 1);
        let (mut runs, mut are_done) = (Vec::new(), false);
        for digit in digits.chars() {
            let digit = i64::try_from(DIGITS.find(digit)?).ok()?;
            length += digit % 32 * scale;
            scale *= 32;
            if digit < 32 {
                if are_done {
                    runs.push(at..at + length);
                }
                at += length;
                are_done = !are_done;
                (length, scale) = (0, 1);
            }
        }
        Some(Self { low, runs })
    }
}

/// The last commit of a topic's one partition.
fn last_commit(servers: &str, topic: &str) -> Result<Done, Fault> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", format!("g-{topic}"))
        .create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, 0);
    let list = consumer.committed_offsets(list, Duration::from_mins(1))?;
    let element = list.elements().pop().ok_or("no answer")?;
    let Offset::Offset(low) = element.offset() else {
        return Err("nothing is committed".into());
    };
    let metadata = element.metadata();
    Done::of(low, metadata).ok_or_else(|| format!("the commit says `{metadata}`").into())
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
