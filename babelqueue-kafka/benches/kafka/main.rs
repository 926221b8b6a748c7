//! Kafka beside the bare client: `cargo xtask bench kafka`, or with a broker at `BQ_KAFKA_URL`
//! `cargo bench -p babelqueue-kafka --bench kafka`, with `-- --json` for one JSON object a line.
//!
//! The two sides take turns in one run, on one broker, over one runtime of two threads, with the same
//! client settings. Bodies are 256 bytes. In rates a ratio above 1 is ours, in CPU one below.

mod bare;
mod consume;
#[expect(dead_code, reason = "what times work that does not wait")]
#[path = "../../../babelqueue-core/benches/support/pairs.rs"]
mod pairs;
mod produce;
#[path = "../../../babelqueue-core/benches/support/python.rs"]
mod python;
mod topic;
mod wake;

use std::io::Write as _;

use babelqueue_kafka::Order;
use pairs::Pair;
use python::Python;

/// How many pairs are timed.
const PAIRS: usize = 7;

/// 256 bytes, an ordinary envelope.
const BODY: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":1042,"x":1},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let servers = std::env::var("BQ_KAFKA_URL")
        .unwrap_or_else(|_| "kafka://127.0.0.1:19092".to_owned())
        .trim_start_matches("kafka://")
        .to_owned();
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));

    let mut figures = Vec::new();
    if wanted("produce") {
        figures.push(produce::confirmed(&servers).await);
    }
    if wanted("consume") {
        figures.extend(consume::worker(&servers, Order::Partition).await);
        figures.extend(consume::worker(&servers, Order::Key).await);
    }
    if wanted("tiers") {
        figures.push(consume::tier_copies(&servers).await);
    }
    if wanted("wake") {
        figures.push(wake::idle(&servers).await);
    }
    if wanted("python")
        && let Some(python) = Python::installed()
    {
        figures.push(produce::beside_python(&servers, &python).await);
        figures.push(consume::beside_python(&servers, &python).await);
    }
    print(&figures);
}

fn print(figures: &[Pair]) {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut out = std::io::stdout().lock();
    for figure in figures {
        let line = if json {
            figure.to_json()
        } else {
            format!("{figure:?}")
        };
        writeln!(out, "{line}").expect("somebody reads this");
    }
}
