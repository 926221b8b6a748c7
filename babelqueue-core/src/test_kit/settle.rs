//! What each settlement promises.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::consumer::Consumer;
use super::publish::as_map;
use super::stage::{Queue, Stage, envelope, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::Headers;
use crate::decide::reconcile;
use crate::envelope::Envelope;
use crate::transport::{Capabilities, Delay, Delivery, Prefetch, PublishOptions, Settlement};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("settle/an_acked_message_is_gone", ack),
        entry!("settle/many_at_once_have_an_answer_each", many),
        entry!("settle/a_retry_comes_again_counted", retry, |can, _| {
            retries(can)
        }),
        entry!(
            "settle/a_retry_keeps_headers_and_key",
            retry_keeps,
            |can, _| { retries(can) && (can.headers || can.options.key) }
        ),
        entry!("settle/a_retry_is_delayed", retry_delay, |can, _| {
            retries(can) && can.rules.backoff && can.delay != Delay::Unsupported
        }),
        entry!("settle/a_released_message_comes_again_uncounted", release),
        entry!("settle/a_dead_letter_moves_and_keeps_headers", dead_letter),
        entry!(
            "settle/a_verbatim_dead_letter_is_the_received_body",
            verbatim
        ),
        entry!(
            "settle/a_failed_dead_letter_loses_nothing",
            full,
            |_, fixture| { fixture.can_fill() }
        ),
        entry!("settle/an_abandoned_message_comes_again", abandon),
        entry!("settle/a_second_settlement_does_nothing", twice),
    ]
}

/// Kafka without tiers has no retry.
pub(super) fn retries(can: &Capabilities) -> bool {
    !(can.rules.counted_release && can.delay == Delay::Unsupported)
}

/// How often this message was delivered before, by the binding's rule.
pub(super) fn attempts(stage: &Stage, delivery: &Delivery) -> i64 {
    let body = Envelope::decode(delivery.body.clone())
        .ok()
        .and_then(|decoded| decoded.envelope.attempts());
    reconcile(&delivery.facts, body, stage.capabilities.rules.attempts)
}

/// The retry that a worker asks for.
fn retry_of(stage: &Stage, delivery: &Delivery, delay: Duration) -> Result<Settlement, Failed> {
    let counted = attempts(stage, delivery) + 1;
    let envelope = Envelope::decode(delivery.body.clone())
        .map_err(|error| Failed(error.to_string()))?
        .envelope;
    Ok(Settlement::Retry {
        body: envelope.with_attempts(counted).into_bytes(),
        attempts: u32::try_from(counted).unwrap_or(u32::MAX),
        delay,
    })
}

/// A body as it was at first: without the count.
fn uncounted(body: &Bytes) -> Result<Bytes, Failed> {
    let decoded = Envelope::decode(body.clone()).map_err(|error| Failed(error.to_string()))?;
    Ok(decoded.envelope.with_attempts(0).into_bytes())
}

