//! Leases (design rule 6).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::flow::Stage;
use super::script::{Script, broken, in_lane, leased, settle_down};
use crate::Error;
use crate::handler::Outcome;
use crate::transport::Settled;

const SECOND: Duration = Duration::from_secs(1);

/// When and what the script was asked to extend, in whole seconds since it came in.
fn extends(stage: &Stage) -> Vec<(u64, Vec<u64>)> {
    let asked = stage.script.state();
    let rounded = |age: Duration| (age + SECOND / 2).as_secs();
    let extends = asked.extends.iter();
    extends
        .map(|(age, ids)| (rounded(*age), ids.clone()))
        .collect()
}

fn give(stage: &Stage, ids: impl IntoIterator<Item = u64>, lease: Duration) {
    let batch = ids.into_iter().map(|id| leased(id, lease)).collect();
    stage.script.give("default", Ok(batch));
}

#[tokio::test(start_paused = true)]
async fn what_runs_waits_or_settles_is_renewed_after_a_third_until_it_is_settled() {
    let script = Script::new();
    script.hold_settles();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    give(&stage, [1, 2, 3], 30 * SECOND);
    settle_down().await;
    stage.gates.finish([1]);
    sleep(11 * SECOND).await;
    // 1 is being settled, 2 and 3 run.
    assert_eq!(extends(&stage), [(10, vec![1, 2, 3])]);
    stage.script.answer_settle(|| Ok(Settled::Done));
    sleep(10 * SECOND).await;
    assert_eq!(extends(&stage)[1..], [(20, vec![2, 3])]);
    give(&stage, [4, 5], 30 * SECOND);
    sleep(11 * SECOND).await;
    // 4 waits for a handler.
    let last = extends(&stage);
    assert!(
        last[2..].iter().any(|(_, ids)| ids.contains(&4)),
        "{last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_where_there_is_no_lease() {
    let stage = Stage::start(Script::new(), |worker| worker);
    stage.script.jobs([1]);
    sleep(Duration::from_hours(1)).await;
    assert!(stage.script.state().extends.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_grow_is_asked_for_at_most_every_twentieth() {
    let script = Script::new();
    script.hold_extends();
    let stage = Stage::start(script, |worker| worker);
    give(&stage, [1], 10 * SECOND);
    let end = Instant::now() + 10 * SECOND;
    for _ in 0..100 {
        sleep(SECOND / 10).await;
        if !stage.script.state().extend_replies.is_empty() {
            stage.script.answer_extend(vec![Ok(end)]);
        }
    }
    let calls = extends(&stage).len();
    assert!((3..=20).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_lease_is_never_asked_for_again_and_its_settle_is_fenced() {
    let script = Script::new();
    script.hold_extends();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    let batch = [leased(1, 30 * SECOND), leased(2, 30 * SECOND)];
    stage.script.give("default", Ok(batch.to_vec()));
    sleep(11 * SECOND).await;
    batch[0].mark_lost();
    let end = Instant::now() + 30 * SECOND;
    stage
        .script
        .answer_extend(vec![Err(Error::lost("gone")), Ok(end)]);
    sleep(11 * SECOND).await;
    assert_eq!(extends(&stage)[1..], [(21, vec![2])]);
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.script.state().settled_ids(), [1]);
    stage.script.answer_extend(vec![Ok(end)]);
    stage.gates.finish([2]);
    let counts = stage.end().await.unwrap().counts;
    assert_eq!((counts.lost, counts.handled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_running_handler_sees_that_its_lease_is_gone() {
    let script = Script::new();
    let delivery = leased(1, 30 * SECOND);
    script.give("default", Ok(vec![std::sync::Arc::clone(&delivery)]));
    let worker = crate::worker::Worker::new(script.clone()).handle(
        |job: crate::handler::Incoming<super::script::Job>| async move {
            job.lost().await;
            Ok(Outcome::Drop)
        },
    );
    let stopped = worker.run_until(async {
        sleep(SECOND).await;
        delivery.mark_lost();
        sleep(SECOND).await;
    });
    let counts = stopped.await.unwrap().counts;
    assert_eq!((counts.lost, counts.dropped), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_could_not_be_made_is_made_again_soon() {
    let script = Script::new();
    script.hold_extends();
    let stage = Stage::start(script, |worker| worker);
    give(&stage, [1], 60 * SECOND);
    sleep(21 * SECOND).await;
    stage.script.answer_extend(vec![Err(broken())]);
    sleep(4 * SECOND).await;
    stage.script.answer_extend(Vec::new());
    sleep(4 * SECOND).await;
    let ages: Vec<u64> = extends(&stage).iter().map(|(age, _)| *age).collect();
    assert_eq!(ages, [20, 24, 28]);
}

#[tokio::test(start_paused = true)]
async fn one_extend_in_flight_and_the_due_ones_gather_behind_it() {
    let script = Script::new();
    script.hold_extends();
    let stage = Stage::start(script, |worker| worker.concurrency(4));
    for id in 1..=3 {
        give(&stage, [id], 30 * SECOND);
        sleep(SECOND).await;
    }
    sleep(15 * SECOND).await;
    // The clock is looked at for another reason, with 2 and 3 due.
    stage.script.give("default", Err(broken()));
    sleep(5 * SECOND).await;
    assert_eq!(extends(&stage), [(10, vec![1])]);
    stage
        .script
        .answer_extend(vec![Ok(Instant::now() + 30 * SECOND)]);
    settle_down().await;
    assert_eq!(extends(&stage)[1].1, [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_whose_lease_has_passed_is_not_started() {
    let script = Script::new();
    script.hold_extends();
    let stage = Stage::start(script, |worker| worker);
    stage.script.jobs([1]);
    settle_down().await;
    // Received only when the first is done, and then too late.
    let late = leased(2, SECOND);
    sleep(2 * SECOND).await;
    stage.script.give("default", Ok(vec![late]));
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1]);
    assert_eq!(stage.script.state().settled_ids(), [1]);
    assert_eq!(stage.end().await.unwrap().counts.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_in_the_buffer_takes_no_room() {
    let script = Script::new();
    let stage = Stage::start(script, |worker| worker.concurrency(2));
    let batch = [(1, "a"), (2, "a"), (3, "a"), (4, "b")].map(|(id, lane)| in_lane(id, lane));
    stage.script.give("default", Ok(batch.to_vec()));
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 4]);
    assert_eq!(stage.script.state().receives_in_flight, 0, "no room");
    stage.gates.finish([4]);
    settle_down().await;
    // The connection breaks: what came over it is lost at once (law 3).
    for one in &batch[..3] {
        one.mark_lost();
    }
    stage.script.give("default", Err(broken()));
    settle_down().await;
    sleep(SECOND).await;
    assert_eq!(*stage.script.state().receives.last().unwrap(), 3);
    // The transport was asked about each of them.
    let mut begun = stage.script.state().begun.clone();
    begun.sort_unstable();
    assert_eq!(begun, [1, 2, 3, 4]);
    // The lane is still held by the one that runs.
    stage.script.give("default", Ok(vec![in_lane(5, "a")]));
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 4]);
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 4, 5]);
    stage.gates.finish([5]);
    let counts = stage.end().await.unwrap().counts;
    assert_eq!((counts.received, counts.lost, counts.handled), (5, 3, 2));
}
