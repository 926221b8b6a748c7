//! This crate's section of the suite; it needs no server.

use std::process::ExitCode;

use babelqueue_amqp::project::projected;
use babelqueue_amqp::{Amqp, Config};
use babelqueue_conformance::{Case, Json, Met, Package, Unmet, same};
use babelqueue_core::transport::{Capabilities, Transport as _};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

fn main() -> ExitCode {
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .binding("amqp")
        .section("rabbitmq", projection)
        .page(
            env!("CARGO_MANIFEST_DIR"),
            vec![
                ("RabbitMQ, classic queues", capabilities("classic")),
                ("RabbitMQ, quorum queues", capabilities("quorum")),
            ],
        )
        .main()
}

fn capabilities(queue_type: &str) -> Capabilities {
    let config = Config::from_url(&format!("amqp://localhost?queue_type={queue_type}"));
    let amqp = Amqp::open(config.expect("a good URL")).expect("a good configuration");
    amqp.capabilities().clone()
}

/// `property_projection`: the native properties, and the headers in their native types
/// (contract §12.2).
fn projection(case: &Case) -> Met {
    let properties = projected(&case.fixture("envelope_file")?);
    for (name, expected) in case.members("properties")? {
        let found = property(&properties, name)?
            .as_ref()
            .map(ShortString::as_str);
        same(name, &found, &expected.as_str())?;
    }
    let encoding = properties
        .content_encoding()
        .as_ref()
        .map(ShortString::as_str);
    same("content encoding", &encoding, &Some("utf-8"))?;
    same("delivery mode", properties.delivery_mode(), &Some(2))?;

    let table = properties.headers().as_ref();
    let table = table.into_iter().flat_map(lapin::types::FieldTable::inner);
    let found = table.map(|(name, value)| (name.to_string(), value.clone()));
    let expected = case.members("headers")?.iter();
    let expected = expected.map(|(name, value)| Ok((name.clone(), native(value)?)));
    let mut expected = expected.collect::<Result<Vec<_>, Unmet>>()?;
    expected.sort_by(|left, right| left.0.cmp(&right.0));
    same("headers", &found.collect::<Vec<_>>(), &expected)
}

fn property<'p>(
    properties: &'p BasicProperties,
    name: &str,
) -> Result<&'p Option<ShortString>, Unmet> {
    Ok(match name {
        "type" => properties.kind(),
        "correlation_id" => properties.correlation_id(),
        "message_id" => properties.message_id(),
        "app_id" => properties.app_id(),
        "content_type" => properties.content_type(),
        other => return Err(Unmet::failed(format!("no property `{other}` here"))),
    })
}

/// A header's value as AMQP types it: a whole number stays one.
fn native(value: &Json) -> Result<AMQPValue, Unmet> {
    if let Some(text) = value.as_str() {
        return Ok(AMQPValue::LongString(text.into()));
    }
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number
        .map(AMQPValue::LongInt)
        .ok_or_else(|| Unmet::failed(format!("a header of kind {}", value.kind())))
}
