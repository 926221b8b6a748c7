use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver, Settlement, Settler};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Order;
use crate::project;
use crate::record::Record;
use crate::subscription::{self, GroupSettler, Membership, Shared, Writes};
use crate::tiers::{RetryTiers, millis, stem};
use crate::transport::Kafka;

/// Brings records back from the retry tiers to their queues when their time has come
/// (contract §16.7).
///
/// A worker whose transport has tiers runs one for its own queue, beside itself. As a program of
/// its own, for the workers of any SDK:
///
/// ```no_run
/// # async fn run() -> Result<(), babelqueue_core::Error> {
/// use babelqueue_kafka::{Kafka, Reinjector};
///
/// let kafka = Kafka::connect("kafka://127.0.0.1:9092/?retry_tiers=5000,30000").await?;
/// Reinjector::new(kafka)
///     .queue("orders")
///     .run_until(async { /* a signal */ })
///     .await?;
/// # Ok(()) }
/// ```
///
/// A record is due its tier's delay after its own time, and no later than that delay after it was
/// read. Set `message.timestamp.type=LogAppendTime` on the tier topics: a peer may stamp its copies
/// with the time of the message, and they are then early.
#[derive(Debug)]
#[must_use = "it runs when `run_until` is awaited"]
pub struct Reinjector {
    kafka: Kafka,
    queues: Vec<Arc<str>>,
}

/// How many records of a tier's partition are held at a time.
const SHARE: usize = 256;
/// How long it waits after a write that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a write at hand may hold up the end.
const ENDING: Duration = Duration::from_secs(30);

impl Reinjector {
    /// A re-injector of the tiers that this connection is configured with.
    pub fn new(kafka: Kafka) -> Self {
        let queues = Vec::new();
        Self { kafka, queues }
    }

    /// Serves this queue's tiers as well.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Runs until `stop` is done. A failed write is tried again; so is a lost connection.
    ///
    /// # Errors
    ///
    /// No tiers or no queues are configured, a tier's topic is missing, or the broker refuses.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        if self.queues.is_empty() {
            return Err(Error::config("queue", "is not set: expected at least one"));
        }
        if self.kafka.tiers().is_empty() {
            return Err(Error::config(
                "retry_tiers",
                "is empty: expected at least one tier",
            ));
        }
        let topics = self
            .queues
            .iter()
            .flat_map(|queue| self.kafka.tier_topics(queue));
        let topics: Vec<Arc<str>> = topics.map(Into::into).collect();
        let names = topics.iter().map(ToString::to_string).collect();
        self.kafka.ensure_topics(names).await?;
        run(self.kafka, topics, stop).await
    }
}

/// A re-injector that runs beside a worker, and ends with it.
#[derive(Debug)]
pub(crate) struct Companion {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Companion {
    /// Starts one for a queue whose topics are there. Where it fails, so does what is `shared`.
    pub(crate) fn start(kafka: Kafka, queue: &str, shared: Arc<Shared>) -> Self {
        let topics = kafka
            .tier_topics(queue)
            .into_iter()
            .map(Into::into)
            .collect();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stop = async {
                // An error is the sender's end, which is a stop as well.
                let _ = stopped.await;
            };
            let ended = run(kafka, topics, stop).await;
            if let Err(error) = &ended {
                shared.refuse(format!("the re-injector ended: {error}"));
            }
            ended
        });
        Self { stop, task }
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn end(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        match self.task.await {
            Ok(ended) => ended,
            Err(cause) => Err(Error::transient("close", "the re-injector").with_source(cause)),
        }
    }
}

async fn run(
    kafka: Kafka,
    topics: Vec<Arc<str>>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let membership = Membership {
        group: kafka.config().reinject_group.clone(),
        topics,
        order: Order::Partition,
        share: SHARE,
    };
    let mut receiver = subscription::join(kafka.config(), membership)?;
    let settler = GroupSettler::new(
        Arc::clone(receiver.shared()),
        kafka.clone(),
        RetryTiers::NONE,
    );
    let ended = bring_back(&kafka, &mut receiver, &settler, stop).await;
    let closed = receiver.close(ENDING).await;
    ended.and(closed)
}

