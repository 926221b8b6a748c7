//! What happens to messages when a consumer or the broker goes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use super::consumer::Consumer;
use super::settle::attempts;
use super::stage::{Stage, envelope, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::Headers;
use crate::transport::{Delivery, Prefetch, PublishOptions, Settled, Settlement};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("lifecycle/a_killed_consumer_loses_nothing", killed),
        entry!(
            "lifecycle/close_gives_back_what_was_not_given_out",
            close_gives_back
        ),
        entry!("lifecycle/close_waits_for_what_is_out", close_waits),
        entry!(
            "lifecycle/a_settlement_after_a_close_is_fenced",
            after_close
        ),
        entry!(
            "lifecycle/a_restart_loses_nothing",
            restart,
            |_, fixture| { fixture.can_restart() }
        ),
    ]
}

/// The process dies: receiver, settler and connection go at once, with deliveries out.
async fn killed(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..10).collect();
    stage.publish(&queue.name, &numbers).await?;
    let doomed = stage.fixture.connect().await?;
    let mut consumer = stage.consume_over(&*doomed, &queue.name, 10).await?;
    let out = consumer.take(4).await?;
    consumer.ack(&out[0]).await?;
    let mut done: BTreeSet<_> = number(&out[0]).into_iter().collect();
    drop((consumer, doomed, out));

    let mut consumer = stage.consume(&queue.name, 10).await?;
    while done.len() < numbers.len() {
        let delivery = consumer.one().await.map_err(|failed| {
            Failed(format!(
                "{failed}; of {} messages {done:?} were done",
                numbers.len()
            ))
        })?;
        consumer.ack(&delivery).await?;
        let fresh = number(&delivery).is_some_and(|number| done.insert(number));
        ensure!(fresh, "{delivery:?} was done before");
    }
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn close_gives_back(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..8).collect();
    stage.publish(&queue.name, &numbers).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let mut out = vec![consumer.one().await?];
    // A call dropped after its first poll may leave more on its way, or in the receiver.
    if let Some(more) = consumer.receiver.receive(1).now_or_never() {
        out.extend(more?);
    }
    for delivery in &out {
        consumer.ack(delivery).await?;
    }
    let lease = out[0].lease_end().map(|end| end - out[0].received());
    let closing = Instant::now();
    consumer.close().await?;

    let mut came: Vec<_> = out.iter().filter_map(|delivery| number(delivery)).collect();
    let other = stage.fixture.connect().await?;
    let mut consumer = stage.consume_over(&*other, &queue.name, 8).await?;
    for delivery in consumer.take(numbers.len() - out.len()).await? {
        let counts = stage.capabilities.prefetch == Prefetch::Exact;
        ensure!(
            counts || attempts(stage, &delivery) == 0,
            "what was given back was counted: {delivery:?}"
        );
        consumer.ack(&delivery).await?;
        came.extend(number(&delivery));
    }
    let after = closing.elapsed();
    ensure!(
        lease.is_none_or(|lease| after < lease),
        "it came back only when its lease of {lease:?} was over: after {after:?}"
    );
    came.sort_unstable();
    ensure!(came == numbers, "not each message came once: {came:?}");
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn close_waits(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let delivery = consumer.one().await?;
    let Consumer {
        receiver, settler, ..
    } = &mut consumer;
    let mut closing = receiver.close(stage.patience());
    let early = timeout(Duration::from_millis(300), &mut closing).await;
    ensure!(
        early.is_err(),
        "close did not wait for what is out: {early:?}"
    );
    let answer = settler
        .settle(vec![(delivery, Settlement::Ack)])
        .await
        .pop();
    ensure!(
        matches!(answer, Some(Ok(Settled::Done))),
        "an ack during close was answered {answer:?}"
    );
    stage.patiently("close", closing).await??;

    let other = stage.fixture.connect().await?;
    let mut consumer = stage.consume_over(&*other, &queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn after_close(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let first = consumer.one().await?;
    consumer.receiver.close(Duration::ZERO).await?;

    let other = stage.fixture.connect().await?;
    let mut rival = stage.consume_over(&*other, &queue.name, 8).await?;
    let second = rival.one().await?;
    let late = consumer.settle(&first, Settlement::Ack).await?;
    ensure!(
        matches!(late, Ok(Settled::Fenced)),
        "the message was given out again, and a late ack answered {late:?}"
    );
    rival.settle(&second, Settlement::release()).await??;
    let third = rival
        .one()
        .await
        .map_err(|failed| Failed(format!("the late ack took it away: {failed}")))?;
    rival.ack(&third).await?;
    rival.close().await
}

/// Connections break with deliveries in every state; the same transport goes on.
async fn restart(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..30).collect();
    stage.publish(&queue.name, &numbers[..20]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let mut done = BTreeSet::new();
    let out = consumer.take(6).await?;
    settle_some(&mut consumer, &out[..3], &mut done).await?;
    stage.fixture.restart().await?;
    settle_some(&mut consumer, &out[3..], &mut done).await?;
    for &number in &numbers[20..] {
        publish_until_confirmed(stage, &queue.name, number).await?;
    }
    while done.len() < numbers.len() {
        let more = consumer.some(8).await.map_err(|failed| {
            Failed(format!(
                "{failed}; of {} messages {done:?} were done",
                numbers.len()
            ))
        })?;
        settle_some(&mut consumer, &more, &mut done).await?;
    }
    consumer.close().await
}

/// Acknowledges, and notes what was done. What was not comes again.
async fn settle_some(
    consumer: &mut Consumer,
    deliveries: &[Arc<Delivery>],
    done: &mut BTreeSet<u32>,
) -> Outcome {
    for delivery in deliveries {
        let answer = consumer.settle(delivery, Settlement::Ack).await?;
        if matches!(answer, Ok(Settled::Done)) {
            done.extend(number(delivery));
        }
    }
    Ok(())
}

async fn publish_until_confirmed(stage: &Stage, queue: &Arc<str>, number: u32) -> Outcome {
    let end = Instant::now() + stage.patience();
    loop {
        let body = envelope(number)?;
        let answer = stage
            .send(queue, body, Headers::new(), PublishOptions::new())
            .await?;
        match answer {
            Ok(()) => return Ok(()),
            Err(error) if error.is_transient() && Instant::now() < end => {
                sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
