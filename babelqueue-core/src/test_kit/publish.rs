//! What a publish promises.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::stage::{Stage, envelope, number};
use super::{Entry, Failed, Outcome, ensure, entry};
use crate::transport::{Delay, Outgoing, PublishOptions};
use crate::{Error, Headers};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("publish/bodies_come_out_byte_for_byte", bytes),
        entry!("publish/many_at_once_all_arrive", many),
        entry!("publish/one_answer_for_each_message", one_answer_each),
        entry!("publish/options_it_lacks_are_refused", unsupported),
        entry!("publish/headers_travel", headers, |can, _| can.headers),
        entry!("publish/keys_travel", keys, |can, _| can.options.key),
        entry!("publish/a_delay_is_kept", delay, |can, _| {
            can.delay != Delay::Unsupported
        }),
        entry!(
            "publish/a_delay_past_the_limit_is_refused",
            past_limit,
            |can, _| { matches!(can.delay, Delay::Supported { max: Some(_) }) }
        ),
    ]
}

/// Bodies that a careless transport changes: by reading them as text, as JSON, or as an envelope.
fn bodies() -> Result<Vec<Bytes>, Failed> {
    let mut bodies: Vec<Bytes> = [
        &b"{ \"job\" : \"urn:babel:kit:pretty\",\n\t\"attempts\" : 0 }\n"[..],
        br#"{"job":"urn:babel:kit:odd","data":{"n":1e2,"big":12345678901234567890123,"e":{},"a":[]}}"#,
        br#"{"job":"urn:babel:kit:escaped","data":{"t":"\u00e9\/<>&'\ud83d\ude00"}}"#,
        "{\"job\":\"urn:babel:kit:text\",\"data\":{\"t\":\"é😀\u{2028}/<>&'\"}}".as_bytes(),
        br#"{"job":"urn:babel:kit:twice","job":"urn:babel:kit:last","attempts":-0}"#,
        br#"{"job":"urn:babel:kit:lone","data":{"t":"\ud800"}}"#,
        b"",
        b" ",
        b"plain text",
        b"\xef\xbb\xbf{}",
        b"caf\xe9 \xff\xfe",
        b"a\0b\r\n\x01\x1f",
    ]
    .into_iter()
    .map(Bytes::from_static)
    .collect();
    bodies.push((0..=u8::MAX).collect());
    bodies.push(vec![b'['; 4096].into());
    bodies.push(
        format!(
            r#"{{"job":"urn:babel:kit:long","data":{{"t":"{}"}}}}"#,
            "x".repeat(60_000)
        )
        .into(),
    );
    bodies.push(envelope(1)?);
    Ok(bodies)
}

async fn bytes(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut expected: Vec<_> = bodies()?
        .into_iter()
        .filter(|body| stage.fixture.carries(body))
        .collect();
    let batch = expected
        .iter()
        .map(|body| Outgoing::new(queue.name.clone(), body.clone()))
        .collect();
    stage.publish_all(batch).await?;
    let mut consumer = stage.consume(&queue.name, 32).await?;
    for _ in 0..expected.len() {
        let delivery = consumer.one().await?;
        consumer.ack(&delivery).await?;
        let at = expected.iter().position(|body| *body == delivery.body);
        ensure!(
            at.is_some(),
            "a body came out that was not put in, or twice: {:?}",
            String::from_utf8_lossy(&delivery.body)
        );
        at.map(|at| expected.swap_remove(at));
    }
    consumer.close().await
}

