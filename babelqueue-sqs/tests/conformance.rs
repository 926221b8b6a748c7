//! The suite's SQS sections over this crate's own functions, beside the core's. The version gate's
//! settlement runs over an endpoint of ours, so no server is needed.

#[path = "common/front.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod front;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::config::Credentials;
use babelqueue_conformance::{Case, Json, Met, Package, Unmet, holds, same, unknown};
use babelqueue_core::decide::{Event, Policy, UnknownUrn, classify};
use babelqueue_core::handler::{Context, Failure, Handler, HandlerFuture};
use babelqueue_core::retry::Retry;
use babelqueue_core::transport::{Delivery, Rules, Transport as _};
use babelqueue_core::worker::Worker;
use babelqueue_core::{Headers, version_gate};
use babelqueue_sqs::project::{self, Attributes};
use babelqueue_sqs::{Config, Sqs, aws_sdk_sqs, publish_seconds, visibility_seconds};
use front::{Front, Request, Verdict};

fn main() -> ExitCode {
    let pages = vec![("SQS", Sqs::open(Config::new()).capabilities().clone())];
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .page(env!("CARGO_MANIFEST_DIR"), pages)
        .binding("sqs")
        .section("sqs", sqs)
        .section("delay", delay)
        .section("version_gate_sqs", gate_settlement)
        .main()
}

fn sqs(case: &Case) -> Met {
    match case.group() {
        None => attribute_projection(case),
        Some("attempts_reconciliation") => attempts_reconciliation(case),
        Some("schema_version_gate") => schema_version_gate(case),
        Some(group) => Err(unknown("group", group).into()),
    }
}

fn attribute_projection(case: &Case) -> Met {
    let body = case.fixture("envelope_file")?;
    let attributes = project::published(&body, &Headers::new())?;
    let found = attributes.iter().map(|(name, value)| {
        let text = value.string_value().map(str::to_owned);
        (name.clone(), Some(value.data_type().to_owned()), text)
    });
    let text = |value: &Json, name| value.get(name).and_then(Json::as_str).map(str::to_owned);
    let expected = case.members("message_attributes")?.iter();
    let mut expected: Vec<_> = expected
        .map(|(name, value)| {
            (
                name.clone(),
                text(value, "DataType"),
                text(value, "StringValue"),
            )
        })
        .collect();
    expected.sort();
    same("attributes", &found.collect::<Vec<_>>(), &expected)
}

fn attempts_reconciliation(case: &Case) -> Met {
    let body = format!(
        r#"{{"job":"urn:a","trace_id":"t","data":{{}},"meta":{{}},"attempts":{}}}"#,
        case.integer("body_attempts")?
    );
    let count = case.need("approximate_receive_count")?.as_str();
    let delivery = delivery(body.into_bytes(), count, &Attributes::new());
    let dispatch =
        classify(&delivery, Rules::SQS).map_err(|refused| Unmet::failed(refused.error))?;
    same(
        "attempts",
        &dispatch.attempts,
        &case.integer("expected_attempts")?,
    )
}

fn schema_version_gate(case: &Case) -> Met {
    let value = case.get("value").map(|value| value.as_str());
    let absent = case.get("absent").is_some();
    holds(absent != value.is_some(), "either absent or a value")?;
    let mut attributes = Attributes::new();
    if let Some(value) = value {
        let value = value.ok_or_else(|| Unmet::failed("a value that is no text"))?;
        let text = aws_sdk_sqs::types::MessageAttributeValue::builder()
            .data_type("Number")
            .string_value(value);
        attributes.insert(case.block_text("property")?.to_owned(), text.build()?);
    }
    let delivery = delivery(case.fixture("fixture")?, Some("1"), &attributes);
    let sorted = classify(&delivery, Rules::SQS);
    let found = match &sorted {
        Ok(_) => "decode",
        Err(refused) if refused.case.event == Event::Gated => "reject",
        Err(refused) => return Err(Unmet::failed(&refused.error)),
    };
    same("verdict", found, case.text("expect")?)?;
    let alone = version_gate::check(&delivery.facts.version).is_ok();
    same("the gate alone", &alone, &sorted.is_ok())
}

fn delivery(body: Vec<u8>, receive_count: Option<&str>, attributes: &Attributes) -> Delivery {
    let mut delivery = Delivery::new("orders".into(), body.into());
    delivery.facts = project::facts(receive_count, attributes);
    delivery.headers = project::surfaced(attributes);
    delivery
}

fn delay(case: &Case) -> Met {
    let seconds = Duration::from_secs(u64::try_from(case.integer("delay_seconds")?)?);
    let expect = case.need("expect")?;
    let number = |name| expect.get(name).and_then(Json::as_i64);
    match case.group() {
        Some("release_visibility") => {
            let found = visibility_seconds(seconds, Duration::ZERO);
            same(
                "visibility",
                &Some(i64::from(found)),
                &number("visibility_timeout"),
            )
        }
        Some(group) => Err(unknown("group", group).into()),
        None => {
            let fifo = match case.text("queue_type")? {
                "fifo" => true,
                "standard" => false,
                other => return Err(unknown("queue type", other).into()),
            };
            let found = publish_seconds(Some(seconds), fifo);
            if let Some(word) = expect.as_str() {
                same("expectation", word, "reject")?;
                return holds(found.is_err(), "it was not rejected");
            }
            same(
                "delay",
                &found?.map(i64::from),
                &number("delay_seconds_attribute"),
            )
        }
    }
}

