use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::assignment::Due;
use super::context::{Context, Partition};
use super::offsets::{Committed, OffsetReader};

/// Commits that were sent, and whether they have arrived.
///
/// The client tells nobody how an asynchronous commit ended, and a synchronous one can block for a
/// minute. So commits are sent without an answer, and looked for where it matters: before a
/// partition goes, at the end, and once they have come to rest (one that was sent in the middle of
/// a rebalance may have been refused).
pub(crate) struct Commits {
    consumer: Arc<BaseConsumer<Context>>,
    offsets: OffsetReader,
    interval: Duration,
    last: Instant,
    /// The last commit of each scope that was sent and not seen.
    unseen: BTreeMap<u64, Due>,
    /// Whether the open question is [`look`](Self::look)'s.
    looking: bool,
    /// How many answers to come are to questions that nobody waits for any more.
    stale: usize,
}

impl Commits {
    pub(crate) fn new(
        consumer: Arc<BaseConsumer<Context>>,
        offsets: OffsetReader,
        interval: Duration,
    ) -> Self {
        Self {
            consumer,
            offsets,
            interval,
            last: Instant::now(),
            unseen: BTreeMap::new(),
            looking: false,
            stale: 0,
        }
    }

    /// How long until the next commits may be sent.
    pub(crate) fn until_next(&self) -> Duration {
        self.interval.saturating_sub(self.last.elapsed())
    }

    /// Sends commits.
    pub(crate) fn send(&mut self, due: Vec<Due>) {
        if due.is_empty() {
            return;
        }
        self.last = Instant::now();
        self.put(&due);
        for due in due {
            self.unseen.insert(due.source.scope, due);
        }
    }

    /// Sends those of `scopes` again that were not seen, and asks for them; `false` where all were
    /// seen.
    pub(crate) fn ask_for_unseen(&mut self, scopes: &[u64], again: bool) -> bool {
        let unseen: Vec<Due> = self
            .unseen
            .values()
            .filter(|due| scopes.contains(&due.source.scope))
            .cloned()
            .collect();
        if unseen.is_empty() {
            return false;
        }
        if again {
            self.put(&unseen);
        }
        self.ask(unseen.iter().map(partition_of).collect());
        true
    }

    /// Whether a commit that was sent has not been seen.
    pub(crate) fn any_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Takes note of what the coordinator has; gives the scopes whose last commit it has not.
    pub(crate) fn compare(&mut self, answer: &Committed) -> Vec<u64> {
        self.unseen.retain(|_, due| !has(answer, due));
        self.unseen.keys().copied().collect()
    }

    /// Forgets a partition that is ours no longer.
    pub(crate) fn forget(&mut self, scope: u64) {
        self.unseen.remove(&scope);
    }

    /// Asks what is committed of `partitions`; [`answer`](Self::answer) tells.
    pub(crate) fn ask(&mut self, partitions: Vec<Partition>) {
        if std::mem::take(&mut self.looking) {
            self.stale += 1;
        }
        self.offsets.ask(partitions);
    }

    /// The answer to the last question, once it is there.
    pub(crate) fn answer(&mut self) -> Option<Committed> {
        loop {
            let answer = self.offsets.answer()?;
            if self.stale == 0 {
                return Some(answer);
            }
            self.stale -= 1;
        }
    }

    /// In quiet times: sees whether what was sent has arrived; gives the scopes whose commit has
    /// to be sent again.
    pub(crate) fn look(&mut self) -> Vec<u64> {
        if self.looking {
            let Some(answer) = self.answer() else {
                return Vec::new();
            };
            self.looking = false;
            return self.compare(&answer);
        }
        let rest = 5 * self.interval.max(Duration::from_millis(100));
        if !self.unseen.is_empty() && self.last.elapsed() > rest {
            self.ask(self.unseen.values().map(partition_of).collect());
            self.looking = true;
        }
        Vec::new()
    }

    fn put(&self, due: &[Due]) {
        let mut list = TopicPartitionList::with_capacity(due.len());
        for Due { source, commit } in due {
            let mut element = list.add_partition(&source.topic, source.partition);
            element.set_metadata(&commit.metadata);
            if let Err(error) = element.set_offset(Offset::Offset(commit.offset)) {
                tracing::error!(%error, offset = commit.offset, "an offset that cannot be");
            }
        }
        if let Err(error) = self.consumer.commit(&list, CommitMode::Async) {
            tracing::warn!(target: "babelqueue_kafka", %error, "a commit could not be sent");
        }
    }
}

fn partition_of(due: &Due) -> Partition {
    (due.source.topic.to_string(), due.source.partition)
}

/// Whether what the coordinator answered holds this commit.
fn has(answer: &Committed, due: &Due) -> bool {
    let Ok(committed) = answer else {
        return false;
    };
    committed.iter().any(|((topic, partition), commit)| {
        **topic == *due.source.topic
            && *partition == due.source.partition
            && commit.as_ref() == Some(&due.commit)
    })
}
