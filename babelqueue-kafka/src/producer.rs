use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use babelqueue_core::Error;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use crate::batches::{Batch, Batches};
use crate::config::Config;
use crate::error::classified;
use crate::headers::NewHeaders;
use crate::log;
use crate::project::NewRecord;

/// Writes records, in order, and knows of each whether the broker has confirmed it.
pub(crate) struct Producer {
    client: ThreadedProducer<Reports>,
    /// Whose turn it is to wait for room in the client's queue.
    turn: tokio::sync::Mutex<()>,
    /// How many wait for room, or for their turn.
    waiting: Arc<AtomicUsize>,
    room: Arc<Notify>,
    batches: Arc<Batches>,
}

impl Producer {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let (waiting, room, batches) = (Arc::default(), Arc::default(), Arc::default());
        let reports = Reports {
            waiting: Arc::clone(&waiting),
            room: Arc::clone(&room),
            batches: Arc::clone(&batches),
            failed: AtomicBool::new(false),
        };
        let client = config
            .producer()
            .create_with_context(reports)
            .map_err(|cause| classified("connect", "the producer", cause))?;
        Ok(Self {
            client,
            turn: tokio::sync::Mutex::new(()),
            waiting,
            room,
            batches,
        })
    }

    /// Whether the client itself has failed for good (an idempotent producer that lost its place),
    /// so that another has to take over.
    pub(crate) fn has_failed(&self) -> bool {
        self.client
            .client()
            .context()
            .failed
            .load(Ordering::Acquire)
    }

    /// Writes the records in order and waits for the broker's answers; one for each. Each is made as
    /// it goes out: a thousand at once would have left the processor's cache by then.
    ///
    /// Where the client's queue is full it waits, and so do all that come after.
    pub(crate) async fn write(
        &self,
        records: impl ExactSizeIterator<Item = Result<NewRecord, Error>>,
    ) -> Vec<Result<(), Error>> {
        let batch = self.batches.begin(records.len());
        let records = batch.numbers().zip(records);
        let records = records.filter_map(|(number, record)| match record {
            Ok(record) => Some((number, record)),
            Err(error) => {
                batch.answer(number, Err(error));
                None
            }
        });
        self.enqueue(records, &batch).await;
        batch.answers().await
    }

    /// Waits until all that is on its way has been answered, and for `within` at most.
    pub(crate) async fn flush(self: Arc<Self>, within: Duration) -> Result<(), Error> {
        let flushed = tokio::task::spawn_blocking(move || self.client.flush(within)).await;
        match flushed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(classified("flush", "the producer", cause)),
            Err(cause) => Err(Error::transient("flush", "the producer").with_source(cause)),
        }
    }

    async fn enqueue(&self, mut records: impl Iterator<Item = (usize, NewRecord)>, batch: &Batch) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            let Some(full) = records.find_map(|(number, record)| self.send(number, record, batch))
            else {
                return;
            };
            return self.enqueue_in_turn(full, records, batch).await;
        }
        if let Some(first) = records.next() {
            self.enqueue_in_turn(first, records, batch).await;
        }
    }

    /// From the first record that found no room on: nobody overtakes who came later.
    async fn enqueue_in_turn(
        &self,
        first: (usize, NewRecord),
        rest: impl Iterator<Item = (usize, NewRecord)>,
        batch: &Batch,
    ) {
        let _place = Place::take(&self.waiting);
        let _turn = self.turn.lock().await;
        for (number, record) in std::iter::once(first).chain(rest) {
            let mut full = self.send(number, record, batch);
            while let Some((number, record)) = full {
                // The report that makes room may have come between the send and this wait.
                let room = self.room.notified();
                let _ = tokio::time::timeout(Duration::from_millis(5), room).await;
                full = self.send(number, record, batch);
            }
        }
    }

    /// Hands one record to the client; gives it back where its queue is full.
    fn send(
        &self,
        number: usize,
        mut record: NewRecord,
        batch: &Batch,
    ) -> Option<(usize, NewRecord)> {
        let native = BaseRecord {
            topic: &record.topic,
            partition: record.partition,
            payload: Some(&*record.body),
            key: record.key.as_deref(),
            timestamp: record.timestamp,
            headers: Some(record.headers.into_native()),
            delivery_opaque: number,
        };
        match self.client.send(native) {
            Ok(()) => None,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), native)) => {
                let headers = native.headers.map(NewHeaders::from_native);
                record.headers = headers.unwrap_or_default();
                Some((number, record))
            }
            Err((cause, _)) => {
                batch.answer(number, Err(write_error(&record.topic, cause)));
                None
            }
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

/// What is still on its way is waited for, a few seconds at most: `flush` does so without blocking.
impl Drop for Producer {
    fn drop(&mut self) {
        if self.client.in_flight_count() > 0
            && let Err(cause) = self.client.flush(Duration::from_secs(5))
        {
            tracing::error!(%cause, "records were not confirmed before the producer was dropped");
        }
    }
}

fn write_error(topic: &str, cause: KafkaError) -> Error {
    classified("publish", &format!("topic `{topic}`"), cause)
}

/// A place in the queue of those that wait for room.
struct Place<'p>(&'p AtomicUsize);

impl<'p> Place<'p> {
    fn take(waiting: &'p AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The client's reports.
#[derive(Debug)]
pub(crate) struct Reports {
    waiting: Arc<AtomicUsize>,
    room: Arc<Notify>,
    batches: Arc<Batches>,
    failed: AtomicBool,
}

impl ProducerContext for Reports {
    /// The record's number.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let answer = match result {
            Ok(_) => Ok(()),
            Err((cause, message)) => {
                use rdkafka::Message as _;
                Err(write_error(message.topic(), cause.clone()))
            }
        };
        self.batches.answer(number, answer);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.room.notify_one();
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log::line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.failed.store(true, Ordering::Release);
        }
        tracing::warn!(target: "babelqueue_kafka", %error, reason, "the Kafka producer met an error");
    }
}
