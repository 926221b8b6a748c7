use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::commits::Commits;
use super::context::{Context, Partition, Rebalance, answer_assign, answer_revoke};
use super::queues::Queues;
use super::shared::Shared;
use crate::book::Commit;

/// How often a question or a commit is sent before the group is answered without it.
const TRIES: u32 = 3;

/// Answers the group's rebalances, a step at a time, so that the polling thread goes on meanwhile:
/// the partitions that stay are read and handled on.
pub(crate) struct Rebalancer {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    revoke_timeout: Duration,
    step: Step,
}

enum Step {
    Idle,
    /// New partitions; what is committed of them was asked for.
    Assigning(Asked),
    /// Partitions that go; their running handlers may finish until then.
    Leaving(Vec<Partition>, Instant),
    /// Their last commits were sent, and are looked for.
    Committing(Asked),
}

struct Asked {
    partitions: Vec<Partition>,
    tries: u32,
}

impl Rebalancer {
    pub(crate) fn new(
        consumer: Arc<BaseConsumer<Context>>,
        shared: Arc<Shared>,
        revoke_timeout: Duration,
    ) -> Self {
        Self {
            consumer,
            shared,
            revoke_timeout,
            step: Step::Idle,
        }
    }

    /// Whether no rebalance is at hand.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle)
    }

    /// Goes on as far as it can without waiting.
    pub(crate) fn advance(&mut self, queues: &mut Queues, commits: &mut Commits) {
        self.step = match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => match self.consumer.context().next() {
                None => Step::Idle,
                Some(Rebalance::Assign(partitions)) => begin_assign(partitions, commits),
                Some(Rebalance::Revoke(partitions)) => {
                    self.begin_revoke(partitions, queues, commits)
                }
            },
            Step::Assigning(asked) => self.assign(asked, queues, commits),
            Step::Leaving(partitions, until) => self.leave(partitions, until, queues, commits),
            Step::Committing(asked) => self.see_last_commits(asked, queues, commits),
        };
    }

    /// Answers what was noted and not begun, for the consumer does not end without.
    pub(crate) fn answer_the_rest(&self) {
        while let Some(rebalance) = self.consumer.context().next() {
            match rebalance {
                Rebalance::Assign(partitions) => {
                    answer_assign(&self.consumer, &list_of(&partitions));
                }
                Rebalance::Revoke(partitions) => {
                    answer_revoke(&self.consumer, &list_of(&partitions));
                }
            }
        }
    }

    fn assign(&self, asked: Asked, queues: &mut Queues, commits: &mut Commits) -> Step {
        let Some(answer) = commits.answer() else {
            return Step::Assigning(asked);
        };
        let committed = match answer {
            Ok(committed) => committed,
            Err(error) if asked.tries < TRIES => {
                tracing::warn!(target: "babelqueue_kafka", %error, "the committed offsets did not come");
                commits.ask(asked.partitions.clone());
                return Step::Assigning(Asked {
                    tries: asked.tries + 1,
                    ..asked
                });
            }
            // The client asks once more by itself; what was done above the offsets runs again.
            Err(_) => asked
                .partitions
                .into_iter()
                .map(|partition| (partition, None))
                .collect(),
        };
        self.take_on(&committed, queues);
        Step::Idle
    }

    fn take_on(&self, committed: &[(Partition, Option<Commit>)], queues: &mut Queues) {
        let mut list = TopicPartitionList::with_capacity(committed.len());
        for ((topic, partition), commit) in committed {
            let Some(source) = queues.source(topic, *partition) else {
                continue;
            };
            let offset = commit
                .as_ref()
                .map_or(Offset::Invalid, |commit| Offset::Offset(commit.offset));
            if let Err(error) = list.add_partition_offset(topic, *partition, offset) {
                tracing::error!(%error, "a committed offset that cannot be");
            }
            self.shared.lock().add(source.clone(), commit.as_ref());
            // Before the assignment, so that no record takes the way of the common queue.
            if !queues.open(&self.consumer, source) {
                self.shared.refuse(format!(
                    "{topic}: the client has no queue for partition {partition}"
                ));
            }
        }
        answer_assign(&self.consumer, &list);
    }

    fn begin_revoke(
        &self,
        partitions: Vec<Partition>,
        queues: &mut Queues,
        commits: &mut Commits,
    ) -> Step {
        self.shared.lock().leave(&queues.scopes(&partitions));
        let until = Instant::now() + self.revoke_timeout;
        self.leave(partitions, until, queues, commits)
    }

    /// Waits for what runs, then sends the last commits.
    fn leave(
        &self,
        partitions: Vec<Partition>,
        until: Instant,
        queues: &mut Queues,
        commits: &mut Commits,
    ) -> Step {
        if self.consumer.assignment_lost() {
            return self.give_up(&partitions, queues, commits);
        }
        let scopes = queues.scopes(&partitions);
        let mut assignment = self.shared.lock();
        if !assignment.is_home(&scopes) && Instant::now() < until {
            return Step::Leaving(partitions, until);
        }
        let last = assignment.due(Some(&scopes));
        drop(assignment);
        commits.send(last);
        if commits.ask_for_unseen(&scopes, false) {
            let tries = 1;
            return Step::Committing(Asked { partitions, tries });
        }
        self.give_up(&partitions, queues, commits)
    }

    fn see_last_commits(&self, asked: Asked, queues: &mut Queues, commits: &mut Commits) -> Step {
        let Some(answer) = commits.answer() else {
            return Step::Committing(asked);
        };
        commits.compare(&answer);
        let Asked { partitions, tries } = asked;
        let scopes = queues.scopes(&partitions);
        let lost = self.consumer.assignment_lost();
        if !lost && tries < TRIES && commits.ask_for_unseen(&scopes, true) {
            let tries = tries + 1;
            return Step::Committing(Asked { partitions, tries });
        }
        self.give_up(&partitions, queues, commits)
    }

    fn give_up(
        &self,
        partitions: &[Partition],
        queues: &mut Queues,
        commits: &mut Commits,
    ) -> Step {
        if self.consumer.assignment_lost() {
            // They belong to somebody else already: nothing more is committed.
            tracing::warn!(target: "babelqueue_kafka", ?partitions, "partitions were lost");
        }
        let mut assignment = self.shared.lock();
        for scope in queues.scopes(partitions) {
            assignment.forget(scope);
            queues.close(scope);
            commits.forget(scope);
        }
        drop(assignment);
        answer_revoke(&self.consumer, &list_of(partitions));
        Step::Idle
    }
}

fn begin_assign(partitions: Vec<Partition>, commits: &mut Commits) -> Step {
    commits.ask(partitions.clone());
    let tries = 1;
    Step::Assigning(Asked { partitions, tries })
}

fn list_of(partitions: &[Partition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    list
}
