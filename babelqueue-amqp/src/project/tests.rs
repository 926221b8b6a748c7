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
    assert_eq!(header(&marked, "x-attempts"), Some(AMQPValue::LongInt(0)));
    assert_eq!(header(&marked, "x-tenant"), Some(text("acme")));
    assert_eq!(marked.expiration(), &None);

    let unmarked = redriven(&marked, BODY, true, false);
    assert_eq!(header(&unmarked, replay::HEADER), None);
    assert_eq!(header(&unmarked, "x-tenant"), Some(text("acme")));
}
