use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::backoff::{Backoff, Pause};
use super::buffer::Buffer;
use super::calls::{ExtendAnswer, SettleAnswer};
use super::desk::Desk;
use super::finished::Finished;
use super::held::{Held, Key, Running};
use super::lease::Renewal;
use super::status::{Counts, Fate, Status};
use super::stop::later;
use super::task::{News, Report};
use crate::Error;
use crate::envelope::Envelope;
use crate::random::Random;
use crate::transport::{Delivery, Lane, Receiver, Settled, Settlement};

/// How many deliveries may follow the first in one task.
const FOLLOW_MOST: usize = 31;

/// One queue's books: what the worker holds of it, and what is under way. No I/O.
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    pub(super) intake: Intake,
    /// Not before it is subscribed to.
    pub(super) desk: Option<Arc<Desk>>,
    counts: Counts,
    prefetch: usize,
    held: Held,
    buffer: Buffer,
    running: usize,
    /// Deliveries that running tasks get to after the one at hand.
    following: usize,
    /// The most that a task is given to follow the first.
    follow_most: usize,
    /// Deliveries whose handlers go on, past the stop's deadline, where nobody can abort them.
    left_behind: usize,
    finished: Finished,
    /// Settle calls in flight, and the most of them.
    settling: usize,
    settle_calls: usize,
    extending: bool,
    /// No renewal is due before this.
    renew_at: Option<Instant>,
    pause: Pause,
    reconnecting_since: Option<Instant>,
    reconnect: Backoff,
    after_settle: Backoff,
    after_break: Backoff,
    stopping: bool,
}

/// Where a queue's receiving half is.
pub(super) enum Intake {
    Unsubscribed,
    Idle(Box<dyn Receiver>),
    /// In a call: subscribe, receive or close.
    Busy,
    Closed,
}

impl Queue {
    pub(super) fn new(
        name: Arc<str>,
        prefetch: usize,
        settle_calls: usize,
        backoff: Backoff,
    ) -> Self {
        Self {
            name,
            intake: Intake::Unsubscribed,
            desk: None,
            counts: Counts::default(),
            prefetch,
            held: Held::default(),
            buffer: Buffer::default(),
            running: 0,
            following: 0,
            follow_most: 0,
            left_behind: 0,
            finished: Finished::default(),
            settling: 0,
            settle_calls: settle_calls.max(1),
            extending: false,
            renew_at: None,
            pause: Pause::default(),
            reconnecting_since: None,
            reconnect: backoff,
            after_settle: backoff,
            after_break: backoff,
            stopping: false,
        }
    }

