use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::{Context, Partition};
use crate::book::Commit;

/// How long one question may take.
const WITHIN: Duration = Duration::from_secs(3);

/// What a group has committed of each partition; `None` where nothing.
pub(crate) type Committed = Result<Vec<(Partition, Option<Commit>)>, KafkaError>;

/// Asks the coordinator what is committed. The question blocks, so a thread of its own asks it, one
/// at a time, in order, and wakes the polling thread with the answer.
#[derive(Debug)]
pub(crate) struct OffsetReader {
    questions: Option<Sender<Vec<Partition>>>,
    answers: Receiver<Committed>,
    thread: Option<JoinHandle<()>>,
}

impl OffsetReader {
    /// A reader that wakes `asker`.
    pub(crate) fn start(
        consumer: Arc<BaseConsumer<Context>>,
        asker: Thread,
    ) -> std::io::Result<Self> {
        let (questions, to_ask) = channel::<Vec<Partition>>();
        let (answer, answers) = channel();
        let thread = std::thread::Builder::new()
            .name("bq-kafka-offsets".to_owned())
            .spawn(move || {
                for partitions in to_ask {
                    if answer.send(committed(&consumer, &partitions)).is_err() {
                        return;
                    }
                    asker.unpark();
                }
            })?;
        Ok(Self {
            questions: Some(questions),
            answers,
            thread: Some(thread),
        })
    }

    /// Asks for these partitions.
    pub(crate) fn ask(&self, partitions: Vec<Partition>) {
        if let Some(questions) = &self.questions {
            // Only fails after the thread has ended, which it does not before this reader.
            let _ = questions.send(partitions);
        }
    }

    /// The answer to the oldest open question, if it is there.
    pub(crate) fn answer(&self) -> Option<Committed> {
        self.answers.try_recv().ok()
    }
}

/// Waits for the thread, which holds the consumer: at most one question's time.
impl Drop for OffsetReader {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads committed offsets panicked");
        }
    }
}

fn committed(consumer: &BaseConsumer<Context>, partitions: &[Partition]) -> Committed {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    // The list that comes back holds on to the partitions, and a consumer that is dropped before it
    // hangs for ever: it ends with this function.
    let list = consumer.committed_offsets(list, WITHIN)?;
    list.elements()
        .iter()
        .map(|element| {
            element.error()?;
            let commit = match element.offset() {
                Offset::Offset(offset) => Some(Commit {
                    offset,
                    // The client panics on metadata that is not UTF-8, and anybody may write it.
                    metadata: catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()))
                        .unwrap_or_default(),
                }),
                _ => None,
            };
            Ok(((element.topic().to_owned(), element.partition()), commit))
        })
        .collect()
}
