//! Redis beside the bare client: `cargo xtask bench redis`, or with a server at `BQ_REDIS_URL`
//! `cargo bench -p babelqueue-redis --bench redis`, with `-- --json` for one JSON object a line.
//!
//! The two sides take turns in one run, on one server, over one runtime of two threads; the worker
//! over one of one thread as well. Bodies are 256 bytes. The rival of a rate is the bare client doing
//! the same trips with the same scripts; so a ratio above 1 is ours. Where `BQ_PYTHON` names an
//! interpreter that has it, the Python SDK takes its turn as well.

mod bare;
mod consume;
#[expect(dead_code, reason = "what times work that does not wait")]
#[path = "../../../babelqueue-core/benches/support/pairs.rs"]
mod pairs;
mod publish;
#[expect(dead_code, reason = "its publishing has no counterpart here")]
#[path = "../../../babelqueue-core/benches/support/python.rs"]
mod python;
mod wake;

use std::future::Future;
use std::time::Instant;

use babelqueue_redis::{Config, Layout, Redis};
use pairs::Pair;
use python::Python;
use tokio::runtime::Builder;

/// How many pairs are timed.
const PAIRS: usize = 7;

/// An ordinary envelope, but for its number.
const TEMPLATE: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":10000000},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

/// The envelope with this number and ids of its own, 256 bytes. Ids matter: Redis's Lua keeps every
/// string in one table by a few of its bytes, and messages that differ in a digit alone would all lie
/// in the same place of it.
fn body(number: u32) -> String {
    let id = || uuid::Uuid::new_v4().hyphenated().to_string();
    TEMPLATE
        .replace("10000000", &(10_000_000 + number).to_string())
        .replace("7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b", &id())
        .replace("f1e2d3c4-b5a6-4789-90ab-cdef01234567", &id())
}

fn main() {
    let url =
        std::env::var("BQ_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned());
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let python = python::Python::installed();
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let one = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");

    let mut figures = two.block_on(all(&url, wanted, python.as_ref()));
    figures.extend(one.block_on(on_one_thread(&url, wanted, python.as_ref())));
    pairs::report(&figures);
}

const LAYOUTS: [(Layout, &str); 2] = [(Layout::Sdk, "sdk"), (Layout::Laravel, "laravel")];

fn open(url: &str, layout: Layout) -> Redis {
    let config = Config::from_url(url).expect("a good URL");
    Redis::open(config.with_layout(layout)).expect("a good configuration")
}

async fn all(url: &str, wanted: impl Fn(&str) -> bool, python: Option<&Python>) -> Vec<Pair> {
    let bare = bare::Bare::connect(url).await;
    let mut figures = Vec::new();
    for (layout, name) in LAYOUTS {
        let redis = open(url, layout);
        let group = |what: &str| format!("{name}: {what}");
        if wanted("publish") {
            figures
                .extend(publish::batches(&redis, &bare, &group("publish in batches of 256")).await);
            figures.extend(publish::tasks(&redis, &bare, &group("publish from 256 tasks")).await);
        }
        if wanted("consume") {
            let name = group("reserve and ack, worker, N = 64");
            figures.extend(consume::worker(&redis, &bare, &name).await);
        }
        if wanted("python")
            && let Some(python) = python
        {
            let name = group("reserve and ack, worker, N = 64, beside Python");
            figures.push(consume::beside_python(&redis, &bare, python, &name).await);
        }
        if wanted("wake") {
            figures.extend(wake::idle(&redis, &bare, &group("idle wake-up")).await);
        }
    }
    if wanted("lrem") {
        figures.extend(consume::in_flight(url, &bare).await);
    }
    figures
}

/// The worker over a runtime of one thread, which leaves the other processor to the server.
async fn on_one_thread(
    url: &str,
    wanted: impl Fn(&str) -> bool,
    python: Option<&Python>,
) -> Vec<Pair> {
    let bare = bare::Bare::connect(url).await;
    let mut figures = Vec::new();
    for (layout, name) in LAYOUTS {
        let redis = open(url, layout);
        let name = format!("{name}: reserve and ack, worker, N = 64, one thread");
        if wanted("consume") {
            figures.extend(consume::worker(&redis, &bare, &name).await);
        }
        if wanted("python")
            && let Some(python) = python
        {
            let name = format!("{name}, beside Python");
            figures.push(consume::beside_python(&redis, &bare, python, &name).await);
        }
    }
    figures
}

/// Times the two sides in turn: how many things a second, and at how much of this process's CPU each.
/// The second figure stands still when others use the machine.
async fn in_turn<A: Future<Output = Spent>, B: Future<Output = Spent>>(
    name: &str,
    count: u32,
    mut ours: impl FnMut() -> A,
    mut rival: impl FnMut() -> B,
) -> [Pair; 2] {
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // Who begins changes from pair to pair.
        let (one, other);
        if pair % 2 == 0 {
            one = ours().await;
            other = rival().await;
        } else {
            other = rival().await;
            one = ours().await;
        }
        let count = f64::from(count);
        rates.push((count / one.seconds, count / other.seconds));
        times.push((
            one.cpu_seconds * 1e6 / count,
            other.cpu_seconds * 1e6 / count,
        ));
    }
    [
        Pair::of(name, "/s", &rates),
        Pair::of(&format!("{name}: CPU each"), "us", &times),
    ]
}

/// What some work took.
struct Spent {
    seconds: f64,
    cpu_seconds: f64,
}

async fn timed(work: impl Future) -> Spent {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    work.await;
    Spent {
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
    }
}

/// The CPU that this process has used, from Linux's books, to a hundredth of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}
