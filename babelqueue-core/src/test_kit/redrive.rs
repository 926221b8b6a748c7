//! What a redrive finds on a transport: the settlement that moves a dead letter, and a queue that
//! ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::publish::as_map;
use super::settle::attempts;
use super::stage::{Queue, Stage, URN, envelope};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::dead_letter::{DeadLetter, Reason};
use crate::envelope::Envelope;
use crate::redrive::{Item, Redrive, Report};
use crate::transport::PublishOptions;
use crate::{Headers, replay};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("redrive/a_dead_letter_goes_back_as_if_never_tried", moves),
        entry!("redrive/what_is_not_moved_stays", stays),
        entry!("redrive/a_dry_run_takes_nothing_away", dry_run),
    ]
}

/// A dead letter with this number, from `queue`.
fn dead(queue: &Queue, number: u32) -> Result<(Envelope, Bytes), Failed> {
    let decoded = Envelope::decode(envelope(number)?).map_err(|error| Failed(error.to_string()))?;
    let block = DeadLetter::new(Reason::Failed, &*queue.name, 3, 1).error("no stock");
    let dead = decoded.envelope.with_attempts(3).with_dead_letter(&block);
    Ok((decoded.envelope, dead.into_bytes()))
}

async fn run(stage: &Stage, redrive: Redrive) -> Result<Report, Failed> {
    let redrive = redrive
        .idle(Duration::from_secs(2))
        .first_idle(stage.patience());
    Ok(redrive.run().await?)
}

fn redrive(stage: &Stage, queue: &Queue) -> Redrive {
    Redrive::shared(Arc::clone(&stage.transport), Arc::clone(&queue.dead_letter))
}

async fn moves(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let can = &stage.capabilities;
    let mut headers = Headers::new();
    if can.headers {
        headers.insert("tenant", "acme");
    }
    let mut options = PublishOptions::new();
    if can.options.key {
        options = options.key("customer-7");
    }
    let (fresh, dead) = dead(&queue, 1)?;
    let sent = (headers.clone(), options.clone());
    stage
        .send(&queue.dead_letter, dead, sent.0, sent.1)
        .await??;
    let report = run(stage, redrive(stage, &queue).bypass(true)).await?;
    ensure!(report.summary.redriven == 1, "the run reports {report:?}");

    let mut consumer = stage.consume(&queue.name, 8).await?;
    let came = consumer.one().await?;
    ensure!(
        came.body == *fresh.bytes(),
        "it came back as {}",
        String::from_utf8_lossy(&came.body)
    );
    ensure!(
        attempts(stage, &came) == 0,
        "it does not begin anew: {:?}",
        came.facts
    );
    if can.headers {
        headers = replay::marked(&headers, true);
    }
    let (kept, wanted) = (as_map(&came.headers), as_map(&headers));
    ensure!(
        kept == wanted,
        "it should carry the headers {wanted:?}, and has {kept:?}"
    );
    ensure!(
        came.key == options.key,
        "it should have the key {:?}, and has {:?}",
        options.key,
        came.key
    );
    consumer.ack(&came).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    stage.expect_empty(&queue.dead_letter, &mut dead).await?;
    dead.close().await
}

/// With a window that is too small for all that is to stay.
async fn stays(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let other =
        |number: u32| format!("{{ \"job\":\"urn:babel:kit:other\", \"n\": {number}.50 }}\n");
    let mut bodies = Vec::new();
    let mut left = Vec::new();
    for number in 0..12 {
        bodies.push(dead(&queue, number)?.1);
        left.push(Bytes::from(other(number)));
    }
    left.push(Bytes::from_static(
        br#"{"raw":"not JSON","dead_letter":{}}"#,
    ));
    bodies.extend(left.iter().cloned());
    for body in bodies {
        let none = (Headers::new(), PublishOptions::new());
        stage
            .send(&queue.dead_letter, body, none.0, none.1)
            .await??;
    }
    // A slow broker's pause can pass for an empty queue: what a run has left, the next one finds.
    let deadline = Instant::now() + stage.patience();
    let mut redriven = 0;
    while redriven < 12 {
        let redrive = redrive(stage, &queue).urn(URN).window(4).batch(3);
        let report = run(stage, redrive).await?;
        ensure!(Instant::now() < deadline, "the last run reports {report:?}");
        redriven += report.summary.redriven;
    }
    ensure!(redriven == 12, "{redriven} were moved");

    let mut consumer = stage.consume(&queue.name, 16).await?;
    let mut moved = consumer.take_and_ack(12).await?;
    moved.sort_unstable();
    ensure!(moved.iter().copied().eq(0..12), "{moved:?} were moved");
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    expect_left(stage, &queue, left).await
}

async fn dry_run(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut left = Vec::new();
    for number in 0..5 {
        let (_, dead) = dead(&queue, number)?;
        let none = (Headers::new(), PublishOptions::new());
        stage
            .send(&queue.dead_letter, dead.clone(), none.0, none.1)
            .await??;
        left.push(dead);
    }
    let deadline = Instant::now() + stage.patience();
    loop {
        let report = run(stage, redrive(stage, &queue).dry_run(true)).await?;
        let to = |item: &Item| item.to.as_ref() == Some(&queue.name);
        let planned = report.items.iter().filter(|item| to(item)).count();
        if planned == 5 {
            break;
        }
        // Fewer is a slow broker's pause, taken for the end; more would be one seen twice.
        let slow = planned < 5 && Instant::now() < deadline;
        ensure!(slow, "the run reports {report:?}");
    }
    expect_left(stage, &queue, left).await
}

/// That the dead-letter queue holds just these bodies, in whatever order.
async fn expect_left(stage: &Stage, queue: &Queue, mut left: Vec<Bytes>) -> Outcome {
    let mut consumer = stage.consume(&queue.dead_letter, 16).await?;
    while !left.is_empty() {
        for delivery in consumer.some(left.len()).await? {
            let at = left.iter().position(|body| *body == delivery.body);
            let Some(at) = at else {
                return Err(Failed(format!(
                    "{} should not be there, or not twice",
                    String::from_utf8_lossy(&delivery.body)
                )));
            };
            left.remove(at);
            consumer.ack(&delivery).await?;
        }
    }
    stage
        .expect_empty(&queue.dead_letter, &mut consumer)
        .await?;
    consumer.close().await
}
