use super::*;

const BODY: &[u8] = br#"{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","queue":"q","lang":"php","schema_version":1,"created_at":1700000000000},"attempts":2}"#;
const CREATED: i64 = 1_700_000_000_000;

const SIX: [(&str, Option<&str>); 6] = [
    (JOB, Some("urn:a")),
    (TRACE_ID, Some("t")),
    (MESSAGE_ID, Some("i")),
    (SCHEMA_VERSION, Some("1")),
    (SOURCE_LANG, Some("php")),
    (ATTEMPTS, Some("2")),
];

fn shown(headers: &NewHeaders) -> Vec<(String, Option<String>)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers
        .iter()
        .map(|(name, value)| (name.to_owned(), value.map(text)))
        .collect()
}

fn of(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
        .collect()
}

fn tiers() -> RetryTiers {
    RetryTiers::new([5, 30].map(Duration::from_secs)).unwrap()
}

fn received(headers: &RecordHeaders) -> Received<'_> {
    Received {
        topic: "orders",
        key: None,
        headers,
    }
}

#[test]
fn a_publish_carries_the_projection_and_the_users_headers() {
    let mut outgoing = Outgoing::new("orders", BODY);
    outgoing.headers = Headers::from_iter([("traceparent", "00"), ("bq-job", "urn:forged")]);
    outgoing.options = PublishOptions::new().key("").partition(2);
    let record = publish(outgoing, &tiers()).unwrap();
    let expected = [&SIX[..], &[("traceparent", Some("00"))]].concat();
    assert_eq!(shown(&record.headers), of(&expected));
    assert_eq!(record.key.as_deref(), Some(&b""[..]));
    assert_eq!((&*record.topic, record.partition), ("orders", Some(2)));
    assert_eq!(record.timestamp, Some(CREATED));
}

