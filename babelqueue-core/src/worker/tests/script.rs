//! Not a broker: a transport whose every answer the test gives, and which keeps what it was asked.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::envelope::Envelope;
use crate::transport::{
    Capabilities, Delivery, Fence, Lane, Outgoing, Prefetch, Receiver, Rules, Settled, Settlement,
    Settler, SubscribeOptions, Subscription, Transport,
};
use crate::urn::Message;

/// The message that scripted deliveries hold.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Job {
    pub(super) id: u64,
}

impl Message for Job {
    const URN: &'static str = "urn:test:job";
}

pub(super) type Answers<T> = Vec<Result<T, Error>>;

/// What a receive gives.
type Batch = Result<Vec<Arc<Delivery>>, Error>;

#[derive(Clone)]
pub(super) struct Script {
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
pub(super) struct State {
    /// What receive gives, per queue in order of arrival.
    incoming: Vec<(String, VecDeque<Batch>)>,
    subscribe_errors: VecDeque<Error>,
    /// Answers `Done` to every settle at once, unless it is held.
    hold_settles: bool,
    hold_extends: bool,
    hold_close: bool,
    never_waits: bool,
    refused: HashSet<u64>,
    broken: HashSet<u64>,
    pub(super) options: Vec<SubscribeOptions>,
    /// How many deliveries each receive asked for.
    pub(super) receives: Vec<usize>,
    pub(super) receives_in_flight: usize,
    pub(super) subscribes: Vec<Instant>,
    pub(super) receive_times: Vec<Instant>,
    pub(super) begun: Vec<u64>,
    pub(super) settles: Vec<Vec<(u64, Settlement)>>,
    pub(super) settle_times: Vec<Instant>,
    pub(super) settle_polls: usize,
    pub(super) settle_replies: VecDeque<oneshot::Sender<Answers<Settled>>>,
    pub(super) extends: Vec<(Duration, Vec<u64>)>,
    pub(super) extend_replies: VecDeque<oneshot::Sender<Answers<Instant>>>,
    pub(super) closes: Vec<(Instant, Duration)>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut Capabilities)) -> Self {
        let mut capabilities = Capabilities::new("script", Rules::MEMORY);
        capabilities.prefetch = Prefetch::Double;
        change(&mut capabilities);
        Self {
            capabilities,
            state: Arc::default(),
            changed: Arc::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has the queue's next receive give this.
    pub(super) fn give(&self, queue: &str, what: Batch) {
        self.state().incoming(queue).push_back(what);
        self.changed.notify_waiters();
    }

    /// Gives jobs with these ids in one batch; returns them.
    pub(super) fn jobs(&self, ids: impl IntoIterator<Item = u64>) -> Vec<Arc<Delivery>> {
        let jobs: Vec<_> = ids.into_iter().map(|id| Arc::new(job(id))).collect();
        self.give("default", Ok(jobs.clone()));
        jobs
    }

    pub(super) fn fail_subscribe(&self, error: Error) {
        self.state().subscribe_errors.push_back(error);
    }

    pub(super) fn hold_settles(&self) {
        self.state().hold_settles = true;
    }

    pub(super) fn hold_extends(&self) {
        self.state().hold_extends = true;
    }

    pub(super) fn hold_close(&self) {
        self.state().hold_close = true;
    }

    /// Lets a held close come back.
    pub(super) fn let_close(&self) {
        self.state().hold_close = false;
        self.changed.notify_waiters();
    }

    /// Has `begin` refuse the job.
    pub(super) fn refuse(&self, id: u64) {
        self.state().refused.insert(id);
    }

    /// Has receive give nothing in place of waiting.
    pub(super) fn never_wait(&self) {
        self.state().never_waits = true;
    }

    /// Has `begin` panic over the job.
    pub(super) fn break_begin(&self, id: u64) {
        self.state().broken.insert(id);
    }

    /// Answers the oldest settle call that is held: the same for each of its deliveries.
    pub(super) fn answer_settle(&self, answer: impl Fn() -> Result<Settled, Error>) {
        let (reply, batch) = {
            let mut state = self.state();
            let at = state.settles.len() - state.settle_replies.len();
            let batch = state.settles[at].len();
            (state.settle_replies.pop_front().unwrap(), batch)
        };
        assert!(reply.send((0..batch).map(|_| answer()).collect()).is_ok());
    }

    pub(super) fn answer_extend(&self, answers: Answers<Instant>) {
        let reply = self.state().extend_replies.pop_front().unwrap();
        assert!(reply.send(answers).is_ok());
    }
}

impl State {
    fn incoming(&mut self, queue: &str) -> &mut VecDeque<Batch> {
        let at = self.incoming.iter().position(|(name, _)| name == queue);
        let at = at.unwrap_or_else(|| {
            self.incoming.push((queue.to_owned(), VecDeque::new()));
            self.incoming.len() - 1
        });
        &mut self.incoming[at].1
    }

    /// All that was settled, in order.
    pub(super) fn settled(&self) -> Vec<(u64, Settlement)> {
        self.settles.iter().flatten().cloned().collect()
    }

    pub(super) fn settled_ids(&self) -> Vec<u64> {
        self.settled().into_iter().map(|(id, _)| id).collect()
    }
}

/// A job's delivery; its fence is its id.
pub(super) fn job(id: u64) -> Delivery {
    let body = Envelope::of(&Job { id }).build().unwrap().into_bytes();
    let mut delivery = Delivery::new(Arc::from("default"), body);
    delivery.fence = Fence { generation: 1, id };
    delivery
}

pub(super) fn in_lane(id: u64, lane: &'static str) -> Arc<Delivery> {
    let mut delivery = job(id);
    delivery.lane = Some(Lane {
        scope: 0,
        key: Bytes::from_static(lane.as_bytes()),
    });
    Arc::new(delivery)
}

pub(super) fn leased(id: u64, lease: Duration) -> Arc<Delivery> {
    Arc::new(job(id).with_lease(Instant::now() + lease))
}

pub(super) fn broken() -> Error {
    Error::transient("test", "broken for now")
}

/// Lets everything happen that can happen now.
pub(super) async fn settle_down() {
    sleep(Duration::from_millis(1)).await;
}

#[async_trait]
impl Transport for Script {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        batch.iter().map(|_| Ok(())).collect()
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let mut state = self.state();
        state.subscribes.push(Instant::now());
        state.options.push(options);
        if let Some(error) = state.subscribe_errors.pop_front() {
            return Err(error);
        }
        Ok(Subscription {
            receiver: Box::new(ScriptReceiver {
                script: self.clone(),
                queue: queue.to_owned(),
            }),
            settler: Arc::new(self.clone()),
        })
    }
}