async fn bring_back<W: Writes>(
    kafka: &Kafka,
    receiver: &mut impl Receiver,
    settler: &GroupSettler<W>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut waiting = Waiting::default();
    tokio::pin!(stop);
    loop {
        let now = kafka.config().clock.unix_millis();
        let until = waiting.next_due().map(|due| wait(due, now));
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = tokio::time::sleep(until.unwrap_or_default()), if until.is_some() => {
                let due = waiting.take_due(kafka.config().clock.unix_millis());
                if !write_back(kafka, settler, due).await {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            came = receiver.receive(SHARE) => {
                let now = kafka.config().clock.unix_millis();
                for delivery in came? {
                    waiting.add(delivery, kafka.tiers(), now);
                }
            }
        }
    }
    // What waits has not been begun: it is given back by the end of the subscription.
    settler.settle(waiting.all()).await;
    Ok(())
}

/// Writes what is due, in order, and settles what was confirmed; whether all was.
async fn write_back<W: Writes>(
    kafka: &Kafka,
    settler: &GroupSettler<W>,
    due: Vec<Arc<Delivery>>,
) -> bool {
    let begun: Vec<Arc<Delivery>> = due
        .into_iter()
        .filter(|delivery| settler.begin(delivery))
        .collect();
    let records = begun
        .iter()
        .filter_map(|delivery| {
            let received = Record::of(delivery)?.received(delivery);
            Some(project::bring_back(received, delivery.body.clone()))
        })
        .collect();
    let written = kafka.write(records).await;
    let mut settlements = Vec::with_capacity(begun.len());
    let mut failed = Vec::new();
    for (delivery, written) in begun.into_iter().zip(written) {
        match written {
            Ok(()) => settlements.push((delivery, Settlement::Ack)),
            Err(error) => {
                tracing::error!(%error, tier = %delivery.queue, "a record could not be brought back");
                failed.push((delivery, Settlement::Abandon));
            }
        }
    }
    // What was written is settled first, so that the rewind does not bring it again.
    let complete = failed.is_empty();
    settlements.append(&mut failed);
    settler.settle(settlements).await;
    complete
}

/// Records whose time has not come, for each partition in order.
#[derive(Debug, Default)]
struct Waiting {
    partitions: BTreeMap<u64, VecDeque<(i64, Arc<Delivery>)>>,
}

impl Waiting {
    fn add(&mut self, delivery: Arc<Delivery>, tiers: &RetryTiers, now: i64) {
        let Some(record) = Record::of(&delivery) else {
            return;
        };
        let index = stem(&delivery.queue).map(|(_, index)| index);
        let tier = tiers.iter().find(|tier| Some(tier.index) == index);
        let delay = tier.map_or(0, |tier| millis(tier.delay));
        let due = due(
            record.timestamp,
            i64::try_from(delay).unwrap_or(i64::MAX),
            now,
        );
        let partition = self.partitions.entry(record.scope).or_default();
        partition.push_back((due, delivery));
    }

    /// When the first record is due, in Unix milliseconds: the first of a partition holds up the
    /// rest.
    fn next_due(&self) -> Option<i64> {
        self.partitions
            .values()
            .filter_map(|partition| Some(partition.front()?.0))
            .min()
    }

    fn take_due(&mut self, now: i64) -> Vec<Arc<Delivery>> {
        let mut taken = Vec::new();
        for partition in self.partitions.values_mut() {
            while let Some((_, delivery)) = partition.pop_front_if(|(due, _)| *due <= now) {
                taken.push(delivery);
            }
        }
        taken
    }

    fn all(self) -> Vec<(Arc<Delivery>, Settlement)> {
        self.partitions
            .into_values()
            .flatten()
            .map(|(_, delivery)| (delivery, Settlement::Abandon))
            .collect()
    }
}

/// When a record of this time is due, read now (contract §16.7). All in Unix milliseconds.
fn due(timestamp: Option<i64>, delay: i64, now: i64) -> i64 {
    let latest = now.saturating_add(delay);
    timestamp.map_or(latest, |at| at.saturating_add(delay).clamp(now, latest))
}

fn wait(due: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(due.saturating_sub(now)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::headers::RecordHeaders;

    #[test]
    fn a_record_is_due_its_delay_after_its_time_within_bounds() {
        assert_eq!(due(Some(1_000), 5_000, 2_000), 6_000);
        assert_eq!(due(Some(1_000), 5_000, 60_000), 60_000, "long due");
        assert_eq!(due(Some(90_000), 5_000, 60_000), 65_000, "a time to come");
        assert_eq!(due(None, 5_000, 60_000), 65_000);
        assert_eq!(due(Some(i64::MAX), i64::MAX, 1), i64::MAX);
    }

    fn record(scope: u64, offset: i64, timestamp: i64) -> Arc<Delivery> {
        let native = Record::new(scope, offset, Some(timestamp), RecordHeaders::default());
        let delivery = Delivery::new("orders.retry.2".into(), Bytes::new());
        Arc::new(delivery.with_native(native))
    }

    #[test]
    fn the_first_of_a_partition_holds_up_the_rest() {
        let tiers = RetryTiers::new([1_000, 5_000].map(Duration::from_millis)).unwrap();
        let mut waiting = Waiting::default();
        for (scope, offset, timestamp) in [(0, 0, 900), (0, 1, 100), (1, 0, 500)] {
            waiting.add(record(scope, offset, timestamp), &tiers, 1_000);
        }
        assert_eq!(waiting.next_due(), Some(5_500));
        let offsets = |due: Vec<Arc<Delivery>>| -> Vec<(u64, i64)> {
            due.iter()
                .filter_map(|delivery| Record::of(delivery))
                .map(|record| (record.scope, record.offset))
                .collect()
        };
        assert_eq!(offsets(waiting.take_due(5_500)), [(1, 0)]);
        assert_eq!(offsets(waiting.take_due(5_899)), []);
        assert_eq!(offsets(waiting.take_due(5_900)), [(0, 0), (0, 1)]);
        assert_eq!(waiting.next_due(), None);
    }
}
