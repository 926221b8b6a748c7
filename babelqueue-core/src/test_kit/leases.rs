//! What a lease promises, where there is one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::settle::attempts;
use super::stage::{Stage, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::transport::{Delivery, Settled, Settlement};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("lease/a_renewed_lease_holds", renewed, |can, _| can.lease),
        entry!(
            "lease/an_ended_lease_brings_the_message_back",
            ended,
            |can, _| { can.lease }
        ),
        entry!("lease/a_late_settlement_is_fenced", fenced, |can, _| can
            .lease),
        entry!(
            "lease/an_ended_lease_is_not_renewed",
            not_renewed,
            |can, _| { can.lease }
        ),
    ]
}

fn lease_end(delivery: &Delivery) -> Result<Instant, Failed> {
    delivery
        .lease_end()
        .ok_or_else(|| Failed("leases are claimed, and a delivery has none".to_owned()))
}

/// Two and a half lengths of its lease, renewed in thirds.
async fn renewed(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let delivery = consumer.one().await?;
    let other = stage.fixture.connect().await?;
    let mut rival = stage.consume_over(&*other, &queue.name, 8).await?;

    let length = lease_end(&delivery)? - delivery.received();
    let until = Instant::now() + length * 5 / 2;
    while Instant::now() < until {
        let next = Instant::now() + length / 3;
        tokio::select! {
            stolen = rival.some(8) => {
                return Err(Failed(format!("another consumer got it: {:?}", stolen?)));
            }
            () = sleep_until(next) => {}
        }
        let answers = consumer.settler.extend(&[Arc::clone(&delivery)]).await;
        ensure!(
            answers.len() == 1,
            "extend gave {} answers for one",
            answers.len()
        );
        for answer in answers {
            let end = answer?;
            ensure!(end > Instant::now(), "a renewed lease that is over already");
        }
        ensure!(!delivery.is_lost(), "lost while its lease was renewed");
    }
    consumer.ack(&delivery).await?;
    stage.expect_empty(&queue.name, &mut rival).await?;
    consumer.close().await?;
    rival.close().await
}

async fn ended(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let first = consumer.one().await?;
    let second = consumer.one().await?;
    ensure!(number(&second) == Some(1), "{second:?} came in its place");
    ensure!(
        !consumer.settler.begin(&first),
        "a handler may start on a delivery whose message came again"
    );
    if stage.capabilities.counts_crashes {
        let (before, after) = (attempts(stage, &first), attempts(stage, &second));
        ensure!(after > before, "the count went from {before} to {after}");
    }
    consumer.ack(&second).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn fenced(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let first = consumer.one().await?;
    let other = stage.fixture.connect().await?;
    let mut rival = stage.consume_over(&*other, &queue.name, 8).await?;
    let second = rival.one().await?;

    let late = consumer.settle(&first, Settlement::Ack).await??;
    ensure!(late == Settled::Fenced, "a late ack was answered {late:?}");
    rival.settle(&second, Settlement::release()).await??;
    let third = rival
        .one()
        .await
        .map_err(|failed| Failed(format!("the late ack took it away: {failed}")))?;
    rival.ack(&third).await?;
    consumer.close().await?;
    rival.close().await
}

async fn not_renewed(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let first = consumer.one().await?;
    let other = stage.fixture.connect().await?;
    let mut rival = stage.consume_over(&*other, &queue.name, 8).await?;
    let second = rival.one().await?;

    let answer = consumer
        .settler
        .extend(&[Arc::clone(&first)])
        .await
        .pop()
        .ok_or_else(|| Failed("extend gave no answer".to_owned()))?;
    let refused = answer.as_ref().is_err_and(crate::Error::is_lost);
    ensure!(refused, "an ended lease was renewed: {answer:?}");
    ensure!(first.is_lost(), "refused, and not marked lost");
    // Waiters must have been woken.
    stage.patiently("lost()", first.lost()).await?;
    rival.ack(&second).await?;
    rival.close().await?;
    let waited = Instant::now();
    consumer.close().await?;
    let waited = waited.elapsed();
    ensure!(
        waited < stage.patience() / 2 || waited < Duration::from_secs(1),
        "close waited {waited:?} for a delivery that was lost"
    );
    Ok(())
}
