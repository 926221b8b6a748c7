//! The worker's loop: one turn takes in what has happened, and sets going what can go.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{error, info, warn};

use super::calls::{self, Calls, ExtendAnswer, Intaken, SettleAnswer};
use super::config::{Plan, QueuePlan};
use super::desk::{Desk, Shared};
use super::queue::{Intake, Queue};
use super::status::{Phase, Status};
use super::stop::{Signal, Stop, StopReason, Stopped};
use super::task::{Reports, Task};
use crate::Error;
use crate::flag::Flag;
use crate::transport::{Subscription, Transport};

/// A worker under way.
pub(super) struct Run {
    transport: Arc<dyn Transport>,
    shared: Arc<Shared>,
    plans: Vec<QueuePlan>,
    queues: Vec<Queue>,
    concurrency: usize,
    /// The queue whose turn it is to start a handler.
    turn: usize,

    // Nothing of this is polled unless it was woken.
    signals: FuturesUnordered<BoxFuture<'static, Signal>>,
    reports: UnboundedReceiver<Reports>,
    settles: Calls<SettleAnswer>,
    extends: Calls<ExtendAnswer>,
    intakes: Calls<Intaken>,
    timer: Timer,

    stop: Option<Stop>,
    stopping: Arc<Flag>,
    shutdown_timeout: Duration,
    flush_timeout: Duration,
    desks: UnboundedSender<Reports>,
    status: watch::Sender<Status>,
}

