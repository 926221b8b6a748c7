//! This crate's sections of the suite: the key names and the delay need no server, the others run on
//! a live one.

#[path = "../common/mod.rs"]
mod common;
mod keys;
mod steps;

use std::process::ExitCode;
use std::time::Duration;

use babelqueue_conformance::{Case, Json, Met, Package, Unmet, same};
use babelqueue_core::transport::{Capabilities, Outgoing, Transport as _};
use babelqueue_redis::{Config, Keys, Layout, Redis, available_at};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let pages = [
        ("Redis, SDK layout", Layout::Sdk),
        ("Redis, Laravel layout", Layout::Laravel),
    ]
    .map(|(name, layout)| (name, capabilities(layout)));
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .binding("redis")
        .page(env!("CARGO_MANIFEST_DIR"), pages.into())
        .section("redis", payload_identity)
        .section("redis_delay", delay)
        .section("redis_layout", layout)
        .main()
}

/// What a transport of this layout says of itself; no server is asked.
fn capabilities(layout: Layout) -> Capabilities {
    let config = Config::from_url("redis://127.0.0.1").expect("a good URL");
    let redis = Redis::open(config.with_layout(layout)).expect("a good configuration");
    redis.capabilities().clone()
}

/// `redis`: what is published comes back byte for byte (contract §11).
fn payload_identity(case: &Case) -> Met {
    let body = case.fixture("envelope_file")?;
    live(async {
        let redis = server(common::config()?).await?;
        let name = common::unique("identity");
        let published = redis
            .publish(vec![Outgoing::new(&*name, body.clone())])
            .await;
        published.into_iter().collect::<Result<Vec<_>, _>>()?;

        let queue = redis.queue(&name)?;
        let reserved = queue.reserve(1).await?;
        let bodies: Vec<&[u8]> = reserved.deliveries.iter().map(|d| &*d.body).collect();
        let stored = keys::Keyspace::of(&queue).await?.clean().await;
        same("the body", &bodies, &[&*body])?;
        stored
    })
}

/// `redis_delay`: floor(now) + ceil(delay) (contract §11B.2).
fn delay(case: &Case) -> Met {
    let now = Duration::try_from_secs_f64(case.number("now")?)?;
    let delay = Duration::try_from_secs_f64(case.number("delay")?)?;
    let expected = u64::try_from(case.integer("expect_score")?)?;
    same("score", &available_at(now, delay), &expected)
}

/// `redis_layout`: the key names, and the steps on a live server.
fn layout(case: &Case) -> Met {
    match case.group() {
        None => key_names(case),
        Some(_) => live(steps::run(case)),
    }
}

fn key_names(case: &Case) -> Met {
    let keys = Keys::new(
        Layout::Laravel,
        case.text("key_prefix")?,
        case.text("queue")?,
    );
    let Keys::Laravel {
        ready,
        delayed,
        reserved,
        notify,
        ..
    } = keys
    else {
        return Err(Unmet::failed("not the Laravel layout"));
    };
    let expected = case.need("expect")?;
    for (name, key) in [
        ("ready", ready),
        ("delayed", delayed),
        ("reserved", reserved),
        ("notify", notify),
    ] {
        same(
            name,
            &Some(&*key),
            &expected.get(name).and_then(Json::as_str),
        )?;
    }
    Ok(())
}

async fn server(config: babelqueue_redis::Config) -> Result<babelqueue_redis::Redis, Unmet> {
    common::reachable(config).await.map_err(Unmet::NoBroker)
}

fn live(test: impl Future<Output = Met>) -> Met {
    Runtime::new()?.block_on(test)
}
