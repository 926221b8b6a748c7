//! Stopping is a path like any other (design rule 13, contract §7.9).

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::flow::Stage;
use super::script::{Job, Script, in_lane, job, leased, settle_down};
use crate::handler::{Failure, Incoming, Outcome};
use crate::transport::{Settled, Settlement};
use crate::worker::{StopReason, StopRequest, Worker};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_waits_is_given_back_and_the_receiver_leaves_at_once() {
    let mut stage = Stage::start(Script::new(), |worker| {
        worker
            .concurrency(2)
            .shutdown_timeout(20 * SECOND)
            .flush_timeout(3 * SECOND)
    });
    let lanes = [(1, "a"), (2, "a"), (3, "b"), (4, "b")];
    let batch = lanes.map(|(id, lane)| in_lane(id, lane));
    stage.script.give("default", Ok(batch.to_vec()));
    settle_down().await;
    stage.stop();
    let stopped = Instant::now();
    settle_down().await;
    let released = (2, Settlement::release());
    assert_eq!(
        stage.script.state().settled(),
        [released, (4, Settlement::release())]
    );
    let closes = stage.script.state().closes.clone();
    assert_eq!(
        closes,
        [(stopped, 23 * SECOND)],
        "beside the running handlers"
    );
    assert!(!stage.is_over());

    // The handlers go on, and are settled as ever; nothing new is started.
    stage.gates.finish([1]);
    sleep(5 * SECOND).await;
    stage.gates.open(3, Ok(Outcome::Retry));
    settle_down().await;
    assert!(stage.is_over());
    assert_eq!(stage.gates.started(), [1, 3]);
    let stopped = stage.end().await.unwrap();
    assert_eq!(stopped.reason, StopReason::Requested);
    assert_eq!(stopped.in_flight, 0);
    assert_eq!((stopped.counts.handled, stopped.counts.retried), (1, 1));
    assert_eq!(stopped.counts.released, 2);
}

