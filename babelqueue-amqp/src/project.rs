//! Between an envelope and AMQP's own properties, both ways, without a broker (contract §12.2–3).

use babelqueue_core::envelope::Projection;
use babelqueue_core::headers::Reserved;
use babelqueue_core::transport::{Facts, PublishOptions};
use babelqueue_core::{Error, Headers, replay};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

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

/// AMQP's properties, open for change.
#[derive(Default)]
struct Native {
    content_type: Option<ShortString>,
    content_encoding: Option<ShortString>,
    headers: Table,
    priority: Option<u8>,
    correlation_id: Option<ShortString>,
    reply_to: Option<ShortString>,
    expiration: Option<ShortString>,
    message_id: Option<ShortString>,
    timestamp: Option<u64>,
    kind: Option<ShortString>,
    app_id: Option<ShortString>,
    cluster_id: Option<ShortString>,
}

impl Native {
    /// The received properties that a copy carries: all but the broker's own, and the user id, which
    /// the broker only takes from that very user.
    fn of(received: &BasicProperties) -> Self {
        let table = received.headers().as_ref();
        let headers = table.into_iter().flat_map(FieldTable::inner);
        let headers = headers.filter(|(name, _)| !BROKERS_OWN.contains(name.as_str()));
        Self {
            content_type: received.content_type().clone(),
            content_encoding: received.content_encoding().clone(),
            headers: Table(
                headers
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            priority: *received.priority(),
            correlation_id: received.correlation_id().clone(),
            reply_to: received.reply_to().clone(),
            expiration: received.expiration().clone(),
            message_id: received.message_id().clone(),
            timestamp: *received.timestamp(),
            kind: received.kind().clone(),
            app_id: received.app_id().clone(),
            cluster_id: received.cluster_id().clone(),
        }
    }

    /// Sets what the body says; a member that is not there, or too long for a property, changes
    /// nothing.
    fn project(&mut self, body: &Projection<'_>) {
        let set = |property: &mut Option<ShortString>, member: Option<&str>| {
            if let Some(short) = member.and_then(|text| ShortString::try_new(text).ok()) {
                *property = Some(short);
            }
        };
        set(&mut self.kind, body.urn.as_deref());
        set(&mut self.correlation_id, body.trace_id.as_deref());
        set(&mut self.message_id, body.id.as_deref());
        if let Some(version) = body.schema_version {
            self.headers.insert(SCHEMA_VERSION.into(), integer(version));
        }
        if let Some(lang) = body.lang.as_deref() {
            self.headers
                .insert(SOURCE_LANG.into(), AMQPValue::LongString(lang.into()));
        }
        if let Some(attempts) = body.attempts {
            self.headers.insert(ATTEMPTS.into(), integer(attempts));
        }
    }

    fn name_the_format(&mut self) {
        self.app_id = Some("babelqueue".into());
        self.content_type = Some("application/json".into());
        self.content_encoding = Some("utf-8".into());
    }

    fn count(&mut self, attempts: u32) {
        self.headers
            .insert(ATTEMPTS.into(), integer(i64::from(attempts)));
    }

    fn into_properties(self) -> BasicProperties {
        // 2 is persistent.
        let mut all = BasicProperties::default().with_delivery_mode(2);
        macro_rules! set {
            ($($field:ident: $with:ident),* $(,)?) => {
                $(if let Some(value) = self.$field {
                    all = all.$with(value);
                })*
            };
        }
        set! {
            content_type: with_content_type,
            content_encoding: with_content_encoding,
            priority: with_priority,
            correlation_id: with_correlation_id,
            reply_to: with_reply_to,
            expiration: with_expiration,
            message_id: with_message_id,
            timestamp: with_timestamp,
            kind: with_type,
            app_id: with_app_id,
            cluster_id: with_cluster_id,
        }
        if !self.headers.0.is_empty() {
            all = all.with_headers(self.headers.0.into());
        }
        all
    }
}

#[derive(Default)]
struct Table(std::collections::BTreeMap<ShortString, AMQPValue>);

impl Table {
    fn insert(&mut self, name: ShortString, value: AMQPValue) {
        self.0.insert(name, value);
    }

    fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// A whole number in the width that other clients use, if it fits.
fn integer(number: i64) -> AMQPValue {
    match i32::try_from(number) {
        Ok(number) => AMQPValue::LongInt(number),
        Err(_) => AMQPValue::LongLongInt(number),
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
mod tests {
    use std::time::Duration;

    use lapin::types::FieldArray;

    use super::*;

    const BODY: &[u8] = br#"{"job":"urn:babel:orders:created","trace_id":"t-1","data":{},
        "meta":{"id":"m-1","queue":"orders","lang":"rust","schema_version":1,"created_at":5},
        "attempts":2}"#;

    fn header(properties: &BasicProperties, name: &str) -> Option<AMQPValue> {
        properties.headers().as_ref()?.inner().get(name).cloned()
    }

    fn names(properties: &BasicProperties) -> Vec<String> {
        let table = properties.headers().as_ref();
        let names = table.into_iter().flat_map(FieldTable::inner);
        names.map(|(name, _)| name.to_string()).collect()
    }

    fn text(value: &str) -> AMQPValue {
        AMQPValue::LongString(value.into())
    }

    /// What a broker could hand out: ours, a stranger's and its own properties.
    fn received() -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in [
            ("x-attempts", AMQPValue::LongLongInt(1)),
            ("x-schema-version", AMQPValue::LongInt(1)),
            ("x-source-lang", text("php")),
            ("x-death", AMQPValue::FieldArray(FieldArray::default())),
            ("x-first-death-queue", text("orders.delay.1000")),
            ("x-last-death-reason", text("expired")),
            ("x-delivery-count", AMQPValue::LongLongInt(4)),
            ("CC", AMQPValue::FieldArray(FieldArray::default())),
            ("x-tenant", text("acme")),
            ("traceparent", text("00-1")),
            ("blank", text(" ")),
            ("not-text", AMQPValue::LongString(vec![0xFF].into())),
            ("number", AMQPValue::ShortInt(7)),
        ] {
            table.insert(name.into(), value);
        }
        projected(BODY)
            .with_headers(table)
            .with_priority(3)
            .with_expiration("5000".into())
            .with_user_id("guest".into())
            .with_reply_to("replies".into())
            .with_app_id("laravel".into())
            .with_timestamp(99)
    }

    #[test]
    fn a_first_publish_has_the_contracts_properties_and_the_users_headers() {
        let headers = Headers::from_iter([
            ("x-attempts", "9"),
            ("CC", "elsewhere"),
            ("bq-job", "urn:forged"),
            ("traceparent", "00-1"),
            ("bq-replay-bypass", "1"),
        ]);
        let options = PublishOptions::new()
            .priority(7)
            .time_to_live(Duration::from_micros(1500));
        let properties = published(BODY, &headers, &options).unwrap();
        assert_eq!(
            properties.kind().as_ref().unwrap().as_str(),
            "urn:babel:orders:created"
        );
        assert_eq!(
            properties.correlation_id().as_ref().unwrap().as_str(),
            "t-1"
        );
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "m-1");
        assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "babelqueue");
        assert_eq!(
            properties.content_type().as_ref().unwrap().as_str(),
            "application/json"
        );
        assert_eq!(
            properties.content_encoding().as_ref().unwrap().as_str(),
            "utf-8"
        );
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert_eq!(*properties.priority(), Some(7));
        assert_eq!(properties.expiration().as_ref().unwrap().as_str(), "2");
        assert_eq!(
            names(&properties),
            [
                "bq-replay-bypass",
                "traceparent",
                "x-attempts",
                "x-schema-version",
                "x-source-lang"
            ]
        );
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongInt(2))
        );
        assert_eq!(
            header(&properties, "x-schema-version"),
            Some(AMQPValue::LongInt(1))
        );
        assert_eq!(header(&properties, "x-source-lang"), Some(text("rust")));
    }

    #[test]
    fn what_the_body_lacks_or_a_property_cannot_hold_is_left_out() {
        let long = format!(r#"{{"job":"{}","attempts":5000000000}}"#, "u".repeat(256));
        let properties = projected(long.as_bytes());
        assert_eq!(*properties.kind(), None);
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongLongInt(5_000_000_000))
        );
        for body in [
            &b""[..],
            b"nonsense",
            b"\xFF",
            br#"{"raw":"x"}"#,
            br#"{"meta":5}"#,
        ] {
            let properties = projected(body);
            assert_eq!((properties.kind(), properties.message_id()), (&None, &None));
            assert_eq!(*properties.headers(), None, "{body:?}");
        }
    }

    #[test]
    fn options_that_amqp_lacks_are_refused() {
        let new = PublishOptions::new;
        for (options, feature) in [
            (new().key("k"), "key"),
            (new().partition(0), "partition"),
            (new().group("g"), "group"),
            (new().deduplication_id("d"), "deduplication"),
            (
                new()
                    .delay(Duration::from_secs(1))
                    .time_to_live(Duration::from_secs(9)),
                "time to live",
            ),
        ] {
            let error = published(BODY, &Headers::new(), &options).unwrap_err();
            assert!(matches!(&error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(feature), "{error}");
        }
        let options = new().time_to_live(Duration::from_secs(4_294_968));
        let error = published(BODY, &Headers::new(), &options).unwrap_err();
        assert!(matches!(error, Error::Message { .. }), "{error}");
    }

    #[test]
    fn a_retry_carries_all_but_the_brokers_own() {
        let properties = retried(&received(), BODY, 6);
        assert_eq!(
            names(&properties),
            [
                "blank",
                "not-text",
                "number",
                "traceparent",
                "x-attempts",
                "x-schema-version",
                "x-source-lang",
                "x-tenant"
            ]
        );
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongInt(6))
        );
        assert_eq!(header(&properties, "number"), Some(AMQPValue::ShortInt(7)));
        assert_eq!(*properties.priority(), Some(3));
        assert_eq!(*properties.timestamp(), Some(99));
        assert_eq!(properties.expiration().as_ref().unwrap().as_str(), "5000");
        assert_eq!(properties.reply_to().as_ref().unwrap().as_str(), "replies");
        assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "laravel");
        // The broker takes it from that user alone, and closes the channel of everybody else.
        assert_eq!(*properties.user_id(), None);
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert_eq!(*without_expiration(&properties).expiration(), None);
    }

    #[test]
    fn a_poison_body_is_retried_with_its_count_beside_it() {
        let properties = retried(&BasicProperties::default(), b"nonsense", 2);
        assert_eq!(names(&properties), ["x-attempts"]);
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongInt(2))
        );
    }

    #[test]
    fn a_release_changes_nothing() {
        let properties = released(&received());
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongLongInt(1))
        );
        assert_eq!(header(&properties, "x-delivery-count"), None);
    }

    #[test]
    fn a_dead_letter_is_projected_from_its_record_and_does_not_expire() {
        let record = br#"{"raw":"nonsense","dead_letter":{}}"#;
        let properties = dead_lettered(&received(), record, 3);
        assert_eq!(*properties.kind(), None);
        assert_eq!(*properties.correlation_id(), None);
        assert_eq!(*properties.message_id(), None);
        assert_eq!(*properties.expiration(), None);
        assert_eq!(header(&properties, "x-source-lang"), None);
        assert_eq!(header(&properties, "x-schema-version"), None);
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongInt(3))
        );
        assert_eq!(header(&properties, "x-tenant"), Some(text("acme")));
        let properties = dead_lettered(&received(), BODY, 3);
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "m-1");
        assert_eq!(header(&properties, "x-source-lang"), Some(text("rust")));
    }

    #[test]
    fn a_verbatim_dead_letter_keeps_what_it_came_with() {
        let properties = dead_lettered_verbatim(&received());
        assert_eq!(
            header(&properties, "x-attempts"),
            Some(AMQPValue::LongLongInt(1))
        );
        assert_eq!(header(&properties, "x-source-lang"), Some(text("php")));
        assert_eq!(
            properties.kind().as_ref().unwrap().as_str(),
            "urn:babel:orders:created"
        );
        assert_eq!(*properties.expiration(), None);
    }

    #[test]
    fn a_handler_sees_the_users_text_headers() {
        let headers = surfaced(&received());
        let seen: Vec<_> = headers.iter().collect();
        assert_eq!(seen, [("traceparent", "00-1"), ("x-tenant", "acme")]);
        assert!(surfaced(&BasicProperties::default()).is_empty());
    }

    #[test]
    fn counts_of_every_width_are_read_and_nothing_else_is_a_count() {
        let facts_of = |value| {
            let mut table = FieldTable::default();
            table.insert("x-attempts".into(), value);
            facts(&BasicProperties::default().with_headers(table)).attempts
        };
        for value in [
            AMQPValue::ShortShortInt(5),
            AMQPValue::ShortShortUInt(5),
            AMQPValue::ShortInt(5),
            AMQPValue::ShortUInt(5),
            AMQPValue::LongInt(5),
            AMQPValue::LongUInt(5),
            AMQPValue::LongLongInt(5),
        ] {
            assert_eq!(facts_of(value), Some(5));
        }
        for value in [
            AMQPValue::LongInt(-1),
            AMQPValue::Double(5.0),
            AMQPValue::Boolean(true),
            AMQPValue::Timestamp(5),
            AMQPValue::Void,
            text("5"),
        ] {
            assert_eq!(facts_of(value), None);
        }
        assert_eq!(facts_of(AMQPValue::LongLongInt(i64::MAX)), Some(u32::MAX));
        let facts = facts(&received());
        assert_eq!((facts.attempts, facts.deliveries), (Some(1), Some(4)));
    }

    #[test]
    fn the_size_on_the_wire_is_not_underrated() {
        let headers = Headers::from_iter([("a", "b".repeat(10_000)), ("c", "d".repeat(500))]);
        let properties = published(BODY, &headers, &PublishOptions::new()).unwrap();
        let size = wire_size(&properties);
        assert!((10_500..14_000).contains(&size), "{size}");
    }

    #[test]
    fn a_redriven_copy_begins_anew_with_the_mark_that_it_is_given() {
        let marked = redriven(&received(), BODY, false, true);
        assert_eq!(header(&marked, replay::HEADER), Some(text("1")));
        assert_eq!(header(&marked, "x-attempts"), Some(integer(0)));
        assert_eq!(header(&marked, "x-tenant"), Some(text("acme")));
        assert_eq!(marked.expiration(), &None);

        let unmarked = redriven(&marked, BODY, true, false);
        assert_eq!(header(&unmarked, replay::HEADER), None);
        assert_eq!(header(&unmarked, "x-tenant"), Some(text("acme")));
    }
}
