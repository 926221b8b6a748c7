use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, advance, sleep, timeout};

use super::{Fault, FaultSource, Kind, Latency, Memory, SeededFaults, Verb, What};
use crate::Headers;
use crate::transport::{
    Delivery, Outgoing, Settled, Settlement, SubscribeOptions, Subscription, Transport,
};

mod lanes;

const LEASE: Duration = Duration::from_secs(30);
const KINDS: [Kind; 3] = [
    Kind::Leased { lease: LEASE },
    Kind::Bound,
    Kind::Rewinding { lanes: 2 },
];

fn memory(kind: Kind) -> Memory {
    Memory::builder().kind(kind).journal(true).build()
}

async fn put(memory: &Memory, bodies: &[&'static str]) {
    let batch = bodies
        .iter()
        .map(|&body| Outgoing::new("q", body))
        .collect();
    for result in memory.publish(batch).await {
        result.unwrap();
    }
}

async fn put_in_group(memory: &Memory, group: &str, bodies: &[&'static str]) {
    for &body in bodies {
        let mut outgoing = Outgoing::new("q", body);
        outgoing.options = outgoing.options.group(group);
        memory.publish(vec![outgoing]).await.remove(0).unwrap();
    }
}

async fn open(memory: &Memory) -> Subscription {
    memory
        .subscribe("q", SubscribeOptions::with_prefetch(16))
        .await
        .unwrap()
}

async fn take(from: &mut Subscription, max: usize) -> Vec<Arc<Delivery>> {
    timeout(Duration::from_hours(1), from.receiver.receive(max))
        .await
        .expect("something to receive within the hour")
        .unwrap()
}

async fn settle(by: &Subscription, delivery: &Arc<Delivery>, how: Settlement) -> Settled {
    let batch = vec![(Arc::clone(delivery), how)];
    by.settler.settle(batch).await.remove(0).unwrap()
}

fn retry(body: &'static str, attempts: u32, delay: Duration) -> Settlement {
    Settlement::Retry {
        body: Bytes::from_static(body.as_bytes()),
        attempts,
        delay,
    }
}

fn dead_letter(record: &'static str) -> Settlement {
    Settlement::DeadLetter {
        queue: "q.dlq".into(),
        record: Bytes::from_static(record.as_bytes()),
        verbatim: false,
        attempts: 3,
    }
}

fn bodies(deliveries: &[Arc<Delivery>]) -> Vec<&str> {
    deliveries
        .iter()
        .map(|delivery| std::str::from_utf8(&delivery.body).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_published_comes_out_in_order_and_whole() {
    let memory = Memory::new();
    let mut outgoing = Outgoing::new("q", "one");
    outgoing.headers = Headers::from_iter([("traceparent", "00-1")]);
    outgoing.options = outgoing.options.key("k");
    memory.publish(vec![outgoing]).await.remove(0).unwrap();
    put(&memory, &["two"]).await;

    let mut q = open(&memory).await;
    let out = take(&mut q, 8).await;
    assert_eq!(bodies(&out), ["one", "two"]);
    assert_eq!(out[0].headers.get("traceparent"), Some("00-1"));
    assert_eq!(out[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(out[0].facts.deliveries, Some(0));
    assert_eq!(&*out[0].queue, "q");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_wakes_at_a_publish() {
    let memory = Memory::new();
    let mut q = open(&memory).await;
    let publisher = memory.clone();
    let (out, ()) = tokio::join!(take(&mut q, 1), async move {
        sleep(Duration::from_secs(5)).await;
        put(&publisher, &["late"]).await;
    });
    assert_eq!(bodies(&out), ["late"]);
    assert_eq!(out[0].received().elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_brings_the_message_back_counted_and_fences_the_late() {
    let memory = Memory::new();
    put(&memory, &["m"]).await;
    let mut q = open(&memory).await;
    let started = Instant::now();
    let first = take(&mut q, 1).await.remove(0);
    let second = take(&mut q, 1).await.remove(0);
    assert_eq!(started.elapsed(), LEASE);
    assert!(first.is_lost() && !q.settler.begin(&first));
    assert_eq!(second.facts.deliveries, Some(1));
    assert_eq!(settle(&q, &first, Settlement::Ack).await, Settled::Fenced);
    assert_eq!(settle(&q, &second, Settlement::Ack).await, Settled::Done);
    assert_eq!(memory.depth("q").total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_holds_and_a_lost_one_is_refused() {
    let memory = Memory::new();
    put(&memory, &["a", "b"]).await;
    let mut q = open(&memory).await;
    let out = take(&mut q, 2).await;
    advance(LEASE / 2).await;
    let end = q.settler.extend(&out[..1]).await.remove(0).unwrap();
    assert_eq!(end, Instant::now() + LEASE);
    assert_eq!(out[0].lease_end(), Some(end));
    advance(LEASE / 2).await;
    let refused = q.settler.extend(&out[1..]).await.remove(0).unwrap_err();
    assert!(refused.is_lost() && out[1].is_lost());
    assert_eq!(settle(&q, &out[0], Settlement::Ack).await, Settled::Done);
    assert_eq!(bodies(&take(&mut q, 2).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_holds_at_the_broker_only() {
    let memory = Memory::new();
    put(&memory, &["a"]).await;
    let mut q = open(&memory).await;
    let out = take(&mut q, 1).await.remove(0);
    advance(LEASE / 2).await;
    memory.fail(Verb::Extend, 1, Fault::After);
    let batch = [Arc::clone(&out)];
    assert!(
        q.settler.extend(&batch).await[0]
            .as_ref()
            .unwrap_err()
            .is_transient()
    );
    advance(LEASE / 2).await;
    assert!(!q.settler.begin(&out), "by our clock it is over");
    let again = take(&mut q, 1).await.remove(0);
    assert_eq!(again.received() - out.received(), LEASE * 3 / 2);
}

#[tokio::test(start_paused = true)]
async fn delays_are_kept_to_the_moment() {
    for kind in KINDS {
        let memory = memory(kind);
        let mut outgoing = Outgoing::new("q", "late");
        outgoing.options = outgoing.options.delay(Duration::from_secs(7));
        memory.publish(vec![outgoing]).await.remove(0).unwrap();
        assert_eq!(memory.depth("q").delayed, 1);

        let mut q = open(&memory).await;
        let started = Instant::now();
        let out = take(&mut q, 1).await.remove(0);
        assert_eq!(started.elapsed(), Duration::from_secs(7), "{kind:?}");
        settle(&q, &out, retry("late again", 1, Duration::from_secs(3))).await;
        let out = take(&mut q, 1).await.remove(0);
        assert_eq!(started.elapsed(), Duration::from_secs(10), "{kind:?}");
        assert_eq!(bodies(&[Arc::clone(&out)]), ["late again"]);
        assert_eq!(out.facts.attempts, Some(1));
        settle(&q, &out, Settlement::Ack).await;
        assert_eq!(memory.depth("q").total(), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_without_end_is_no_panic() {
    let memory = Memory::new();
    let mut outgoing = Outgoing::new("q", "never");
    outgoing.options = outgoing.options.delay(Duration::MAX);
    memory.publish(vec![outgoing]).await.remove(0).unwrap();
    assert_eq!(memory.depth("q").delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn settlements_do_what_the_table_says() {
    for kind in KINDS {
        let memory = memory(kind);
        let mut q = open(&memory).await;
        let laned = matches!(kind, Kind::Rewinding { .. });
        put(&memory, &["ack"]).await;
        let out = take(&mut q, 1).await.remove(0);
        assert_eq!(settle(&q, &out, Settlement::Ack).await, Settled::Done);
        assert_eq!(settle(&q, &out, Settlement::Ack).await, Settled::Fenced);

        put(&memory, &["release"]).await;
        let out = take(&mut q, 1).await.remove(0);
        let answer = settle(&q, &out, Settlement::release()).await;
        assert_eq!(answer == Settled::LaneRewound, laned, "{kind:?}");
        let again = take(&mut q, 1).await.remove(0);
        assert_eq!(again.facts.deliveries, out.facts.deliveries, "{kind:?}");

        let answer = settle(&q, &again, dead_letter("record")).await;
        assert_eq!(answer, Settled::Done);
        assert_eq!(memory.depth("q").total(), 0, "{kind:?}");
        let dead = memory.snapshot("q.dlq").ready;
        assert_eq!(dead.len(), 1);
        assert_eq!(&dead[0].body[..], b"record");

        put(&memory, &["abandon"]).await;
        let out = take(&mut q, 1).await.remove(0);
        settle(&q, &out, Settlement::Abandon).await;
        let again = take(&mut q, 1).await.remove(0);
        let counted = (!laned).then_some(1);
        assert_eq!(again.facts.deliveries, counted, "{kind:?}");
        assert!(out.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn native_dead_lettering_is_off_unless_asked_for() {
    let native = || Settlement::Native {
        reason: "poison",
        description: String::new(),
    };
    for on in [false, true] {
        let memory = Memory::builder().native_dead_letter(on).build();
        put(&memory, &["m"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 1).await.remove(0);
        let answer = q.settler.settle(vec![(out, native())]).await.remove(0);
        assert_eq!(answer.is_ok(), on);
        let native = memory.depth(&Memory::native_dead_letter_queue("q"));
        assert_eq!(native.ready, usize::from(on));
        assert_eq!(memory.depth("q").total(), usize::from(!on));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_returns_what_is_bound_to_it() {
    for kind in KINDS {
        let memory = memory(kind);
        put_in_group(&memory, "a", &["a1", "a2", "a3"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 2).await;
        memory.disconnect();
        let bound = !matches!(kind, Kind::Leased { .. });
        assert!(out.iter().all(|out| out.is_lost() == bound), "{kind:?}");
        let lost = q.receiver.receive(8).await.unwrap_err();
        assert!(lost.is_transient());
        let again = take(&mut q, 8).await;
        if bound {
            assert_eq!(bodies(&again), ["a1", "a2", "a3"], "{kind:?}");
            assert!(again[0].fence.generation > out[0].fence.generation);
            assert_eq!(settle(&q, &out[0], Settlement::Ack).await, Settled::Fenced);
        } else {
            assert_eq!(bodies(&again), ["a3"]);
            assert_eq!(settle(&q, &out[0], Settlement::Ack).await, Settled::Done);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_wakes_a_waiting_receive() {
    let memory = memory(Kind::Bound);
    let mut q = open(&memory).await;
    let breaker = memory.clone();
    let (answer, ()) = tokio::join!(q.receiver.receive(1), async move {
        sleep(Duration::from_secs(1)).await;
        breaker.disconnect();
    });
    assert!(answer.unwrap_err().is_transient());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_subscription_loses_nothing() {
    for kind in KINDS {
        let memory = memory(kind);
        put(&memory, &["a", "b"]).await;
        let mut killed = open(&memory).await;
        let out = take(&mut killed, 1).await;
        drop(killed);
        let mut q = open(&memory).await;
        let mut seen = Vec::new();
        while seen.len() < 2 {
            for again in take(&mut q, 8).await {
                settle(&q, &again, Settlement::Ack).await;
                seen.push(again);
            }
        }
        let mut names = bodies(&seen);
        names.sort_unstable();
        assert_eq!(names, ["a", "b"], "{kind:?}");
        assert!(out[0].is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_what_is_out_and_no_longer_than_told() {
    for kind in KINDS {
        let memory = memory(kind);
        put(&memory, &["a"]).await;
        let Subscription {
            mut receiver,
            settler,
        } = open(&memory).await;
        let out = receiver.receive(1).await.unwrap().remove(0);
        let started = Instant::now();
        let (closed, ()) = tokio::join!(receiver.close(Duration::from_secs(20)), async {
            sleep(Duration::from_secs(3)).await;
            settler.settle(vec![(out, Settlement::Ack)]).await;
        });
        closed.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(3), "{kind:?}");
        assert!(!receiver.receive(1).await.unwrap_err().is_transient());

        put(&memory, &["b"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 1).await.remove(0);
        let started = Instant::now();
        q.receiver.close(Duration::from_secs(20)).await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(20), "{kind:?}");
        let bound = !matches!(kind, Kind::Leased { .. });
        assert_eq!(out.is_lost(), bound, "{kind:?}");
        assert_eq!(memory.depth("q").ready, usize::from(bound), "{kind:?}");
    }
}

/// Every receive takes a second to reach the broker and a second back.
struct Slow;

impl FaultSource for Slow {
    fn fault(&mut self, _verb: Verb) -> Option<Fault> {
        None
    }

    fn latency(&mut self, verb: Verb) -> Latency {
        match verb {
            Verb::Receive => Latency {
                there: Duration::from_secs(1),
                back: Duration::from_secs(1),
            },
            _ => Latency::default(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_receive_keeps_what_was_on_its_way() {
    for kind in KINDS {
        let memory = memory(kind);
        memory.fail_by(Slow);
        put(&memory, &["a", "b"]).await;
        let mut q = open(&memory).await;
        let early = Duration::from_millis(1500);
        assert!(timeout(early, q.receiver.receive(8)).await.is_err());
        assert_eq!(memory.depth("q").reserved, 2, "{kind:?}");
        let out = take(&mut q, 1).await;
        assert_eq!(bodies(&out), ["a"], "{kind:?}");

        settle(&q, &out[0], Settlement::Ack).await;
        q.receiver.close(Duration::ZERO).await.unwrap();
        let back = memory.snapshot("q").ready;
        assert_eq!(back.len(), 1, "{kind:?}: close gives back what it holds");
        assert_eq!(back[0].deliveries, 0, "{kind:?}: uncounted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_whose_answer_was_lost_loses_no_message() {
    for kind in KINDS {
        let memory = memory(kind);
        put_in_group(&memory, "a", &["a1", "a2"]).await;
        memory.fail(Verb::Receive, 1, Fault::After);
        let mut q = open(&memory).await;
        assert!(q.receiver.receive(8).await.unwrap_err().is_transient());
        assert_eq!(bodies(&take(&mut q, 8).await), ["a1", "a2"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn publish_faults_are_reported_one_by_one() {
    let memory = Memory::new();
    memory.fail(Verb::Publish, 2, Fault::Before);
    memory.fail(Verb::Publish, 3, Fault::After);
    memory.fail(Verb::Publish, 5, Fault::Disconnect);
    let batch = ["1", "2", "3", "4", "5", "6"].map(|body| Outgoing::new("q", body));
    let results = memory.publish(batch.into()).await;
    let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, false, true, false, false]);
    let there: Vec<_> = memory
        .snapshot("q")
        .ready
        .into_iter()
        .map(|m| m.body)
        .collect();
    assert_eq!(there, ["1", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn options_that_it_lacks_are_refused() {
    let memory = Memory::new();
    let mut outgoing = Outgoing::new("q", "m");
    outgoing.options = outgoing.options.priority(9);
    let refused = memory.publish(vec![outgoing]).await.remove(0).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "memory has no priority: it takes `delay`, `key` and `group`"
    );
    assert_eq!(memory.depth("q").total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_that_is_full_loses_nothing() {
    for kind in KINDS {
        let memory = memory(kind);
        memory.set_full("q.dlq", true);
        let refused = memory.publish(vec![Outgoing::new("q.dlq", "m")]).await;
        assert!(refused[0].as_ref().unwrap_err().is_transient());
        put(&memory, &["m"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 1).await.remove(0);
        let batch = vec![(out, dead_letter("r"))];
        assert!(
            q.settler.settle(batch).await[0]
                .as_ref()
                .unwrap_err()
                .is_transient()
        );
        memory.set_full("q.dlq", false);
        let again = take(&mut q, 1).await.remove(0);
        settle(&q, &again, dead_letter("r")).await;
        assert_eq!(memory.depth("q").total(), 0, "{kind:?}");
        assert_eq!(memory.depth("q.dlq").ready, 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_copy_and_ack_leaves_both() {
    for kind in [Kind::Bound, Kind::Rewinding { lanes: 1 }] {
        let memory = memory(kind);
        put(&memory, &["m"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 1).await.remove(0);
        memory.fail(Verb::Settle, 1, Fault::Half);
        let how = retry("m'", 1, Duration::ZERO);
        assert!(q.settler.settle(vec![(out, how)]).await[0].is_err());
        assert_eq!(bodies(&take(&mut q, 8).await), ["m", "m'"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_tells_what_happened() {
    let memory = memory(Kind::Bound);
    put(&memory, &["m"]).await;
    let mut q = open(&memory).await;
    let out = take(&mut q, 1).await.remove(0);
    settle(&q, &out, dead_letter("r")).await;
    let told: Vec<_> = memory
        .take_journal()
        .into_iter()
        .map(|event| match event.what {
            What::Entered { copy_of, .. } => format!("{} entered {copy_of:?}", event.queue),
            What::DeadLettered { .. } => "dead-lettered".to_owned(),
            What::Delivered { .. } => "delivered".to_owned(),
            What::Acked => "acked".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            "q entered None",
            "delivered",
            "dead-lettered",
            "q.dlq entered Some(1)",
            "acked"
        ]
    );
    assert!(memory.take_journal().is_empty());
}

#[tokio::test(start_paused = true)]
async fn under_seeded_faults_every_message_is_acked_in_the_end() {
    for (kind, seed) in KINDS
        .iter()
        .flat_map(|&kind| (0..20).map(move |seed| (kind, seed)))
    {
        let memory = memory(kind);
        put_in_group(&memory, "a", &["a1", "a2", "a3", "a4"]).await;
        put(&memory, &["1", "2", "3", "4"]).await;
        memory.fail_by(SeededFaults::new(seed, 0.3));
        let mut q = loop {
            let options = SubscribeOptions::with_prefetch(16);
            if let Ok(q) = memory.subscribe("q", options).await {
                break q;
            }
        };
        let mut acked = std::collections::BTreeSet::new();
        while memory.depth("q").total() > 0 {
            let Ok(more) = q.receiver.receive(3).await else {
                continue;
            };
            for out in more.into_iter().filter(|out| q.settler.begin(out)) {
                acked.insert(out.body.clone());
                q.settler.settle(vec![(out, Settlement::Ack)]).await;
            }
        }
        assert_eq!(acked.len(), 8, "{kind:?}, seed {seed}");
    }
}
