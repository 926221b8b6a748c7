//! One queue in one layout: each step of the contract as one call.
//!
//! Subscriptions are built on it, and the conformance cases drive it directly.

mod settle;
mod unanswered;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::transport::{Delivery, Fence};
use babelqueue_core::{Error, Headers};
use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::error::{Failure, unexpected};
use crate::layout::Keys;
use crate::project::unframe;
use crate::reply::{self, Taken};
use crate::reservation::{Member, Out, Reservation, Token};
use crate::scripts::{
    EXTEND, LARAVEL_MIGRATE, LARAVEL_RESERVE, MOST_PER_CALL, SDK_RESERVE, SDK_SWEEP, Script, Size,
};
use crate::transport::Shared;

pub(crate) use settle::Owed;
pub(crate) use unanswered::Unanswered;

/// One queue in one layout.
#[derive(Debug, Clone)]
pub struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) shared: Arc<Shared>,
    /// How many of its deliveries are out.
    pub(crate) out: Arc<Out>,
    /// What could not be settled, and has to be given back.
    pub(crate) owed: Arc<Owed>,
    pub(crate) unanswered: Arc<Unanswered>,
}

/// What a reserve gave.
#[derive(Debug, Default)]
pub struct Reserved {
    /// The deliveries, oldest first.
    pub deliveries: Vec<Arc<Delivery>>,
    /// Where there was none: how long until one becomes due, as far as is known now.
    pub due_in: Option<Duration>,
}

impl Queue {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Result<Self, Error> {
        let keys = shared.config.keys(name);
        if shared.config.cluster {
            crate::slot::check_one(keys.iter())?;
        }
        Ok(Self {
            name: name.into(),
            keys: Arc::new(keys),
            shared: Arc::clone(shared),
            out: Arc::default(),
            owed: Arc::default(),
            unanswered: Arc::default(),
        })
    }

    /// The keys that it lies in.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Brings back what is overdue or due, then takes up to `most` from the head, without waiting
    /// (contract §11A.2, §11B.3–4).
    ///
    /// # Errors
    ///
    /// A transient failure, after which the server may have reserved what nobody holds: that comes
    /// back at its deadline; with recovery off in the SDK layout the next call gives it, and then
    /// that may be more than `most`. Or a refusal.
    pub async fn reserve(&self, most: usize) -> Result<Reserved, Error> {
        self.give_back_owed().await?;
        if !self.unanswered.is_empty() {
            let found = self.find_unanswered().await?;
            if !found.deliveries.is_empty() {
                return Ok(found);
            }
        }
        let most = most.clamp(1, MOST_PER_CALL);
        let sent = Instant::now();
        let now = self.shared.now();
        let tokens = match &*self.keys {
            Keys::Sdk { .. } => Token::fresh(most)?,
            Keys::Laravel { .. } => Vec::new(),
        };
        let script = match &*self.keys {
            Keys::Sdk { .. } => &SDK_RESERVE,
            Keys::Laravel { .. } => &LARAVEL_RESERVE,
        };
        let size = Size::with(tokens.len(), tokens.len() * Token::BYTES);
        let answer = self
            .shared
            .link
            .run(script, size, |command| {
                self.write_recovery(command, now.text());
                if tokens.is_empty() {
                    command.arg(most);
                }
                for token in &tokens {
                    command.arg(token.as_bytes());
                }
            })
            .await
            .map_err(|failure| self.no_answer(failure, &tokens))?;
        let taken = reply::taken(answer).map_err(|answer| unexpected("receive", &answer))?;
        let now = now.answered(&taken.now);
        let due_in = taken.next_due.map(|due| until(due, now));
        let lease_end = self.lease(now).map(|lease| sent + lease);
        Ok(Reserved {
            deliveries: self.deliveries(taken, &tokens, lease_end),
            due_in,
        })
    }

    /// A reserve failed. Where nothing else would bring back what it took, its tokens are kept.
    fn no_answer(&self, failure: Failure, tokens: &[Token]) -> Error {
        let recovers = self.shared.config.retry_after.is_some();
        if failure.may_have_run && !recovers && !tokens.is_empty() {
            self.unanswered.note(tokens);
        }
        failure.into_error("receive", &self.describe())
    }

