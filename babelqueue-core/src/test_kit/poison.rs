//! Bodies that are no envelope: never to a handler, and where the contract sends them (§8).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::settle::retries;
use super::stage::{Queue, Stage, URN};
use super::workers::Running;
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::dead_letter::Reason;
use crate::decide::{Case, Decision, Event, Policy, decide, poison_count};
use crate::envelope::{Envelope, Projection};
use crate::handler::{Context, Handler, HandlerFuture};
use crate::retry::Retry;
use crate::transport::{Delivery, Outgoing, Settlement};
use crate::watched::{Ended, Watched};
use crate::worker::Worker;

/// The most deliveries of a message.
const MAX: u32 = 3;

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("poison/with_dead_lettering_at_the_first_delivery", on_first),
        entry!(
            "poison/with_dead_lettering_at_the_second",
            on_second,
            |can, _| { retries(can) }
        ),
        entry!(
            "poison/with_dead_lettering_at_the_last",
            on_last,
            |can, _| { retries(can) }
        ),
        entry!("poison/without_at_the_first_delivery", off_first),
        entry!(
            "poison/without_at_the_second",
            off_second,
            |can, _| retries(can)
        ),
        entry!("poison/without_at_the_last", off_last, |can, _| retries(
            can
        )),
    ]
}

async fn on_first(stage: &Stage) -> Outcome {
    all_bodies(stage, true, 1).await
}

async fn on_second(stage: &Stage) -> Outcome {
    all_bodies(stage, true, 2).await
}

async fn on_last(stage: &Stage) -> Outcome {
    all_bodies(stage, true, MAX).await
}

async fn off_first(stage: &Stage) -> Outcome {
    all_bodies(stage, false, 1).await
}

async fn off_second(stage: &Stage) -> Outcome {
    all_bodies(stage, false, 2).await
}

async fn off_last(stage: &Stage) -> Outcome {
    all_bodies(stage, false, MAX).await
}

/// One body of each way to be poison: no JSON, no object, a wrong type, no identity, no UTF-8.
fn bodies() -> Vec<Bytes> {
    [
        &b"plain text"[..],
        b"{\"job\":\"urn:babel:kit:numbered\"",
        b"{\"job\":\"urn:babel:kit:numbered\"} x",
        b"[1]",
        b"null",
        b"{}",
        b"{\"job\":5}",
        b"{\"JOB\":\"urn:babel:kit:numbered\"}",
        b"{\"job\":\" \\t\",\"data\":{}}",
        b"{\"job\":\"urn:babel:kit:numbered\",\"attempts\":\"1\"}",
        b"{\"job\":\"urn:babel:kit:numbered\",\"data\":[]}",
        b"{\"job\":\"urn:babel:kit:numbered\",\"data\":{\"n\":1e400}}",
        b"{\"job\":\"urn:babel:kit:numbered\",\"data\":{\"t\":\"caf\xe9\"}}",
        b"",
    ]
    .into_iter()
    .map(Bytes::from_static)
    .collect()
}

/// A handler that must not be called.
struct Untouched;

impl Handler for Untouched {
    fn call(&self, context: Context) -> HandlerFuture {
        let body = String::from_utf8_lossy(&context.delivery().body).into_owned();
        // Seen as a failed test: the settlement is none that is expected.
        Box::pin(async move { Err(crate::handler::Failure::msg(format!("handled {body}"))) })
    }
}

