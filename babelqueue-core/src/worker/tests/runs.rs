//! Quick deliveries of a lane share a task, and nothing else about them changes.

use std::future::pending;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::rude::BrokenClock;
use super::script::{Job, Script, in_lane, settle_down};
use crate::Error;
use crate::envelope::Envelope;
use crate::handler::layers::Timeout;
use crate::handler::{Failure, Incoming, Outcome};
use crate::retry::Retry;
use crate::transport::{Delivery, Settled, Settlement};
use crate::urn::Message;
use crate::worker::{StopReason, StopRequest, Stopped, Worker};

/// Of a lane with so many, the tasks get the first, the next two, and the next four.
const MANY: RangeInclusive<u64> = 1..=8;
/// In the middle of the third task.
const ODD: u64 = 6;
const SECOND: Duration = Duration::from_secs(1);

struct Stage {
    script: Script,
    go_on: Arc<Notify>,
    /// What was handled, in order, and in which task.
    handled: Arc<Mutex<Vec<(u64, tokio::task::Id)>>>,
    deliveries: Vec<Arc<Delivery>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Stopped, Error>>,
}

/// What the handler of [`ODD`] does; the others are done at once.
#[derive(Debug, Clone, Copy)]
enum Odd {
    IsDone,
    WantsAnotherTry,
    Panics,
    Waits,
}

impl Stage {
    /// Once the first deliveries of a lane are handled, up to where it has to wait.
    async fn start(script: Script, odd: Odd) -> Self {
        let stage = Self::begin(script, odd, |worker| worker);
        settle_down().await;
        stage
    }

    fn begin(script: Script, odd: Odd, set_up: impl FnOnce(Worker) -> Worker) -> Self {
        let go_on = Arc::new(Notify::new());
        let (stop, stopped) = oneshot::channel();
        let waited = Arc::clone(&go_on);
        let handled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&handled);
        let worker = Worker::new(script.clone())
            .queue("default")
            .concurrency(4)
            .prefetch(16)
            .retry(Retry::attempts(5))
            .shutdown_timeout(5 * SECOND)
            .handle(move |job: Incoming<Job>| {
                let waited = Arc::clone(&waited);
                seen.lock().unwrap().push((job.id, tokio::task::id()));
                async move {
                    if job.id != ODD {
                        return Ok(Outcome::Done);
                    }
                    match odd {
                        Odd::IsDone => {}
                        Odd::WantsAnotherTry => return Ok(Outcome::Retry),
                        Odd::Panics => panic!("in the middle"),
                        Odd::Waits => waited.notified().await,
                    }
                    Ok(Outcome::Done)
                }
            });
        let running = tokio::spawn(set_up(worker).run_until(stopped));
        let deliveries: Vec<_> = MANY.map(|id| in_lane(id, "a")).collect();
        script.give("default", Ok(deliveries.clone()));
        Self {
            script,
            go_on,
            handled,
            deliveries,
            stop,
            running,
        }
    }

    fn begun(&self) -> Vec<u64> {
        self.script.state().begun.clone()
    }

    /// How many handlers one task after the other had.
    fn runs(&self) -> Vec<usize> {
        let handled = self.handled.lock().unwrap();
        let runs = handled.chunk_by(|(_, one), (_, next)| one == next);
        runs.map(<[_]>::len).collect()
    }

    async fn end(self) -> Stopped {
        let _ = self.stop.send(());
        self.running.await.unwrap().unwrap()
    }
}

/// Waits without letting time pass.
async fn until(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < 60 * SECOND, "it never comes");
        yield_now().await;
    }
}

fn all_but(left_out: u64) -> Vec<u64> {
    MANY.filter(|id| *id != left_out).collect()
}

#[tokio::test(start_paused = true)]
async fn they_share_tasks_and_keep_their_order() {
    let stage = Stage::start(Script::new(), Odd::IsDone).await;
    let all: Vec<u64> = MANY.collect();
    assert_eq!(stage.begun(), all);
    assert_eq!(stage.script.state().settled_ids(), all);
    assert_eq!(stage.runs(), [1, 2, 4, 1]);
    assert_eq!(stage.end().await.counts.handled, 8);
}

#[tokio::test(start_paused = true)]
async fn none_begins_once_the_worker_is_dropped() {
    let script = Script::new();
    let worker: Arc<Mutex<Option<BoxFuture<'static, _>>>> = Arc::default();
    let (dropped, handled) = (Arc::clone(&worker), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&handled);
    let running = Worker::new(script.clone())
        .queue("default")
        .handle(move |job: Incoming<Job>| {
            seen.lock().unwrap().push(job.id);
            if job.id == ODD {
                dropped.lock().unwrap().take();
            }
            async { Ok(()) }
        })
        .run();
    *worker.lock().unwrap() = Some(Box::pin(running));
    // Its loop runs by itself from here on.
    let first = worker.lock().unwrap().as_mut().unwrap().now_or_never();
    assert!(first.is_none());
    let deliveries = MANY.map(|id| in_lane(id, "a")).collect();
    script.give("default", Ok(deliveries));
    settle_down().await;
    assert_eq!(*handled.lock().unwrap(), (1..=ODD).collect::<Vec<_>>());
}

