use std::sync::Arc;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Settled, Settlement, Settler};
use tokio::time::Instant;

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
                return Ok(done_or_fenced(self.shared.settle(delivery)));
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
                return Ok(rewound_or_fenced(self.shared.rewind(delivery)));
            }
        };
        Err(match copy {
            Ok(copy) => Step::Write(Box::new(copy)),
            Err(error) => {
                self.shared.rewind(delivery);
                Step::Failed(error)
            }
        })
    }
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
        let mut answers = Vec::with_capacity(batch.len());
        let (mut copies, mut waiting) = (Vec::new(), Vec::new());
        for (at, (delivery, settlement)) in batch.into_iter().enumerate() {
            answers.push(match self.begin_settling(&delivery, settlement) {
                Ok(settled) => Ok(settled),
                Err(Step::Failed(error)) => Err(error),
                Err(Step::Write(copy)) => {
                    copies.push(*copy);
                    waiting.push((at, delivery));
                    Ok(Settled::Fenced) // Until the copy is confirmed.
                }
            });
        }
        self.shared.settled();
        if copies.is_empty() {
            return answers;
        }
        let confirmed = self.writes.write(copies).await;
        for ((at, delivery), confirmed) in waiting.into_iter().zip(confirmed) {
            answers[at] = match confirmed {
                Ok(()) => Ok(done_or_fenced(self.shared.settle(&delivery))),
                Err(error) => {
                    self.shared.rewind(&delivery);
                    Err(error)
                }
            };
        }
        self.shared.settled();
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
