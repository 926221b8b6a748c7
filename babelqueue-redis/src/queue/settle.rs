//! Settling many in one trip, and again where an answer was lost.

mod owed;

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::transport::{Delivery, Settled, Settlement};
use babelqueue_core::{Error, Headers, replay};
use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

use super::{Queue, foreign, reservation_of};
use crate::error::{Failure, of_refusal, unexpected};
use crate::layout::Keys;
use crate::project::{reframe, whole_seconds};
use crate::publish::check_size;
use crate::reply::{self, Undone};
use crate::reservation::Member;
use crate::scripts::{LARAVEL_SETTLE, MOST_PER_CALL, SDK_SETTLE, Size};

pub(crate) use owed::Owed;

/// The most bytes of one call.
const MOST_BYTES: usize = 8 << 20;

/// How long a settlement is tried again for, where the server cannot be reached. Leases bound it
/// too: once they have passed, the messages come back anyway.
const PATIENCE: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Answer = Result<Settled, Error>;

/// What one settlement writes.
struct Plan<'d> {
    /// Its place in the batch.
    at: usize,
    delivery: &'d Delivery,
    member: &'d Member,
    copy: Copy,
}

enum Copy {
    /// None: an ack.
    None,
    /// Back into its own queue.
    Back {
        body: Bytes,
        delay: Duration,
        /// Whether `body` counts one more attempt than what was received.
        is_counted: bool,
    },
    /// To another queue's ready list.
    Dead { queue: Arc<str>, body: Bytes },
}

