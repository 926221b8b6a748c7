//! A worker does not die (design rule 5).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::flow::Stage;
use super::script::{Script, broken, settle_down};
use crate::Error;
use crate::memory::{Fault, Memory, Verb};
use crate::prelude::*;
use crate::worker::{Phase, Worker};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn it_receives_again_after_a_back_off_that_grows_up_to_its_cap() {
    let stage = Stage::start(Script::new(), |worker| worker.reconnect(SECOND, 4 * SECOND));
    for _ in 0..5 {
        stage.script.give("default", Err(broken()));
    }
    stage
        .script
        .give("default", Err(Error::lost("the connection")));
    sleep(60 * SECOND).await;
    let times = stage.script.state().receive_times.clone();
    let pauses: Vec<f64> = times
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).as_secs_f64())
        .collect();
    for (pause, full) in pauses.iter().zip([1.0, 2.0, 4.0, 4.0, 4.0, 4.0]) {
        assert!((full / 2.0..full + 0.01).contains(pause), "{pauses:?}");
    }
    assert_eq!(pauses.len(), 6);
    // Once it has worked, it starts over.
    stage.script.jobs([1]);
    settle_down().await;
    stage.gates.finish([1]);
    settle_down().await;
    let failed = Instant::now();
    stage.script.give("default", Err(broken()));
    sleep(5 * SECOND).await;
    let last = *stage.script.state().receive_times.last().unwrap();
    assert!(last.duration_since(failed) <= SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_back_off_follows_the_seed() {
    async fn times(seed: u64) -> Vec<Duration> {
        let start = Instant::now();
        let stage = Stage::start(Script::new(), |worker| {
            worker.random(crate::random::Random::seeded(seed))
        });
        for _ in 0..6 {
            stage.script.give("default", Err(broken()));
        }
        sleep(60 * SECOND).await;
        let asked = stage.script.state();
        let times = asked.receive_times.iter();
        times.map(|time| time.duration_since(start)).collect()
    }
    assert_eq!(times(5).await, times(5).await);
    assert_ne!(times(5).await, times(6).await);
}

#[tokio::test(start_paused = true)]
async fn handlers_go_on_and_are_settled_while_the_broker_cannot_be_received_from() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(2));
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    stage.script.give("default", Err(broken()));
    settle_down().await;
    stage.gates.finish([1]);
    settle_down().await;
    assert_eq!(stage.gates.started(), [1, 2, 3]);
    assert_eq!(stage.script.state().settled_ids(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_subscribe_that_fails_for_now_is_tried_again() {
    let script = Script::new();
    script.fail_subscribe(broken());
    script.fail_subscribe(broken());
    let stage = Stage::start(script, |worker| worker.reconnect(SECOND, SECOND));
    stage.script.jobs([1]);
    sleep(3 * SECOND).await;
    assert_eq!(stage.script.state().subscribes.len(), 3);
    assert_eq!(stage.gates.started(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_can_mend_ends_it_in_good_order() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(2));
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    stage.script.give(
        "default",
        Err(Error::refused("receive", "no right to read it")),
    );
    settle_down().await;
    assert!(!stage.is_over(), "a handler runs");
    assert_eq!(
        stage.script.state().settled_ids(),
        [3],
        "what waits is given back"
    );
    stage.gates.finish([1, 2]);
    settle_down().await;
    assert!(stage.is_over());
    assert_eq!(stage.script.state().settled_ids(), [3, 1, 2]);
    let error = stage.end().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "receive was refused: no right to read it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_not_there_ends_it() {
    let script = Script::new();
    script.fail_subscribe(Error::refused("subscribe", "no such queue"));
    let stage = Stage::start(script, |worker| worker.queue("a").queue("b"));
    settle_down().await;
    assert!(stage.is_over());
    assert!(stage.end().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dropping_it_aborts_its_handlers() {
    let stage = Stage::start(Script::new(), |worker| worker.concurrency(2));
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    assert!(stage.gates.aborted().is_empty());
    stage.abandon();
    settle_down().await;
    assert_eq!(stage.gates.aborted(), [1, 2]);
    assert!(stage.script.state().settles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn its_state_can_be_watched() {
    let script = Script::new();
    script.hold_settles();
    let mut watched = None;
    let mut stage = Stage::start(script, |worker| {
        watched = Some(worker.watch());
        worker.concurrency(2).reconnect(SECOND, SECOND)
    });
    let watched = watched.unwrap();
    assert_eq!(watched.borrow().phase, Phase::Starting);
    settle_down().await;
    assert_eq!(watched.borrow().phase, Phase::Running);
    stage.script.jobs([1, 2, 3]);
    settle_down().await;
    {
        let now = watched.borrow();
        assert_eq!((now.in_flight, now.buffered, now.settling), (2, 1, 0));
        assert_eq!(now.counts.received, 3);
        assert_eq!(now.reconnecting_since, None);
    }
    let broke = Instant::now();
    stage.script.give("default", Err(broken()));
    stage.script.give("default", Err(broken()));
    sleep(SECOND).await;
    assert_eq!(watched.borrow().reconnecting_since, Some(broke));
    stage.script.jobs([4]);
    sleep(SECOND).await;
    assert_eq!(watched.borrow().reconnecting_since, None);
    stage.gates.finish([1]);
    settle_down().await;
    {
        let now = watched.borrow();
        assert_eq!((now.in_flight, now.buffered, now.settling), (2, 1, 1));
    }
    stage.stop();
    settle_down().await;
    assert_eq!(watched.borrow().phase, Phase::Stopping);
    stage.gates.finish([2, 3]);
    for _ in 0..2 {
        stage
            .script
            .answer_settle(|| Ok(crate::transport::Settled::Done));
        settle_down().await;
    }
    let stopped = stage.end().await.unwrap();
    let last = watched.borrow();
    assert_eq!(last.phase, Phase::Stopped);
    assert_eq!(last.counts, stopped.counts);
    assert_eq!((last.counts.handled, last.counts.released), (3, 1));
    assert_eq!(last.counts.ended(), last.counts.received);
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_fails_at_every_verb_loses_nothing() {
    let memory = Memory::new();
    let orders: Vec<_> = (0..40).map(|id| Order { id }).collect();
    let producer = Producer::new(memory.clone()).queue("orders");
    for result in producer.publish_all(&orders).await {
        result.unwrap();
    }
    memory.fail(Verb::Receive, 2, Fault::Disconnect);
    memory.fail(Verb::Receive, 4, Fault::After);
    for nth in [1, 5, 9] {
        memory.fail(Verb::Settle, nth, Fault::Before);
        memory.fail(Verb::Settle, nth + 2, Fault::After);
    }
    let emptied = async {
        while memory.depth("orders").total() > 0 {
            sleep(SECOND).await;
        }
    };
    let stopped = Worker::new(memory.clone())
        .queue("orders")
        .concurrency(3)
        .random(crate::random::Random::seeded(1))
        .handle(|order: Incoming<Order>| async move {
            sleep(Duration::from_millis(order.id)).await;
            Ok(())
        })
        .run_until(emptied)
        .await
        .unwrap();
    assert_eq!(stopped.in_flight, 0);
    assert!(stopped.counts.unsettled > 0, "{:?}", stopped.counts);
    assert!(stopped.counts.handled + stopped.counts.unsettled >= 40);
    assert_eq!(memory.depth("orders").total(), 0);
}