    /// Brings back what is overdue (SDK layout: the sweep, §11A.4) or due (Laravel layout: the
    /// migrate, §11B.3), and takes nothing. Gives how many moved. Every reserve does it too.
    ///
    /// # Errors
    ///
    /// A transient failure, or a refusal.
    pub async fn recover(&self) -> Result<u64, Error> {
        let script = match &*self.keys {
            Keys::Sdk { .. } => &SDK_SWEEP,
            Keys::Laravel { .. } => &LARAVEL_MIGRATE,
        };
        let now = self.shared.now();
        let answer = self
            .run("recover", script, Size::SMALL, |command| {
                self.write_recovery(command, now.text());
            })
            .await?;
        reply::count(&answer).ok_or_else(|| unexpected("recover", &answer))
    }

    /// Renews leases; the new end of each, in order.
    pub(crate) async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let mut ends = Vec::with_capacity(batch.len());
        for chunk in batch.chunks(MOST_PER_CALL) {
            match self.extend_chunk(chunk).await {
                Ok(mut chunk_ends) => ends.append(&mut chunk_ends),
                Err(error) => {
                    let context = error.to_string();
                    ends.extend(
                        chunk
                            .iter()
                            .map(|_| Err(Error::transient("extend", &context))),
                    );
                }
            }
        }
        ends
    }

    async fn extend_chunk(
        &self,
        chunk: &[Arc<Delivery>],
    ) -> Result<Vec<Result<Instant, Error>>, Error> {
        let held: Vec<Option<&Member>> = chunk.iter().map(|delivery| member_of(delivery)).collect();
        let sent = Instant::now();
        let now = self.shared.now();
        let leases = match &*self.keys {
            Keys::Sdk { deadlines, .. } => deadlines,
            Keys::Laravel { reserved, .. } => reserved,
        };
        let bytes = held.iter().flatten().map(|member| member.len()).sum();
        let answer = self
            .run(
                "extend",
                &EXTEND,
                Size::with(held.len(), bytes),
                |command| {
                    command
                        .arg(1)
                        .arg(leases)
                        .arg(now.text())
                        .arg(self.retry_after_text());
                    for member in held.iter().flatten() {
                        command.arg(*member);
                    }
                },
            )
            .await?;
        let (text, gone) = reply::gone(answer).map_err(|answer| unexpected("extend", &answer))?;
        let gone: HashSet<usize> = gone.into_iter().collect();
        let end = self.lease(now.answered(&text)).map(|lease| sent + lease);
        let mut number = 0;
        let ends = chunk.iter().zip(&held).map(|(delivery, held)| {
            if held.is_none() {
                return Err(foreign());
            }
            number += 1;
            match end {
                Some(end) if !gone.contains(&(number - 1)) => Ok(end),
                _ => {
                    lose(delivery);
                    Err(Error::lost(format_args!(
                        "its reservation in queue `{}` expired",
                        self.name
                    )))
                }
            }
        });
        Ok(ends.collect())
    }

    /// A delivery for a reservation that was made elsewhere: its token and its element in the SDK
    /// layout. For tools, and for the conformance cases. `None` where the token is not 32 bytes.
    pub fn adopt(&self, token: &str, stored: Bytes) -> Option<Arc<Delivery>> {
        let token = Token::from_text(token)?;
        let (body, headers) = unframe(&stored);
        let member = Member::Marked { token, stored };
        self.out.go(1);
        Some(self.delivery(Instant::now(), body, headers, member, None, None))
    }

    fn deliveries(
        &self,
        taken: Taken,
        tokens: &[Token],
        lease_end: Option<Instant>,
    ) -> Vec<Arc<Delivery>> {
        let received = Instant::now();
        let delivery = |body, headers, member, poison| {
            self.delivery(received, body, headers, member, poison, lease_end)
        };
        let deliveries: Vec<_> = match &*self.keys {
            Keys::Sdk { .. } => taken
                .stored
                .into_iter()
                .zip(tokens)
                .map(|(stored, token)| {
                    let (body, headers) = unframe(&stored);
                    let member = Member::Marked {
                        token: *token,
                        stored,
                    };
                    delivery(body, headers, member, None)
                })
                .collect(),
            Keys::Laravel { .. } => taken
                .stored
                .into_iter()
                .zip(taken.reserved)
                .map(|(job, reserved)| {
                    let poison = (job == reserved)
                        .then_some("Redis could not decode it, or it has no numeric `attempts`");
                    delivery(job, Headers::new(), Member::Counted(reserved), poison)
                })
                .collect(),
        };
        self.out.go(deliveries.len());
        deliveries
    }

    fn delivery(
        &self,
        received: Instant,
        body: Bytes,
        headers: Headers,
        member: Member,
        poison: Option<&'static str>,
        lease_end: Option<Instant>,
    ) -> Arc<Delivery> {
        let mut delivery = Delivery::received_at(Arc::clone(&self.name), body, received)
            .with_native(Reservation::new(member, &self.out));
        delivery.headers = headers;
        delivery.facts.poison = poison;
        delivery.fence = Fence {
            generation: 0,
            id: self.shared.next_id(),
        };
        if let Some(end) = lease_end {
            delivery.set_lease_end(end);
        }
        Arc::new(delivery)
    }

    /// Refuses a dead-letter queue that lies in a key of this queue, the other way round too, and one
    /// that one script cannot reach together with this queue.
    pub(crate) fn check_target(&self, dead_letter: &str) -> Result<(), Error> {
        let target = self.shared.config.keys(dead_letter);
        if *dead_letter != *self.name
            && let Some(key) = self.keys.in_common(&target)
        {
            return Err(Error::config(
                "dead_letter_queue",
                format_args!(
                    "is `{dead_letter}`, and would share the key `{key}` with queue `{}`; it needs \
                     another name",
                    self.name
                ),
            ));
        }
        if !self.shared.config.cluster {
            return Ok(());
        }
        crate::slot::check_one(self.keys.iter().chain(target.iter().take(1)))
    }

    async fn run(
        &self,
        operation: &'static str,
        script: &Script,
        size: Size,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, Error> {
        self.shared
            .link
            .run(script, size, write)
            .await
            .map_err(|failure| failure.into_error(operation, &self.describe()))
    }

    /// The keys and the first three arguments of every script that brings back what is due.
    fn write_recovery(&self, command: &mut Cmd, now: &str) {
        match &*self.keys {
            Keys::Sdk {
                ready,
                processing,
                deadlines,
            } => command.arg(3).arg(ready).arg(processing).arg(deadlines),
            Keys::Laravel {
                ready,
                delayed,
                reserved,
                notify,
            } => command
                .arg(4)
                .arg(ready)
                .arg(reserved)
                .arg(notify)
                .arg(delayed),
        };
        command.arg(now).arg(self.retry_after_text());
        match self.shared.config.migration_batch_size {
            Some(size) => command.arg(size.get()),
            None => command.arg(-1),
        };
    }

    fn retry_after_text(&self) -> String {
        let seconds = self.shared.config.retry_after;
        seconds.map_or_else(String::new, |seconds| seconds.to_string())
    }

    /// How long a reservation made now lasts, or `None` where it never ends. Its score is a whole
    /// second, so a lease is shorter than configured by the part of this second that has passed.
    fn lease(&self, now: Duration) -> Option<Duration> {
        let passed = Duration::from_nanos(u64::from(now.subsec_nanos()));
        let seconds = self.shared.config.retry_after?;
        Some(Duration::from_secs(seconds).saturating_sub(passed))
    }

    pub(crate) fn describe(&self) -> String {
        self.shared.describe(&self.name)
    }
}

/// How long from `now` until the second `due`.
fn until(due: f64, now: Duration) -> Duration {
    Duration::try_from_secs_f64(due)
        .unwrap_or(Duration::MAX)
        .saturating_sub(now)
}

pub(crate) fn reservation_of(delivery: &Delivery) -> Option<&Reservation> {
    delivery.native::<Reservation>()
}

/// Its reservation is gone: nobody waits for it any more.
pub(crate) fn lose(delivery: &Delivery) {
    delivery.mark_lost();
    if let Some(reservation) = reservation_of(delivery) {
        reservation.come_home();
    }
}

fn member_of(delivery: &Delivery) -> Option<&Member> {
    reservation_of(delivery).map(|reservation| &reservation.member)
}

/// For a delivery that another transport made.
pub(crate) fn foreign() -> Error {
    Error::lost("it did not come from this subscription")
}
