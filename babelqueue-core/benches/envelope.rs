//! The envelope beside `serde_json::Value`: `cargo bench -p babelqueue-core --bench envelope`,
//! with `-- --json` for one JSON object a line.

#[path = "support/pairs.rs"]
mod pairs;

use std::hint::black_box;

use babelqueue_core::dead_letter::{DeadLetter, Reason};
use babelqueue_core::envelope::Envelope;
use babelqueue_core::{poison_record, verdict};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize)]
struct OrderCreated {
    order_id: u64,
    amount: f64,
}

const ORDER: OrderCreated = OrderCreated {
    order_id: 1042,
    amount: 99.9,
};

/// 251 bytes.
const SMALL: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":1042},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"php","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

fn main() {
    let small = Bytes::from_static(SMALL.as_bytes());
    let large = Bytes::from(large());
    let envelope = decode(&small);
    let value = parse(&small);
    let block = DeadLetter::new(Reason::Poison, "orders", 0, 1_749_132_730_000).error("not JSON");
    pairs::report(&[
        pairs::time("decode, 251 B", || decode(&small), || parse(&small)),
        pairs::time(
            &format!("decode, {} B", large.len()),
            || decode(&large),
            || parse(&large),
        ),
        pairs::time(
            "verdict, 251 B",
            || verdict::of(black_box(&small)),
            || serde_json::from_slice::<Value>(black_box(&small)).is_ok(),
        ),
        pairs::time(
            "retry rewrite, 251 B",
            || black_box(&envelope).with_attempts(1).into_bytes(),
            || rewrite(black_box(&value)),
        ),
        pairs::time(
            "encode, 251 B",
            || black_box(&envelope).encode(),
            || serde_json::to_vec(black_box(&value)),
        ),
        pairs::time("build and encode, ids given", own_ids, value_own_ids),
        pairs::time("build and encode, ids minted", minted, value_minted),
        pairs::time(
            "data into a struct",
            || black_box(&envelope).data::<OrderId>().ok(),
            || serde_json::from_value::<OrderId>(black_box(&value)["data"].clone()).ok(),
        ),
        pairs::time(
            "poison record, 251 B",
            || poison_record::write(black_box(&small), &block),
            || rewrite(&parse(black_box(&small))),
        ),
    ]);
}

#[derive(Deserialize)]
struct OrderId {
    #[expect(dead_code, reason = "only its reading is timed")]
    order_id: u64,
}

fn decode(body: &Bytes) -> Envelope {
    Envelope::decode(black_box(body).clone())
        .expect("the sample is an envelope")
        .envelope
}

fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(black_box(body)).expect("the sample is JSON")
}

fn rewrite(value: &Value) -> Vec<u8> {
    let mut value = value.clone();
    value["attempts"] = json!(1);
    serde_json::to_vec(&value).unwrap_or_default()
}

fn own_ids() -> Option<Bytes> {
    Envelope::builder("urn:babel:orders:created")
        .queue("orders")
        .trace_id("7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b")
        .id("f1e2d3c4-b5a6-4789-90ab-cdef01234567")
        .data(black_box(&ORDER))
        .build()
        .ok()
        .map(Envelope::into_bytes)
}

fn value_own_ids() -> Vec<u8> {
    value_of(
        "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
        "f1e2d3c4-b5a6-4789-90ab-cdef01234567",
    )
}

fn minted() -> Option<Bytes> {
    Envelope::builder("urn:babel:orders:created")
        .queue("orders")
        .data(black_box(&ORDER))
        .build()
        .ok()
        .map(Envelope::into_bytes)
}

fn value_minted() -> Vec<u8> {
    value_of(
        &uuid::Uuid::new_v4().to_string(),
        &uuid::Uuid::new_v4().to_string(),
    )
}

fn value_of(trace_id: &str, id: &str) -> Vec<u8> {
    let value = json!({
        "job": "urn:babel:orders:created",
        "trace_id": trace_id,
        "data": black_box(&ORDER),
        "meta": {
            "id": id,
            "queue": "orders",
            "lang": "rust",
            "schema_version": 1,
            "created_at": chrono::Utc::now().timestamp_millis(),
        },
        "attempts": 0,
    });
    serde_json::to_vec(&value).unwrap_or_default()
}

/// An envelope of 8 KB: lines of an order, with what real payloads have in them.
fn large() -> String {
    let line = r#"{"sku":"AB-1042-XL","title":"Café — naïve ☕ \"quoted\"","qty":3,"price":1299.5,"tags":["new","sale"],"note":null}"#;
    let lines = vec![line; 67].join(",");
    SMALL.replace(
        r#"{"order_id":1042}"#,
        &format!(r#"{{"order_id":1042,"lines":[{lines}]}}"#),
    )
}
