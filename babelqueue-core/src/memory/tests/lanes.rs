//! One after another within a lane, and no lane at the cost of the others.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lane_goes_to_one_subscription_at_a_time() {
    let memory = memory(Kind::Leased { lease: LEASE });
    put_in_group(&memory, "a", &["a1", "a2", "a3"]).await;
    put(&memory, &["free"]).await;
    let (mut one, mut two) = (open(&memory).await, open(&memory).await);
    let first = take(&mut one, 1).await.remove(0);
    assert_eq!(bodies(&take(&mut two, 8).await), ["free"]);
    let rest = take(&mut one, 8).await;
    assert_eq!(bodies(&rest), ["a2", "a3"], "the holder goes on");
    for out in [&first, &rest[0], &rest[1]] {
        settle(&one, out, Settlement::Ack).await;
    }
    put_in_group(&memory, "a", &["a4"]).await;
    assert_eq!(
        bodies(&take(&mut two, 8).await),
        ["a4"],
        "it was free again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scope_holds_no_more_than_its_share_and_the_others_go_on() {
    let memory = memory(Kind::Rewinding { lanes: 2 });
    put(&memory, &["1", "2", "3", "4", "5", "6"]).await;
    let options = SubscribeOptions::with_prefetch(8).scope_share(2);
    let mut q = memory.subscribe("q", options).await.unwrap();
    let out = take(&mut q, 8).await;
    assert_eq!(bodies(&out), ["1", "2", "3", "4"], "two of each lane");
    settle(&q, &out[0], Settlement::Ack).await;
    assert_eq!(bodies(&take(&mut q, 8).await), ["5"]);
    settle(
        &q,
        &out[2],
        Settlement::Release {
            body: None,
            delay: Duration::ZERO,
        },
    )
    .await;
    assert_eq!(
        bodies(&take(&mut q, 8).await),
        ["3", "5"],
        "rewound, and room again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_a_leased_lane_stays_at_its_head() {
    let memory = memory(Kind::Leased { lease: LEASE });
    put_in_group(&memory, "a", &["a1", "a2", "a3"]).await;
    let mut q = open(&memory).await;
    let out = take(&mut q, 3).await;
    put_in_group(&memory, "b", &["b1"]).await;
    settle(&q, &out[0], Settlement::Ack).await;
    let answer = settle(&q, &out[1], retry("a2'", 1, Duration::from_secs(5))).await;
    assert_eq!(answer, Settled::LaneRewound);
    assert!(!q.settler.begin(&out[2]), "what came after was taken back");
    assert_eq!(settle(&q, &out[2], Settlement::Ack).await, Settled::Fenced);

    let started = Instant::now();
    assert_eq!(bodies(&take(&mut q, 8).await), ["b1"]);
    assert_eq!(bodies(&take(&mut q, 8).await), ["a2'", "a3"]);
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_failed_settlement_takes_back_the_rest_of_its_lane() {
    for (kind, fault) in KINDS.iter().flat_map(|&kind| {
        [Fault::Before, Fault::After, Fault::Half, Fault::Disconnect].map(|fault| (kind, fault))
    }) {
        let memory = memory(kind);
        put_in_group(&memory, "a", &["a1", "a2", "a3"]).await;
        let mut q = open(&memory).await;
        let out = take(&mut q, 8).await;
        memory.fail(Verb::Settle, 1, fault);
        let acks = out.iter().map(|out| (Arc::clone(out), Settlement::Ack));
        let answers = q.settler.settle(acks.collect()).await;
        assert!(answers[0].as_ref().unwrap_err().is_transient());
        for (at, answer) in answers.iter().enumerate().skip(1) {
            assert_eq!(
                *answer.as_ref().unwrap(),
                Settled::Fenced,
                "{kind:?} {fault:?}"
            );
            assert!(!q.settler.begin(&out[at]));
        }
        let mut again = Vec::new();
        while memory.depth("q").total() > 0 {
            if let Ok(more) = q.receiver.receive(8).await {
                for out in more {
                    settle(&q, &out, Settlement::Ack).await;
                    again.push(out);
                }
            }
        }
        let expected: &[_] = match fault {
            Fault::After => &["a2", "a3"],
            _ => &["a1", "a2", "a3"],
        };
        assert_eq!(bodies(&again), expected, "{kind:?} {fault:?}");
    }
}
