//! The suite's Kafka sections over this crate's own functions, beside the core's: one trial a case,
//! named `section/case-id`.

use std::process::ExitCode;
use std::time::Duration;

use babelqueue_conformance::{Case, Json, Met, Package, Unmet, holds, same, unknown};
use babelqueue_core::decide::{Event, classify};
use babelqueue_core::envelope::Envelope;
use babelqueue_core::transport::{Delivery, Outgoing, PublishOptions, Rules, VersionProperty};
use babelqueue_core::{verdict, version_gate};
use babelqueue_kafka::project::{self, NewRecord, Received, RecordHeaders};
use babelqueue_kafka::{Config, DEFAULT_RETRY_TIERS_MS, RetryTiers, Tier};
use bytes::Bytes;

fn main() -> ExitCode {
    let plain = Config::new("127.0.0.1:9092");
    let tiered = plain.clone().retry_tiers(RetryTiers::recommended());
    let pages = vec![
        ("Kafka", plain.capabilities()),
        ("Kafka, with retry tiers", tiered.capabilities()),
    ];
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .page(env!("CARGO_MANIFEST_DIR"), pages)
        .binding("kafka")
        .section("kafka", kafka)
        .section("backoff", backoff)
        .section("kafka_poison", poison)
        .main()
}

fn kafka(case: &Case) -> Met {
    match case.group() {
        None => property_projection(case),
        Some("attempts_reconciliation") => attempts_reconciliation(case),
        Some("schema_version_gate") => schema_version_gate(case),
        Some(group) => Err(unknown("group", group).into()),
    }
}

fn property_projection(case: &Case) -> Met {
    let body = case.fixture("envelope_file")?;
    let created = case
        .fixture_json("envelope_file")?
        .pointer("/meta/created_at")
        .and_then(Json::as_i64)
        .ok_or_else(|| Unmet::failed("the fixture has no created_at"))?;
    let record = project::publish(Outgoing::new("orders", body.clone()), &tiers(&[])?)?;

    let mut expected = case.members("headers")?.iter();
    let mut found = record.headers.iter();
    for (name, value) in expected.by_ref() {
        let value = value.as_str().map(str::as_bytes);
        same("header", &found.next(), &Some((name.as_str(), value)))?;
    }
    same("a header too many", &found.next(), &None)?;
    same("timestamp", &record.timestamp, &Some(created))?;
    same("value", &record.body, &Bytes::from(body))
}

fn attempts_reconciliation(case: &Case) -> Met {
    let body = format!(
        r#"{{"job":"urn:a","trace_id":"t","data":{{}},"meta":{{}},"attempts":{}}}"#,
        case.integer("body_attempts")?
    );
    let header = case.need("header_attempts")?;
    let header = header.as_i64().map(|attempts| attempts.to_string());
    let headers = header
        .iter()
        .map(|value| ("bq-attempts", Some(value.as_bytes())))
        .collect();
    let dispatch = classify(&delivery(body.into(), &headers), Rules::KAFKA)
        .map_err(|refused| Unmet::failed(refused.error))?;
    same(
        "attempts",
        &dispatch.attempts,
        &case.integer("expected_attempts")?,
    )
}

fn schema_version_gate(case: &Case) -> Met {
    let property = case.block_text("property")?;
    let value = case.get("value");
    let absent = case.get("absent").is_some();
    holds(absent != value.is_some(), "either absent or a value")?;
    let headers: RecordHeaders = value
        .map(|value| (property, value.as_str().map(str::as_bytes)))
        .into_iter()
        .collect();

    let body = case.fixture("fixture")?;
    let sorted = classify(&delivery(body.into(), &headers), Rules::KAFKA);
    let found = match &sorted {
        Ok(_) => "decode",
        Err(refused) if refused.case.event == Event::Gated => "reject",
        Err(refused) => return Err(Unmet::failed(&refused.error)),
    };
    same("verdict", found, case.text("expect")?)?;
    let version = project::facts(&headers).version;
    same(
        "the gate alone",
        &version_gate::check(&version).is_ok(),
        &sorted.is_ok(),
    )?;
    let null = value.is_some_and(|value| value.as_str().is_none());
    holds(
        !null || version == VersionProperty::Absent,
        "a null was taken for text",
    )
}

fn backoff(case: &Case) -> Met {
    match case.group() {
        None => requested_delay(case),
        Some("retry_republish") => retry(case, case.integer("attempts")?),
        Some("retry_attempt_tier") => retry(case, case.integer("attempts_before")?),
        Some("topic_names") => {
            let tier = Tier {
                index: usize::try_from(case.integer("n")?)?,
                delay: Duration::ZERO,
            };
            let topic = tier.topic(case.text("work_topic")?);
            same("topic", topic.as_str(), case.text("expect_topic")?)
        }
        Some("default_tiers") => {
            let millis: Vec<Option<i64>> = DEFAULT_RETRY_TIERS_MS
                .iter()
                .map(|ms| i64::try_from(*ms).ok())
                .collect();
            let expected: Vec<Option<i64>> =
                case.items("expect")?.iter().map(Json::as_i64).collect();
            same("constant", case.text("constant")?, "DEFAULT_RETRY_TIERS_MS")?;
            same("tiers", &millis, &expected)?;
            let recommended = RetryTiers::recommended();
            let delays: Vec<u64> = recommended.iter().map(|tier| tier.millis()).collect();
            same("recommended", &delays[..], &DEFAULT_RETRY_TIERS_MS[..])
        }
        Some(group) => Err(unknown("group", group).into()),
    }
}

