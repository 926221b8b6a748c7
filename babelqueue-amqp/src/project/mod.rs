//! Between an envelope and AMQP's own properties, both ways, without a broker (contract §12.2–3).

mod native;

use babelqueue_core::envelope::Projection;
use babelqueue_core::headers::Reserved;
use babelqueue_core::transport::{Facts, PublishOptions};
use babelqueue_core::{Error, Headers, replay};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use native::Native;

const SCHEMA_VERSION: &str = "x-schema-version";
const SOURCE_LANG: &str = "x-source-lang";
const ATTEMPTS: &str = "x-attempts";
const DELIVERY_COUNT: &str = "x-delivery-count";

/// What is not the user's in a header table: the contract's own names, and what RabbitMQ reads or
/// writes. `CC` and `BCC` would send a copy to yet more queues.
const RESERVED: Reserved = Reserved::new(
    &[
        SCHEMA_VERSION,
        SOURCE_LANG,
        ATTEMPTS,
        DELIVERY_COUNT,
        "x-acquired-count",
        "x-delay",
        "CC",
        "BCC",
    ],
    &["bq-", "bq_", "x-death", "x-first-death-", "x-last-death-"],
);

/// What the broker wrote beside a message, or acts upon; a copy is sent without it.
const BROKERS_OWN: Reserved = Reserved::new(
    &[DELIVERY_COUNT, "x-acquired-count", "x-delay", "CC", "BCC"],
    &["x-death", "x-first-death-", "x-last-death-"],
);

/// The properties of a message that is published for the first time.
///
/// # Errors
///
/// [`Error::Unsupported`] for an option that AMQP 0-9-1 has no means for, [`Error::Message`] for one
/// out of its range.
pub(crate) fn published(
    body: &[u8],
    headers: &Headers,
    options: &PublishOptions,
) -> Result<BasicProperties, Error> {
    check(options)?;
    let mut native = Native::default();
    native.project(&Projection::of(body));
    native.name_the_format();
    native.priority = options.priority;
    native.expiration = options.time_to_live.map(expiration).transpose()?;
    for (name, value) in RESERVED.carried(headers) {
        if let Ok(name) = ShortString::try_new(name) {
            let value = AMQPValue::LongString(value.into());
            native.headers.insert(name, value);
        } else {
            tracing::warn!("a header whose name has more than 255 bytes is left out");
        }
    }
    Ok(native.into_properties())
}

/// The properties that `body` alone gives: what every BabelQueue SDK writes (contract §12.2).
pub fn projected(body: &[u8]) -> BasicProperties {
    let mut native = Native::default();
    native.project(&Projection::of(body));
    native.name_the_format();
    native.into_properties()
}

/// The properties of the copy that delivers a message again, counted: those of the message as it was
/// received, with the new count.
pub(crate) fn retried(received: &BasicProperties, body: &[u8], attempts: u32) -> BasicProperties {
    let mut native = Native::of(received);
    native.project(&Projection::of(body));
    native.count(attempts);
    native.into_properties()
}

/// The properties of the copy that gives a message back as it was received.
pub(crate) fn released(received: &BasicProperties) -> BasicProperties {
    Native::of(received).into_properties()
}

/// The properties of a dead letter. Its record may be no envelope at all: what it lacks is left out
/// (contract §11C). A time to live does not go along: a dead letter that expires is lost.
pub(crate) fn dead_lettered(
    received: &BasicProperties,
    record: &[u8],
    attempts: u32,
) -> BasicProperties {
    let mut native = Native {
        expiration: None,
        kind: None,
        correlation_id: None,
        message_id: None,
        ..Native::of(received)
    };
    native.headers.remove(SCHEMA_VERSION);
    native.headers.remove(SOURCE_LANG);
    native.project(&Projection::of(record));
    native.name_the_format();
    native.count(attempts);
    native.into_properties()
}

/// The properties of a dead letter that is the received body, byte for byte: unchanged
/// (contract §9.6), but for the time to live.
pub(crate) fn dead_lettered_verbatim(received: &BasicProperties) -> BasicProperties {
    Native {
        expiration: None,
        ..Native::of(received)
    }
    .into_properties()
}

/// The properties of a dead letter that is to be handled again, with the replay mark or without.
pub(crate) fn redriven(
    received: &BasicProperties,
    body: &[u8],
    verbatim: bool,
    bypass: bool,
) -> BasicProperties {
    let copied = if verbatim {
        dead_lettered_verbatim(received)
    } else {
        dead_lettered(received, body, 0)
    };
    let mut native = Native::of(&copied);
    native.headers.remove(replay::HEADER);
    if bypass {
        let mark = AMQPValue::LongString(replay::MARK.into());
        native.headers.insert(replay::HEADER.into(), mark);
    }
    native.into_properties()
}

