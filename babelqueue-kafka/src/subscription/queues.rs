use std::sync::Arc;
use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::BaseConsumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaError;
use tokio::time::Instant;

use super::assignment::Source;
use super::context::{Context, Partition};
use super::intake::{Intake, Origin};
use super::shared::Shared;
use crate::config::Order;

/// How many records of a partition are read before the lock is taken for them.
const RUN: usize = 256;

/// The client's queues, one for each partition that this member has. A full partition's queue is
/// left alone. (Pausing it would throw away what was fetched already.)
pub(crate) struct Queues {
    /// The topics of the subscription; a topic's place is a part of its scopes.
    topics: Vec<Arc<str>>,
    intake: Intake,
    open: Vec<(Source, PartitionQueue<Context>)>,
}

impl Queues {
    pub(crate) fn new(topics: Vec<Arc<str>>, order: Order) -> Self {
        Self {
            topics,
            intake: Intake::new(order),
            open: Vec::new(),
        }
    }

    pub(crate) fn topics(&self) -> &[Arc<str>] {
        &self.topics
    }

    /// The number of a partition in this subscription; `None` for a topic that is not in it.
    pub(crate) fn source(&self, topic: &str, partition: i32) -> Option<Source> {
        let at = self.topics.iter().position(|known| **known == *topic)?;
        let number = u32::try_from(partition).ok()?;
        Some(Source {
            topic: Arc::clone(&self.topics[at]),
            partition,
            scope: (u64::try_from(at).ok()? << 32) | u64::from(number),
        })
    }

    /// The numbers of these partitions.
    pub(crate) fn scopes(&self, partitions: &[Partition]) -> Vec<u64> {
        partitions
            .iter()
            .filter_map(|(topic, partition)| Some(self.source(topic, *partition)?.scope))
            .collect()
    }

    /// Opens a partition's queue, which wakes this thread when something comes; whether the client
    /// has one.
    pub(crate) fn open(&mut self, consumer: &Arc<BaseConsumer<Context>>, source: Source) -> bool {
        self.close(source.scope);
        let Some(mut queue) = consumer.split_partition_queue(&source.topic, source.partition)
        else {
            return false;
        };
        let me = std::thread::current();
        queue.set_nonempty_callback(move || me.unpark());
        self.open.push((source, queue));
        true
    }

    /// Closes a partition's queue.
    pub(crate) fn close(&mut self, scope: u64) {
        self.open.retain(|(source, _)| source.scope != scope);
    }

    /// Reads what there is room for; whether anything came. What goes wrong is handed to `failed`.
    pub(crate) fn read(&mut self, shared: &Shared, failed: &mut impl FnMut(KafkaError)) -> bool {
        let mut came = false;
        for (source, queue) in &self.open {
            let mut assignment = shared.lock();
            let Some((room, generation)) = assignment.room(source.scope) else {
                continue;
            };
            self.intake.reuse(assignment.take_spent());
            drop(assignment);
            let from = Origin {
                queue: &source.topic,
                scope: source.scope,
                generation,
                received: Instant::now(),
            };
            let most = room.min(RUN);
            let mut read = Vec::with_capacity(most);
            while read.len() < most {
                match queue.poll(Duration::ZERO) {
                    None => break,
                    Some(Err(error)) => failed(error),
                    Some(Ok(message)) => {
                        read.push((message.offset(), self.intake.delivery(&message, from)));
                    }
                }
            }
            if !read.is_empty() {
                came = true;
                shared.lock().take_in(source.scope, read);
                shared.ring();
            }
        }
        if !came {
            self.intake.forget_spent();
        }
        came
    }
}
