//! How long a message takes through an idle worker.

use std::time::{Duration, Instant};

use babelqueue_core::prelude::*;
use babelqueue_core::transport::Transport as _;
use babelqueue_kafka::{Config, Kafka};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::PAIRS;
use crate::pairs::Pair;
use crate::topic::Topic;

const COUNT: usize = 100;

#[derive(Debug, Deserialize)]
struct OrderCreated {}

impl Message for OrderCreated {
    const URN: &'static str = "urn:babel:orders:created";
}

/// From the publish to the handler, beside the publish's own confirmation; medians of each round.
pub(crate) async fn idle(servers: &str) -> Pair {
    let topic = Topic::new(servers).await;
    let config = Config::new(servers).group(format!("bench-{}", uuid::Uuid::new_v4()));
    let kafka = Kafka::open(config).await.expect("a broker");
    let (tell, mut handles) = mpsc::unbounded_channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(kafka.clone())
        .queue(topic.name.as_ref())
        .handle(move |_: Incoming<OrderCreated>| {
            let _ = tell.send(Instant::now());
            async { Ok(()) }
        });
    let worker = tokio::spawn(worker.run_until(stopped));
    // The first one waits for the group.
    kafka.publish(topic.outgoing(1)).await;
    handles.recv().await.expect("a worker");

    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let (mut wakes, mut confirms) = (Vec::new(), Vec::new());
        for _ in 0..COUNT {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let started = Instant::now();
            kafka.publish(topic.outgoing(1)).await;
            confirms.push(started.elapsed());
            let begun = handles.recv().await.expect("a worker");
            wakes.push(begun.saturating_duration_since(started));
        }
        pairs.push((median(wakes), median(confirms)));
    }
    stop.send(()).expect("a worker");
    worker.await.expect("a task").expect("a run");
    topic.remove().await;
    Pair::of("idle wake-up, p50, beside the confirmation", "ms", &pairs)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}
