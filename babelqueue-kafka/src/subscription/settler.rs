use std::sync::Arc;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Settled, Settlement, Settler};
use tokio::time::Instant;

use super::assignment::Assignment;
use super::shared::Shared;
use crate::project::{self, NewRecord};
use crate::record::Record;
use crate::tiers::RetryTiers;

/// What writes the copies that a settlement needs.
#[async_trait]
pub(crate) trait Writes: Send + Sync + 'static {
    /// Writes them in order, and says of each whether it is confirmed.
    async fn write(&self, records: Vec<NewRecord>) -> Vec<Result<(), Error>>;
}

/// The settling half of a membership.
pub(crate) struct GroupSettler<W> {
    shared: Arc<Shared>,
    writes: W,
    tiers: RetryTiers,
}

impl<W: Writes> GroupSettler<W> {
    pub(crate) fn new(shared: Arc<Shared>, writes: W, tiers: RetryTiers) -> Self {
        Self {
            shared,
            writes,
            tiers,
        }
    }

    /// What can be settled without a write, or the record to write first.
    fn begin_settling(
        &self,
        assignment: &mut Assignment,
        delivery: &Arc<Delivery>,
        settlement: Settlement,
    ) -> Result<Settled, Step> {
        let Some(record) = Record::of(delivery) else {
            return Ok(Settled::Fenced);
        };
        // A delivery that was never begun (its body is no envelope) cannot be taken back from here
        // on, so that a partition that goes waits for it.
        let _ = record.begin();
        if delivery.is_lost() {
            return Ok(Settled::Fenced);
        }
        let received = record.received(delivery);
        let copy = match settlement {
            Settlement::Ack => {
                return Ok(done_or_fenced(assignment.settle(delivery)));
            }
            Settlement::Retry { body, attempts, .. } => {
                project::retry(received, body, attempts, &self.tiers)
            }
            Settlement::DeadLetter {
                queue,
                record: body,
                verbatim,
                attempts,
            } => Ok(project::dead_letter(
                received, queue, body, verbatim, attempts,
            )),
            Settlement::Redrive {
                queue,
                body,
                bypass,
                verbatim,
            } => Ok(project::redrive(received, queue, body, verbatim, bypass)),
            // Without a count there is no other way back than the rewind.
            Settlement::Release { .. } | Settlement::Abandon | Settlement::Native { .. } => {
                return Ok(rewound_or_fenced(assignment.rewind(delivery)));
            }
        };
        Err(match copy {
            Ok(copy) => Step::Write(Box::new(copy)),
            Err(error) => {
                assignment.rewind(delivery);
                Step::Failed(error)
            }
        })
    }
}

impl<W: Writes> GroupSettler<W> {
    /// Settles what needs no write, under one lock.
    fn settle_at_once(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Begun {
        let mut begun = Begun {
            answers: Vec::with_capacity(batch.len()),
            ..Begun::default()
        };
        let mut assignment = self.shared.lock();
        for (at, (delivery, settlement)) in batch.into_iter().enumerate() {
            let step = self.begin_settling(&mut assignment, &delivery, settlement);
            begun.answers.push(match step {
                Ok(settled) => Ok(settled),
                Err(Step::Failed(error)) => Err(error),
                Err(Step::Write(copy)) => {
                    begun.copies.push(*copy);
                    begun.waiting.push((at, delivery));
                    Ok(Settled::Fenced) // Until the copy is confirmed.
                }
            });
        }
        drop(assignment);
        self.shared.settled();
        begun
    }

    /// Settles what was written; what was not comes again.
    fn finish(
        &self,
        waiting: Vec<(usize, Arc<Delivery>)>,
        confirmed: Vec<Result<(), Error>>,
        answers: &mut [Result<Settled, Error>],
    ) {
        let mut assignment = self.shared.lock();
        for ((at, delivery), confirmed) in waiting.into_iter().zip(confirmed) {
            answers[at] = match confirmed {
                Ok(()) => Ok(done_or_fenced(assignment.settle(&delivery))),
                Err(error) => {
                    assignment.rewind(&delivery);
                    Err(error)
                }
            };
        }
        drop(assignment);
        self.shared.settled();
    }
}

/// A batch as far as it can be settled without a write.
#[derive(Default)]
struct Begun {
    answers: Vec<Result<Settled, Error>>,
    copies: Vec<NewRecord>,
    /// Which answers wait for the copies, and of what.
    waiting: Vec<(usize, Arc<Delivery>)>,
}

/// What a settlement needs besides the book.
enum Step {
    Write(Box<NewRecord>),
    Failed(Error),
}

#[async_trait]
impl<W: Writes> Settler for GroupSettler<W> {
    fn begin(&self, delivery: &Delivery) -> bool {
        !delivery.is_lost() && Record::of(delivery).is_some_and(Record::begin)
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let Begun {
            mut answers,
            copies,
            waiting,
        } = self.settle_at_once(batch);
        if !copies.is_empty() {
            let confirmed = self.writes.write(copies).await;
            self.finish(waiting, confirmed, &mut answers);
        }
        answers
    }

    /// There are no leases: the polling thread keeps the membership.
    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        batch
            .iter()
            .map(|_| Err(Error::lost("Kafka has no leases")))
            .collect()
    }
}

fn done_or_fenced(was_out: bool) -> Settled {
    if was_out {
        Settled::Done
    } else {
        Settled::Fenced
    }
}

fn rewound_or_fenced(was_out: bool) -> Settled {
    if was_out {
        Settled::LaneRewound
    } else {
        Settled::Fenced
    }
}