impl Queue {
    /// Settles each, one answer each, in order (contract §11A.3, §11B.6–8).
    pub async fn settle(&self, batch: &[(Arc<Delivery>, Settlement)]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = Vec::with_capacity(batch.len());
        let mut plans: Vec<Plan<'_>> = Vec::with_capacity(batch.len());
        for (at, (delivery, settlement)) in batch.iter().enumerate() {
            match self.plan(at, delivery, settlement) {
                Ok(plan) => {
                    plans.push(plan);
                    answers.push(None);
                }
                Err(answer) => answers.push(Some(answer)),
            }
        }
        // Acks before copies, and of each the oldest first: there they stand at the head of
        // `:processing`.
        plans.sort_unstable_by_key(|plan| {
            (plan.may_go_again(), !plan.is_ack(), plan.delivery.fence.id)
        });
        for chunk in chunks(&plans) {
            for (plan, answer) in chunk.iter().zip(self.settle_chunk(chunk).await) {
                answers[plan.at] = Some(answer);
            }
        }
        let answers: Vec<_> = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(foreign())))
            .collect();
        if answers.iter().any(Result::is_err) {
            let deliveries = batch.iter().map(|(delivery, _)| delivery);
            self.owe(deliveries.zip(&answers)).await;
        }
        let reservations = batch
            .iter()
            .filter_map(|(delivery, _)| reservation_of(delivery));
        self.out.come_home(reservations);
        answers
    }

    /// What to write, or the answer where there is nothing to write.
    fn plan<'d>(
        &self,
        at: usize,
        delivery: &'d Delivery,
        settlement: &Settlement,
    ) -> Result<Plan<'d>, Answer> {
        let Some(reservation) = reservation_of(delivery) else {
            return Err(Err(foreign()));
        };
        if delivery.is_lost() {
            return Err(Ok(Settled::Fenced));
        }
        let member = &reservation.member;
        let copy = match settlement {
            Settlement::Ack => Copy::None,
            Settlement::Retry { body, delay, .. } => Copy::Back {
                body: stored(body, &delivery.headers, member),
                delay: *delay,
                is_counted: true,
            },
            Settlement::Release { body, delay } => Copy::Back {
                body: match (body, member) {
                    (Some(body), _) => stored(body, &delivery.headers, member),
                    // Given back as it came: the frame, where it has one, and all.
                    (None, Member::Marked { stored, .. }) => stored.clone(),
                    (None, Member::Counted(_)) => delivery.body.clone(),
                },
                delay: *delay,
                is_counted: false,
            },
            Settlement::DeadLetter { queue, record, .. } => Copy::Dead {
                queue: Arc::clone(queue),
                body: stored(record, &delivery.headers, member),
            },
            Settlement::Redrive {
                queue,
                body,
                bypass,
                ..
            } => Copy::Dead {
                queue: Arc::clone(queue),
                body: stored(body, &replay::marked(&delivery.headers, *bypass), member),
            },
            Settlement::Abandon => match way_back(delivery, member) {
                Some(copy) => copy,
                None => return Err(Ok(Settled::Done)),
            },
            Settlement::Native { reason, .. } => {
                return Err(Err(Error::Unsupported {
                    broker: "redis",
                    feature: "native dead-lettering",
                    context: format!("cannot settle a delivery natively ({reason})"),
                }));
            }
        };
        if let Copy::Back { body, .. } | Copy::Dead { body, .. } = &copy {
            check_size(body).map_err(Err)?;
        }
        if let Copy::Dead { queue, .. } = &copy {
            self.check_target(queue).map_err(Err)?;
        }
        Ok(Plan {
            at,
            delivery,
            member,
            copy,
        })
    }

    /// Runs the script until it has answered, its leases are over, or patience ends. That is safe
    /// behind its gate: a settlement that was carried out the first time is stale the second. Those
    /// that the gate cannot tell from another's are sent once.
    async fn settle_chunk(&self, plans: &[Plan<'_>]) -> Vec<Answer> {
        let give_up = give_up_at(plans);
        let mut pause = FIRST_PAUSE;
        let mut again = false;
        loop {
            match self.send(plans, again).await {
                Ok(answer) => return self.answers(plans, answer, again),
                Err(failure) if failure.may_have_run && !plans[0].may_go_again() => {
                    for plan in plans {
                        plan.delivery.mark_lost();
                    }
                    return self.all_failed(plans, &failure);
                }
                Err(failure) if failure.is_transient() && Instant::now() + pause < give_up => {
                    again |= failure.may_have_run;
                    tracing::debug!(queue = %self.name, error = %failure.error, "settling again");
                    sleep(self.shared.random.jittered(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(failure) => return self.all_failed(plans, &failure),
            }
        }
    }

    async fn send(&self, plans: &[Plan<'_>], again: bool) -> Result<Value, Failure> {
        let mut targets: Vec<&str> = Vec::new();
        for plan in plans {
            if let Copy::Dead { queue, .. } = &plan.copy
                && !targets.contains(&&**queue)
            {
                targets.push(queue);
            }
        }
        let link = &self.shared.link;
        // A verb or a place, the member, and with a copy a body and a number more.
        let size = Size::with(
            4 * plans.len(),
            plans.iter().map(|plan| plan.bytes() + 16).sum(),
        );
        match &*self.keys {
            Keys::Sdk { .. } => {
                let write = |command: &mut Cmd| self.write_sdk(command, plans, &targets);
                link.run(&SDK_SETTLE, size, write).await
            }
            Keys::Laravel { .. } => {
                let write = |command: &mut Cmd| self.write_laravel(command, plans, &targets, again);
                link.run(&LARAVEL_SETTLE, size, write).await
            }
        }
    }

    fn write_sdk(&self, command: &mut Cmd, plans: &[Plan<'_>], targets: &[&str]) {
        let Keys::Sdk {
            ready,
            processing,
            deadlines,
        } = &*self.keys
        else {
            return;
        };
        command
            .arg(3 + targets.len())
            .arg(processing)
            .arg(deadlines)
            .arg(ready);
        for target in targets {
            command.arg(self.shared.config.keys(target).ready());
        }
        let (acks, copies) = plans.split_at(plans.partition_point(Plan::is_ack));
        command.arg(acks.len());
        for ack in acks {
            command.arg(ack.member);
        }
        for plan in copies {
            let (list, body) = match &plan.copy {
                Copy::None => continue,
                // No delay in this layout: to the end of the list, at once.
                Copy::Back { body, .. } => (3, body),
                Copy::Dead { queue, body } => (4 + place(targets, queue), body),
            };
            command.arg(list).arg(plan.member).arg(&body[..]);
        }
    }

    fn write_laravel(&self, command: &mut Cmd, plans: &[Plan<'_>], targets: &[&str], again: bool) {
        let Keys::Laravel {
            delayed, reserved, ..
        } = &*self.keys
        else {
            return;
        };
        command
            .arg(2 + 2 * targets.len())
            .arg(reserved)
            .arg(delayed);
        for target in targets {
            if let Keys::Laravel { ready, notify, .. } = &self.shared.config.keys(target) {
                command.arg(ready).arg(notify);
            }
        }
        command.arg(self.shared.now().text()).arg("");
        for plan in plans {
            match &plan.copy {
                Copy::None => command.arg("ack").arg(plan.member),
                Copy::Back { body, delay, .. } => command
                    .arg(if again { "again" } else { "release" })
                    .arg(plan.member)
                    .arg(whole_seconds(*delay))
                    .arg(&body[..]),
                Copy::Dead { queue, body } => command
                    .arg("dead")
                    .arg(plan.member)
                    .arg(3 + 2 * place(targets, queue))
                    .arg(&body[..]),
            };
        }
    }

    fn answers(&self, plans: &[Plan<'_>], answer: Value, again: bool) -> Vec<Answer> {
        let Undone { stale, refused } = match reply::undone(answer) {
            Ok(undone) => undone,
            Err(answer) => {
                return plans
                    .iter()
                    .map(|_| Err(unexpected("settle", &answer)))
                    .collect();
            }
        };
        let mut answers: Vec<Answer> = plans.iter().map(|_| Ok(Settled::Done)).collect();
        for at in stale {
            if let (Some(answer), Some(plan)) = (answers.get_mut(at), plans.get(at)) {
                *answer = Ok(self.stale(plan, again));
            }
        }
        for (at, refusal) in refused {
            if let Some(answer) = answers.get_mut(at) {
                *answer = Err(of_refusal("settle", &self.describe(), &refusal));
            }
        }
        answers
    }

    /// The gate was shut: the reservation expired, and the message was or will be given out again. Or
    /// an earlier run of the same call, whose answer was lost, has settled it: that counts where
    /// nobody else could have taken the reservation, because its lease was not over.
    fn stale(&self, plan: &Plan<'_>, again: bool) -> Settled {
        if again {
            self.shared.counts.unconfirmed();
            if !plan.delivery.lease_is_over() {
                return Settled::Done;
            }
            plan.delivery.mark_lost();
            return Settled::Fenced;
        }
        self.shared.counts.fenced();
        plan.delivery.mark_lost();
        tracing::warn!(
            queue = %self.name,
            "reservation expired before it was settled; the message is given out again"
        );
        Settled::Fenced
    }

    fn all_failed(&self, plans: &[Plan<'_>], failure: &Failure) -> Vec<Answer> {
        let on = self.describe();
        plans
            .iter()
            .map(|_| Err(failure.clone().into_error("settle", &on)))
            .collect()
    }
}

/// What is stored for `body` in place of what was reserved: in the SDK layout in the frame that it came
/// in, where it did, or in one where headers travel with it.
fn stored(body: &Bytes, headers: &Headers, member: &Member) -> Bytes {
    match member {
        Member::Marked { stored, .. } => {
            reframe(stored, body, headers).unwrap_or_else(|| body.clone())
        }
        Member::Counted(_) => body.clone(),
    }
}

/// What brings a delivery back as it came and is up to us; none where its lease does it.
fn way_back(delivery: &Delivery, member: &Member) -> Option<Copy> {
    let (body, delay) = match (delivery.lease_end(), member) {
        (Some(_), Member::Marked { .. }) => return None,
        (None, Member::Marked { stored, .. }) => (stored, Duration::ZERO),
        // What Laravel's recovery brings back has gone through cjson. So it is given back as it came,
        // for the time at which it would have been recovered.
        (end, Member::Counted(_)) => {
            let left = end.map_or(Duration::ZERO, |end| end - Instant::now());
            (&delivery.body, left)
        }
    };
    Some(Copy::Back {
        body: body.clone(),
        delay,
        is_counted: false,
    })
}

fn place(targets: &[&str], queue: &str) -> usize {
    targets
        .iter()
        .position(|target| *target == queue)
        .unwrap_or_default()
}

/// The end of the longest lease, or of patience.
fn give_up_at(plans: &[Plan<'_>]) -> Instant {
    let patience = Instant::now() + PATIENCE;
    let leases = plans.iter().map(|plan| plan.delivery.lease_end());
    match leases.max_by_key(|end| end.unwrap_or(patience)) {
        Some(Some(end)) => end.min(patience),
        _ => patience,
    }
}

/// In order, each small enough for one call, and all of it sent again or none.
fn chunks<'p, 'd>(plans: &'p [Plan<'d>]) -> impl Iterator<Item = &'p [Plan<'d>]> {
    let mut rest = plans;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = rest
            .iter()
            .take(MOST_PER_CALL)
            .take_while(|plan| {
                bytes += plan.bytes();
                bytes <= MOST_BYTES && plan.may_go_again() == rest[0].may_go_again()
            })
            .count()
            .max(1);
        let (chunk, after) = rest.split_at(fits);
        rest = after;
        Some(chunk)
    })
}

impl Plan<'_> {
    fn is_ack(&self) -> bool {
        matches!(self.copy, Copy::None)
    }

    /// Whether it may be sent again where it may have been carried out. In the Laravel layout what went
    /// back uncounted and was reserved anew, by anybody, is the same member: the gate would let us take
    /// that reservation away. Its lease brings it back. Where it has none that is the lesser evil: it
    /// comes twice then, and is not lost.
    fn may_go_again(&self) -> bool {
        match (&self.copy, self.member) {
            (Copy::Back { is_counted, .. }, Member::Counted(_)) => {
                *is_counted || self.delivery.lease_end().is_none()
            }
            _ => true,
        }
    }

    fn bytes(&self) -> usize {
        let copy = match &self.copy {
            Copy::None => 0,
            Copy::Back { body, .. } | Copy::Dead { body, .. } => body.len(),
        };
        self.member.len() + copy
    }
}