/// A queue with one message in it, a consumer, and the message handed out.
async fn handed_out(stage: &Stage) -> Result<(Queue, Consumer, Arc<Delivery>), Failed> {
    let queue = stage.queue().await?;
    stage.publish(&queue.name, &[1]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let delivery = consumer.one().await?;
    Ok((queue, consumer, delivery))
}

async fn ack(stage: &Stage) -> Outcome {
    let (queue, mut consumer, delivery) = handed_out(stage).await?;
    consumer.ack(&delivery).await?;
    consumer.close().await?;
    if let Some(end) = delivery.lease_end() {
        // Some brokers count in whole seconds, and so may be late by one.
        sleep_until(end + Duration::from_secs(1)).await;
    }
    let other = stage.fixture.connect().await?;
    let mut consumer = stage.consume_over(&*other, &queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn many(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let numbers: Vec<u32> = (0..25).collect();
    stage.publish(&queue.name, &numbers).await?;
    let mut consumer = stage.consume(&queue.name, 32).await?;
    let deliveries = consumer.take(numbers.len()).await?;
    let batch: Vec<_> = deliveries
        .iter()
        .map(|delivery| (Arc::clone(delivery), Settlement::Ack))
        .collect();
    let answers = stage
        .patiently("settle", consumer.settler.settle(batch))
        .await?;
    ensure!(
        answers.len() == numbers.len(),
        "{} answers for {}",
        answers.len(),
        numbers.len()
    );
    for answer in answers {
        answer?;
    }
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn retry(stage: &Stage) -> Outcome {
    let (queue, mut consumer, mut delivery) = handed_out(stage).await?;
    let original = uncounted(&delivery.body)?;
    for expected in 1..=3 {
        let retry = retry_of(stage, &delivery, Duration::ZERO)?;
        consumer.settle(&delivery, retry).await??;
        delivery = consumer.one().await?;
        let counted = attempts(stage, &delivery);
        ensure!(
            counted == expected,
            "after {expected} retries the count is {counted}"
        );
        ensure!(
            uncounted(&delivery.body)? == original,
            "a retry changed more than `attempts`: {:?}",
            String::from_utf8_lossy(&delivery.body)
        );
    }
    consumer.ack(&delivery).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn retry_keeps(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut headers = Headers::new();
    let mut options = PublishOptions::new();
    if stage.capabilities.headers {
        headers.insert(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        );
        headers.insert("bq-replay-bypass", "1");
    }
    if stage.capabilities.options.key {
        options = options.key("customer-7");
    }
    let body = envelope(1)?;
    stage
        .send(&queue.name, body, headers.clone(), options.clone())
        .await??;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let mut delivery = consumer.one().await?;
    for _ in 0..2 {
        let retry = retry_of(stage, &delivery, Duration::ZERO)?;
        consumer.settle(&delivery, retry).await??;
        delivery = consumer.one().await?;
        let (came, sent) = (as_map(&delivery.headers), as_map(&headers));
        ensure!(
            came == sent,
            "a retry made of the headers {sent:?}: {came:?}"
        );
        ensure!(
            delivery.key == options.key,
            "a retry made of the key {:?}: {:?}",
            options.key,
            delivery.key
        );
    }
    consumer.ack(&delivery).await?;
    consumer.close().await
}

async fn retry_delay(stage: &Stage) -> Outcome {
    // Some brokers count in whole seconds, and so may be early by one.
    const DELAY: Duration = Duration::from_secs(2);
    const AT_LEAST: Duration = Duration::from_secs(1);
    let (_, mut consumer, delivery) = handed_out(stage).await?;
    let asked = Instant::now();
    let retry = retry_of(stage, &delivery, DELAY)?;
    consumer.settle(&delivery, retry).await??;
    let again = consumer.one().await?;
    let after = asked.elapsed();
    ensure!(
        after >= AT_LEAST,
        "it came after {after:?} instead of {DELAY:?}"
    );
    consumer.ack(&again).await?;
    consumer.close().await
}

async fn release(stage: &Stage) -> Outcome {
    let (queue, mut consumer, delivery) = handed_out(stage).await?;
    consumer.settle(&delivery, Settlement::release()).await??;
    let again = consumer.one().await?;
    ensure!(again.body == delivery.body, "a release changed the body");
    // Where the broker counts it whatever we do, the worker reads no further ahead than it runs.
    let counts = stage.capabilities.prefetch == Prefetch::Exact;
    let (before, after) = (attempts(stage, &delivery), attempts(stage, &again));
    ensure!(
        counts || before == after,
        "a release counted: {before} became {after}"
    );
    consumer.ack(&again).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn dead_letter(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut headers = Headers::new();
    if stage.capabilities.headers {
        headers.insert("tenant", "acme");
    }
    let mut options = PublishOptions::new();
    if stage.capabilities.options.key {
        options = options.key("customer-7");
    }
    let body = envelope(1)?;
    stage
        .send(&queue.name, body, headers.clone(), options.clone())
        .await??;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let delivery = consumer.one().await?;
    let record = envelope(2)?;
    let settlement = Settlement::DeadLetter {
        queue: queue.dead_letter.clone(),
        record: record.clone(),
        verbatim: false,
        attempts: 3,
    };
    consumer.settle(&delivery, settlement).await??;
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    let came = dead.one().await?;
    ensure!(came.body == record, "the record was changed");
    let (kept, sent) = (as_map(&came.headers), as_map(&headers));
    ensure!(
        kept == sent,
        "dead-lettering made of the headers {sent:?}: {kept:?}"
    );
    ensure!(
        came.key == options.key,
        "dead-lettering made of the key {:?}: {:?}",
        options.key,
        came.key
    );
    dead.ack(&came).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    dead.close().await
}

async fn verbatim(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let body =
        Bytes::from_static(b" { \"job\" : \"urn:babel:kit:gated\", \"data\" : {\"n\":1e2} }\n");
    let none = (Headers::new(), PublishOptions::new());
    stage
        .send(&queue.name, body.clone(), none.0, none.1)
        .await??;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let delivery = consumer.one().await?;
    let settlement = Settlement::DeadLetter {
        queue: queue.dead_letter.clone(),
        record: delivery.body.clone(),
        verbatim: true,
        attempts: 0,
    };
    consumer.settle(&delivery, settlement).await??;
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    let came = dead.one().await?;
    ensure!(came.body == body, "the body was changed on its way");
    dead.ack(&came).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    dead.close().await
}

async fn full(stage: &Stage) -> Outcome {
    let (queue, mut consumer, delivery) = handed_out(stage).await?;
    stage.fixture.set_full(&queue.dead_letter, true).await?;
    let settlement = || Settlement::DeadLetter {
        queue: queue.dead_letter.clone(),
        record: delivery.body.clone(),
        verbatim: false,
        attempts: 3,
    };
    let answer = consumer.settle(&delivery, settlement()).await?;
    stage.fixture.set_full(&queue.dead_letter, false).await?;
    ensure!(
        answer.is_err(),
        "the dead-letter queue takes nothing, and the answer was {answer:?}"
    );
    let again = consumer.one().await?;
    ensure!(number(&again) == Some(1), "{again:?} came in its place");
    consumer.settle(&again, settlement()).await??;
    let mut dead = stage.consume(&queue.dead_letter, 8).await?;
    let came = dead.one().await?;
    dead.ack(&came).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await?;
    dead.close().await
}

async fn abandon(stage: &Stage) -> Outcome {
    let (queue, mut consumer, delivery) = handed_out(stage).await?;
    consumer.settle(&delivery, Settlement::Abandon).await??;
    let again = consumer.one().await?;
    ensure!(again.body == delivery.body, "it came again as {again:?}");
    ensure!(
        attempts(stage, &again) >= attempts(stage, &delivery),
        "its count was lowered"
    );
    consumer.ack(&again).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

/// A settlement of what was settled already must not touch what came after.
async fn twice(stage: &Stage) -> Outcome {
    let (queue, mut consumer, first) = handed_out(stage).await?;
    consumer.settle(&first, Settlement::release()).await??;
    let second = consumer.one().await?;
    // What it is answered is of no interest, only what it does.
    let _late = consumer.settle(&first, Settlement::Ack).await?;
    consumer.settle(&second, Settlement::release()).await??;
    let third = consumer
        .one()
        .await
        .map_err(|failed| Failed(format!("a late settlement took the message away: {failed}")))?;
    consumer.ack(&third).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}
