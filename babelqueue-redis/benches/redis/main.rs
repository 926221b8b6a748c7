//! Redis beside the bare client: `cargo xtask bench redis`, or with a server at `BQ_REDIS_URL`
//! `cargo bench -p babelqueue-redis --bench redis`, with `-- --json` for one JSON object a line.
//!
//! The two sides take turns in one run, on one server, over one runtime of two threads. Bodies are
//! 256 bytes. The rival of a rate is the bare client doing the same trips with the same scripts; so a
//! ratio above 1 is ours.

mod bare;
mod consume;
#[expect(dead_code, reason = "what times work that does not wait")]
#[path = "../../../babelqueue-core/benches/support/pairs.rs"]
mod pairs;
mod publish;
mod wake;

use std::future::Future;
use std::time::Instant;

use babelqueue_redis::{Config, Layout, Redis};
use pairs::Pair;

/// How many pairs are timed.
const PAIRS: usize = 7;

/// An ordinary envelope, but for its number.
const TEMPLATE: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":10000000},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

/// The envelope with this number, 256 bytes. Each is another message: identical ones collapse in the
/// Laravel layout.
fn body(number: u32) -> String {
    TEMPLATE.replace("10000000", &(10_000_000 + number).to_string())
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url =
        std::env::var("BQ_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned());
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let bare = bare::Bare::connect(&url).await;

    let mut figures = Vec::new();
    for (layout, name) in [(Layout::Sdk, "sdk"), (Layout::Laravel, "laravel")] {
        let config = Config::from_url(&url)
            .expect("a good URL")
            .with_layout(layout);
        let redis = Redis::open(config).expect("a good configuration");
        let group = |what: &str| format!("{name}: {what}");
        if wanted("publish") {
            figures
                .push(publish::batches(&redis, &bare, &group("publish in batches of 256")).await);
            figures.push(publish::tasks(&redis, &bare, &group("publish from 256 tasks")).await);
        }
        if wanted("consume") {
            figures.push(
                consume::worker(&redis, &bare, &group("reserve and ack, worker, N = 64")).await,
            );
        }
        if wanted("wake") {
            figures.extend(wake::idle(&redis, &bare, &group("idle wake-up")).await);
        }
    }
    if wanted("lrem") {
        figures.extend(consume::in_flight(&url, &bare).await);
    }
    pairs::report(&figures);
}

/// Times the two sides in turn, in things a second.
async fn rates<A: Future, B: Future>(
    name: &str,
    count: u32,
    mut ours: impl FnMut() -> A,
    mut rival: impl FnMut() -> B,
) -> Pair {
    let mut pairs = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        // Who begins changes from pair to pair.
        let (first, second);
        if pair % 2 == 0 {
            first = rate(count, ours()).await;
            second = rate(count, rival()).await;
            pairs.push((first, second));
        } else {
            first = rate(count, rival()).await;
            second = rate(count, ours()).await;
            pairs.push((second, first));
        }
    }
    Pair::of(name, "/s", &pairs)
}

async fn rate(count: u32, work: impl Future) -> f64 {
    let started = Instant::now();
    work.await;
    f64::from(count) / started.elapsed().as_secs_f64()
}