#[tokio::test(start_paused = true)]
async fn it_leaves_also_while_it_pauses_or_has_no_room() {
    let mut stage = Stage::start(Script::new(), |worker| worker);
    stage.script.jobs([1]);
    settle_down().await;
    assert_eq!(stage.script.state().receives_in_flight, 0, "no room");
    stage.stop();
    settle_down().await;
    assert_eq!(stage.script.state().closes.len(), 1);
    drop(stage);

    let mut stage = Stage::start(Script::new(), |worker| worker.reconnect(SECOND, SECOND));
    stage.script.give("default", Err(super::script::broken()));
    settle_down().await;
    stage.stop();
    settle_down().await;
    assert_eq!(stage.script.state().closes.len(), 1);
    assert!(stage.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_start_is_honoured() {
    let script = Script::new();
    script.jobs([1]);
    let worker = Worker::new(script.clone()).handle(|_: Incoming<Job>| async { Ok(()) });
    let stopped = worker.run_until(std::future::ready(())).await.unwrap();
    assert_eq!(stopped.counts.received, 0);
    assert!(script.state().receives.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_with_the_stop_is_handed_straight_back() {
    let script = Script::new();
    let stopper = Script::clone(&script);
    let worker = Worker::new(script.clone())
        .handle(|_: Incoming<Job>| async { panic!("started") as Result<(), Failure> });
    let stop = async move {
        settle_down().await;
        // Both are there when the loop looks next.
        stopper.jobs([1, 2]);
    };
    let ended = worker.run_until(stop).await.unwrap();
    let received = ended.counts.received;
    assert_eq!(ended.counts.released, received);
    assert_eq!(ended.in_flight, 0);
    let released: Vec<_> = script.state().settled();
    assert!(
        released
            .iter()
            .all(|(_, what)| *what == Settlement::release())
    );
    assert_eq!(script.state().closes.len(), 1, "gives back what it holds");
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_handlers_are_aborted_and_their_messages_given_back() {
    let mut stage = Stage::start(Script::new(), |worker| {
        worker.concurrency(3).shutdown_timeout(10 * SECOND)
    });
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    stage.stop();
    sleep(9 * SECOND).await;
    stage.gates.finish([2]);
    assert!(stage.gates.aborted().is_empty());
    sleep(2 * SECOND).await;
    assert_eq!(stage.gates.aborted(), [1, 3]);
    assert!(stage.is_over());
    let settled = stage.script.state().settled();
    let release = Settlement::release();
    assert_eq!(
        settled,
        [(2, Settlement::Ack), (1, release.clone()), (3, release)]
    );
    let stopped = stage.end().await.unwrap();
    assert_eq!(stopped.reason, StopReason::DeadlinePassed);
    assert_eq!(stopped.in_flight, 0);
    assert_eq!((stopped.counts.handled, stopped.counts.released), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_last_settlements_have_a_bound_of_their_own_and_the_rest_is_reported() {
    let script = Script::new();
    script.hold_settles();
    script.hold_close();
    let mut stage = Stage::start(script, |worker| {
        worker
            .concurrency(2)
            .shutdown_timeout(10 * SECOND)
            .flush_timeout(4 * SECOND)
    });
    stage.script.jobs([1, 2]);
    settle_down().await;
    stage.stop();
    let asked = Instant::now();
    let stopped = stage.end().await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 14);
    assert_eq!(stopped.in_flight, 2);
    assert_eq!(stopped.counts.released, 0);
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_settle_in_flight_and_for_the_receiver() {
    let script = Script::new();
    script.hold_settles();
    script.hold_close();
    let mut stage = Stage::start(script, |worker| worker);
    stage.script.jobs([1]);
    settle_down().await;
    stage.gates.finish([1]);
    settle_down().await;
    stage.stop();
    settle_down().await;
    assert!(!stage.is_over());
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    assert!(!stage.is_over());
    stage.script.let_close();
    settle_down().await;
    assert!(stage.is_over());
}

#[tokio::test(start_paused = true)]
async fn without_a_handler_the_bound_of_the_last_settlements_runs_from_the_stop() {
    for (hangs, in_flight) in [("settle", 1), ("close", 0)] {
        let script = Script::new();
        match hangs {
            "settle" => script.hold_settles(),
            _ => script.hold_close(),
        }
        let mut stage = Stage::start(script, |worker| {
            worker
                .shutdown_timeout(Duration::MAX)
                .flush_timeout(4 * SECOND)
        });
        stage.script.jobs([1]);
        settle_down().await;
        stage.gates.finish([1]);
        settle_down().await;
        stage.stop();
        let asked = Instant::now();
        let script = stage.script.clone();
        let stopped = stage.end().await.unwrap();
        assert_eq!(asked.elapsed().as_secs(), 4, "{hangs}");
        assert_eq!(script.state().closes[0].1, 4 * SECOND);
        assert_eq!(stopped.in_flight, in_flight);
        assert_eq!(stopped.reason, StopReason::Requested);
    }
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_the_last_settlements_runs_from_the_last_handler() {
    let script = Script::new();
    script.hold_close();
    let mut stage = Stage::start(script, |worker| {
        worker
            .concurrency(2)
            .shutdown_timeout(60 * SECOND)
            .flush_timeout(4 * SECOND)
    });
    stage.script.jobs([1, 2]);
    settle_down().await;
    stage.stop();
    let asked = Instant::now();
    sleep(5 * SECOND).await;
    stage.gates.finish([1]);
    sleep(5 * SECOND).await;
    stage.gates.finish([2]);
    let stopped = stage.end().await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 14);
    assert_eq!(stopped.counts.handled, 2);
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_until_the_deadline() {
    let mut stage = Stage::start(Script::new(), |worker| worker.shutdown_timeout(25 * SECOND));
    stage
        .script
        .give("default", Ok(vec![leased(1, 30 * SECOND)]));
    settle_down().await;
    stage.stop();
    sleep(24 * SECOND).await;
    assert_eq!(stage.script.state().extends.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_force_does_not_wait_for_the_deadline() {
    let script = Script::new();
    script.jobs([1, 2]);
    let start = Instant::now();
    let force = async {
        sleep(3 * SECOND).await;
        StopRequest::with_force(sleep(2 * SECOND))
    };
    let worker =
        Worker::new(script.clone())
            .concurrency(2)
            .handle(|job: Incoming<Job>| async move {
                let seconds = if job.id == 1 { 4 } else { 1000 };
                sleep(seconds * SECOND).await;
                Ok(())
            });
    let stopped = worker.run_until(force).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    assert_eq!(stopped.reason, StopReason::Forced);
    assert_eq!((stopped.counts.handled, stopped.counts.released), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn handlers_can_see_the_stop_coming() {
    let script = Script::new();
    script.jobs([1]);
    let worker = Worker::new(script.clone()).handle(|job: Incoming<Job>| async move {
        assert!(!job.context().is_stopping());
        job.context().stopping().await;
        assert!(job.context().is_stopping());
        Ok(Outcome::Retry)
    });
    let start = Instant::now();
    let stopped = worker.run_until(sleep(SECOND)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!(stopped.counts.retried, 1);
}

#[tokio::test(start_paused = true)]
async fn many_kinds_of_future_can_ask_for_the_stop() {
    let worker = || Worker::new(Script::new()).handle(|_: Incoming<Job>| async { Ok(()) });
    worker().run_until(async {}).await.unwrap();
    worker()
        .run_until(async { Err::<(), _>("gone") })
        .await
        .unwrap();
    let (sender, receiver) = oneshot::channel::<()>();
    drop(sender);
    worker().run_until(receiver).await.unwrap();
    // It need neither be `Send` nor own what it looks at.
    let here = std::rc::Rc::new(());
    worker()
        .run_until(async { drop(std::rc::Rc::clone(&here)) })
        .await
        .unwrap();
}

/// Not in paused time: a thread that blocks does not hold up the clock.
#[tokio::test]
async fn a_blocking_handler_is_reported_at_the_deadline_and_not_given_back() {
    let (started, starts) = mpsc::channel();
    let (release, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let script = Script::new();
    let lease = Duration::from_millis(300);
    script.give("default", Ok(vec![leased(1, lease), Arc::new(job(2))]));
    let stop = async move {
        tokio::task::spawn_blocking(move || starts.recv().unwrap())
            .await
            .unwrap();
    };
    let worker = Worker::new(script.clone())
        .concurrency(2)
        .shutdown_timeout(Duration::from_millis(400))
        .flush_timeout(Duration::from_mins(1))
        .handle_blocking(move |job: Incoming<Job>| {
            if job.id == 1 {
                started.send(()).unwrap();
                let _ = hold.lock().unwrap().recv();
            }
            Ok(())
        });
    let asked = Instant::now();
    let stopped = worker.run_until(stop).await.unwrap();
    let took = asked.elapsed();
    assert!((400..10_000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(stopped.reason, StopReason::DeadlinePassed);
    assert_eq!(stopped.in_flight, 1);
    assert_eq!(stopped.counts.handled, 1);
    assert_eq!(script.state().settled(), [(2, Settlement::Ack)]);
    assert!(!script.state().extends.is_empty(), "renewed until then");
    release.send(()).unwrap();
}

/// There is one thread for three calls.
#[test]
fn a_blocking_handler_that_never_got_a_thread_is_given_back() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let (started, starts) = mpsc::channel();
    let (release, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let script = Script::new();
    script.jobs([1, 2, 3]);
    let stop = async move {
        while starts.try_recv().is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let (seen, runs) = mpsc::channel();
    let worker = Worker::new(script.clone())
        .concurrency(3)
        .shutdown_timeout(Duration::from_millis(50))
        .flush_timeout(Duration::from_mins(1))
        .handle_blocking(move |job: Incoming<Job>| {
            seen.send(job.id).unwrap();
            started.send(()).unwrap();
            let _ = hold.lock().unwrap().recv();
            Ok(())
        });
    let stopped = runtime.block_on(worker.run_until(stop)).unwrap();
    assert_eq!(stopped.reason, StopReason::DeadlinePassed);
    assert_eq!((stopped.in_flight, stopped.counts.released), (1, 2));
    let ran = runs.recv().unwrap();
    let mut settled = script.state().settled();
    settled.sort_by_key(|(id, _)| *id);
    let others = [1, 2, 3].into_iter().filter(|id| *id != ran);
    let expected: Vec<_> = others.map(|id| (id, Settlement::release())).collect();
    assert_eq!(settled, expected);
    // With the thread free again, what was given back is not begun.
    release.send(()).unwrap();
    drop(runtime);
    assert!(runs.recv().is_err());
}

#[tokio::test]
async fn a_blocking_handler_that_returns_before_the_deadline_is_settled() {
    let script = Script::new();
    script.jobs([1]);
    let (started, starts) = mpsc::channel();
    let worker = Worker::new(script.clone()).handle_blocking(move |_: Incoming<Job>| {
        started.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    });
    let stop = async move {
        tokio::task::spawn_blocking(move || starts.recv().unwrap())
            .await
            .unwrap();
    };
    let stopped = worker.run_until(stop).await.unwrap();
    assert_eq!(stopped.counts.handled, 1);
    assert_eq!(stopped.in_flight, 0);
}
