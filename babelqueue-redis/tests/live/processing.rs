//! What stays in `:processing` when some of it is settled, in whatever order that comes.

use babelqueue_core::random::Random;
use babelqueue_core::transport::{Settled, Settlement};
use babelqueue_redis::Layout;
use redis::AsyncCommands as _;

use crate::common::{unique, url};
use crate::server::{bare, publish, receive, shared, subscribe, texts};
use crate::{Outcome, trials};

trials![
    a_settlement_takes_out_its_own_and_keeps_the_others_in_order,
    a_settlement_takes_out_one_of_identical_copies,
    a_message_at_the_head_that_takes_long_is_passed_over,
];

const COUNT: usize = 60;

async fn a_settlement_takes_out_its_own_and_keeps_the_others_in_order() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let mut bare = bare(&url()).await?;
    for seed in 0..8 {
        let queue = unique("in-flight");
        let names: Vec<String> = (0..COUNT).map(|n| format!("body {n}")).collect();
        let bodies: Vec<&str> = names.iter().map(String::as_str).collect();
        publish(&redis, &queue, &bodies).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let mut held = receive(&mut subscription, COUNT).await?;
        assert_eq!(texts(&held), names);

        let random = Random::seeded(seed);
        let mut left = names;
        while !held.is_empty() {
            let mut batch = Vec::new();
            // From near the head more often than not, as handlers that end about in turn.
            for _ in 0..=below(&random, 12) {
                let reach = if seed % 2 == 0 { 6 } else { COUNT };
                let at = below(&random, reach.min(held.len()));
                let delivery = held.remove(at);
                left.retain(|name| name.as_bytes() != delivery.body);
                batch.push((delivery, Settlement::Ack));
                if held.is_empty() {
                    break;
                }
            }
            for answer in subscription.settler.settle(batch).await {
                assert_eq!(answer?, Settled::Done);
            }
            let processing: Vec<String> = bare.lrange(format!("{queue}:processing"), 0, -1).await?;
            assert_eq!(processing, left, "seed {seed}");
            let deadlines: usize = bare.zcard(format!("{queue}:processing:deadlines")).await?;
            assert_eq!(deadlines, left.len(), "seed {seed}");
        }
    }
    Ok(())
}

async fn a_settlement_takes_out_one_of_identical_copies() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("copies");
    publish(&redis, &queue, &["a", "same", "b", "same", "", "same", "c"]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let held = receive(&mut subscription, 7).await?;
    // The first copy, the empty one, and what stands around them.
    let batch = [0, 1, 4, 6].map(|at| (held[at].clone(), Settlement::Ack));
    for answer in subscription.settler.settle(batch.into()).await {
        assert_eq!(answer?, Settled::Done);
    }
    let mut bare = bare(&url()).await?;
    let processing: Vec<String> = bare.lrange(format!("{queue}:processing"), 0, -1).await?;
    assert_eq!(processing, ["b", "same", "same"]);
    // Settled a second time: behind its gate, whatever copies are left.
    let again = vec![(held[1].clone(), Settlement::Ack)];
    assert_eq!(
        subscription.settler.settle(again).await.remove(0)?,
        Settled::Fenced
    );
    let rest = [2, 3, 5].map(|at| (held[at].clone(), Settlement::Ack));
    for answer in subscription.settler.settle(rest.into()).await {
        assert_eq!(answer?, Settled::Done);
    }
    let keys: Vec<String> = bare.keys(format!("{queue}*")).await?;
    assert!(keys.is_empty(), "{keys:?}");
    Ok(())
}

async fn a_message_at_the_head_that_takes_long_is_passed_over() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("slow-head");
    publish(&redis, &queue, &["slow", "a", "b", "c"]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let mut held = receive(&mut subscription, 4).await?;
    let slow = held.remove(0);
    let retry = Settlement::Retry {
        body: "b2".into(),
        attempts: 1,
        delay: std::time::Duration::ZERO,
    };
    let settlements = [Settlement::Ack, retry, Settlement::Ack];
    let batch = held.into_iter().zip(settlements).rev().collect();
    for answer in subscription.settler.settle(batch).await {
        assert_eq!(answer?, Settled::Done);
    }
    let mut bare = bare(&url()).await?;
    let processing: Vec<String> = bare.lrange(format!("{queue}:processing"), 0, -1).await?;
    assert_eq!(processing, ["slow"]);
    let ready: Vec<String> = bare.lrange(&queue, 0, -1).await?;
    assert_eq!(ready, ["b2"]);
    let last = vec![(slow, Settlement::Ack)];
    assert_eq!(
        subscription.settler.settle(last).await.remove(0)?,
        Settled::Done
    );
    Ok(())
}

/// A number below `bound`, which is not 0.
fn below(random: &Random, bound: usize) -> usize {
    let number = random.next_u64() % u64::try_from(bound).unwrap_or(u64::MAX);
    usize::try_from(number).unwrap_or_default()
}