fn requested_delay(case: &Case) -> Met {
    let tiers = tiers(case.items("retry_tiers_ms")?)?;
    let delay = Duration::from_millis(u64::try_from(case.integer("delay_ms")?)?);
    let mut outgoing = Outgoing::new(case.text("work_topic")?, envelope(0)?);
    outgoing.options = PublishOptions::new().delay(delay);
    expected(case, &tiers, project::publish(outgoing, &tiers))
}

fn retry(case: &Case, before: i64) -> Met {
    let tiers = tiers(case.items("retry_tiers_ms")?)?;
    let attempts = u32::try_from(before)? + 1;
    let key = case.get("key").and_then(Json::as_str);
    let key = key.map(|key| Bytes::copy_from_slice(key.as_bytes()));
    let body = envelope(before)?;
    let body = Envelope::decode(body)?
        .envelope
        .with_attempts(before + 1)
        .into_bytes();
    let received = Received {
        topic: case.text("work_topic")?,
        key: key.as_ref(),
        headers: &RecordHeaders::default(),
    };
    expected(
        case,
        &tiers,
        project::retry(received, body, attempts, &tiers),
    )
}

/// Holds what came of a case against its `expect`: the word `reject`, or members.
fn expected(
    case: &Case,
    tiers: &RetryTiers,
    found: Result<NewRecord, babelqueue_core::Error>,
) -> Met {
    let expect = case.need("expect")?;
    if let Some(word) = expect.as_str() {
        same("expectation", word, "reject")?;
        return holds(found.is_err(), "it was not rejected");
    }
    let record = found?;
    let members = expect
        .as_object()
        .ok_or_else(|| unknown("expectation", expect.kind()))?;
    let tier = tiers
        .iter()
        .find(|tier| tier.topic(case.text("work_topic").unwrap_or_default()) == *record.topic)
        .ok_or_else(|| Unmet::failed(format!("{} is no tier's topic", record.topic)))?;
    for (name, value) in members {
        match name.as_str() {
            "topic" => same("topic", &Some(&*record.topic), &value.as_str())?,
            "n" => same("n", &i64::try_from(tier.index).ok(), &value.as_i64())?,
            "tier_ms" => same("tier", &i64::try_from(tier.millis()).ok(), &value.as_i64())?,
            "key" => same(
                "key",
                &record.key.as_deref(),
                &value.as_str().map(str::as_bytes),
            )?,
            "body_attempts" => {
                let attempts = Envelope::decode(record.body.clone())?.envelope.attempts();
                same("body attempts", &attempts, &value.as_i64())?;
            }
            "headers" => {
                for (name, value) in value.as_object().unwrap_or_default() {
                    let value = value.as_str().map(str::as_bytes);
                    same(name, &record.headers.first(name), &value)?;
                }
            }
            name => return Err(unknown("expected member", name).into()),
        }
    }
    if case.get("key").is_none() {
        same("key", &record.key, &None)?;
    }
    same("timestamp", &record.timestamp, &None)
}

/// The verdict of the core's decoder, and the same from the way of a delivery.
fn poison(case: &Case) -> Met {
    let body = case.text("body")?;
    let expected = case.text("expect")?;
    let found = verdict::of(body.as_bytes()).as_str();
    same("verdict", found, expected)?;

    let sorted = classify(
        &delivery(body.to_owned().into(), &RecordHeaders::default()),
        Rules::KAFKA,
    );
    let handled = match sorted {
        Ok(_) => true,
        Err(refused) => {
            same("event", &refused.case.event, &Event::Poison)?;
            false
        }
    };
    same("whether a handler sees it", &handled, &(expected == "ok"))
}

/// A record as the transport would hand it out.
fn delivery(body: Bytes, headers: &RecordHeaders) -> Delivery {
    let mut delivery = Delivery::new("orders".into(), body);
    delivery.facts = project::facts(headers);
    delivery.headers = project::surfaced(headers);
    delivery
}

fn envelope(attempts: i64) -> Result<Bytes, babelqueue_core::envelope::EncodeError> {
    let envelope = Envelope::builder("urn:babel:orders:created").build()?;
    envelope.with_attempts(attempts).encode()
}

fn tiers(millis: &[Json]) -> Result<RetryTiers, Unmet> {
    let millis: Option<Vec<u64>> = millis
        .iter()
        .map(|ms| u64::try_from(ms.as_i64()?).ok())
        .collect();
    let millis = millis.ok_or_else(|| Unmet::failed("a tier that is no number"))?;
    Ok(RetryTiers::new(
        millis.into_iter().map(Duration::from_millis),
    )?)
}