#[test]
fn a_header_name_with_a_nul_is_refused_and_named() {
    let mut outgoing = Outgoing::new("orders", BODY);
    outgoing.headers = Headers::from_iter([("ten\0ant", "a")]);
    let refused = publish(outgoing, &tiers()).unwrap_err().to_string();
    assert!(refused.contains(r#""ten\0ant" has a NUL"#), "{refused}");
}

#[test]
fn an_empty_original_topic_is_none() {
    let headers: RecordHeaders = [(ORIGINAL_TOPIC, Some(&b""[..]))].into_iter().collect();
    assert_eq!(facts(&headers).original_queue, None);
}

#[test]
fn a_body_without_members_carries_nothing_of_them() {
    let record = publish(Outgoing::new("q", &b"\xFFnot json"[..]), &tiers()).unwrap();
    assert_eq!(shown(&record.headers), []);
}

#[test]
fn a_delayed_publish_goes_by_way_of_a_tier_with_the_delay_that_was_asked_for() {
    let mut outgoing = Outgoing::new("orders", BODY);
    outgoing.options = PublishOptions::new().delay(Duration::from_millis(5_001));
    let record = publish(outgoing.clone(), &tiers()).unwrap();
    assert_eq!((&*record.topic, record.timestamp), ("orders.retry.2", None));
    assert_eq!(record.headers.first(DELAY), Some(&b"5001"[..]));
    assert_eq!(record.headers.first(ORIGINAL_TOPIC), Some(&b"orders"[..]));

    let refused = publish(outgoing, &RetryTiers::NONE);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

#[test]
fn options_that_kafka_lacks_are_refused() {
    for options in [
        PublishOptions::new().group("g"),
        PublishOptions::new().deduplication_id("d"),
        PublishOptions::new().priority(1),
        PublishOptions::new().time_to_live(Duration::from_secs(1)),
        PublishOptions::new()
            .partition(2)
            .delay(Duration::from_secs(1)),
    ] {
        let mut outgoing = Outgoing::new("orders", BODY);
        outgoing.options = options;
        let refused = publish(outgoing, &tiers());
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
    }
}

#[test]
fn a_retry_writes_its_own_headers_anew_and_carries_the_rest_untouched() {
    let headers = RecordHeaders::from_iter([
        ("bq-attempts", Some(&b"1"[..])),
        ("null", None),
        ("bq-original-topic", Some(b"elsewhere")),
        ("empty", Some(b"")),
        ("twice", Some(b"1")),
        ("bq-unknown", Some(b"x")),
        ("twice", Some(b"2")),
        ("bq-replay-bypass", Some(b"1")),
    ]);
    let key = Bytes::from_static(b"\xFF");
    let from = Received {
        key: Some(&key),
        ..received(&headers)
    };
    let record = retry(from, BODY.into(), 2, &tiers()).unwrap();
    let expected = [
        &SIX[..],
        &[
            (DELAY, Some("30000")),
            (ORIGINAL_TOPIC, Some("orders")),
            ("null", None),
            ("empty", Some("")),
            ("twice", Some("1")),
            ("bq-unknown", Some("x")),
            ("twice", Some("2")),
            ("bq-replay-bypass", Some("1")),
        ],
    ]
    .concat();
    assert_eq!(shown(&record.headers), of(&expected));
    assert_eq!(
        (&*record.topic, &record.key),
        ("orders.retry.2", &Some(key))
    );

    let headers = record.headers.iter().collect();
    let from = Received {
        topic: "orders.retry.2",
        ..received(&headers)
    };
    let back = bring_back(from, record.body.clone());
    let kept = [&expected[..6], &expected[8..]].concat();
    assert_eq!(shown(&back.headers), of(&kept));
    assert_eq!((&*back.topic, &*back.body), ("orders", BODY));
}

#[test]
fn a_record_without_the_header_goes_back_to_its_tiers_topic() {
    let headers = RecordHeaders::default();
    let from = Received {
        topic: "orders.v2.retry.1",
        ..received(&headers)
    };
    assert_eq!(&*bring_back(from, Bytes::new()).topic, "orders.v2");
}

#[test]
fn a_dead_letter_record_counts_and_names_no_tier() {
    let headers = RecordHeaders::from_iter([("bq-delay", Some(&b"5"[..])), ("tenant", Some(b"a"))]);
    let record = Bytes::from_static(b"{\"raw\":\"x\"}");
    let native = dead_letter(received(&headers), "d".into(), record, false, 7);
    let expected = [(ATTEMPTS, Some("7")), ("tenant", Some("a"))];
    assert_eq!(shown(&native.headers), of(&expected));
}

#[test]
fn a_verbatim_record_keeps_its_headers() {
    let pairs = [("bq-schema-version", Some(&b"2"[..])), ("null", None)];
    let headers = RecordHeaders::from_iter(pairs);
    let native = dead_letter(received(&headers), "d".into(), BODY.into(), true, 7);
    assert_eq!(native.headers, pairs.into_iter().collect());
}

#[test]
fn a_redriven_record_begins_anew_with_the_mark_that_it_is_given() {
    let headers = RecordHeaders::from_iter([
        (ATTEMPTS, Some(&b"3"[..])),
        ("bq-replay-bypass", Some(b"old")),
        ("binary", Some(b"\xFF")),
    ]);
    let body = Bytes::from_static(br#"{"job":"urn:a","attempts":0}"#);
    let redriven = |bypass| {
        let record = redrive(received(&headers), "q".into(), body.clone(), false, bypass);
        shown(&record.headers)
    };
    let anew = [
        (JOB, Some("urn:a")),
        (ATTEMPTS, Some("0")),
        ("binary", Some("\u{FFFD}")),
    ];
    assert_eq!(redriven(false), of(&anew));
    let marked = [&anew[..], &[("bq-replay-bypass", Some("1"))]].concat();
    assert_eq!(redriven(true), of(&marked));
}

#[test]
fn the_first_of_a_repeated_header_counts() {
    let facts = |pairs: &[(&str, Option<&[u8]>)]| super::facts(&pairs.iter().copied().collect());
    let repeated = facts(&[
        (ATTEMPTS, Some(b"x")),
        (ATTEMPTS, Some(b"3")),
        (SCHEMA_VERSION, None),
        (SCHEMA_VERSION, Some(b"2")),
    ]);
    assert_eq!(repeated.attempts, None);
    assert_eq!(repeated.version, VersionProperty::Absent);
    let plain = facts(&[
        (ATTEMPTS, Some(b"3")),
        (SCHEMA_VERSION, Some(b"\xFF1")),
        (ORIGINAL_TOPIC, Some(b"orders")),
    ]);
    assert_eq!(plain.attempts, Some(3));
    assert_eq!(plain.version, VersionProperty::Other("\u{FFFD}1".into()));
    assert_eq!(plain.original_queue.as_deref(), Some("orders"));
}

#[test]
fn a_handler_sees_text_that_is_not_the_bindings() {
    let received = RecordHeaders::from_iter([
        ("bq-job", Some(&b"urn:a"[..])),
        ("bq-replay-bypass", Some(b"1")),
        ("null", None),
        ("binary", Some(b"\xFF")),
        ("tenant", Some(b"a")),
    ]);
    let surfaced = surfaced(&received);
    let entries: Vec<_> = surfaced.iter().collect();
    assert_eq!(entries, [("bq-replay-bypass", "1"), ("tenant", "a")]);
}
