use aws_sdk_sqs::primitives::Blob;

use super::*;

const BODY: &[u8] = br#"{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","queue":"q","lang":"php","schema_version":1,"created_at":7},"attempts":0}"#;

fn string(value: &str) -> MessageAttributeValue {
    attribute("String", value).unwrap()
}

fn with_headers(count: usize) -> Headers {
    (0..count).map(|n| (format!("h{n}"), "v")).collect()
}

fn names(attributes: &Attributes) -> Vec<&str> {
    attributes.keys().map(String::as_str).collect()
}

#[test]
fn ten_attributes_are_the_most() {
    let full = published(BODY, &with_headers(4)).unwrap();
    assert_eq!(full.len(), 10);
    let error = published(BODY, &with_headers(5)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("5 headers beside 6 attributes"), "{text}");
    assert_eq!(published(b"plain", &with_headers(10)).unwrap().len(), 10);
    assert!(published(b"plain", &with_headers(11)).is_err());
}

#[test]
fn contract_names_are_not_the_users() {
    let headers = Headers::from_iter([("bq-job", "forged"), ("bq_x", "y"), ("tenant", "acme")]);
    let attributes = published(BODY, &headers).unwrap();
    assert_eq!(attributes["bq-job"].string_value(), Some("urn:a"));
    assert!(!attributes.contains_key("bq_x"));
    assert_eq!(
        surfaced(&attributes).iter().collect::<Vec<_>>(),
        [("tenant", "acme")]
    );
}

#[test]
fn a_member_that_no_attribute_can_hold_stays_in_the_body() {
    let attributes = projected(br#"{"job":"urn:\u0001","trace_id":"t"}"#);
    assert_eq!(names(&attributes), ["bq-trace-id"]);
}

#[test]
fn a_dead_letter_keeps_what_is_not_the_contracts() {
    let mut received = published(BODY, &with_headers(2)).unwrap();
    let blob = MessageAttributeValue::builder()
        .data_type("Binary.png")
        .binary_value(Blob::new([0xFF, 0]))
        .build()
        .unwrap();
    received.insert("picture".into(), blob.clone());
    let record = br#"{"job":"urn:b"}"#;
    let copy = dead_lettered(&received, record);
    assert_eq!(names(&copy), ["bq-job", "h0", "h1", "picture"]);
    assert_eq!(copy["bq-job"].string_value(), Some("urn:b"));
    assert_eq!(copy["picture"], blob);
}

#[test]
fn a_copy_has_ten_attributes_at_most_and_the_users_stay() {
    let received = published(b"plain", &with_headers(9)).unwrap();
    let copy = dead_lettered(&received, BODY);
    assert_eq!(copy.len(), 10);
    assert!(copy.contains_key("h8") && copy.contains_key("bq-schema-version"));
    let copy = redriven(&received, BODY, false, true);
    assert_eq!(copy.len(), 10);
    assert!(copy.contains_key("h8") && copy.contains_key("bq-replay-bypass"));
    let full = published(BODY, &with_headers(4)).unwrap();
    assert_eq!(redriven(&full, BODY, true, true).len(), 10);
}

#[test]
fn a_redrive_sets_the_mark_or_takes_it_away() {
    let marked = Headers::from_iter([(replay::HEADER, "old"), ("tenant", "acme")]);
    let received = published(BODY, &marked).unwrap();
    let with = redriven(&received, BODY, false, true);
    assert_eq!(with[replay::HEADER].string_value(), Some(replay::MARK));
    let without = redriven(&received, BODY, false, false);
    assert!(!without.contains_key(replay::HEADER) && without.contains_key("tenant"));

    let mut gated = received;
    gated.insert(SCHEMA_VERSION.into(), string(" 2"));
    let copy = redriven(&gated, BODY, true, false);
    assert_eq!(copy[SCHEMA_VERSION].string_value(), Some(" 2"));
}

#[test]
fn a_count_that_is_none_says_nothing() {
    let none = Attributes::new();
    for (count, before) in [
        (Some("1"), Some(0)),
        (Some("4"), Some(3)),
        (Some("0"), None),
        (Some("-1"), None),
        (Some("x"), None),
        (None, None),
    ] {
        assert_eq!(facts(count, &none).deliveries, before, "{count:?}");
    }
}

#[test]
fn a_version_counts_if_it_is_text() {
    let version = |value| {
        let attributes = Attributes::from([(SCHEMA_VERSION.to_owned(), value)]);
        facts(None, &attributes).version
    };
    assert_eq!(version(string("2")), VersionProperty::Text("2".into()));
    let builder = MessageAttributeValue::builder().data_type("Binary");
    let binary = builder.binary_value(Blob::new([50])).build().unwrap();
    assert_eq!(version(binary), VersionProperty::Absent);
}
