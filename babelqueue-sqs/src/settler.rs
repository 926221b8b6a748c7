use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Settled, Settlement, Settler};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::batch::{self, Carried, Visibility};
use crate::delay::visibility_seconds;
use crate::polls::{self, Receipt, Source};
use crate::project::{self, Attributes};
use crate::transport::Shared;

/// The settling half of a subscription.
pub(crate) struct SqsSettler {
    pub(crate) shared: Arc<Shared>,
    pub(crate) source: Arc<Source>,
}

type Answer = Result<Settled, Error>;

/// A delivery that is being settled: which of the batch, and what its settlement needs.
struct Claimed<'d> {
    at: usize,
    delivery: &'d Delivery,
    receipt: &'d Receipt,
}

/// What is done about one delivery.
enum Plan {
    Delete,
    /// Visible again after so many seconds.
    Back(i32),
    /// Deleted when its copy is confirmed.
    Copy {
        queue: Arc<str>,
        body: Bytes,
        attributes: Attributes,
    },
    /// Left to the visibility timeout, and to the queue's redrive policy.
    Leave,
}

#[async_trait]
impl Settler for SqsSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        let may_start =
            !delivery.is_lost() && !delivery.lease_is_over() && self.source.out.is_out(delivery);
        if !may_start {
            // The rest of its lane comes back as this one does: when its visibility has passed.
            self.source.out.lose(delivery);
        }
        may_start
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Answer> {
        let mut answers: Vec<Answer> = batch.iter().map(|_| Ok(Settled::Fenced)).collect();
        let mut work = Work::default();
        for (at, (delivery, settlement)) in batch.iter().enumerate() {
            let receipt = delivery.native::<Receipt>();
            let Some(receipt) = receipt.filter(|_| self.source.out.claim(delivery)) else {
                work.rest.extend(self.source.out.lose(delivery));
                continue;
            };
            let claimed = Claimed {
                at,
                delivery,
                receipt,
            };
            match plan(delivery, receipt, settlement) {
                Plan::Delete => work.deletes.push(claimed),
                Plan::Back(seconds) => work.backs.push((claimed, seconds)),
                Plan::Copy {
                    queue,
                    body,
                    attributes,
                } => work.copies.push((claimed, queue, body, attributes)),
                Plan::Leave => work.left.push(claimed),
            }
        }
        self.carry_out(work, &mut answers).await;
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let start = Instant::now();
        let mut answers: Vec<_> = batch.iter().map(|_| Err(lost())).collect();
        let mut asked = Vec::new();
        let mut changes = Vec::new();
        let mut rest = Vec::new();
        for (at, delivery) in batch.iter().enumerate() {
            let receipt = delivery.native::<Receipt>();
            let is_ours = !delivery.is_lost() && self.source.out.is_out(delivery);
            let renewal = polls::renewal(self.source.visibility, delivery.received());
            let (Some(receipt), Some(renewal), true) = (receipt, renewal, is_ours) else {
                rest.extend(self.source.out.lose(delivery));
                continue;
            };
            changes.push(Visibility {
                handle: receipt.handle.clone(),
                seconds: i32::try_from(renewal.as_secs()).unwrap_or(i32::MAX),
            });
            asked.push((at, delivery, renewal));
        }
        let renewed = batch::change(&self.source.link, &self.source.queue, changes).await;
        for ((at, delivery, renewal), renewed) in asked.into_iter().zip(renewed) {
            answers[at] = match renewed {
                Ok(()) => {
                    let end = polls::lease_end(start, renewal);
                    // At once: what is settled meanwhile is judged by it.
                    delivery.set_lease_end(end);
                    Ok(end)
                }
                Err(undone) if undone.has_ended() => {
                    rest.extend(self.source.out.lose(delivery));
                    Err(lost())
                }
                Err(undone) => {
                    let error = undone.into_error("extend", self.source.queue.describe());
                    Err(passing("extend", error))
                }
            };
        }
        self.source.give_back(&rest).await;
        answers
    }
}