struct ScriptReceiver {
    script: Script,
    queue: String,
}

/// Counts the receives in flight, dropped ones too.
struct InFlight<'a>(&'a Script);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state().receives_in_flight -= 1;
    }
}

#[async_trait]
impl Receiver for ScriptReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        {
            let mut state = self.script.state();
            if !state.never_waits {
                state.receives.push(max);
                state.receive_times.push(Instant::now());
            }
            state.receives_in_flight += 1;
        }
        let _in_flight = InFlight(&self.script);
        loop {
            let changed = self.script.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = self.script.state().incoming(&self.queue).pop_front();
            match next {
                Some(next) => return next,
                None if self.script.state().never_waits => return Ok(Vec::new()),
                None => changed.await,
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        self.script.state().closes.push((Instant::now(), within));
        loop {
            let changed = self.script.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.script.state().hold_close {
                return Ok(());
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Settler for Script {
    fn begin(&self, delivery: &Delivery) -> bool {
        let id = delivery.fence.id;
        let broken = self.state().broken.contains(&id);
        assert!(!broken, "begin panics over job {id}");
        let mut state = self.state();
        state.begun.push(id);
        !state.refused.contains(&delivery.fence.id)
            && !delivery.is_lost()
            && !delivery.lease_is_over()
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let lost: Vec<bool> = batch.iter().map(|(one, _)| one.is_lost()).collect();
        let reply = {
            let mut state = self.state();
            let ids = batch.into_iter().map(|(one, what)| (one.fence.id, what));
            state.settles.push(ids.collect());
            state.settle_times.push(Instant::now());
            state.hold_settles.then(|| {
                let (reply, answer) = oneshot::channel();
                state.settle_replies.push_back(reply);
                answer
            })
        };
        match reply {
            None => lost
                .into_iter()
                .map(|lost| Ok(if lost { Settled::Fenced } else { Settled::Done }))
                .collect(),
            Some(answer) => Polled(self, answer).await,
        }
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let reply = {
            let mut state = self.state();
            let ids = batch.iter().map(|one| one.fence.id).collect();
            let age = batch[0].received().elapsed();
            state.extends.push((age, ids));
            state.hold_extends.then(|| {
                let (reply, answer) = oneshot::channel();
                state.extend_replies.push_back(reply);
                answer
            })
        };
        match reply {
            // As long again as it was at first.
            None => batch
                .iter()
                .map(|_| Ok(Instant::now() + Duration::from_secs(30)))
                .collect(),
            Some(answer) => answer.await.unwrap(),
        }
    }
}

/// A held settle, which counts how often it is looked at.
struct Polled<'a>(&'a Script, oneshot::Receiver<Answers<Settled>>);

impl Future for Polled<'_> {
    type Output = Answers<Settled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.state().settle_polls += 1;
        Pin::new(&mut self.1).poll(cx).map(Result::unwrap)
    }
}