    /// Adds what this queue has to show.
    pub(super) fn add_to(&self, status: &mut Status) {
        status.in_flight += self.running + self.left_behind;
        status.buffered += self.waiting();
        status.settling += self.held.len() - self.waiting() - self.running - self.left_behind;
        status.reconnecting_since = earliest(status.reconnecting_since, self.reconnecting_since);
        status.counts.add(&self.counts);
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Those whose handlers have not started.
    fn waiting(&self) -> usize {
        self.buffer.len() + self.following
    }

    /// All that is unsettled.
    pub(super) fn unsettled(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is left to wait for: everything is settled but what was left behind, and the
    /// receiver has left. With something left behind it cannot leave; dropped, it does so by itself.
    pub(super) fn is_over(&self) -> bool {
        let closed = matches!(self.intake, Intake::Closed) || self.left_behind > 0;
        self.running == 0 && self.finished.is_empty() && self.settling == 0 && closed
    }

    // Coming in.

    /// How many deliveries may be asked for now.
    pub(super) fn room(&self) -> usize {
        if self.pause.is_on() {
            return 0;
        }
        let ahead = self.prefetch.saturating_sub(self.waiting() + self.running);
        let most = self.prefetch.saturating_mul(2);
        let unsettled = most.saturating_sub(self.held.len());
        ahead.min(unsettled)
    }

    pub(super) fn received(&mut self, batch: Vec<Arc<Delivery>>, now: Instant) {
        self.connected(now);
        let mut too_late = Vec::new();
        for delivery in batch {
            self.counts.received += 1;
            let renewal = Renewal::plan(&delivery, now);
            self.renew_at = earliest(self.renew_at, renewal.map(|renewal| renewal.due()));
            let lane = delivery.lane.clone();
            let key = self.held.insert(delivery, renewal);
            if self.stopping {
                too_late.push(key);
            } else {
                self.buffer.admit(key, lane.as_ref());
            }
        }
        self.give_back_in_turn(too_late);
    }

    /// The broker answered: whatever was wrong is over.
    pub(super) fn connected(&mut self, now: Instant) {
        self.reconnect.reset();
        if let Some(since) = self.reconnecting_since.take() {
            let after = now.saturating_duration_since(since);
            warn!(queue = &*self.name, ?after, "receiving again");
        }
    }

    /// A receive or a subscribe failed, and is to be tried again later.
    pub(super) fn disconnected(&mut self, failure: &Error, random: &Random, now: Instant) {
        let delay = self.reconnect.next(random);
        let since = *self.reconnecting_since.get_or_insert(now);
        let down = now.saturating_duration_since(since);
        warn!(
            queue = &*self.name,
            error = failure as &dyn std::error::Error,
            ?delay,
            ?down,
            "cannot receive; trying again"
        );
        self.pause.until(later(now, delay));
        self.forget_lost();
    }

    /// Ends what waits in the buffer and is lost, so that it takes no room. The transport refuses it
    /// like any other that it is asked about.
    fn forget_lost(&mut self) {
        let Some(desk) = self.desk.clone() else {
            return;
        };
        let held = &mut self.held;
        let lost = self.buffer.take(|key| {
            held.get_mut(key)
                .is_some_and(|entry| entry.delivery.is_lost())
        });
        for (key, holds_lane) in lost {
            if holds_lane {
                self.leave_lane(key);
            }
            if let Some(entry) = self.held.remove(key) {
                desk.settler.begin(&entry.delivery);
                self.counts.lost += 1;
            }
        }
    }

    // Running.

    /// The next delivery to start, if one is ready.
    pub(super) fn next(&mut self) -> Option<(Key, Arc<Delivery>)> {
        let key = self.buffer.next()?;
        let entry = self.held.get_mut(key)?;
        Some((key, Arc::clone(&entry.delivery)))
    }

    /// What the task of this delivery, which is next, takes along: those that wait behind it in its
    /// lane. A task for each of them costs more than a quick handler.
    pub(super) fn followers(&mut self, first: &Delivery) -> VecDeque<(Key, Arc<Delivery>)> {
        let Some(lane) = first.lane.as_ref().filter(|_| self.follow_most > 0) else {
            return VecDeque::new();
        };
        let held = &mut self.held;
        let keys = self.buffer.follow(lane, self.follow_most).into_iter();
        keys.filter_map(|key| Some((key, Arc::clone(&held.get_mut(key)?.delivery))))
            .collect()
    }

    pub(super) fn started(&mut self, key: Key, followers: VecDeque<Key>, task: JoinHandle<()>) {
        if let Some(entry) = self.held.get_mut(key) {
            self.running += 1;
            self.following += followers.len();
            entry.task = Some(Running::new(task, followers));
        }
    }

    /// Takes in what a task has to say.
    pub(super) fn reported(&mut self, report: Report, random: &Random) {
        let Some(entry) = self.held.get_mut(report.key) else {
            return;
        };
        let Some(task) = &mut entry.task else { return };
        if let News::Blocking = report.news {
            task.blocking = true;
            return;
        }
        let is_left_behind = task.blocking;
        let followers = match entry.task.take() {
            Some(task) if report.goes_on => {
                entry.holds_lane = false;
                self.passed_on(task);
                VecDeque::new()
            }
            Some(task) => {
                self.running -= 1;
                task.finished()
            }
            None => VecDeque::new(),
        };
        self.following -= followers.len();
        if !report.goes_on {
            self.learn(&report.news, followers.len());
        }
        if !self.stopping {
            self.put_back(report.key, followers);
            self.conclude(report, is_left_behind, random);
            return;
        }
        self.conclude(report, is_left_behind, random);
        for key in followers {
            self.give_back(key);
        }
    }

    /// A task is done with one delivery, and has begun with the next in the same lane, which it holds
    /// on to.
    fn passed_on(&mut self, mut task: Running) {
        let Some(next) = task.followers.pop_front() else {
            return;
        };
        self.following -= 1;
        task.blocking = false;
        if let Some(entry) = self.held.get_mut(next) {
            entry.task = Some(task);
        }
    }

    /// The task did not get to these: they wait in their lane again.
    fn put_back(&mut self, key: Key, followers: VecDeque<Key>) {
        if !followers.is_empty()
            && let Some(entry) = self.held.get_mut(key)
            && let Some(lane) = &entry.delivery.lane
        {
            self.buffer.put_back(lane, followers);
        }
    }

    /// More are to follow where tasks get to all of theirs; where they do not, the next is not kept
    /// waiting behind them.
    fn learn(&mut self, news: &News, left_over: usize) {
        if left_over > 0 {
            self.follow_most = 0;
        } else if matches!(news, News::Done((Settlement::Ack, _))) {
            self.follow_most = (2 * self.follow_most + 1).min(FOLLOW_MOST);
        }
    }

    fn conclude(&mut self, report: Report, is_left_behind: bool, random: &Random) {
        match report.news {
            News::Blocking => {}
            News::Done((settlement, fate)) => {
                self.after_break.reset();
                self.done(report.key, settlement, fate);
            }
            // Nobody aborts anything before the stop.
            News::Aborted | News::GivenUp if !self.stopping => self.broken(report.key, random),
            // What it had begun goes on without its task, and is nobody's to give back.
            News::Aborted if is_left_behind => self.left_behind += 1,
            News::Aborted | News::GivenUp => self.give_back(report.key),
            News::Refused => {
                self.counts.lost += 1;
                self.end(report.key);
            }
        }
    }

    fn done(&mut self, key: Key, settlement: Settlement, fate: Fate) {
        // Only an acknowledgement leaves the order of a lane alone whatever comes of it.
        if settlement == Settlement::Ack {
            self.leave_lane(key);
        }
        if let Some(entry) = self.held.get_mut(key) {
            let delivery = Arc::clone(&entry.delivery);
            self.finished.push(key, fate, delivery, settlement);
        }
    }

    fn give_back(&mut self, key: Key) {
        self.done(key, Settlement::release(), Fate::Released);
    }

    /// A task that nobody aborted ended without a verdict: what decides has panicked, a clock of the
    /// user's for one. The message comes again, but not at once.
    fn broken(&mut self, key: Key, random: &Random) {
        let delay = self
            .pause
            .begin(Instant::now(), &mut self.after_break, random);
        error!(
            queue = &*self.name,
            ?delay,
            "what becomes of a message could not be decided: it is given back, and receiving pauses"
        );
        self.give_back(key);
    }

    fn leave_lane(&mut self, key: Key) {
        let Some(entry) = self.held.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut entry.holds_lane)
            && let Some(lane) = &entry.delivery.lane
        {
            self.buffer.leave(lane);
        }
    }

    /// The delivery is no longer held; its lane goes on.
    fn end(&mut self, key: Key) {
        self.leave_lane(key);
        self.held.remove(key);
    }

    // Settling.

    /// Whether something waits for a settle call that may go.
    pub(super) fn may_settle(&self) -> bool {
        if self.is_last_call() {
            return self.finished.has_acks();
        }
        self.settling < self.settle_calls && !self.finished.is_empty()
    }

    /// What the next settle call takes along: all that is finished, or in the last call the
    /// acknowledgements alone. These overtake nothing of their lane: all before one of them is
    /// settled, or is an acknowledgement and goes along.
    pub(super) fn take_finished(&mut self) -> Finished {
        let is_last = self.is_last_call();
        self.settling += 1;
        if is_last {
            self.finished.take_acks()
        } else {
            self.finished.take()
        }
    }

    /// Whether only one more call may go, of several: acknowledgements wait for no copy, however many
    /// copies wait for their confirmation.
    fn is_last_call(&self) -> bool {
        self.settle_calls > 1 && self.settling + 1 == self.settle_calls
    }

    pub(super) fn settled(&mut self, answer: SettleAnswer, random: &Random, now: Instant) {
        self.settling -= 1;
        let mut answers = answer.answers.into_iter();
        let mut failed = 0_usize;
        for (key, fate) in answer.keys {
            match answers.next().unwrap_or_else(|| Err(no_answer("settle"))) {
                Ok(Settled::Done | Settled::LaneRewound) => self.counts.count(fate),
                Ok(Settled::Fenced) => {
                    debug!(
                        queue = &*self.name,
                        "settled too late: the delivery was lost"
                    );
                    self.counts.lost += 1;
                }
                Err(failure) => {
                    failed += 1;
                    self.counts.unsettled += 1;
                    self.log_unsettled(key, fate, &failure);
                }
            }
            self.end(key);
        }
        if failed == 0 {
            self.after_settle.reset();
        } else {
            let delay = self.pause.begin(now, &mut self.after_settle, random);
            warn!(queue = &*self.name, failed, ?delay, "receiving pauses");
        }
    }

    /// Says which message comes back, and why. One whose record the broker never takes comes back for
    /// ever (contract §7.8): somebody has to see to it.
    fn log_unsettled(&mut self, key: Key, fate: Fate, failure: &Error) {
        let body = self.held.get_mut(key).map(|entry| &entry.delivery.body);
        let envelope = body.and_then(|body| Envelope::decode(body.clone()).ok());
        let id = envelope.as_ref().and_then(|decoded| decoded.envelope.id());
        error!(
            queue = &*self.name,
            error = failure as &dyn std::error::Error,
            ?fate,
            id = id.as_deref(),
            body_bytes = body.map(Bytes::len),
            permanent = matches!(failure, Error::Message { .. }),
            "a settlement failed; the message comes back"
        );
    }

    // Leases.

    /// The leases that are due for renewal, unless a call for them is in flight.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Vec<Key>, Vec<Arc<Delivery>>)> {
        if self.extending || self.renew_at.is_none_or(|at| at > now) {
            return None;
        }
        let (keys, next) = self.held.due(now);
        self.renew_at = next;
        if keys.is_empty() {
            return None;
        }
        self.extending = true;
        let deliveries = keys
            .iter()
            .filter_map(|&key| Some(Arc::clone(&self.held.get_mut(key)?.delivery)))
            .collect();
        Some((keys, deliveries))
    }

