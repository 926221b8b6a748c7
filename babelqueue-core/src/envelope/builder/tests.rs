use std::collections::BTreeMap;
use std::time::Duration;

use serde::ser::Error as _;
use serde_json::json;

use super::*;
use crate::clock::ManualClock;

fn builder() -> EnvelopeBuilder<'static> {
    Envelope::builder("urn:babel:orders:created")
        .trace_id("7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b")
        .id("f1e2d3c4-b5a6-4789-90ab-cdef01234567")
        .clock(&ManualClock::at(Duration::from_secs(1_749_132_727)))
}

#[derive(Serialize)]
struct Titled {
    title: &'static str,
    lines: [u8; 0],
}

fn text(builder: EnvelopeBuilder<'_>) -> String {
    String::from_utf8(builder.build().unwrap().into_bytes().to_vec()).unwrap()
}

fn mistake(builder: EnvelopeBuilder<'_>) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn the_body_is_compact_in_the_contract_s_order_and_unescaped() {
    let built = builder()
        .queue("orders")
        .data(&Titled {
            title: "Café </b> ☕",
            lines: [],
        })
        .meta("vendor", "é/")
        .meta("ext", &json!({"acme": {}}));
    assert_eq!(
        text(built),
        r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"title":"Café </b> ☕","lines":[]},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000,"vendor":"é/","ext":{"acme":{}}},"attempts":0}"#
    );
}

#[test]
fn what_is_not_given_is_minted_or_defaulted() {
    let first = Envelope::builder("urn:a").trace_id(" \t").build().unwrap();
    let second = Envelope::builder("urn:a").build().unwrap();
    assert_eq!(first.queue().unwrap(), "default");
    assert_eq!(first.data_json(), Some("{}"));
    assert!(first.created_at_ms().unwrap() > 1_700_000_000_000);
    assert!(first.accepts());
    let ids = [first.id(), first.trace_id(), second.id(), second.trace_id()];
    let distinct: std::collections::HashSet<_> = ids.iter().flatten().collect();
    assert_eq!(distinct.len(), 4);
    for id in ids.into_iter().flatten() {
        assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 4);
    }
}

#[test]
fn texts_that_need_escapes_come_back() {
    let odd = "a\"b\\c\nd\u{1}é";
    let envelope = Envelope::builder(odd)
        .queue(odd)
        .trace_id(odd)
        .id(odd)
        .meta(odd, odd);
    let envelope = Envelope::decode(envelope.build().unwrap().into_bytes())
        .unwrap()
        .envelope;
    assert_eq!(envelope.urn(), odd);
    assert_eq!(envelope.queue().unwrap(), odd);
    assert_eq!(envelope.trace_id().unwrap(), odd);
    assert_eq!(envelope.id().unwrap(), odd);
    assert_eq!(
        envelope.meta_json(odd).unwrap(),
        serde_json::to_string(odd).unwrap()
    );
}

#[test]
fn data_has_to_be_an_object() {
    assert_eq!(
        mistake(builder().data(&[1, 2])),
        "`/data` is an array, expected an object"
    );
    assert_eq!(
        mistake(builder().data(&())),
        "`/data` is null, expected an object"
    );
    assert_eq!(
        mistake(builder().data("text")),
        "`/data` is a string, expected an object"
    );
    assert_eq!(
        mistake(builder().data_raw(" 5")),
        "`/data` is a number, expected an object"
    );
    assert_eq!(
        text(builder().data(&BTreeMap::<String, u8>::new())),
        text(builder().data_raw(" {} \n"))
    );
}

