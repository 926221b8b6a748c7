//! A worker over the transport: what the seam's promises are for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::publish::{as_map, delay_of};
use super::settle::{attempts, retries};
use super::stage::{Queue, Stage, URN, envelope, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::dead_letter::Reason;
use crate::decide::Policy;
use crate::envelope::Envelope;
use crate::handler::Outcome as Handled;
use crate::handler::{Context, Failure, Handler, HandlerFuture};
use crate::retry::Retry;
use crate::transport::{Delay, Prefetch, PublishOptions};
use crate::worker::{StopReason, Stopped, Worker};
use crate::{Error, Headers};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("worker/it_handles_everything_once", everything),
        entry!(
            "worker/a_failing_message_is_retried_then_dead_lettered",
            failing
        ),
        entry!("worker/order_is_kept_in_each_lane", lanes, |can, _| can
            .lanes),
        entry!("worker/a_slow_handler_keeps_its_lease", slow, |can, _| can
            .lease),
        entry!(
            "worker/a_delayed_message_reaches_one_that_never_retries",
            delayed,
            |can, _| can.delay != Delay::Unsupported
        ),
        entry!("worker/a_stop_gives_back_what_is_not_done", stop),
        entry!("worker/a_killed_worker_loses_nothing", killed),
        entry!("worker/it_outlives_two_restarts", restarts, |_, fixture| {
            fixture.can_restart()
        }),
    ]
}

/// A worker under way.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Stopped, Error>>,
}

impl Running {
    pub(super) fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            stop,
            task: tokio::spawn(worker.run_until(stopped)),
        }
    }

    /// Waits for this, or for the worker to end before it was told to.
    async fn outlive(&mut self, what: impl Future<Output = Outcome>) -> Outcome {
        tokio::select! {
            biased;
            ended = &mut self.task => Err(Failed(format!("the worker ended by itself: {ended:?}"))),
            outcome = what => outcome,
        }
    }

    pub(super) async fn stop(self, patience: Duration) -> Result<Stopped, Failed> {
        drop(self.stop);
        let mut task = self.task;
        let ended = timeout(patience * 2, &mut task).await.map_err(|_| {
            task.abort();
            Failed("the worker did not stop".to_owned())
        })?;
        Ok(ended.map_err(|error| Failed(format!("the worker panicked: {error}")))??)
    }

    /// As if the process had died.
    async fn kill(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }
}

/// What handlers have seen, to be waited for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    calls: Mutex<Vec<Call>>,
    news: Notify,
}

#[derive(Debug, Clone)]
struct Call {
    number: u32,
    attempts: u32,
    headers: Headers,
}