/// Something that goes wrong in the middle of a task's deliveries.
struct Trouble {
    what: &'static str,
    odd: Odd,
    prepare: fn(&Script),
    set_up: fn(Worker) -> Worker,
    /// What becomes of it.
    fate: fn(&Settlement) -> bool,
}

impl Trouble {
    fn all() -> [Self; 5] {
        let retried = |settlement: &Settlement| matches!(settlement, Settlement::Retry { .. });
        let trouble = |what, odd| Self {
            what,
            odd,
            prepare: |_| (),
            set_up: |worker| worker,
            fate: retried,
        };
        [
            trouble("it is to be tried again", Odd::WantsAnotherTry),
            trouble("it panics", Odd::Panics),
            Self {
                set_up: |worker| worker.layer(Timeout::after(SECOND)),
                ..trouble("it takes too long", Odd::Waits)
            },
            Self {
                prepare: |script| script.break_begin(ODD),
                ..trouble("its begin panics", Odd::IsDone)
            },
            Self {
                set_up: |worker| worker.clock(Arc::new(BrokenClock)),
                fate: |settlement| *settlement == Settlement::release(),
                ..trouble("nothing can be decided", Odd::WantsAnotherTry)
            },
        ]
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_acknowledged_holds_up_the_rest() {
    for trouble in Trouble::all() {
        let what = trouble.what;
        let script = Script::new();
        script.hold_settles();
        (trouble.prepare)(&script);
        let stage = Stage::begin(script, trouble.odd, trouble.set_up);
        sleep(2 * SECOND).await;
        let (script, handled) = (stage.script.clone(), Arc::clone(&stage.handled));
        let handled =
            || -> Vec<u64> { handled.lock().unwrap().iter().map(|(id, _)| *id).collect() };
        let before = handled();
        let with_odd = before.contains(&ODD);
        let first: Vec<u64> = (1..ODD + u64::from(with_odd)).collect();
        assert_eq!(before, first, "{what}");
        // The first call has not come back, and this one is not in it.
        assert!(!script.state().settled_ids().contains(&ODD), "{what}");
        script.answer_settle(|| Ok(Settled::Done));
        settle_down().await;
        let settled = script.state().settled();
        let (last, before) = settled.split_last().unwrap();
        assert!(last.0 == ODD && (trouble.fate)(&last.1), "{what}: {last:?}");
        assert_eq!(before.len(), 5, "{what}");
        assert_eq!(handled(), first, "{what}");
        script.answer_settle(|| Ok(Settled::Done));
        settle_down().await;
        // Each once, in order, and the rest after it.
        let left_out = if with_odd { 0 } else { ODD };
        assert_eq!(handled(), all_but(left_out), "{what}");
        while !script.state().settle_replies.is_empty() {
            script.answer_settle(|| Ok(Settled::Done));
            settle_down().await;
        }
        assert_eq!(script.state().settled_ids(), all_but(0), "{what}");
        let counts = stage.end().await.counts;
        assert_eq!((counts.received, counts.handled), (8, 7), "{what}");
        assert_eq!(counts.retried + counts.released, 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_refused_holds_up_nobody() {
    let script = Script::new();
    script.refuse(ODD);
    let stage = Stage::start(script, Odd::IsDone).await;
    assert_eq!(stage.begun(), all_but(0));
    assert_eq!(stage.script.state().settled_ids(), all_but(ODD));
    assert_eq!(stage.runs(), [1, 2, 3, 1], "the third goes on behind it");
    let counts = stage.end().await.counts;
    assert_eq!((counts.handled, counts.lost), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn each_is_asked_for_right_before_its_handler() {
    let stage = Stage::start(Script::new(), Odd::Waits).await;
    stage.deliveries[6].mark_lost();
    stage.go_on.notify_one();
    settle_down().await;
    assert_eq!(stage.begun(), all_but(0));
    assert_eq!(stage.script.state().settled_ids(), all_but(7));
    assert_eq!(stage.end().await.counts.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_does_not_wait_for_a_handler_that_waits() {
    let stage = Stage::start(Script::new(), Odd::Waits).await;
    assert_eq!(stage.begun(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(stage.script.state().settled_ids(), [1, 2, 3, 4, 5]);
    stage.go_on.notify_one();
    settle_down().await;
    assert_eq!(stage.begun(), all_but(0));
    assert_eq!(stage.script.state().settled_ids(), all_but(0));
    assert_eq!(stage.runs(), [1, 2, 3, 1, 1], "no longer quick");
}

#[tokio::test(start_paused = true)]
async fn other_lanes_do_not_wait_for_it_and_what_follows_it_takes_room() {
    let stage = Stage::start(Script::new(), Odd::Waits).await;
    let script = stage.script.clone();
    let others = (21..=24).map(|id| in_lane(id, "b")).collect();
    script.give("default", Ok(others));
    settle_down().await;
    assert_eq!(stage.begun(), [1, 2, 3, 4, 5, 6, 21, 22, 23, 24]);
    script.give("default", Ok(vec![in_lane(31, "c")]));
    settle_down().await;
    // Of 16, one runs, two follow it, and one has just come in.
    let asked = script.state().receives.last().copied();
    assert_eq!(asked, Some(12));
    stage.go_on.notify_one();
    settle_down().await;
    assert_eq!(stage.end().await.counts.handled, 13);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_begun_by_the_stop_is_given_back() {
    let stage = Stage::begin(Script::new(), Odd::Waits, |worker| worker);
    let (script, go_on) = (stage.script.clone(), Arc::clone(&stage.go_on));
    until(|| stage.begun().last() == Some(&ODD)).await;
    let end = tokio::spawn(stage.end());
    until(|| !script.state().closes.is_empty()).await;
    // As quick as ever: it is the stop that keeps the task from going on.
    go_on.notify_one();
    let stopped = end.await.unwrap();
    assert_eq!((stopped.in_flight, stopped.counts.handled), (0, 6));
    assert_eq!(stopped.reason, StopReason::Requested);
    assert_eq!(script.state().begun, [1, 2, 3, 4, 5, 6]);
    let settled = script.state().settled();
    let last = [(7, Settlement::release()), (8, Settlement::release())];
    assert_eq!(settled[6..], last);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_aborted_is_given_back_before_what_follows_it() {
    let stage = Stage::start(Script::new(), Odd::Waits).await;
    let script = stage.script.clone();
    let stopped = stage.end().await;
    assert_eq!((stopped.in_flight, stopped.counts.handled), (0, 5));
    assert_eq!(stopped.reason, StopReason::DeadlinePassed);
    assert_eq!(script.state().begun, [1, 2, 3, 4, 5, 6]);
    let settled = script.state().settled();
    let last = [6, 7, 8].map(|id| (id, Settlement::release()));
    assert_eq!(settled[5..], last);
}

/// Has the lane handled by handlers that block, all but [`ODD`], which is a message of this type; and
/// stopped, without waiting, once that one is `started`.
async fn stop_behind_blocking<T: Message + Serialize>(
    odd: &T,
    started: mpsc::Receiver<()>,
    set_up: impl FnOnce(Worker) -> Worker,
) -> (Stopped, Vec<(u64, Settlement)>) {
    let script = Script::new();
    let mut batch: Vec<_> = MANY.map(|id| in_lane(id, "a")).collect();
    if let Some(delivery) = batch.iter_mut().find(|one| one.fence.id == ODD) {
        let delivery = Arc::get_mut(delivery).unwrap();
        delivery.body = Envelope::of(odd).build().unwrap().into_bytes();
    }
    script.give("default", Ok(batch));
    let stop = async move {
        until(|| started.try_recv().is_ok()).await;
        StopRequest::with_force(async {})
    };
    let worker = Worker::new(script.clone()).concurrency(4).prefetch(16);
    let stopped = set_up(worker).run_until(stop).await.unwrap();
    assert_eq!(stopped.reason, StopReason::Forced);
    assert_eq!(stopped.counts.handled, 5);
    assert_eq!(script.state().begun, [1, 2, 3, 4, 5, 6]);
    let mut settled = script.state().settled();
    let given_back = settled.split_off(5);
    assert!(settled.iter().all(|(_, what)| *what == Settlement::Ack));
    (stopped, given_back)
}

#[tokio::test(start_paused = true)]
async fn one_that_blocks_is_left_behind_alone() {
    let (start, started) = mpsc::channel();
    let (release, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let (stopped, given_back) = stop_behind_blocking(&Job { id: ODD }, started, |worker| {
        worker.handle_blocking(move |job: Incoming<Job>| {
            if job.id == ODD {
                start.send(()).unwrap();
                let _ = hold.lock().unwrap().recv();
            }
            Ok(())
        })
    })
    .await;
    assert_eq!(stopped.in_flight, 1);
    assert_eq!(given_back, [7, 8].map(|id| (id, Settlement::release())));
    release.send(()).unwrap();
}

#[derive(Serialize, Deserialize)]
struct Patient {}

impl Message for Patient {
    const URN: &'static str = "urn:test:patient";
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_behind_some_that_blocked_is_given_back() {
    let (start, started) = mpsc::channel();
    let (stopped, given_back) = stop_behind_blocking(&Patient {}, started, |worker| {
        worker
            .handle_blocking(|_: Incoming<Job>| Ok(()))
            .handle(move |_: Incoming<Patient>| {
                start.send(()).unwrap();
                pending::<Result<(), Failure>>()
            })
    })
    .await;
    assert_eq!(stopped.in_flight, 0);
    assert_eq!(given_back, [6, 7, 8].map(|id| (id, Settlement::release())));
}