/// A worker over an endpoint of ours gets one gated message; what it asks of the endpoint is the
/// outcome.
fn gate_settlement(case: &Case) -> Met {
    let expect = case.need("expect")?;
    let outcome = expect.get("outcome").and_then(Json::as_str);
    let outcome = outcome.ok_or_else(|| Unmet::failed("no outcome"))?;
    let mut bodies = vec![br#"{"job":"urn:a"}"#.to_vec()];
    if expect.get("record").and_then(Json::as_str) == Some("incoming_body") {
        let incoming = case.block.get("incoming_bodies").and_then(Json::as_array);
        let texts = incoming.unwrap_or_default().iter();
        let texts = texts.filter_map(|body| body.get("body").and_then(Json::as_str));
        bodies = texts.map(|text| text.as_bytes().to_vec()).collect();
        holds(!bodies.is_empty(), "no incoming bodies")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for body in bodies {
        let body = String::from_utf8(body)?;
        let found = runtime.block_on(settled(case, &body))?;
        same("outcome", found, outcome)?;
    }
    Ok(())
}

/// How the one message that the endpoint has was settled.
async fn settled(case: &Case, body: &str) -> Result<&'static str, Unmet> {
    let write_fails = match case.get("dlq_write").and_then(Json::as_str) {
        Some("fails") => true,
        Some("ok") | None => false,
        Some(other) => return Err(unknown("dlq_write", other).into()),
    };
    let front = Front::start(None, endpoint(body.to_owned(), write_fails)).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let credentials = Credentials::new("test", "test", None, None, "test");
    let sqs = Sqs::open(Config::from_url(&front.url())?.credentials(credentials));
    let worker = Worker::new(sqs)
        .queue_with("orders", policy(case)?)
        .handler("urn:never", Untouched);
    let running = tokio::spawn(worker.run_until(stopped));

    // The second receive comes when the first message has been looked at.
    let settled = |front: &Front| {
        front.count("DeleteMessageBatch") > 0
            || front.count("ReceiveMessage") > 1
                && (!write_fails || front.count("SendMessageBatch") > 0)
    };
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while !settled(&front) {
        holds(
            std::time::Instant::now() < end,
            "the message was not settled",
        )?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stop);
    running.await??;

    let changed = front.count("ChangeMessageVisibilityBatch");
    holds(changed == 0, "its visibility was changed")?;
    let deleted = front.count("DeleteMessageBatch") > 0;
    let sends = front.bodies("SendMessageBatch");
    let Some(sent) = sends.first() else {
        return Ok(if deleted { "ack" } else { "native" });
    };
    let sent = babelqueue_conformance::json::parse(sent).map_err(Unmet::failed)?;
    let entry = sent.pointer("/Entries/0");
    let field = |pointer: &str| {
        entry
            .and_then(|entry| entry.pointer(pointer))
            .and_then(Json::as_str)
    };
    same("record", &field("/MessageBody"), &Some(body))?;
    let version = field("/MessageAttributes/bq-schema-version/StringValue");
    same("version", &version, &Some("2"))?;
    same(
        "url",
        &sent.get("QueueUrl").and_then(Json::as_str),
        &Some("http://sqs/orders-dlq"),
    )?;
    Ok(if deleted { "dlq_raw" } else { "unsettled" })
}

/// An endpoint that has one message, with a version that nobody knows.
fn endpoint(body: String, write_fails: bool) -> impl Fn(&Request) -> Verdict + Send + Sync {
    let given = Arc::new(std::sync::atomic::AtomicBool::new(false));
    move |request| {
        let name = if request.body.contains("-dlq") {
            "orders-dlq"
        } else {
            "orders"
        };
        let answer = match request.action.as_str() {
            "GetQueueUrl" => serde_json::json!({ "QueueUrl": format!("http://sqs/{name}") }),
            "ReceiveMessage" if !given.swap(true, std::sync::atomic::Ordering::Relaxed) => {
                let version = serde_json::json!({ "DataType": "Number", "StringValue": "2" });
                serde_json::json!({ "Messages": [{
                    "MessageId": "m", "ReceiptHandle": "h", "Body": body,
                    "Attributes": { "ApproximateReceiveCount": "9" },
                    "MessageAttributes": { "bq-schema-version": version },
                }] })
            }
            "SendMessageBatch" if write_fails => {
                return Verdict::Answer(500, r#"{"__type":"InternalFailure"}"#.into());
            }
            "SendMessageBatch" => serde_json::json!({ "Successful": [{
                "Id": "0", "MessageId": "n", "MD5OfMessageBody": "x",
            }], "Failed": [] }),
            "DeleteMessageBatch" => {
                serde_json::json!({ "Successful": [{ "Id": "0" }], "Failed": [] })
            }
            _ => serde_json::json!({}),
        };
        Verdict::Answer(200, answer.to_string())
    }
}

fn policy(case: &Case) -> Result<Policy, Unmet> {
    let text = |name| case.get(name).and_then(Json::as_str);
    let on = match text("dead_letter") {
        Some("on") => true,
        Some("off") => false,
        other => return Err(unknown("dead_letter", other).into()),
    };
    let policy = Policy::default().retry(Retry::attempts(3)).dead_letter(on);
    Ok(match text("on_unknown_urn") {
        None => policy,
        Some("fail") => policy.on_unknown_urn(UnknownUrn::Fail),
        Some("delete") => policy.on_unknown_urn(UnknownUrn::Delete),
        Some("release") => policy.on_unknown_urn(UnknownUrn::Release),
        Some("dead_letter") => policy.on_unknown_urn(UnknownUrn::DeadLetter),
        other => return Err(unknown("on_unknown_urn", other).into()),
    })
}

/// A handler that no gated message reaches.
struct Untouched;

impl Handler for Untouched {
    fn call(&self, _: Context) -> HandlerFuture {
        Box::pin(async { Err(Failure::msg("a gated message was handled")) })
    }
}