async fn many(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let count = stage
        .capabilities
        .publish_batch
        .saturating_mul(2)
        .clamp(50, 2500);
    let numbers: Vec<u32> = (0..).take(count + 1).collect();
    stage.publish(&queue.name, &numbers).await?;
    let mut consumer = stage.consume(&queue.name, 256).await?;
    let mut came = consumer.take_and_ack(numbers.len()).await?;
    came.sort_unstable();
    ensure!(came == numbers, "not each message came once: {came:?}");
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn one_answer_each(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let mut batch = Vec::new();
    for number in 0..3 {
        batch.push(Outgoing::new(queue.name.clone(), envelope(number)?));
    }
    let lacking = lacking_options(stage).into_iter().next();
    if let Some((_, options)) = &lacking {
        batch[1].options = options.clone();
    }
    let answers = stage.answers(batch).await?;
    let done: Vec<_> = answers.iter().map(Result::is_ok).collect();
    let expected = [true, lacking.is_none(), true];
    ensure!(done == expected, "the answers were {answers:?}");
    let mut consumer = stage.consume(&queue.name, 8).await?;
    let count = expected.iter().filter(|done| **done).count();
    let mut came = consumer.take_and_ack(count).await?;
    came.sort_unstable();
    ensure!(
        came.first() == Some(&0) && came.last() == Some(&2) && came.len() == count,
        "published 0 and 2, and {came:?} came"
    );
    consumer.close().await
}

/// The options that the transport does not claim.
fn lacking_options(stage: &Stage) -> Vec<(&'static str, PublishOptions)> {
    let can = &stage.capabilities;
    let options = PublishOptions::new;
    let no_delay = can.delay == Delay::Unsupported;
    [
        ("delay", !no_delay, options().delay(Duration::from_secs(1))),
        ("key", can.options.key, options().key("key")),
        ("partition", can.options.partition, options().partition(0)),
        ("group", can.options.group, options().group("group")),
        (
            "deduplication_id",
            can.options.deduplication_id,
            options().deduplication_id("id"),
        ),
        ("priority", can.options.priority, options().priority(5)),
        (
            "time_to_live",
            can.options.time_to_live,
            options().time_to_live(Duration::from_mins(1)),
        ),
    ]
    .into_iter()
    .filter(|(_, supported, _)| !supported)
    .map(|(name, _, options)| (name, options))
    .collect()
}

async fn unsupported(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    for (name, options) in lacking_options(stage) {
        let answer = stage
            .send(&queue.name, envelope(1)?, Headers::new(), options)
            .await?;
        ensure!(
            matches!(answer, Err(Error::Unsupported { .. })),
            "`{name}` is not claimed, and a publish with it was answered {answer:?}"
        );
    }
    let mut consumer = stage.consume(&queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}

async fn headers(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let sent = Headers::from_iter([
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        ("tenant", "Zoë & co"),
    ]);
    let answer = stage
        .send(
            &queue.name,
            envelope(1)?,
            sent.clone(),
            PublishOptions::new(),
        )
        .await?;
    answer?;
    stage.publish(&queue.name, &[2]).await?;
    let mut consumer = stage.consume(&queue.name, 8).await?;
    for _ in 0..2 {
        let delivery = consumer.one().await?;
        consumer.ack(&delivery).await?;
        let expected = match number(&delivery) {
            Some(1) => as_map(&sent),
            _ => BTreeMap::new(),
        };
        let came = as_map(&delivery.headers);
        ensure!(came == expected, "sent {expected:?}, and {came:?} came");
    }
    consumer.close().await
}

/// Headers without their order.
pub(super) fn as_map(headers: &Headers) -> BTreeMap<&str, &str> {
    headers.iter().collect()
}

async fn keys(stage: &Stage) -> Outcome {
    let queue = stage.queue().await?;
    let keys = [None, Some(Bytes::new()), Some(Bytes::from_static(b"a key"))];
    for (number, key) in (0..).zip(&keys) {
        let mut options = PublishOptions::new();
        options.key.clone_from(key);
        let body = envelope(number)?;
        stage
            .send(&queue.name, body, Headers::new(), options)
            .await??;
    }
    let mut consumer = stage.consume(&queue.name, 8).await?;
    for _ in &keys {
        let delivery = consumer.one().await?;
        consumer.ack(&delivery).await?;
        let expected = number(&delivery).and_then(|number| keys.get(number as usize));
        ensure!(
            expected == Some(&delivery.key),
            "sent {expected:?}, and {:?} came",
            delivery.key
        );
    }
    consumer.close().await
}

async fn delay(stage: &Stage) -> Outcome {
    // Some brokers count in whole seconds, and so may be early by one.
    const DELAY: Duration = Duration::from_secs(2);
    const AT_LEAST: Duration = Duration::from_secs(1);
    let queue = stage.queue().await?;
    // Until it has had one, the consumer may be longer on its way than the delay.
    let mut consumer = stage.consume(&queue.name, 8).await?;
    stage.publish(&queue.name, &[0]).await?;
    consumer.take_and_ack(1).await?;
    let sent = Instant::now();
    let options = PublishOptions::new().delay(delay_of(stage, DELAY));
    let body = envelope(1)?;
    stage
        .send(&queue.name, body, Headers::new(), options)
        .await??;
    stage.publish(&queue.name, &[2]).await?;
    let came = consumer.take_and_ack(1).await?;
    ensure!(
        came == [2],
        "the delayed message overtook the other: {came:?}"
    );
    let came = consumer.take_and_ack(1).await?;
    ensure!(came == [1], "{came:?} came in place of the delayed message");
    if stage.capabilities.delay != Delay::Tiers {
        let after = sent.elapsed();
        ensure!(
            after >= AT_LEAST,
            "it came after {after:?} instead of {DELAY:?}"
        );
    }
    consumer.close().await
}

/// In tiers the shortest is taken, whatever it is.
pub(super) fn delay_of(stage: &Stage, delay: Duration) -> Duration {
    match stage.capabilities.delay {
        Delay::Tiers => Duration::from_millis(1),
        _ => delay,
    }
}

async fn past_limit(stage: &Stage) -> Outcome {
    let Delay::Supported { max: Some(max) } = stage.capabilities.delay else {
        return Ok(());
    };
    let queue = stage.queue().await?;
    let options = PublishOptions::new().delay(max + Duration::from_secs(1));
    let answer = stage
        .send(&queue.name, envelope(1)?, Headers::new(), options)
        .await?;
    ensure!(
        matches!(answer, Err(Error::Unsupported { .. })),
        "a delay past {max:?} was answered {answer:?}"
    );
    let mut consumer = stage.consume(&queue.name, 8).await?;
    stage.expect_empty(&queue.name, &mut consumer).await?;
    consumer.close().await
}