    pub(super) fn extended(&mut self, answer: ExtendAnswer, now: Instant) {
        self.extending = false;
        let mut answers = answer.answers.into_iter();
        let mut lost = false;
        for key in answer.keys {
            let answer = answers.next().unwrap_or_else(|| Err(no_answer("extend")));
            // Settled while the call was in flight: nothing to renew any more.
            let Some(entry) = self.held.get_mut(key) else {
                continue;
            };
            entry.renewal = match answer {
                Ok(end) => {
                    entry.delivery.set_lease_end(end);
                    entry.renewal.map(|renewal| renewal.renewed(end, now))
                }
                Err(failure) if failure.is_lost() => {
                    debug!(queue = &*self.name, error = %failure, "a lease is gone");
                    lost = true;
                    None
                }
                Err(failure) => {
                    warn!(queue = &*self.name, error = %failure, "a lease was not renewed");
                    entry.renewal.map(|renewal| renewal.failed(now))
                }
            };
            let due = entry.renewal.map(|renewal| renewal.due());
            self.renew_at = earliest(self.renew_at, due);
        }
        if lost {
            self.forget_lost();
        }
    }

    // Time.

    /// When the queue wants to be looked at again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let renewal = self.renew_at.filter(|_| !self.extending);
        earliest(self.pause.end(), renewal)
    }

    /// Ends a pause that is over.
    pub(super) fn resume(&mut self, now: Instant) {
        self.pause.end_if_over(now);
    }

    // The stop.

    /// Starts nothing more: what waits is given back, in the order in which it came in.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.pause = Pause::default();
        let mut waiting = self.buffer.drain();
        waiting.sort_unstable_by_key(|key| key.number());
        self.give_back_in_turn(waiting);
    }

    /// Gives back what has not started. What stands in its lane behind the followers of a task goes
    /// back behind those, when the task has ended.
    fn give_back_in_turn(&mut self, waiting: Vec<Key>) {
        if waiting.is_empty() {
            return;
        }
        let tasks = self.held.iter_mut();
        let tasks: BTreeMap<Lane, Key> = tasks
            .filter(|(_, entry)| {
                entry
                    .task
                    .as_ref()
                    .is_some_and(|task| !task.followers.is_empty())
            })
            .filter_map(|(key, entry)| Some((entry.delivery.lane.clone()?, key)))
            .collect();
        for key in waiting {
            let lane = self
                .held
                .get_mut(key)
                .and_then(|entry| entry.delivery.lane.as_ref());
            let ahead = lane.and_then(|lane| tasks.get(lane)).copied();
            let ahead = ahead.and_then(|ahead| self.held.get_mut(ahead));
            if let Some(task) = ahead.and_then(|entry| entry.task.as_mut()) {
                task.followers.push_back(key);
                self.following += 1;
            } else {
                self.give_back(key);
            }
        }
    }

    /// The deadline: aborts the handlers, which report that in turn, and renews no lease any more.
    /// Gives the number of handlers.
    pub(super) fn abort(&mut self) -> usize {
        for (_, entry) in self.held.iter_mut() {
            entry.renewal = None;
            if let Some(task) = &entry.task {
                task.abort();
            }
        }
        self.renew_at = None;
        self.running
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn no_answer(operation: &'static str) -> Error {
    Error::transient(operation, "the transport gave no answer for this delivery")
}