impl Seen {
    fn note(&self, context: &Context) -> u32 {
        let number = number(context.delivery()).unwrap_or(u32::MAX);
        self.lock().push(Call {
            number,
            attempts: context.attempts(),
            headers: context.headers().clone(),
        });
        self.news.notify_waiters();
        number
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn calls(&self) -> Vec<Call> {
        self.lock().clone()
    }

    /// The numbers seen, each once.
    fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<_> = self.lock().iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Waits until the calls are `enough`. What counts as too long is a time without a new one.
    async fn until(
        &self,
        patience: Duration,
        mut enough: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failed> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if enough(self) {
                return Ok(());
            }
            timeout(patience, news).await.map_err(|_| {
                let calls = self.len();
                Failed(format!(
                    "no handler was called within {patience:?}, after {calls} calls"
                ))
            })?;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler that notes its calls, and does what it was made to.
struct Noting {
    seen: Arc<Seen>,
    act: fn(u32) -> Act,
}

enum Act {
    Done,
    After(Duration),
    Never,
    Fail,
}

impl Handler for Noting {
    fn call(&self, context: Context) -> HandlerFuture {
        let number = self.seen.note(&context);
        let act = (self.act)(number);
        Box::pin(async move {
            match act {
                Act::Done => {}
                Act::After(time) => sleep(time).await,
                Act::Never => std::future::pending().await,
                Act::Fail => return Err(Failure::msg("as the test wants it")),
            }
            Ok(Handled::Done)
        })
    }
}

/// A worker of this queue with three attempts and dead-lettering on, and what its handlers see.
fn worker(
    stage: &Stage,
    queue: &Queue,
    concurrency: usize,
    act: fn(u32) -> Act,
) -> (Worker, Arc<Seen>) {
    let policy = Policy::default()
        .retry(Retry::attempts(3))
        .dead_letter(true);
    worker_with(stage, queue, concurrency, policy, act)
}

fn worker_with(
    stage: &Stage,
    queue: &Queue,
    concurrency: usize,
    policy: Policy,
    act: fn(u32) -> Act,
) -> (Worker, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let worker = Worker::shared(Arc::clone(&stage.transport))
        .queue_with(Arc::clone(&queue.name), policy)
        .concurrency(concurrency)
        .reconnect(Duration::from_millis(20), Duration::from_millis(500))
        .handler(
            URN,
            Noting {
                seen: Arc::clone(&seen),
                act,
            },
        );
    (worker, seen)
}

async fn everything(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..300).collect();
    let (worker, seen) = worker(stage, &queue, 16, |_| Act::Done);
    let running = Running::start(worker);
    for numbers in numbers.chunks(50) {
        stage.publish(&queue.name, numbers).await?;
    }
    let all = |seen: &Seen| seen.len() >= numbers.len();
    seen.until(stage.patience(), all).await?;
    let stopped = running.stop(stage.patience()).await?;
    ensure!(
        stopped.reason == StopReason::Requested && stopped.in_flight == 0,
        "it ended as {stopped:?}"
    );
    ensure!(seen.numbers() == numbers, "some were never handled");
    let (calls, handled) = (seen.len(), stopped.counts.handled);
    ensure!(
        calls == numbers.len() && handled == calls as u64,
        "{} messages made {calls} calls, of which {handled} were settled",
        numbers.len()
    );
    let mut consumer = stage.consume(&queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

/// Where a broker delays by way of other queues, those are a worker's business even if it sends
/// nothing there itself.
async fn delayed(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let policy = Policy::default().retry(Retry::attempts(1));
    let (worker, seen) = worker_with(stage, &queue, 2, policy, |_| Act::Done);
    let running = Running::start(worker);
    let options = PublishOptions::new().delay(delay_of(stage, Duration::from_secs(1)));
    let body = envelope(7)?;
    stage
        .send(&queue.name, body, Headers::new(), options)
        .await??;
    seen.until(stage.patience(), |seen| seen.len() == 1).await?;
    running.stop(stage.patience()).await?;
    ensure!(seen.numbers() == [7], "{:?} came", seen.numbers());
    Ok(())
}

async fn failing(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut headers = Headers::new();
    if stage.capabilities.headers {
        headers.insert("tenant", "acme");
    }
    let body = envelope(1)?;
    let options = PublishOptions::new();
    stage
        .send(&queue.name, body.clone(), headers.clone(), options)
        .await??;
    let (worker, seen) = worker(stage, &queue, 2, |_| Act::Fail);
    let running = Running::start(worker);
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    let record = dead.one().await?;
    dead.ack(&record).await?;
    running.stop(stage.patience()).await?;

    let counts: Vec<_> = seen.calls().iter().map(|call| call.attempts).collect();
    ensure!(
        counts == [0, 1, 2] || !retries(&stage.capabilities),
        "of three attempts the handler saw {counts:?}"
    );
    for call in seen.calls() {
        let (came, sent) = (as_map(&call.headers), as_map(&headers));
        ensure!(
            came == sent,
            "attempt {} had the headers {came:?}",
            call.attempts
        );
    }
    let (came, sent) = (as_map(&record.headers), as_map(&headers));
    ensure!(came == sent, "the dead letter has the headers {came:?}");
    let envelope = Envelope::decode(record.body.clone())
        .map_err(|error| Failed(format!("the dead letter is no envelope: {error}")))?
        .envelope;
    let block = envelope.dead_letter().unwrap_or_default();
    ensure!(
        block.reason.as_deref() == Some(Reason::Failed.as_str())
            && block.original_queue.as_deref() == Some(&*queue.name)
            && block.attempts == envelope.attempts(),
        "the dead letter says {block:?}"
    );
    let bare = envelope.without_dead_letter().with_attempts(0);
    ensure!(*bare.bytes() == body, "the dead letter is another message");
    let mut consumer = stage.consume(&queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    dead.close().await
}

async fn lanes(stage: &Stage) -> Outcome {
    const LANES: [(&str, u32); 4] = [("n", 0), ("e", 100), ("s", 200), ("w", 300)];
    const EACH: u32 = 25;
    let queue = stage.queue_with_lanes().await?;
    for (lane, base) in LANES {
        let numbers: Vec<u32> = (base..base + EACH).collect();
        stage.publish_in_lane(&queue.name, lane, &numbers).await?;
    }
    let (worker, seen) = worker(stage, &queue, 8, |number| match number % 5 {
        0 => Act::After(Duration::from_millis(20)),
        _ => Act::Done,
    });
    let running = Running::start(worker);
    let all = |seen: &Seen| seen.numbers().len() == LANES.len() * EACH as usize;
    seen.until(stage.patience(), all).await?;
    running.stop(stage.patience()).await?;
    let mut order = BTreeMap::<u32, Vec<u32>>::new();
    for call in seen.calls() {
        order
            .entry(call.number / 100)
            .or_default()
            .push(call.number);
    }
    for (lane, numbers) in order {
        let expected: Vec<u32> = (lane * 100..lane * 100 + EACH).collect();
        ensure!(numbers == expected, "a lane was handled as {numbers:?}");
    }
    Ok(())
}

/// Two and a half lengths of its lease.
async fn slow(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 1).await?;
    let delivery = consumer.one().await?;
    let length = delivery.lease_end().map(|end| end - delivery.received());
    let Some(length) = length else {
        return Err(Failed(
            "leases are claimed, and a delivery has none".to_owned(),
        ));
    };
    consumer
        .settle(&delivery, crate::transport::Settlement::release())
        .await??;
    consumer.close().await?;

    let (worker, seen) = worker(stage, &queue, 1, |_| Act::Never);
    let running = Running::start(worker);
    seen.until(stage.patience(), |seen| seen.len() == 1).await?;
    let rival = stage.fixture.connect().await?;
    let mut rival = stage.consume_over(&*rival, &queue.name, 1).await?;
    let stolen = timeout(length * 5 / 2, rival.one()).await;
    ensure!(
        stolen.is_err(),
        "its lease ran out while its handler was running: {stolen:?}"
    );
    ensure!(seen.len() == 1, "it was handled {} times", seen.len());
    running.kill().await;
    let again = rival.one().await?;
    rival.ack(&again).await?;
    rival.close().await
}

async fn stop(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..6).collect();
    stage.publish(&queue.name, &numbers).await?;
    let (worker, seen) = worker(stage, &queue, 2, |_| Act::Never);
    let running = Running::start(worker.shutdown_timeout(Duration::from_millis(100)));
    seen.until(stage.patience(), |seen| seen.len() == 2).await?;
    let stopping = Instant::now();
    let stopped = running.stop(stage.patience()).await?;
    ensure!(
        stopped.in_flight == 0 && stopped.reason == StopReason::DeadlinePassed,
        "it ended as {stopped:?}"
    );
    let other = stage.fixture.connect().await?;
    let mut consumer = stage.consume_over(&*other, &queue.name, 8).await?;
    let mut came = Vec::new();
    for delivery in consumer.take(numbers.len()).await? {
        let counts = stage.capabilities.prefetch == Prefetch::Exact;
        ensure!(
            counts || attempts(stage, &delivery) == 0,
            "what was given back was counted: {delivery:?}"
        );
        consumer.ack(&delivery).await?;
        came.extend(number(&delivery));
    }
    came.sort_unstable();
    ensure!(
        came == numbers,
        "{:?} after the stop {came:?} came",
        stopping.elapsed()
    );
    consumer.close().await
}

async fn killed(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..12).collect();
    stage.publish(&queue.name, &numbers).await?;
    let doomed = Stage::set(Arc::clone(&stage.fixture)).await?;
    let (worker_to_kill, seen) = worker(&doomed, &queue, 4, |number| match number % 3 {
        0 => Act::Done,
        _ => Act::Never,
    });
    let running = Running::start(worker_to_kill);
    seen.until(stage.patience(), |seen| seen.len() >= 4).await?;
    running.kill().await;
    drop(doomed);

    let (worker, again) = worker(stage, &queue, 4, |_| Act::Done);
    let running = Running::start(worker);
    let before = seen.numbers();
    let all = |again: &Seen| {
        let now = again.numbers();
        numbers
            .iter()
            .all(|number| now.contains(number) || (number % 3 == 0 && before.contains(number)))
    };
    again.until(stage.patience(), all).await?;
    running.stop(stage.patience()).await?;
    // What the killed worker was done with may not have been acknowledged yet: that comes again.
    stage
        .expect_only(&queue.name, |number| {
            number % 3 == 0 && before.contains(&number)
        })
        .await
}

/// The broker restarts at a third and at half of the messages.
async fn restarts(stage: &Stage) -> Outcome {
    const COUNT: u32 = 600;
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..COUNT).collect();
    for numbers in numbers.chunks(100) {
        stage.publish(&queue.name, numbers).await?;
    }
    let (worker, seen) = worker(stage, &queue, 8, |_| Act::After(Duration::from_millis(3)));
    let mut running = Running::start(worker);
    for done in [COUNT / 3, COUNT / 2] {
        let enough = |seen: &Seen| seen.numbers().len() >= done as usize;
        running
            .outlive(seen.until(stage.patience(), enough))
            .await?;
        stage.fixture.restart().await?;
    }
    let all = |seen: &Seen| seen.numbers().len() == numbers.len();
    running.outlive(seen.until(stage.patience(), all)).await?;
    let stopped = running.stop(stage.patience()).await?;
    ensure!(
        stopped.reason == StopReason::Requested,
        "it ended as {stopped:?}"
    );
    Ok(())
}