/// All that is to be done for one batch.
#[derive(Default)]
struct Work<'d> {
    deletes: Vec<Claimed<'d>>,
    backs: Vec<(Claimed<'d>, i32)>,
    copies: Vec<(Claimed<'d>, Arc<str>, Bytes, Attributes)>,
    left: Vec<Claimed<'d>>,
    /// What is lost with the head of its lane, to be given back.
    rest: Vec<Arc<Delivery>>,
}

impl SqsSettler {
    async fn carry_out(&self, work: Work<'_>, answers: &mut [Answer]) {
        let mut rest = work.rest;
        for claimed in &work.left {
            let lane = self.come_again(claimed.delivery, Duration::ZERO);
            answers[claimed.at] = Ok(gave_back(&lane));
            self.source.out.leave(claimed.delivery);
            rest.extend(lane);
        }
        let (deleted, (), copied) = tokio::join!(
            self.delete(&work.deletes),
            self.back(work.backs, answers),
            self.copy(work.copies),
        );
        let mut confirmed = Vec::new();
        for (claimed, copied) in copied {
            match copied {
                Ok(()) => confirmed.push(claimed),
                Err(error) => {
                    rest.extend(self.come_again(claimed.delivery, Duration::ZERO));
                    self.source.out.leave(claimed.delivery);
                    answers[claimed.at] = Err(error);
                }
            }
        }
        for (claimed, deleted) in work.deletes.iter().zip(deleted) {
            rest.extend(self.end(claimed, deleted, &mut answers[claimed.at]));
        }
        let deleted = self.delete(&confirmed).await;
        for (claimed, deleted) in confirmed.iter().zip(deleted) {
            rest.extend(self.end(claimed, deleted, &mut answers[claimed.at]));
            if !matches!(answers[claimed.at], Ok(Settled::Done)) {
                tracing::warn!(
                    queue = &*self.source.queue.name,
                    "a message comes again, although its copy is where it should go"
                );
            }
        }
        self.source.give_back(&rest).await;
    }

    /// Says what became of a delete; gives what is lost with it.
    fn end(
        &self,
        claimed: &Claimed<'_>,
        deleted: Carried,
        answer: &mut Answer,
    ) -> Vec<Arc<Delivery>> {
        let out = &self.source.out;
        match deleted {
            Ok(()) => {
                out.done(claimed.delivery);
                *answer = Ok(Settled::Done);
                Vec::new()
            }
            Err(undone) if undone.has_ended() => {
                tracing::warn!(
                    queue = &*self.source.queue.name,
                    "a message was given out again before it was settled"
                );
                *answer = Ok(Settled::Fenced);
                out.lose(claimed.delivery)
            }
            Err(undone) => {
                let rest = self.come_again(claimed.delivery, Duration::ZERO);
                out.leave(claimed.delivery);
                let error = undone.into_error("settle", self.source.queue.describe());
                *answer = Err(passing("settle", error));
                rest
            }
        }
    }

    /// Takes back the rest of the lane of a delivery that comes again after `delay`, or at the end of
    /// its lease; gives what is to be given back.
    fn come_again(&self, delivery: &Delivery, delay: Duration) -> Vec<Arc<Delivery>> {
        let out = &self.source.out;
        out.hold_up(delivery, delay + self.source.visibility * 2);
        out.take_back_rest(delivery)
    }

    async fn delete(&self, claimed: &[Claimed<'_>]) -> Vec<Carried> {
        let handles = claimed.iter().map(|claimed| claimed.receipt.handle.clone());
        batch::delete(&self.source.link, &self.source.queue, handles.collect()).await
    }

    /// Makes deliveries visible again, and before them the rest of their lanes: while the head is
    /// invisible SQS gives nothing of its group to anybody.
    async fn back(&self, backs: Vec<(Claimed<'_>, i32)>, answers: &mut [Answer]) {
        let mut rest = Vec::new();
        for (claimed, seconds) in &backs {
            let delay = Duration::from_secs(u64::from(seconds.unsigned_abs()));
            let lane = self.come_again(claimed.delivery, delay);
            answers[claimed.at] = Ok(gave_back(&lane));
            rest.extend(lane);
        }
        self.source.give_back(&rest).await;
        let changes = backs.iter().map(|(claimed, seconds)| Visibility {
            handle: claimed.receipt.handle.clone(),
            seconds: *seconds,
        });
        let given = batch::change(&self.source.link, &self.source.queue, changes.collect()).await;
        for ((claimed, _), given) in backs.iter().zip(given) {
            self.source.out.leave(claimed.delivery);
            match given {
                Ok(()) => {}
                // It is visible already.
                Err(undone) if undone.has_ended() => answers[claimed.at] = Ok(Settled::Fenced),
                Err(undone) => {
                    let error = undone.into_error("settle", self.source.queue.describe());
                    answers[claimed.at] = Err(passing("settle", error));
                }
            }
        }
    }

    /// Sends the copies, for no longer than their originals are ours.
    async fn copy<'d>(
        &self,
        copies: Vec<(Claimed<'d>, Arc<str>, Bytes, Attributes)>,
    ) -> Vec<(Claimed<'d>, Result<(), Error>)> {
        let mut claims = Vec::with_capacity(copies.len());
        let mut letters = Vec::with_capacity(copies.len());
        for (claimed, queue, body, attributes) in copies {
            letters.push((queue, body, attributes, Origin::of(claimed.receipt)));
            claims.push(claimed);
        }
        if claims.is_empty() {
            return Vec::new();
        }
        let ends = claims
            .iter()
            .filter_map(|claimed| claimed.delivery.lease_end());
        let left = ends.min().map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        });
        let sent = timeout(left, self.shared.send_copies(letters)).await;
        let late = || {
            Err(Error::transient(
                "settle",
                "the copy was not confirmed in time",
            ))
        };
        let sent = sent.unwrap_or_else(|_| claims.iter().map(|_| late()).collect());
        claims.into_iter().zip(sent).collect()
    }
}

/// What a copy takes over from the message that it is a copy of.
pub(crate) struct Origin {
    pub(crate) group: Option<Arc<str>>,
    /// Good as a deduplication id: no other message has it, and a copy that is made a second time,
    /// because the first one's original could not be deleted, has the same. The id that the message
    /// was published with could be known in the target already, and the copy be dropped (contract
    /// §13.4).
    pub(crate) message_id: Arc<str>,
}

impl Origin {
    fn of(receipt: &Receipt) -> Self {
        Self {
            group: receipt.group.clone(),
            message_id: receipt.message_id.clone(),
        }
    }
}

fn plan(delivery: &Delivery, receipt: &Receipt, settlement: &Settlement) -> Plan {
    match settlement {
        Settlement::Ack => Plan::Delete,
        // The body stays as it is: the service counts (contract §13.5).
        Settlement::Retry { delay, .. } | Settlement::Release { delay, .. } => {
            Plan::Back(visibility_seconds(*delay, delivery.received().elapsed()))
        }
        Settlement::DeadLetter {
            queue,
            record,
            verbatim,
            ..
        } => Plan::Copy {
            queue: queue.clone(),
            body: record.clone(),
            attributes: if *verbatim {
                Attributes::clone(&receipt.attributes)
            } else {
                project::dead_lettered(&receipt.attributes, record)
            },
        },
        Settlement::Redrive {
            queue,
            body,
            bypass,
            verbatim,
        } => Plan::Copy {
            queue: queue.clone(),
            body: body.clone(),
            attributes: project::redriven(&receipt.attributes, body, *verbatim, *bypass),
        },
        Settlement::Native { .. } | Settlement::Abandon => Plan::Leave,
    }
}

fn gave_back(rest: &[Arc<Delivery>]) -> Settled {
    if rest.is_empty() {
        Settled::Done
    } else {
        Settled::LaneRewound
    }
}

fn lost() -> Error {
    Error::lost("its visibility timeout has passed, or it was settled")
}

/// What a request of a subscription that is up came to: it passes. Whether the service refuses for
/// good shows at the next receive.
fn passing(operation: &'static str, error: Error) -> Error {
    match error {
        Error::Transient { .. } => error,
        other => Error::transient(operation, other),
    }
}
