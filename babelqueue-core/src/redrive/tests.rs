mod alike;
mod group;

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::Headers;
use crate::clock::ManualClock;
use crate::memory::{Fault, Kind, Memory, Stored, Verb};
use crate::replay;
use crate::transport::{
    Capabilities, Delivery, Facts, Lane, Outgoing, PublishOptions, Receiver, Rules, Settled,
    Settlement, Settler, SubscribeOptions, Subscription, VersionProperty,
};

const DLQ: &str = "orders.dlq";

/// Its spelling and its numbers are unlike anything that we would write.
fn dead(id: usize, urn: &str, reason: &str) -> String {
    format!(
        r#"{{ "job":"{urn}", "meta":{{"id":"{id}","queue":"elsewhere"}}, "data":{{"n":1e-999}},"attempts":3,"dead_letter":{{"reason":"{reason}","failed_at":1,"original_queue":"orders","attempts":3}}, "extra":1.50 }}"#
    )
}

/// The same as it is handled again.
fn fresh(id: usize, urn: &str) -> String {
    format!(
        r#"{{ "job":"{urn}", "meta":{{"id":"{id}","queue":"elsewhere"}}, "data":{{"n":1e-999}},"attempts":0, "extra":1.50 }}"#
    )
}

async fn put(memory: &Memory, bodies: impl IntoIterator<Item = String>) {
    let batch = bodies.into_iter().map(|body| Outgoing::new(DLQ, body));
    for answer in memory.publish(batch.collect()).await {
        answer.expect("memory takes it");
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

fn bodies(memory: &Memory, queue: &str) -> Vec<String> {
    let snapshot = memory.snapshot(queue);
    assert!(snapshot.reserved.is_empty() && snapshot.delayed.is_empty());
    snapshot.ready.iter().map(|one| text(&one.body)).collect()
}

fn fates(report: &Report) -> Vec<Fate> {
    report.items.iter().map(|item| item.fate).collect()
}

async fn run(redrive: Redrive) -> Report {
    redrive.run().await.expect("nothing fails")
}

#[tokio::test(start_paused = true)]
async fn everything_goes_back_to_where_it_failed_as_if_never_tried() {
    let memory = Memory::new();
    put(&memory, (0..250).map(|id| dead(id, "urn:a", "failed"))).await;
    let report = run(Redrive::new(memory.clone(), DLQ)).await;

    let expected: Vec<_> = (0..250).map(|id| fresh(id, "urn:a")).collect();
    assert_eq!(bodies(&memory, "orders"), expected);
    assert!(bodies(&memory, DLQ).is_empty());
    assert_eq!(
        report.summary,
        Summary {
            redriven: 250,
            skipped: 0
        }
    );
    let first = &report.items[0];
    assert_eq!(first.message_id.as_deref(), Some("0"));
    assert_eq!(first.urn.as_deref(), Some("urn:a"));
    assert_eq!(first.reason.as_deref(), Some("failed"));
    assert_eq!(&*first.from, DLQ);
    assert_eq!(first.to.as_deref(), Some("orders"));
    assert!(first.redriven() && !first.bypassed);
}

#[test]
fn a_run_can_be_spawned() {
    fn sendable<T: Send>(_: &T) {}
    sendable(&Redrive::new(Memory::new(), DLQ).run());
}

#[tokio::test(start_paused = true)]
async fn headers_and_key_go_along_and_counts_begin_anew() {
    let memory = Memory::new();
    let mut outgoing = Outgoing::new(DLQ, dead(1, "urn:a", "failed"));
    outgoing.headers = Headers::from_iter([("traceparent", "00-1")]);
    outgoing.options = PublishOptions::new().key("k");
    memory.publish(vec![outgoing]).await.remove(0).unwrap();
    let report = run(Redrive::new(memory.clone(), DLQ).bypass(true)).await;

    let moved = memory.snapshot("orders").ready.remove(0);
    assert_eq!(moved.headers.get("traceparent"), Some("00-1"));
    assert_eq!(moved.headers.get(replay::HEADER), Some(replay::MARK));
    assert_eq!(moved.key.as_deref(), Some(&b"k"[..]));
    assert_eq!((moved.deliveries, moved.attempts), (0, Some(0)));
    assert!(report.items[0].bypassed);
}

#[tokio::test(start_paused = true)]
async fn the_target_is_the_wanted_one_else_the_original_else_the_messages_own() {
    let memory = Memory::new();
    let block = |queue: &str| format!(r#","dead_letter":{{"original_queue":"{queue}"}}"#);
    let body = |rest: &str| format!(r#"{{"job":"urn:a"{rest}}}"#);
    let own = r#","meta":{"queue":"own"}"#;
    put(
        &memory,
        [
            body(&block("original")),
            body(&(own.to_owned() + &block("original"))),
            body(own),
            body(&(own.to_owned() + &block(""))),
            body(""),
            // Where it came from is where it lies.
            body(&block(DLQ)),
        ],
    )
    .await;
    let plan = |redrive: Redrive| async {
        let items = run(redrive.dry_run(true)).await.items;
        let to = items.into_iter().map(|item| (item.to, item.fate));
        to.collect::<Vec<_>>()
    };
    let to = |queue: &str| (Some(Arc::from(queue)), Fate::Planned);
    assert_eq!(
        plan(Redrive::new(memory.clone(), DLQ)).await,
        [
            to("original"),
            to("original"),
            to("own"),
            to("own"),
            (None, Fate::NoTarget),
            (None, Fate::NoTarget),
        ]
    );
    assert_eq!(
        plan(Redrive::new(memory, DLQ).to_queue("sandbox")).await,
        vec![to("sandbox"); 6]
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_not_redriven_into_itself() {
    let memory = Memory::new();
    put(&memory, [dead(1, "urn:a", "failed")]).await;
    let redrive = Redrive::new(memory.clone(), DLQ).to_queue(DLQ);
    let interrupted = redrive.run().await.expect_err("its own target");
    assert!(matches!(
        interrupted.source,
        Error::Config {
            option: "to_queue",
            ..
        }
    ));
    assert_eq!(bodies(&memory, DLQ).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn poison_stays_byte_for_byte() {
    let memory = Memory::new();
    let poison = [
        "not JSON",
        r#"{"raw":"not JSON","dead_letter":{"reason":"poison","original_queue":"orders"}}"#,
        r#"{"job":"urn:a","attempts":"3"}"#,
        r#"{"job":5,"meta":{"queue":"orders"}}"#,
        "",
    ]
    .map(str::to_owned);
    put(&memory, poison.clone()).await;
    put(&memory, [dead(1, "urn:a", "poison")]).await;
    let report = run(Redrive::new(memory.clone(), DLQ)).await;

    assert_eq!(bodies(&memory, DLQ), poison);
    // Judged by its body, not by what its block says.
    assert_eq!(bodies(&memory, "orders"), [fresh(1, "urn:a")]);
    let mut expected = vec![Fate::Poison; 5];
    expected.push(Fate::Redriven);
    assert_eq!(fates(&report), expected);
    assert_eq!(
        report.summary,
        Summary {
            redriven: 1,
            skipped: 5
        }
    );
}

#[tokio::test(start_paused = true)]
async fn all_that_was_asked_for_has_to_hold() {
    let memory = Memory::new();
    let messages = [
        ("urn:a", "failed"),
        ("urn:b", "failed"),
        ("urn:a", "unknown_urn"),
        ("urn:c", "failed"),
        ("urn:a", "failed"),
    ];
    let put_all = messages.iter().enumerate();
    put(
        &memory,
        put_all.map(|(id, (urn, reason))| dead(id, urn, reason)),
    )
    .await;
    let redrive = Redrive::new(memory.clone(), DLQ)
        .urn("urn:a")
        .urn("urn:c")
        .reason(Reason::Failed)
        .select(|envelope| envelope.id().as_deref() != Some("4"));
    let report = run(redrive).await;

    assert_eq!(
        bodies(&memory, "orders"),
        [fresh(0, "urn:a"), fresh(3, "urn:c")]
    );
    assert_eq!(
        bodies(&memory, DLQ),
        [1, 2, 4].map(|id| dead(id, messages[id].0, messages[id].1))
    );
    assert_eq!(
        report.summary,
        Summary {
            redriven: 2,
            skipped: 3
        }
    );
    let left = report.items.iter().filter(|item| !item.redriven());
    assert!(left.clone().all(|item| item.to.is_none()));
    assert!(left.clone().all(|item| item.fate == Fate::NotSelected));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_block_has_no_reason() {
    let memory = Memory::new();
    put(
        &memory,
        [r#"{"job":"urn:a","meta":{"queue":"orders"}}"#.to_owned()],
    )
    .await;
    let report = run(Redrive::new(memory, DLQ).reason(Reason::Failed)).await;
    assert_eq!(fates(&report), [Fate::NotSelected]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    for kind in KINDS {
        let memory = Memory::builder().kind(kind).build();
        put(&memory, (0..40).map(|id| dead(id, "urn:a", "failed"))).await;
        let before = memory.snapshot(DLQ).ready;
        let report = run(Redrive::new(memory.clone(), DLQ).dry_run(true)).await;
        assert_eq!(
            report.summary,
            Summary {
                redriven: 0,
                skipped: 40
            }
        );
        assert!(
            report
                .items
                .iter()
                .all(|item| item.to.as_deref() == Some("orders"))
        );

        let after = memory.snapshot(DLQ).ready;
        assert_eq!(sorted(&after), sorted(&before), "{kind:?}");
        assert_eq!(memory.depth("orders").total(), 0);
        if !matches!(kind, Kind::Rewinding { .. }) {
            assert_eq!(contents(&after), contents(&before), "{kind:?}");
        }
    }
}

fn contents(stored: &[Stored]) -> Vec<String> {
    stored.iter().map(|one| text(&one.body)).collect()
}

fn sorted(stored: &[Stored]) -> Vec<String> {
    let mut contents = contents(stored);
    contents.sort();
    contents
}

#[tokio::test(start_paused = true)]
async fn no_more_than_max_are_looked_at() {
    let memory = Memory::new();
    put(&memory, (0..10).map(|id| dead(id, "urn:a", "failed"))).await;
    let redrive = || Redrive::new(memory.clone(), DLQ).max(3).batch(2);
    let plan = run(redrive().dry_run(true)).await;
    assert_eq!(plan.items.len(), 3);
    assert_eq!(memory.depth(DLQ).total(), 10);

    let report = run(redrive()).await;
    assert_eq!(
        report.summary,
        Summary {
            redriven: 3,
            skipped: 0
        }
    );
    assert_eq!(memory.depth(DLQ).total(), 7);
    assert_eq!(memory.depth("orders").total(), 3);
    run(Redrive::new(memory.clone(), DLQ).max(0)).await;
    assert_eq!(memory.depth(DLQ).total(), 0);
}

const KINDS: [Kind; 3] = [
    Kind::Leased {
        lease: Duration::from_secs(30),
    },
    Kind::Bound,
    Kind::Rewinding { lanes: 3 },
];

/// Far more than the window is to stay: it has to get out of the way, and come round.
#[tokio::test(start_paused = true)]
async fn what_stays_is_met_once_and_keeps_its_order_however_much_it_is() {
    for kind in KINDS {
        for (window, batch) in [(1, 1), (3, 2), (7, 100), (50, 7), (1000, 100)] {
            let memory = Memory::builder().kind(kind).build();
            let urn = |id: usize| {
                if id.is_multiple_of(5) {
                    "urn:wanted"
                } else {
                    "urn:other"
                }
            };
            put(&memory, (0..60).map(|id| dead(id, urn(id), "failed"))).await;
            let redrive = Redrive::new(memory.clone(), DLQ)
                .urn("urn:wanted")
                .window(window)
                .batch(batch);
            let report = run(redrive).await;

            let context = format!("{kind:?}, window {window}, batch {batch}");
            let mut told: Vec<_> = report.items.iter().map(|item| &item.message_id).collect();
            told.sort();
            told.dedup();
            assert_eq!(told.len(), 60, "{context}");
            assert_eq!(report.summary.redriven, 12, "{context}");
            let ids = |queue, parity: bool| {
                let mut ids = Vec::new();
                for lane in lanes(&memory, queue) {
                    assert!(in_order(&lane), "{context}: {lane:?}");
                    ids.extend(lane);
                }
                ids.sort_unstable();
                let expected: Vec<_> = (0..60_usize)
                    .filter(|id| id.is_multiple_of(5) == parity)
                    .collect();
                assert_eq!(ids, expected, "{context}");
            };
            ids("orders", true);
            ids(DLQ, false);
            // Without lanes the queue is one row, and each is told once.
            if !matches!(kind, Kind::Rewinding { .. }) {
                assert_eq!(report.items.len(), 60, "{context}");
            }
        }
    }
}

/// The ids in `queue`, lane by lane.
fn lanes(memory: &Memory, queue: &str) -> Vec<Vec<usize>> {
    let mut lanes: Vec<(Option<Lane>, Vec<usize>)> = Vec::new();
    for stored in memory.snapshot(queue).ready {
        let envelope = Envelope::decode(stored.body).unwrap().envelope;
        let id = envelope.id().unwrap().parse().unwrap();
        match lanes.iter_mut().find(|(lane, _)| *lane == stored.lane) {
            Some((_, ids)) => ids.push(id),
            None => lanes.push((stored.lane, vec![id])),
        }
    }
    lanes.into_iter().map(|(_, ids)| ids).collect()
}

/// In order, but for one place where a row that goes round begins.
fn in_order(ids: &[usize]) -> bool {
    ids.windows(2).filter(|pair| pair[0] > pair[1]).count() <= 1
}

#[tokio::test(start_paused = true)]
async fn messages_that_look_alike_are_not_taken_for_one_that_came_round() {
    let memory = Memory::new();
    put(&memory, (0..9).map(|_| "same".to_owned())).await;
    put(&memory, [dead(1, "urn:a", "failed")]).await;
    let report = run(Redrive::new(memory.clone(), DLQ).window(20)).await;
    assert_eq!(
        report.summary,
        Summary {
            redriven: 1,
            skipped: 9
        }
    );
    assert_eq!(bodies(&memory, DLQ), vec!["same"; 9]);
}

/// A handler that fails at once, on another worker, while the run goes on.
#[tokio::test(start_paused = true)]
async fn what_fails_again_meanwhile_is_left_for_the_next_run() {
    let memory = Memory::new();
    let gated = r#"{"job":"urn:a","meta":{"queue":"orders","schema_version":2}}"#;
    put(&memory, [dead(1, "urn:a", "failed"), gated.to_owned()]).await;
    let clock = Arc::new(ManualClock::at(Duration::from_secs(1)));
    let run = run(Redrive::new(memory.clone(), DLQ).clock(clock));
    let fails = async {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let options = SubscribeOptions::with_prefetch(1);
            let mut orders = memory.subscribe("orders", options).await.unwrap();
            let delivery = orders.receiver.receive(1).await.unwrap().remove(0);
            let record = if delivery.body == gated {
                delivery.body.clone()
            } else {
                dead(1, "urn:a", "failed")
                    .replace(r#""failed_at":1,"#, r#""failed_at":1001,"#)
                    .into()
            };
            let settlement = Settlement::DeadLetter {
                queue: DLQ.into(),
                record,
                verbatim: true,
                attempts: 0,
            };
            orders.settler.settle(vec![(delivery, settlement)]).await;
        }
    };
    let report = tokio::select! {
        report = run => report,
        () = fails => unreachable!("it never ends"),
    };
    assert_eq!(
        report.summary,
        Summary {
            redriven: 2,
            skipped: 2
        }
    );
    assert_eq!(fates(&report)[2..], [Fate::TooNew, Fate::MovedBefore]);
    assert_eq!(memory.depth(DLQ).total(), 2);
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_while_the_run_goes_on() {
    let memory = Memory::builder().lease(Duration::from_secs(2)).build();
    put(&memory, (0..5).map(|id| dead(id, "urn:a", "failed"))).await;
    let redrive = Redrive::new(memory.clone(), DLQ)
        .dry_run(true)
        .idle(Duration::from_mins(5));
    let report = run(redrive).await;
    assert_eq!(report.items.len(), 5, "one lease ran out");
    assert!(
        memory
            .snapshot(DLQ)
            .ready
            .iter()
            .all(|one| one.deliveries == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_nothing_has_come_for_a_while() {
    for (messages, seconds) in [(0, 50), (1, 10)] {
        let memory = Memory::new();
        put(&memory, (0..messages).map(|id| dead(id, "urn:a", "failed"))).await;
        let start = tokio::time::Instant::now();
        run(Redrive::new(memory, DLQ).idle(Duration::from_secs(10))).await;
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    let start = tokio::time::Instant::now();
    let redrive = Redrive::new(Memory::new(), DLQ);
    run(redrive.first_idle(Duration::from_secs(3))).await;
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_fails_leaves_the_message_and_ends_the_run() {
    let memory = Memory::new();
    let body = |id, queue: &str| dead(id, "urn:a", "failed").replace(r#":"orders""#, queue);
    put(
        &memory,
        [
            body(0, r#":"open""#),
            "poison".to_owned(),
            body(1, r#":"full""#),
            body(2, r#":"open""#),
        ],
    )
    .await;
    memory.set_full("full", true);
    let mut items = Vec::new();
    let redrive = Redrive::new(memory.clone(), DLQ).batch(3);
    let interrupted = redrive.for_each(|item| items.push(item)).await;
    let interrupted = interrupted.expect_err("the target is full");
    assert!(interrupted.source.is_transient());
    assert_eq!(
        interrupted.summary,
        Summary {
            redriven: 1,
            skipped: 1
        }
    );
    assert_eq!(items.len(), 2);

    // It comes back when its lease is over; the poison was given back at once.
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(memory.depth("open").total(), 1);
    assert_eq!(memory.depth("full").total(), 0);
    let mut left = bodies(&memory, DLQ);
    left.sort();
    let mut expected = [
        "poison".to_owned(),
        body(1, r#":"full""#),
        body(2, r#":"open""#),
    ];
    expected.sort();
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_fails_ends_the_run_and_nothing_is_lost() {
    for kind in KINDS {
        for verb in [Verb::Subscribe, Verb::Receive, Verb::Settle] {
            for fault in [Fault::Before, Fault::After, Fault::Half, Fault::Disconnect] {
                let memory = Memory::builder().kind(kind).build();
                put(&memory, (0..9).map(|id| dead(id, "urn:a", "failed"))).await;
                memory.fail(verb, 2, fault);
                let redrive = || Redrive::new(memory.clone(), DLQ).batch(3);
                let _ended = redrive().run().await;
                tokio::time::sleep(Duration::from_mins(1)).await;
                let _ended = redrive().run().await;
                tokio::time::sleep(Duration::from_mins(1)).await;

                let mut ids = lanes(&memory, "orders").concat();
                ids.sort_unstable();
                ids.dedup();
                let context = format!("{kind:?} {verb:?} {fault:?}");
                assert_eq!(ids, (0..9).collect::<Vec<_>>(), "{context}");
                assert_eq!(memory.depth(DLQ).total(), 0, "{context}");
            }
        }
    }
}
