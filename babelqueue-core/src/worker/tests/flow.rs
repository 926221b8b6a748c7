//! How much is asked for, held and settled at a time (design rules 3 and 4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::script::{Job, Script, broken, in_lane, job, settle_down};
use crate::Error;
use crate::handler::{Failure, Incoming, Outcome};
use crate::random::Random;
use crate::retry::Retry;
use crate::transport::{Prefetch, Settled, Settlement};
use crate::worker::{Stopped, Worker};

/// A worker under way, whose handlers wait until they are let go.
pub(super) struct Stage {
    pub(super) script: Script,
    pub(super) gates: Gates,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<Stopped, Error>>,
}

/// Handlers that have started and wait, by job.
#[derive(Clone, Default)]
pub(super) struct Gates {
    started: Arc<Mutex<Vec<u64>>>,
    waiting: Arc<Mutex<BTreeMap<u64, Gate>>>,
}

type Gate = oneshot::Sender<Result<Outcome, Failure>>;

impl Gates {
    async fn pass(&self, id: u64) -> Result<Outcome, Failure> {
        let (open, opened) = oneshot::channel();
        self.started.lock().unwrap().push(id);
        self.waiting.lock().unwrap().insert(id, open);
        opened.await.unwrap()
    }

    /// Lets the handler of this job end.
    pub(super) fn open(&self, id: u64, result: Result<Outcome, Failure>) {
        let gate = self.waiting.lock().unwrap().remove(&id);
        let gate = gate.unwrap_or_else(|| panic!("job {id} is not running"));
        assert!(gate.send(result).is_ok(), "job {id} was aborted");
    }

    pub(super) fn finish(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            self.open(id, Ok(Outcome::Done));
        }
    }

    pub(super) fn started(&self) -> Vec<u64> {
        self.started.lock().unwrap().clone()
    }

    /// The handlers that were dropped before they were let go.
    pub(super) fn aborted(&self) -> Vec<u64> {
        let waiting = self.waiting.lock().unwrap();
        let gone = waiting.iter().filter(|(_, gate)| gate.is_closed());
        gone.map(|(id, _)| *id).collect()
    }
}

impl Stage {
    pub(super) fn start(script: Script, set_up: impl FnOnce(Worker) -> Worker) -> Self {
        let gates = Gates::default();
        let handler = gates.clone();
        let worker = Worker::new(script.clone())
            .random(Random::seeded(1))
            .retry(Retry::attempts(5))
            .handle(move |job: Incoming<Job>| {
                let gates = handler.clone();
                async move { gates.pass(job.id).await }
            });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(set_up(worker).run_until(stopped));
        Self {
            script,
            gates,
            stop: Some(stop),
            running,
        }
    }

    pub(super) fn stop(&mut self) {
        self.stop.take();
    }

    pub(super) fn is_over(&self) -> bool {
        self.running.is_finished()
    }

    pub(super) async fn end(mut self) -> Result<Stopped, Error> {
        self.stop();
        self.running.await.unwrap()
    }