/// The same without a time to live, which would end a delay before its time. The broker takes it away
/// in any case when it moves an expired message on.
pub(crate) fn without_expiration(properties: &BasicProperties) -> BasicProperties {
    Native {
        expiration: None,
        ..Native::of(properties)
    }
    .into_properties()
}

/// What RabbitMQ says of a delivery. `x-attempts` counts because Laravel raises that alone, and the
/// body because everybody else reads only that; `x-delivery-count` is there on quorum queues.
pub(crate) fn facts(properties: &BasicProperties) -> Facts {
    let count = |name| {
        properties
            .headers()
            .as_ref()?
            .inner()
            .get(name)
            .and_then(count)
    };
    let mut facts = Facts::default();
    facts.attempts = count(ATTEMPTS);
    facts.deliveries = count(DELIVERY_COUNT);
    facts
}

/// What a handler sees of the header table: the text in it.
pub(crate) fn surfaced(properties: &BasicProperties) -> Headers {
    let Some(table) = properties.headers() else {
        return Headers::new();
    };
    RESERVED.surfaced(table.inner().iter().filter_map(|(name, value)| {
        let text = match value {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?,
            AMQPValue::ShortString(text) => text.as_str(),
            _ => return None,
        };
        Some((name.as_str(), text))
    }))
}

/// About how many bytes the properties take on the wire; a little more than less.
pub(crate) fn wire_size(properties: &BasicProperties) -> usize {
    let table = properties.headers().as_ref().map_or(0, table_size);
    // 14 properties, the short strings at their longest.
    table + 9 * 256
}

fn table_size(table: &FieldTable) -> usize {
    let entries = table.inner().iter();
    entries
        .map(|(name, value)| name.as_str().len() + 2 + value_size(value))
        .sum()
}

fn value_size(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::LongString(text) => text.as_bytes().len() + 4,
        AMQPValue::FieldTable(table) => table_size(table) + 4,
        AMQPValue::FieldArray(array) => {
            array
                .as_slice()
                .iter()
                .map(|value| 1 + value_size(value))
                .sum::<usize>()
                + 4
        }
        AMQPValue::ByteArray(bytes) => bytes.as_slice().len() + 4,
        AMQPValue::ShortString(text) => text.as_str().len() + 1,
        _ => 9,
    }
}

fn check(options: &PublishOptions) -> Result<(), Error> {
    let unsupported = |feature, context| {
        Err(Error::Unsupported {
            broker: super::BROKER,
            feature,
            context: String::from(context),
        })
    };
    if options.key.is_some() {
        return unsupported("key", "the routing key is the queue");
    }
    if options.partition.is_some() {
        return unsupported("partition", "queues have none");
    }
    if options.group.is_some() {
        return unsupported(
            "group",
            "a queue with a single active consumer keeps its order",
        );
    }
    if options.deduplication_id.is_some() {
        return unsupported(
            "deduplication id",
            "use an idempotency store in the consumer",
        );
    }
    if options.delay.is_some_and(|delay| !delay.is_zero()) && options.time_to_live.is_some() {
        return unsupported(
            "time to live of a delayed message",
            "leave out one of the two",
        );
    }
    Ok(())
}

/// RabbitMQ takes whole milliseconds, at most 2^32 − 1.
fn expiration(time_to_live: std::time::Duration) -> Result<ShortString, Error> {
    match u32::try_from(time_to_live.as_nanos().div_ceil(1_000_000)) {
        Ok(ms) => Ok(ms.to_string().into()),
        Err(_) => Err(Error::message(format!(
            "`time_to_live` is {} s; RabbitMQ takes at most 4294967 s",
            time_to_live.as_secs()
        ))),
    }
}

/// A count of any width; a negative one is none.
fn count(value: &AMQPValue) -> Option<u32> {
    let number = match *value {
        AMQPValue::ShortShortInt(number) => i64::from(number),
        AMQPValue::ShortShortUInt(number) => i64::from(number),
        AMQPValue::ShortInt(number) => i64::from(number),
        AMQPValue::ShortUInt(number) => i64::from(number),
        AMQPValue::LongInt(number) => i64::from(number),
        AMQPValue::LongUInt(number) => i64::from(number),
        AMQPValue::LongLongInt(number) => number,
        _ => return None,
    };
    let number = u64::try_from(number).ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
