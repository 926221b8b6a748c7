//! What a receive promises.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::stage::{Stage, number};
use super::{Entry, Failed, Outcome, ensure, entry};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("receive/a_waiting_receive_wakes_at_a_publish", wakes),
        entry!("receive/it_gives_at_most_what_was_asked_for", at_most),
        entry!("receive/a_dropped_receive_loses_nothing", cancel_safe),
        entry!("receive/two_consumers_share_a_queue", share),
    ]
}

async fn wakes(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let mut waiting = consumer.receiver.receive(8);
    let early = timeout(Duration::from_millis(100), &mut waiting).await;
    ensure!(early.is_err(), "an empty queue gave {early:?}");
    stage.publish(&queue.name, &[7]).await?;
    let came = stage.patiently("the waiting receive", waiting).await??;
    let numbers: Vec<_> = came.iter().map(|delivery| number(delivery)).collect();
    ensure!(numbers == [Some(7)], "published 7, and {numbers:?} came");
    for delivery in &came {
        consumer.ack(delivery).await?;
    }
    consumer.close().await
}

async fn at_most(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..20).collect();
    stage.publish(&queue.name, &numbers).await?;
    let mut consumer = stage.consume(&queue.name, 32).await?;
    let mut came = Vec::new();
    for max in [1, 3, 16].into_iter().cycle() {
        // `some` checks that no more than that came.
        for delivery in consumer.some(max).await? {
            consumer.ack(&delivery).await?;
            came.extend(number(&delivery));
        }
        if came.len() >= numbers.len() {
            break;
        }
    }
    came.sort_unstable();
    ensure!(came == numbers, "not each message came once: {came:?}");
    consumer.close().await
}

/// Drops calls at every stage of their way. What comes must come once, and first-hand.
async fn cancel_safe(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..60).collect();
    let mut consumer = stage.consume(&queue.name, 64).await?;
    let mut came = Vec::new();
    let mut to_publish = numbers.chunks(10);
    let end = tokio::time::Instant::now() + stage.patience();
    for round in 0_u64.. {
        ensure!(
            tokio::time::Instant::now() < end,
            "of {} messages {} came: {came:?}",
            numbers.len(),
            came.len()
        );
        if round % 8 == 0
            && let Some(chunk) = to_publish.next()
        {
            stage.publish(&queue.name, chunk).await?;
        }
        let call = consumer.receiver.receive(7);
        let answer = if round % 3 == 0 {
            call.now_or_never()
        } else {
            timeout(Duration::from_millis(round % 16), call).await.ok()
        };
        for delivery in answer.transpose()?.into_iter().flatten() {
            let again = delivery.facts.deliveries.unwrap_or(0) > 0;
            ensure!(
                !again,
                "a message was handed out before, and lost: {delivery:?}"
            );
            consumer.ack(&delivery).await?;
            came.extend(number(&delivery));
        }
        if came.len() >= numbers.len() {
            break;
        }
    }
    came.sort_unstable();
    ensure!(came == numbers, "not each message came once: {came:?}");
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn share(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..40).collect();
    let mut one = stage.consume(&queue.name, 4).await?;
    let other = stage.fixture.connect().await?;
    let mut two = stage.consume_over(&*other, &queue.name, 4).await?;
    stage.publish(&queue.name, &numbers).await?;
    let mut came = Vec::new();
    while came.len() < numbers.len() {
        let deliveries = stage
            .patiently("either consumer", async {
                tokio::select! {
                    from_one = one.some(4) => from_one.map(|some| (&one.settler, some)),
                    from_two = two.some(4) => from_two.map(|some| (&two.settler, some)),
                }
            })
            .await??;
        let (settler, some) = deliveries;
        let batch = some
            .iter()
            .map(|delivery| (delivery.clone(), crate::transport::Settlement::Ack))
            .collect();
        for answer in settler.settle(batch).await {
            answer?;
        }
        came.extend(some.iter().filter_map(|delivery| number(delivery)));
    }
    came.sort_unstable();
    ensure!(came == numbers, "not each message came once: {came:?}");
    one.close().await?;
    two.close()
        .await
        .map_err(|failed| Failed(format!("the second: {failed}")))
}