    /// Drops the worker's future.
    pub(super) fn abandon(&self) {
        self.running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn it_asks_for_a_little_more_than_it_runs() {
    for (prefetch, concurrency, expected) in [
        (Prefetch::Double, 1, 1),
        (Prefetch::Double, 8, 16),
        (Prefetch::Exact, 8, 8),
        (Prefetch::Deep, 8, 1024),
        (Prefetch::Deep, 100, 1600),
    ] {
        let script = Script::with(|capabilities| capabilities.prefetch = prefetch);
        let stage = Stage::start(script, |worker| worker.concurrency(concurrency));
        settle_down().await;
        let asked = stage.script.state();
        assert_eq!(asked.receives, [expected], "{prefetch:?} {concurrency}");
        assert_eq!(asked.options[0].prefetch, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn it_asks_for_no_more_than_there_is_room_for() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(2));
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    // Two run, one waits: of four one is free.
    assert_eq!(stage.script.state().receives, [4, 1]);
    stage.script.jobs([4]);
    settle_down().await;
    assert_eq!(stage.script.state().receives, [4, 1], "no room, no receive");
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.script.state().receives, [4, 1, 1]);
    assert_eq!(stage.gates.started(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn all_that_is_unsettled_stays_within_twice_the_prefetch() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    let mut given = 0;
    for _ in 0..20 {
        let asked = stage.script.state().receives.len();
        let answered = asked - stage.script.state().receives_in_flight;
        if asked > answered {
            let max = *stage.script.state().receives.last().unwrap() as u64;
            stage.script.jobs(given..given + max);
            given += max;
        }
        settle_down().await;
        let running: Vec<u64> = stage
            .gates
            .waiting
            .lock()
            .unwrap()
            .keys()
            .copied()
            .collect();
        stage.gates.finish(running);
        settle_down().await;
    }
    assert_eq!(given, 8, "prefetch is 4");
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    assert_eq!(stage.script.state().receives_in_flight, 1, "room again");
}

#[tokio::test(start_paused = true)]
async fn one_receive_and_one_settle_in_flight_and_the_rest_gathers() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(8));
    stage.script.jobs(0..8);
    settle_down().await;
    for id in 0..6 {
        stage.gates.finish([id]);
        settle_down().await;
        assert_eq!(stage.script.state().settles.len(), 1, "one in flight");
        assert_eq!(stage.script.state().receives_in_flight, 1);
    }
    assert_eq!(stage.script.state().settled_ids(), [0]);
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    let settles: Vec<usize> = stage.script.state().settles.iter().map(Vec::len).collect();
    assert_eq!(settles, [1, 5]);
    assert_eq!(stage.script.state().settled_ids(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn as_many_settles_in_flight_as_the_transport_takes() {
    let script = Script::with(|capabilities| capabilities.settle_calls = 2);
    script.hold_settles();
    let mut stage = Stage::start(script, |worker| worker.concurrency(8));
    stage.script.jobs(0..5);
    settle_down().await;
    for id in 0..5 {
        stage.gates.finish([id]);
        settle_down().await;
    }
    let settles = || -> Vec<usize> { stage.script.state().settles.iter().map(Vec::len).collect() };
    assert_eq!(settles(), [1, 1], "two in flight, in their order");
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    assert_eq!(settles(), [1, 1, 3]);
    assert_eq!(stage.script.state().settled_ids(), [0, 1, 2, 3, 4]);
    stage.stop();
    for calls_left in [2, 1] {
        settle_down().await;
        let waiting = stage.script.state().settle_replies.len();
        assert_eq!((waiting, stage.is_over()), (calls_left, false));
        stage.script.answer_settle(|| Ok(Settled::Done));
    }
    assert_eq!(stage.end().await.unwrap().counts.handled, 5);
}

#[tokio::test(start_paused = true)]
async fn what_finishes_together_is_settled_together() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(8));
    stage.script.jobs(0..8);
    settle_down().await;
    stage.gates.finish(0..8);
    settle_down().await;
    assert_eq!(stage.script.state().settles.len(), 1);
}

/// Job 1 is woken by job 3, when the worker's loop has been woken by job 2 already: it runs behind
/// the loop, and goes along all the same.
#[tokio::test(start_paused = true)]
async fn one_turn_of_the_others_before_a_settle() {
    let script = Script::new();
    script.jobs([1, 2, 3]);
    let wakeup = Arc::new(tokio::sync::Notify::new());
    let worker = Worker::new(script.clone())
        .concurrency(3)
        .state(wakeup)
        .handle(|job: Incoming<Job>| async move {
            let wakeup = job.state::<Arc<tokio::sync::Notify>>()?;
            match job.id {
                1 => wakeup.notified().await,
                3 => wakeup.notify_waiters(),
                _ => {}
            }
            Ok(())
        });
    worker
        .run_until(sleep(Duration::from_secs(1)))
        .await
        .unwrap();
    assert_eq!(script.state().settles.len(), 1);
    assert_eq!(script.state().settled_ids(), [2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_settle_in_flight_is_looked_at_only_when_it_was_woken() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(64));
    stage.script.jobs(0..64);
    settle_down().await;
    for id in 0..64 {
        stage.gates.finish([id]);
        settle_down().await;
    }
    assert_eq!(stage.script.state().settle_polls, 1);
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    assert_eq!(
        stage.script.state().settle_polls,
        3,
        "woken, and the next call"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_receive_keeps_no_finished_handler_from_settling() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(2));
    stage.script.jobs([1]);
    settle_down().await;
    assert_eq!(stage.script.state().receives_in_flight, 1);
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.script.state().settled_ids(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_settle_is_not_tried_again_and_pauses_receiving() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| {
        worker.reconnect(Duration::from_secs(4), Duration::from_secs(9))
    });
    stage.script.jobs([1]);
    settle_down().await;
    stage.gates.finish([1]);
    settle_down().await;
    stage.script.answer_settle(|| Err(broken()));
    let failed = Instant::now();
    settle_down().await;
    // One was asked for before.
    assert_eq!(stage.script.state().receives.len(), 2);
    stage.script.jobs([2]);
    settle_down().await;
    stage.gates.finish([2]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        stage.script.state().receives.len(),
        2,
        "room, and no receive"
    );
    sleep(Duration::from_secs(4)).await;
    let resumed = *stage.script.state().receive_times.last().unwrap();
    let pause = resumed.duration_since(failed).as_millis();
    assert!(
        (2000..=4001).contains(&pause),
        "half to all of 4 s: {pause}"
    );
    stage.script.answer_settle(|| Ok(Settled::Done));

    // An acknowledgement that failed is no failure of the handler (contract §7.3).
    let settled = stage.script.state().settled();
    assert_eq!(settled, [(1, Settlement::Ack), (2, Settlement::Ack)]);
    let counts = stage.end().await.unwrap().counts;
    assert_eq!((counts.unsettled, counts.handled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_missing_counts_as_an_error() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    stage.script.jobs([1, 2]);
    settle_down().await;
    stage.gates.finish([1, 2]);
    settle_down().await;
    let reply = stage.script.state().settle_replies.pop_front().unwrap();
    reply.send(vec![Ok(Settled::Done)]).unwrap();
    settle_down().await;
    let counts = stage.end().await.unwrap().counts;
    assert_eq!((counts.handled, counts.unsettled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lane_goes_one_after_another_and_the_others_beside_it() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(4));
    let batch = [(1, "a"), (2, "a"), (3, "b"), (4, "a")].map(|(id, lane)| in_lane(id, lane));
    stage.script.give("default", Ok(batch.to_vec()));
    stage.script.jobs([5]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 3, 5]);
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 3, 5, 2]);
    stage.gates.finish([2]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 3, 5, 2, 4]);
    let settled = stage.script.state().settled_ids();
    assert_eq!(settled, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_goes_on_after_an_ack_before_it_has_come_back() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    stage
        .script
        .give("default", Ok(vec![in_lane(1, "a"), in_lane(2, "a")]));
    settle_down().await;
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_waits_for_any_other_settlement_to_come_back() {
    let outcomes = [
        Ok(Outcome::Retry),
        Ok(Outcome::Reject),
        Err(Failure::msg("no")),
    ];
    for (answer, outcome) in [Settled::Done, Settled::Fenced, Settled::LaneRewound]
        .into_iter()
        .zip(outcomes)
    {
        let script = Script::new();
        script.hold_settles();
        let stage = Stage::start(script, |worker| worker.concurrency(2).dead_letter(true));
        stage
            .script
            .give("default", Ok(vec![in_lane(1, "a"), in_lane(2, "a")]));
        settle_down().await;
        stage.gates.open(1, outcome);
        settle_down().await;
        assert_eq!(stage.gates.started(), [1]);
        stage.script.answer_settle(|| Ok(answer));
        settle_down().await;
        assert_eq!(stage.gates.started(), [1, 2], "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_was_taken_back_is_refused_and_goes_on_behind() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(4));
    let batch = [1, 2, 3].map(|id| in_lane(id, "a"));
    stage.script.give("default", Ok(batch.to_vec()));
    settle_down().await;
    stage.gates.open(1, Ok(Outcome::Retry));
    settle_down().await;
    // The transport takes back what came after, before it answers (law 4).
    batch[1].mark_lost();
    batch[2].mark_lost();
    stage.script.answer_settle(|| Err(broken()));
    settle_down().await;
    assert_eq!(stage.gates.started(), [1]);
    assert_eq!(stage.script.state().begun, [1, 2, 3]);
    assert_eq!(stage.script.state().settled_ids(), [1], "ended by begin");
    // What comes of the lane later is not held up by it.
    stage.script.give("default", Ok(vec![in_lane(4, "a")]));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(stage.gates.started(), [1, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_begin_refuses_is_neither_handled_nor_settled() {
    let script = Script::new();
    script.refuse(2);
    let stage = Stage::start(script, |worker| worker.concurrency(4));
    stage.script.jobs([1, 2]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1]);
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.script.state().settled_ids(), [1]);
    assert_eq!(stage.end().await.unwrap().counts.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn the_queues_share_the_handlers_in_turn() {
    let stage = Stage::start(Script::new(), |worker| {
        worker.queue("a").queue("b").queue("c").prefetch(4)
    });
    for (queue, ids) in [("a", [1, 2, 3]), ("b", [11, 12, 13]), ("c", [21, 22, 23])] {
        let jobs = ids.map(|id| Arc::new(job(id)));
        stage.script.give(queue, Ok(jobs.to_vec()));
    }
    settle_down().await;
    for _ in 0..8 {
        let running = *stage.gates.started().last().unwrap();
        stage.gates.finish([running]);
        settle_down().await;
    }
    assert_eq!(stage.gates.started(), [1, 11, 21, 2, 12, 22, 3, 13, 23]);
}

#[tokio::test(start_paused = true)]
async fn each_queue_has_its_own_prefetch() {
    let stage = Stage::start(Script::new(), |worker| {
        worker.queue("a").queue("b").concurrency(3)
    });
    settle_down().await;
    assert_eq!(stage.script.state().receives, [6, 6]);
}