impl Run {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        shared: Arc<Shared>,
        plan: Plan,
        status: watch::Sender<Status>,
    ) -> Self {
        let (desks, reports) = unbounded_channel();
        let queues = plan.queues.iter();
        Self {
            queues: queues
                .map(|queue| {
                    let name = Arc::clone(&queue.name);
                    Queue::new(name, plan.prefetch, plan.settle_calls, plan.backoff)
                })
                .collect(),
            plans: plan.queues,
            concurrency: plan.concurrency,
            turn: 0,
            signals: FuturesUnordered::new(),
            reports,
            settles: Calls::new(),
            extends: Calls::new(),
            intakes: Calls::new(),
            timer: Timer::new(),
            stop: None,
            stopping: Arc::clone(&shared.surroundings.stopping),
            shutdown_timeout: plan.shutdown_timeout,
            flush_timeout: plan.flush_timeout,
            desks,
            status,
            transport,
            shared,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs until it is told to stop, or until the broker refuses for good.
    pub(super) async fn until(
        mut self,
        stop: Arc<Flag>,
        force: Arc<Flag>,
    ) -> Result<Stopped, Error> {
        self.signals.push(Signal::Stop.when(stop));
        self.signals.push(Signal::Force.when(force));
        loop {
            self.flush();
            self.pump();
            if self.is_over() {
                return self.end();
            }
            self.show();
            self.timer.set(self.wake_at());
            tokio::select! {
                biased;
                Some(signal) = self.signals.next() => self.signalled(signal),
                Some(reports) = self.reports.recv() => self.hear(reports).await,
                Some((queue, answer)) = self.settles.next() => self.settled(queue, answer),
                Some((queue, answer)) = self.extends.next() => self.extended(queue, answer),
                Some((queue, intaken)) = self.intakes.next() => self.taken_in(queue, intaken),
                () = self.timer.elapsed() => self.tick(),
            }
        }
    }

    // Setting going what can go.

    fn pump(&mut self) {
        if self.stop.is_none() {
            self.start_handlers();
        }
        for queue in 0..self.queues.len() {
            self.settle(queue);
            self.take_in(queue);
        }
    }

    /// Starts handlers up to the worker's number, one queue after the other.
    fn start_handlers(&mut self) {
        let mut free = self.concurrency.saturating_sub(self.running());
        let mut idle = 0;
        while free > 0 && idle < self.queues.len() {
            if self.start_handler(self.turn) {
                free -= 1;
                idle = 0;
            } else {
                idle += 1;
            }
            self.turn = (self.turn + 1) % self.queues.len();
        }
    }

    fn start_handler(&mut self, queue: usize) -> bool {
        let queue = &mut self.queues[queue];
        let Some(desk) = &queue.desk else {
            return false;
        };
        let desk = Arc::clone(desk);
        let Some((key, delivery)) = queue.next() else {
            return false;
        };
        let followers = queue.followers(&delivery);
        let keys = followers.iter().map(|(key, _)| *key).collect();
        let task = tokio::spawn(Task::new(desk, key, delivery, followers).run());
        queue.started(key, keys, task);
        true
    }

    fn settle(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if let Some(desk) = &queue.desk
            && queue.may_settle()
        {
            let settler = Arc::clone(&desk.settler);
            let finished = queue.take_finished();
            let call = async move { (index, calls::settle(settler, finished).await) };
            self.settles.push(Box::pin(call));
        }
    }

    fn extend(&mut self, index: usize, now: Instant) {
        let queue = &mut self.queues[index];
        let Some(desk) = queue.desk.clone() else {
            return;
        };
        if let Some((keys, deliveries)) = queue.take_due(now) {
            let settler = Arc::clone(&desk.settler);
            let call = async move { (index, calls::extend(settler, keys, deliveries).await) };
            self.extends.push(Box::pin(call));
        }
    }

    /// Has the receiving half do what is next, if it is idle: subscribe, receive, close.
    fn take_in(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let stopping = Arc::clone(&self.stopping);
        match std::mem::replace(&mut queue.intake, Intake::Busy) {
            Intake::Unsubscribed if self.stop.is_some() => queue.intake = Intake::Closed,
            Intake::Unsubscribed if queue.room() > 0 => {
                let transport = Arc::clone(&self.transport);
                let options = self.plans[index].options.clone();
                let name = Arc::clone(&queue.name);
                let call = calls::subscribe(transport, name, options, stopping);
                self.intakes
                    .push(Box::pin(async move { (index, call.await) }));
            }
            Intake::Idle(receiver) => {
                let call: BoxFuture<'static, Intaken> = if let Some(stop) = &self.stop {
                    Box::pin(calls::close(receiver, stop.close_within(Instant::now())))
                } else if queue.room() > 0 {
                    Box::pin(calls::receive(receiver, queue.room(), stopping))
                } else {
                    queue.intake = Intake::Idle(receiver);
                    return;
                };
                self.intakes
                    .push(Box::pin(async move { (index, call.await) }));
            }
            other => queue.intake = other,
        }
    }

    // Taking in what has happened.

    /// A task has something to say; others may have, too. Whatever can be settled waits for one
    /// round of the other tasks, so that those which are about to finish go along.
    async fn hear(&mut self, reports: Reports) {
        self.reported(reports);
        self.hear_all();
        if self.queues.iter().any(Queue::may_settle) {
            if self.stop.is_none() {
                self.start_handlers();
            }
            yield_now().await;
            self.hear_all();
        }
    }

    fn hear_all(&mut self) {
        while let Ok(reports) = self.reports.try_recv() {
            self.reported(reports);
        }
    }

    fn reported(&mut self, reports: Reports) {
        let random = &self.shared.random;
        match reports {
            Reports::One(report) => self.queues[report.queue].reported(report, random),
            Reports::Many(reports) => {
                for report in reports {
                    self.queues[report.queue].reported(report, random);
                }
            }
        }
    }

    fn settled(&mut self, queue: usize, answer: SettleAnswer) {
        let now = Instant::now();
        self.queues[queue].settled(answer, &self.shared.random, now);
    }

    fn extended(&mut self, queue: usize, answer: ExtendAnswer) {
        self.queues[queue].extended(answer, Instant::now());
    }

    fn taken_in(&mut self, index: usize, intaken: Intaken) {
        let now = Instant::now();
        let queue = &mut self.queues[index];
        match intaken {
            Intaken::Subscribed(Ok(subscription)) => self.subscribed(index, subscription, now),
            Intaken::Subscribed(Err(failure)) => {
                queue.intake = Intake::Unsubscribed;
                self.failed(index, failure, now);
            }
            Intaken::Received(receiver, Ok(batch)) => {
                queue.intake = Intake::Idle(receiver);
                queue.received(batch, now);
            }
            Intaken::Received(receiver, Err(failure)) => {
                queue.intake = Intake::Idle(receiver);
                self.failed(index, failure, now);
            }
            Intaken::Interrupted(receiver) => {
                queue.intake = receiver.map_or(Intake::Closed, Intake::Idle);
            }
            Intaken::Closed(result) => {
                queue.intake = Intake::Closed;
                if let Err(failure) = result {
                    warn!(queue = &*queue.name, error = %failure, "could not leave in good order");
                }
            }
        }
    }

    fn subscribed(&mut self, index: usize, subscription: Subscription, now: Instant) {
        let plan = &self.plans[index];
        let queue = &mut self.queues[index];
        queue.desk = Some(Arc::new(Desk {
            queue: index,
            policy: plan.policy.clone(),
            dead_letter_queue: Arc::clone(&plan.dead_letter_queue),
            settler: subscription.settler,
            shared: Arc::clone(&self.shared),
            reports: self.desks.clone(),
        }));
        queue.intake = Intake::Idle(subscription.receiver);
        queue.connected(now);
    }

    /// A subscribe or a receive failed: back off, or stop where no retry can mend it.
    fn failed(&mut self, queue: usize, failure: Error, now: Instant) {
        let queue = &mut self.queues[queue];
        if self.stop.is_some() {
            warn!(queue = &*queue.name, error = %failure, "could not receive");
        } else if failure.is_transient() || failure.is_lost() {
            queue.disconnected(&failure, &self.shared.random, now);
        } else {
            error!(queue = &*queue.name, error = %failure, "no retry can mend this; stopping");
            self.begin_stop(Some(failure));
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for index in 0..self.queues.len() {
            self.queues[index].resume(now);
            self.extend(index, now);
        }
        if self
            .stop
            .as_ref()
            .is_some_and(|stop| stop.is_past_deadline(now))
        {
            self.abort(StopReason::DeadlinePassed);
        }
    }

    // The stop.

    fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::Stop => self.begin_stop(None),
            Signal::Force => {
                self.begin_stop(None);
                self.abort(StopReason::Forced);
            }
        }
    }

    fn begin_stop(&mut self, failure: Option<Error>) {
        if self.stop.is_some() {
            return;
        }
        let now = Instant::now();
        let (shutdown, flush) = (self.shutdown_timeout, self.flush_timeout);
        self.stop = Some(Stop::new(now, shutdown, flush, failure));
        self.stopping.raise();
        for queue in &mut self.queues {
            queue.stop();
        }
        info!(running = self.running(), "stopping");
    }

    /// Where a stop has no handler to wait for any more, only the last settlements and the receivers
    /// are left, and their time begins.
    fn flush(&mut self) {
        let running = self.running();
        if let Some(stop) = &mut self.stop
            && running == 0
        {
            stop.flush(Instant::now());
        }
    }

    /// Waits for no handler any more; what is left of the time is for the last settlements.
    fn abort(&mut self, reason: StopReason) {
        let Some(stop) = &mut self.stop else { return };
        let still_running: usize = self.queues.iter_mut().map(Queue::abort).sum();
        stop.aborted(Instant::now(), still_running, reason);
        if still_running > 0 {
            warn!(
                still_running,
                ?reason,
                "handlers are aborted, their messages given back"
            );
        }
    }

    fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| {
            self.queues.iter().all(Queue::is_over) || stop.is_flushed(Instant::now())
        })
    }

    fn end(mut self) -> Result<Stopped, Error> {
        let in_flight = self.queues.iter().map(Queue::unsettled).sum();
        if in_flight > 0 {
            warn!(
                in_flight,
                "stopped with deliveries that are neither settled nor given back"
            );
        }
        let status = self.status(Phase::Stopped);
        let counts = status.counts;
        self.status.send_replace(status);
        match self.stop.take() {
            Some(Stop {
                failure: Some(failure),
                ..
            }) => Err(failure),
            stop => Ok(Stopped {
                reason: stop.map_or(StopReason::Requested, |stop| stop.reason),
                in_flight,
                counts,
            }),
        }
    }

    // What is shown, and when to look again.

    fn running(&self) -> usize {
        self.queues.iter().map(Queue::running).sum()
    }

    fn wake_at(&self) -> Option<Instant> {
        let queues = self.queues.iter().filter_map(Queue::wake_at);
        queues.chain(self.stop.as_ref().map(Stop::wake_at)).min()
    }

    fn show(&self) {
        if self.status.is_closed() {
            // Nobody looks, and nobody can begin to.
            return;
        }
        let phase = match (
            &self.stop,
            self.queues.iter().any(|queue| queue.desk.is_some()),
        ) {
            (Some(_), _) => Phase::Stopping,
            (None, true) => Phase::Running,
            (None, false) => Phase::Starting,
        };
        let now = self.status(phase);
        self.status.send_if_modified(|shown| {
            let changed = *shown != now;
            *shown = now;
            changed
        });
    }

    fn status(&self, phase: Phase) -> Status {
        let mut status = Status {
            phase,
            ..Status::default()
        };
        for queue in &self.queues {
            queue.add_to(&mut status);
        }
        status
    }
}

/// The one timer of the loop. Set anew only when what it waits for changes, which under load is
/// next to never.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    at: Option<Instant>,
}

impl Timer {
    fn new() -> Self {
        Self {
            sleep: Box::pin(sleep_until(Instant::now())),
            at: None,
        }
    }

    fn set(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.at != Some(at)
        {
            self.sleep.as_mut().reset(at);
        }
        self.at = at;
    }

    /// Waits for the time that is set; for ever where none is.
    async fn elapsed(&mut self) {
        if self.at.is_none() {
            std::future::pending::<()>().await;
        }
        self.sleep.as_mut().await;
        self.at = None;
    }
}