/// Each body at its `count`-th delivery, with dead-lettering on or off.
async fn all_bodies(stage: &Stage, dead_letter: bool, count: u32) -> Outcome {
    let queue = stage.queue().await?;
    let bodies: Vec<_> = bodies()
        .into_iter()
        .filter(|body| stage.fixture.carries(body))
        .collect();
    let batch = bodies
        .iter()
        .map(|body| Outgoing::new(Arc::clone(&queue.name), body.clone()));
    stage.publish_all(batch.collect()).await?;
    for before in 1..count {
        count_up(stage, &queue, bodies.len(), before).await?;
    }

    let policy = Policy::default()
        .retry(Retry::attempts(MAX))
        .dead_letter(dead_letter);
    let watched = Watched::new(Arc::clone(&stage.transport));
    let worker = Worker::new(watched.clone())
        .queue_with(Arc::clone(&queue.name), policy.clone())
        .concurrency(4)
        .handler(URN, Untouched);
    let running = Running::start(worker);
    let over = |ended: &[Ended]| bodies.iter().all(|body| is_over(ended, body));
    let waited = timeout(stage.patience(), watched.until(over)).await;
    running.stop(stage.patience()).await?;
    let ended = watched.ended();
    ensure!(
        waited.is_ok(),
        "after {:?} poison is still on its way: {ended:?}",
        stage.patience()
    );
    for one in &ended {
        as_the_rules_say(stage, &policy, one)?;
    }
    let records: Vec<_> = ended.iter().filter_map(record_of).collect();
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    for _ in &records {
        let delivery = dead.one().await?;
        dead.ack(&delivery).await?;
        ensure!(
            records.contains(&&delivery.body),
            "a record was changed on its way: {:?}",
            String::from_utf8_lossy(&delivery.body)
        );
    }
    stage.expect_empty(&queue.dead_letter, &mut dead).await?;
    dead.close().await
}

/// Has every message delivered once more, counted where that can be.
async fn count_up(stage: &Stage, queue: &Queue, messages: usize, attempts: u32) -> Outcome {
    let mut consumer = stage.consume(&queue.name, 16).await?;
    for _ in 0..messages {
        let delivery = consumer.one().await?;
        let retry = Settlement::Retry {
            body: delivery.body.clone(),
            attempts,
            delay: Duration::ZERO,
        };
        // One that comes round before the others had their turn goes back as it is.
        let again = i64::from(attempts) <= count_of(stage, &delivery);
        let how = if again { Settlement::release() } else { retry };
        consumer.settle(&delivery, how).await??;
    }
    consumer.close().await
}

fn count_of(stage: &Stage, delivery: &Delivery) -> i64 {
    let body = Projection::of(&delivery.body).attempts;
    poison_count(&delivery.facts, body, stage.capabilities.rules.attempts)
}

/// Whether a body has met its end: anything but another delivery.
fn is_over(ended: &[Ended], body: &Bytes) -> bool {
    ended.iter().any(|one| {
        one.delivery.body == *body
            && one.answer.is_some()
            && matches!(
                one.settlement,
                Settlement::Ack | Settlement::DeadLetter { .. } | Settlement::Native { .. }
            )
    })
}

/// What the worker asked for is what the contract's table says for this delivery.
fn as_the_rules_say(stage: &Stage, policy: &Policy, one: &Ended) -> Outcome {
    let attempts = count_of(stage, &one.delivery);
    let case = Case {
        event: Event::Poison,
        attempts,
    };
    let decision = decide(case, policy, stage.capabilities.rules, 0.0);
    let agrees = match (&one.settlement, decision) {
        (Settlement::Ack, Decision::Drop)
        | (Settlement::Native { .. }, Decision::Native { .. }) => true,
        (Settlement::Retry { body, .. }, Decision::Retry { .. }) => *body == one.delivery.body,
        (Settlement::DeadLetter { record, .. }, Decision::DeadLetter { .. }) => {
            holds(record, &one.delivery)?
        }
        // Given back at the stop: not its end.
        (release, _) => *release == Settlement::release(),
    };
    ensure!(
        agrees,
        "{:?} at count {attempts} was settled with {:?}, where the rules say {decision:?}",
        String::from_utf8_lossy(&one.delivery.body),
        one.settlement
    );
    Ok(())
}

fn record_of(one: &Ended) -> Option<&Bytes> {
    match &one.settlement {
        Settlement::DeadLetter { record, .. } => Some(record),
        _ => None,
    }
}

/// Whether a record says why, and from where (contract §6A.5).
fn holds(record: &Bytes, delivery: &Delivery) -> Result<bool, Failed> {
    let parsed: serde_json::Value = match serde_json::from_slice(record) {
        Ok(parsed) => parsed,
        // Spliced into a number that no f64 holds: still an envelope to us.
        Err(_) => return Ok(Envelope::decode(record.clone()).is_err()),
    };
    let block = parsed
        .get("dead_letter")
        .ok_or_else(|| Failed("a record without a dead_letter block".to_owned()))?;
    Ok(block["reason"] == Reason::Poison.as_str() && block["original_queue"] == *delivery.queue)
}
