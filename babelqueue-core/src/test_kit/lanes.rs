//! What a lane promises, where there are lanes: law 4 of [the seam](crate::transport).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::consumer::Consumer;
use super::stage::{Stage, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::transport::{Delivery, Settled, Settlement};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("lanes/order_is_kept_in_each", order, |can, _| can.lanes),
        entry!("lanes/a_release_takes_back_the_rest", release, |can, _| can
            .lanes),
        entry!(
            "lanes/an_abandoned_head_takes_back_the_rest",
            abandon,
            |can, _| { can.lanes }
        ),
    ]
}

async fn order(stage: &Stage) -> Outcome {
    const LANES: [(&str, u32); 3] = [("north", 0), ("south", 100), ("west", 200)];
    const EACH: u32 = 20;
    let queue = stage.queue_with_lanes().await?;
    for at in 0..EACH {
        for (lane, base) in LANES {
            stage
                .publish_in_lane(&queue.name, lane, &[base + at])
                .await?;
        }
    }
    let mut consumer = stage.consume(&queue.name, 16).await?;
    let mut came = BTreeMap::<u32, Vec<u32>>::new();
    let mut lanes = BTreeMap::new();
    for _ in 0..EACH * 3 {
        let delivery = consumer.one().await?;
        consumer.ack(&delivery).await?;
        let number = number(&delivery).unwrap_or(u32::MAX);
        came.entry(number / 100).or_default().push(number);
        ensure!(
            delivery.lane.is_some(),
            "a message of a lane came without one"
        );
        let lane = lanes
            .entry(number / 100)
            .or_insert_with(|| delivery.lane.clone());
        ensure!(
            *lane == delivery.lane,
            "one lane came as {lane:?} and {:?}",
            delivery.lane
        );
    }
    for (_, base) in LANES {
        let expected: Vec<u32> = (base..base + EACH).collect();
        let order = came.remove(&(base / 100)).unwrap_or_default();
        ensure!(order == expected, "a lane came as {order:?}");
    }
    consumer.close().await
}

async fn release(stage: &Stage) -> Outcome {
    head_goes_back(stage, Settlement::release()).await
}

async fn abandon(stage: &Stage) -> Outcome {
    head_goes_back(stage, Settlement::Abandon).await
}

/// The first of a lane goes back while the ones after it are out: they must not be done before it.
async fn head_goes_back(stage: &Stage, how: Settlement) -> Outcome {
    let queue = stage.queue_with_lanes().await?;
    let numbers: Vec<u32> = (1..=5).collect();
    stage.publish_in_lane(&queue.name, "lane", &numbers).await?;
    let mut consumer = stage.consume(&queue.name, 16).await?;
    let out = several(&mut consumer, numbers.len()).await?;
    let answer = consumer.settle(&out[0], how).await??;
    ensure!(
        answer == Settled::LaneRewound || out.len() == 1,
        "the head of a lane went back with {} behind it, and was answered {answer:?}",
        out.len() - 1
    );
    for after in &out[1..] {
        ensure!(
            after.is_lost(),
            "{after:?} came after it, and is not marked lost"
        );
        ensure!(
            !consumer.settler.begin(after),
            "a handler may start on {after:?}, which came after it"
        );
        let late = consumer.settle(after, Settlement::Ack).await??;
        ensure!(
            late == Settled::Fenced,
            "an ack of it was answered {late:?}"
        );
    }
    let again = consumer.take_and_ack(numbers.len()).await?;
    ensure!(again == numbers, "the lane came again as {again:?}");
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

/// One delivery, and as many more as come while one waits a moment: a broker may hold the rest of a
/// lane back until its head is settled.
async fn several(consumer: &mut Consumer, most: usize) -> Result<Vec<Arc<Delivery>>, Failed> {
    let mut out = consumer.some(most).await?;
    while out.len() < most {
        let more = consumer.receiver.receive(most - out.len());
        match timeout(Duration::from_millis(500), more).await {
            Ok(more) => out.extend(more?),
            Err(_) => break,
        }
    }
    Ok(out)
}
