//! Settle calls that overlap: who waits for whom, and how often one outage counts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::flow::Stage;
use super::rude::BrokenClock;
use super::script::{Script, broken, settle_down};
use crate::handler::{Failure, Outcome};
use crate::transport::{Settled, Settlement};

const FIRST: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(10);

fn with_calls(calls: usize) -> Script {
    let script = Script::with(|capabilities| capabilities.settle_calls = calls);
    script.hold_settles();
    script
}

#[tokio::test(start_paused = true)]
async fn an_ack_waits_for_no_copy_however_many_wait() {
    let stage = Stage::start(with_calls(3), |worker| worker.concurrency(8));
    stage.script.jobs(0..8);
    settle_down().await;
    for id in 0..4 {
        stage.gates.open(id, Ok(Outcome::Retry));
        settle_down().await;
    }
    let settled = || stage.script.state().settled_ids();
    assert_eq!(settled(), [0, 1], "the last call is not for copies");
    stage.gates.finish([4]);
    settle_down().await;
    assert_eq!(settled(), [0, 1, 4]);
    stage.gates.finish([5]);
    stage.gates.open(6, Ok(Outcome::Retry));
    settle_down().await;
    assert_eq!(settled(), [0, 1, 4], "no more calls than three");

    let answer_last = || {
        let reply = stage.script.state().settle_replies.pop_back().unwrap();
        reply.send(vec![Ok(Settled::Done)]).unwrap();
    };
    answer_last();
    settle_down().await;
    assert_eq!(
        settled(),
        [0, 1, 4, 5],
        "acks alone, though a copy is older"
    );
    answer_last();
    stage.script.answer_settle(|| Ok(Settled::Done));
    settle_down().await;
    assert_eq!(
        settled(),
        [0, 1, 4, 5, 2, 3, 6],
        "the copies in their order"
    );
    stage.gates.finish([7]);
    settle_down().await;
    assert_eq!(stage.script.state().settled()[7], (7, Settlement::Ack));
}

/// How long receiving pauses after eight copies have failed, with so many calls at once.
async fn pause_after_an_outage(calls: usize) -> Duration {
    let stage = Stage::start(with_calls(calls), |worker| {
        worker.concurrency(8).reconnect(FIRST, CAP)
    });
    stage.script.jobs(0..8);
    settle_down().await;
    for id in 0..8 {
        stage.gates.open(id, Ok(Outcome::Retry));
        settle_down().await;
    }
    let failed = Instant::now();
    while !stage.script.state().settle_replies.is_empty() {
        stage.script.answer_settle(|| Err(broken()));
        settle_down().await;
    }
    // One receive was asked for before.
    stage.script.jobs([8]);
    settle_down().await;
    assert_eq!(stage.script.state().receives.len(), 2);
    sleep(2 * CAP).await;
    let resumed = stage.script.state().receive_times[2];
    resumed.duration_since(failed)
}

#[tokio::test(start_paused = true)]
async fn one_outage_is_one_failure_however_many_calls_meet_it() {
    for calls in [1, 2, 9] {
        let pause = pause_after_an_outage(calls).await;
        let most = FIRST + Duration::from_millis(1);
        assert!(pause >= FIRST / 2 && pause <= most, "{calls}: {pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_pause_makes_the_next_one_longer() {
    let stage = Stage::start(with_calls(2), |worker| worker.reconnect(FIRST, CAP));
    let mut failed = Instant::now();
    let mut pauses = Vec::new();
    for round in 0..9 {
        stage.script.jobs([round]);
        settle_down().await;
        stage.gates.open(round, Ok(Outcome::Retry));
        // The receive that the pause keeps waiting.
        sleep(2 * CAP).await;
        let resumed = *stage.script.state().receive_times.last().unwrap();
        pauses.push(resumed.duration_since(failed));
        stage.script.answer_settle(|| Err(broken()));
        failed = Instant::now();
        settle_down().await;
    }
    let full = [100, 200, 400, 800, 1600, 3200, 6400, 10_000].map(Duration::from_millis);
    for (pause, full) in pauses[1..].iter().zip(full) {
        let most = full + Duration::from_millis(1);
        assert!(full / 2 <= *pause && *pause <= most, "{pauses:?}");
    }
}

/// A clock that panics keeps all that run from their verdicts.
#[tokio::test(start_paused = true)]
async fn nor_do_handlers_that_break_together_count_for_more_than_one() {
    let stage = Stage::start(Script::new(), |worker| {
        let clock = Arc::new(BrokenClock);
        worker.concurrency(8).clock(clock).reconnect(FIRST, CAP)
    });
    stage.script.jobs(0..8);
    settle_down().await;
    for id in 0..8 {
        stage.gates.open(id, Err(Failure::msg("no")));
    }
    settle_down().await;
    let broke = Instant::now();
    stage.script.jobs([8]);
    settle_down().await;
    let before = stage.script.state().receives.len();
    sleep(2 * CAP).await;
    let resumed = stage.script.state().receive_times[before];
    let pause = resumed.duration_since(broke);
    assert!(pause <= FIRST + Duration::from_millis(1), "{pause:?}");
    assert_eq!(stage.script.state().settled().len(), 8);
}