#[test]
fn raw_data_goes_out_as_it_is_or_not_at_all() {
    let raw = r#"{"big": 123456789012345678901234567890, "n":1.50e2, "a":1, "a":2}"#;
    assert_eq!(
        builder().data_raw(raw).build().unwrap().data_json(),
        Some(raw)
    );
    assert_eq!(
        mistake(builder().data_raw(r#"{"a":{"n":[1,1e400]}}"#)),
        "`/data/a/n/1` is a number too large for a double"
    );
    assert_eq!(
        mistake(builder().data_raw(r#"{"a":"\ud800"}"#)),
        "`/data/a` has a surrogate escape without its other half"
    );
    assert_eq!(
        mistake(builder().data_raw(r#"{"a":1}}"#)),
        "`/data` is not JSON: expected the end of the body"
    );
    assert_eq!(
        mistake(builder().data_raw("")),
        "`/data` is not JSON: expected a value"
    );
}

#[test]
fn meta_refuses_core_keys_forbidden_keys_and_a_key_twice() {
    for key in ["id", "queue", "lang", "schema_version", "created_at"] {
        let error = builder().meta(key, "x").build().unwrap_err();
        assert_eq!(
            error,
            EncodeError::CoreKey {
                pointer: format!("/meta/{key}")
            }
        );
    }
    for key in ["max_retries", "attempts", "source", "ts"] {
        let error = builder().meta(key, "x").build().unwrap_err();
        assert_eq!(
            error,
            EncodeError::ForbiddenKey {
                pointer: format!("/meta/{key}")
            }
        );
    }
    let error = builder()
        .meta("ext", &1)
        .meta("a/b~", &2)
        .meta("a/b~", &3)
        .build()
        .unwrap_err();
    assert_eq!(
        error,
        EncodeError::RepeatedKey {
            pointer: "/meta/a~1b~0".to_owned()
        }
    );
    assert!(
        builder()
            .meta("timestamp", &1)
            .meta("ID", &1)
            .build()
            .is_ok()
    );
}

#[test]
fn blanks_are_refused_where_something_has_to_be() {
    let blank = |urn: &'static str| Envelope::builder(urn).build();
    assert_eq!(blank(" \t\n\x0B\x0C\r").unwrap_err(), EncodeError::BlankUrn);
    assert_eq!(blank("\u{2003}").unwrap().urn(), "\u{2003}");
    assert_eq!(
        mistake(builder().queue("")),
        "`/meta/queue` is blank, expected a queue's name"
    );
    assert_eq!(
        mistake(builder().id(" ")),
        "`/meta/id` is blank, expected an id"
    );
}

#[test]
fn a_number_that_is_none_is_refused_where_it_stands() {
    #[derive(Serialize)]
    struct Line {
        price: f64,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        Ratio(Option<f32>),
        Pair(f32, f32),
        Sized { width: f64 },
    }
    let line = |price| BTreeMap::from([("a/b", vec![Line { price: 1.0 }, Line { price }])]);
    assert_eq!(
        mistake(builder().data(&line(f64::NAN))),
        "`/data/a~1b/1/price` cannot be written as JSON: NaN is no JSON number"
    );
    assert!(builder().data(&line(f64::MAX)).build().is_ok());
    for (unit, pointer) in [
        (Unit::Ratio(Some(f32::INFINITY)), "/meta/unit/ratio"),
        (Unit::Pair(0.5, f32::NEG_INFINITY), "/meta/unit/1"),
        (Unit::Sized { width: f64::NAN }, "/meta/unit/width"),
    ] {
        let error = builder().meta("unit", &unit).build().unwrap_err();
        assert_eq!(error.pointer(), pointer);
    }
    let keyed = BTreeMap::from([(7_u8, (1, f64::NAN))]);
    let error = builder().data(&keyed).build().unwrap_err();
    assert_eq!(error.pointer(), "/data/7/1");
}

#[test]
fn data_is_written_as_serde_json_writes_it() {
    #[derive(Serialize)]
    enum Shape {
        Unit,
        New(u8),
        Pair(i64, char),
        Named { x: Option<()>, y: u128 },
    }
    #[derive(Serialize)]
    struct All {
        raw: Box<serde_json::value::RawValue>,
        number: serde_json::Number,
        shapes: Vec<Shape>,
        floats: (f32, f64),
        map: BTreeMap<i32, bool>,
        bytes: &'static [u8],
        newtype: std::num::Wrapping<i8>,
        text: std::net::Ipv4Addr,
        #[serde(flatten)]
        more: BTreeMap<String, serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        none: Option<u8>,
    }
    let all = All {
        raw: serde_json::from_str(r#"{"n": 1.50e2 }"#).unwrap(),
        number: 42.into(),
        shapes: vec![
            Shape::Unit,
            Shape::New(1),
            Shape::Pair(-2, 'é'),
            Shape::Named {
                x: None,
                y: u128::MAX,
            },
        ],
        floats: (0.1, 1e300),
        map: BTreeMap::from([(-1, true)]),
        bytes: b"ab",
        newtype: std::num::Wrapping(-3),
        text: std::net::Ipv4Addr::LOCALHOST,
        more: BTreeMap::from([("z".to_owned(), json!([null, {"a": 1.5}]))]),
        none: None,
    };
    let envelope = builder().data(&all).build().unwrap();
    assert_eq!(
        envelope.data_json().unwrap(),
        serde_json::to_string(&all).unwrap()
    );
}

#[test]
fn the_first_mistake_is_told() {
    struct Unwritable;
    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("out of ink"))
        }
    }
    let broken = builder().data(&Unwritable).meta("id", &1);
    assert_eq!(
        mistake(broken),
        "`/data` cannot be written as JSON: out of ink"
    );
}
