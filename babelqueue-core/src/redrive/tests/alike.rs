//! Letters that cannot be told apart: copies, and one that comes back.

use super::*;

#[tokio::test(start_paused = true)]
async fn letters_that_are_the_same_hide_nothing_behind_them() {
    let gated = |_| r#"{"job":"urn:ping","meta":{"schema_version":2}}"#.to_owned();
    let wanted = || (1000..1020).map(|id| dead(id, "urn:a", "failed"));
    for same in [999, 1000, 1001, 1500, 2500] {
        let memory = Memory::new();
        put(&memory, (0..same).map(gated)).await;
        put(&memory, wanted()).await;
        let report = run(Redrive::new(memory.clone(), DLQ).urn("urn:a")).await;
        assert_eq!(report.summary.redriven, 20, "behind {same}");
        assert_eq!(memory.depth(DLQ).total(), same);
    }
    // Each twice, one row after the other, and as many as the window has.
    for kind in KINDS {
        let memory = Memory::builder().kind(kind).build();
        for _ in 0..2 {
            put(&memory, (0..5).map(|id| dead(id, "urn:b", "failed"))).await;
        }
        put(&memory, wanted()).await;
        let redrive = Redrive::new(memory.clone(), DLQ).urn("urn:a");
        let report = run(redrive.window(5).batch(5)).await;
        assert_eq!(report.summary.redriven, 20, "{kind:?}");
        assert_eq!(memory.depth(DLQ).total(), 10, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn letters_that_are_the_same_are_all_moved_or_said_to_stay() {
    let gated = r#"{"job":"urn:ping","meta":{"schema_version":2,"queue":"orders"}}"#;
    let memory = Memory::new();
    put(&memory, (0..150).map(|_| gated.to_owned())).await;
    let report = run(Redrive::new(memory.clone(), DLQ)).await;
    assert_eq!(fates(&report)[..100], [Fate::Redriven; 100], "one batch");
    assert_eq!(fates(&report)[100..], [Fate::MovedBefore; 50]);
    let report = run(Redrive::new(memory.clone(), DLQ)).await;
    assert_eq!(report.summary.redriven, 50);
    assert_eq!(memory.depth("orders").ready, 150);
}

/// A worker beside the run fails them at once, and its clock is behind: what it dead-letters looks
/// older than the run.
#[tokio::test(start_paused = true)]
async fn what_fails_again_by_a_clock_that_is_behind_is_moved_once() {
    for id in ["", r#""id":"7","#] {
        let memory = Memory::new();
        let letters = (0..10).map(|number| {
            let id = id.replace('7', &number.to_string());
            format!(r#"{{"job":"urn:a","meta":{{{id}"queue":"orders"}},"data":{{"n":{number}}},"attempts":1,"dead_letter":{{"failed_at":1}}}}"#)
        });
        put(&memory, letters).await;
        let behind = Arc::new(ManualClock::at(Duration::from_secs(1)));
        let worker = crate::worker::Worker::new(memory.clone())
            .queue("orders")
            .retry(crate::retry::Retry::attempts(1))
            .dead_letter(true)
            .clock(behind);
        let now = Arc::new(ManualClock::at(Duration::from_secs(1000)));
        let run = run(Redrive::new(memory.clone(), DLQ).clock(now));
        let report = tokio::select! {
            report = run => report,
            stopped = worker.run() => unreachable!("{stopped:?}"),
        };
        assert_eq!(report.summary.redriven, 10);
        assert_eq!(fates(&report)[10..], [Fate::MovedBefore; 10]);
    }
}
