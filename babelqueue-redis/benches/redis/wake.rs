//! From a push to an idle receiver that has the message.

use std::time::{Duration, Instant};

use babelqueue_core::transport::{Outgoing, Settlement, SubscribeOptions, Transport as _};
use babelqueue_redis::Redis;
use redis::Cmd;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::TEMPLATE;
use crate::bare::{Bare, Queue};
use crate::pairs::Pair;

const QUEUE: &str = "bench-wake";
const WAKES: usize = 300;

/// The median and the slowest hundredth, each beside two round trips of the bare client: the least that
/// a push and a reserve take.
pub(crate) async fn idle(redis: &Redis, bare: &Bare, name: &str) -> Vec<Pair> {
    let keys = Queue::new(redis.config().layout(), QUEUE).keys;
    bare.delete(&keys).await;
    let subscription = redis
        .subscribe(QUEUE, SubscribeOptions::with_prefetch(1))
        .await;
    let mut subscription = subscription.expect("a server");
    let (tell, mut told) = mpsc::unbounded_channel();
    let receiving = tokio::spawn(async move {
        for _ in 0..WAKES {
            let deliveries = subscription.receiver.receive(1).await.expect("a server");
            let _ = tell.send(Instant::now());
            let batch = deliveries
                .into_iter()
                .map(|d| (d, Settlement::Ack))
                .collect();
            subscription
                .settler
                .settle(batch)
                .await
                .remove(0)
                .expect("settled");
        }
    });
    let (mut waits, mut trips) = (Vec::new(), Vec::new());
    for _ in 0..WAKES {
        sleep(Duration::from_millis(3)).await;
        trips.push(two_round_trips(bare).await);
        let pushed = Instant::now();
        let published = redis.publish(vec![Outgoing::new(QUEUE, TEMPLATE)]).await;
        assert!(published[0].is_ok());
        let woken = told.recv().await.expect("a receiver");
        waits.push(woken.saturating_duration_since(pushed));
    }
    receiving.await.expect("no panic");
    bare.delete(&keys).await;
    let at = |times: &mut Vec<Duration>, percent: usize| {
        times.sort_unstable();
        times[times.len() * percent / 100].as_secs_f64() * 1e3
    };
    [(50, "p50"), (99, "p99")]
        .map(|(percent, label)| {
            let pair = (at(&mut waits, percent), at(&mut trips, percent));
            Pair::of(&format!("{name} {label}"), "ms", &[pair])
        })
        .into()
}

async fn two_round_trips(bare: &Bare) -> Duration {
    let mut connection = bare.connection.clone();
    let started = Instant::now();
    for _ in 0..2 {
        let mut ping = Cmd::new();
        let () = ping
            .arg("PING")
            .query_async(&mut connection)
            .await
            .expect("a server");
    }
    started.elapsed()
}
