//! Waiting at an empty queue.

use std::time::Duration;

use babelqueue_core::transport::Settlement;
use babelqueue_redis::Layout;
use redis::AsyncCommands as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::common::{config, unique};
use crate::server::{
    Private, bare, handle, publish, receive, shared, stays_empty, subscribe, texts,
};
use crate::{Outcome, trials};

trials![
    an_idle_receiver_wakes_on_a_push,
    one_push_wakes_one_of_many_receivers,
    the_wait_changes_nothing,
    a_waiting_receiver_brings_back_what_a_dead_consumer_held,
    what_a_peer_pushes_without_a_token_is_found,
];

async fn an_idle_receiver_wakes_on_a_push() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let queue = unique("idle");
        let mut subscription = subscribe(&redis, &queue).await?;
        let mut waits = Vec::new();
        for n in 0..10 {
            // Waits at the server by now: a poll would show as a wait of its interval.
            assert!(stays_empty(&mut subscription, Duration::from_millis(30)).await);
            let (redis, queue) = (redis.clone(), queue.clone());
            let pushing = tokio::spawn(async move {
                sleep(Duration::from_millis(20)).await;
                let pushed = Instant::now();
                publish(&redis, &queue, &[&n.to_string()])
                    .await
                    .map(|()| pushed)
            });
            let deliveries = receive(&mut subscription, 1).await?;
            let woken = Instant::now();
            let pushed = pushing.await.expect("no panic")?;
            waits.push(woken.saturating_duration_since(pushed));
            assert_eq!(texts(&deliveries), [n.to_string()]);
            let batch = deliveries
                .into_iter()
                .map(|d| (d, Settlement::Ack))
                .collect();
            subscription.settler.settle(batch).await.remove(0)?;
        }
        waits.sort_unstable();
        // The benchmark says how quick; here it only must not be a poll.
        assert!(
            waits[5] < Duration::from_millis(50),
            "{layout:?}: {waits:?}"
        );
    }
    Ok(())
}

async fn one_push_wakes_one_of_many_receivers() -> Outcome {
    let server = Private::start(&[]).await?;
    for query in ["layout=sdk", "layout=laravel"] {
        let redis = handle(babelqueue_redis::Config::from_url(&server.url(query))?).await?;
        let queue = unique("many");
        let mut waiting = JoinSet::new();
        for _ in 0..64 {
            let mut subscription = subscribe(&redis, &queue).await?;
            waiting.spawn(async move { receive(&mut subscription, 1).await.is_ok() });
        }
        sleep(Duration::from_millis(300)).await;
        let mut bare = bare(&server.url("")).await?;
        let before = scripts_run(&mut bare).await?;
        publish(&redis, &queue, &["only"]).await?;
        assert_eq!(
            waiting
                .join_next()
                .await
                .map(|woken| woken.expect("no panic")),
            Some(true)
        );
        sleep(Duration::from_millis(50)).await;
        let run = scripts_run(&mut bare).await? - before;
        // One took it; the next in line looked once and waits. The Laravel push is a script too.
        assert!(run <= 5, "{query}: {run} scripts for one push");
    }
    Ok(())
}

async fn scripts_run(bare: &mut redis::aio::MultiplexedConnection) -> Result<u64, crate::Fault> {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(bare)
        .await?;
    let calls = stats.lines().find_map(|line| {
        line.strip_prefix("cmdstat_evalsha:calls=")?
            .split(',')
            .next()?
            .parse()
            .ok()
    });
    Ok(calls.unwrap_or_default())
}

async fn the_wait_changes_nothing() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("peek");
    let mut subscription = subscribe(&redis, &queue).await?;
    assert!(stays_empty(&mut subscription, Duration::from_millis(50)).await);
    // The blocking call answers, and nobody receives: the message has to lie where it was.
    let mut bare = bare(&crate::common::url()).await?;
    let _: u64 = bare.rpush(&queue, &["a", "b"]).await?;
    sleep(Duration::from_millis(50)).await;
    let there: Vec<String> = bare.lrange(&queue, 0, -1).await?;
    assert_eq!(there, ["a", "b"]);
    drop(subscription);
    let there: Vec<String> = bare.lrange(&queue, 0, -1).await?;
    assert_eq!(there, ["a", "b"]);
    Ok(())
}

async fn a_waiting_receiver_brings_back_what_a_dead_consumer_held() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let short = config()?
            .with_layout(layout)
            .retry_after(Some(Duration::from_secs(2)))?;
        let dead = handle(short.clone()).await?;
        let queue = unique("dead");
        publish(&dead, &queue, &["a"]).await?;
        let mut subscription = subscribe(&dead, &queue).await?;
        let held = receive(&mut subscription, 1).await?;

        let mut waiting = subscribe(&handle(short).await?, &queue).await?;
        let started = Instant::now();
        assert_eq!(texts(&receive(&mut waiting, 1).await?), ["a"], "{layout:?}");
        let waited = started.elapsed();
        // Within a moment of the deadline, though no push wakes it.
        assert!(
            waited < Duration::from_millis(3_200),
            "{layout:?}: {waited:?}"
        );
        drop(held);
    }
    Ok(())
}

async fn what_a_peer_pushes_without_a_token_is_found() -> Outcome {
    let redis = shared(Layout::Laravel).await?;
    let queue = unique("tokenless");
    let mut subscription = subscribe(&redis, &queue).await?;
    assert!(stays_empty(&mut subscription, Duration::from_millis(50)).await);
    let mut bare = bare(&crate::common::url()).await?;
    let _: u64 = bare.rpush(format!("queues:{queue}"), "a").await?;
    let found = timeout(Duration::from_millis(1_500), receive(&mut subscription, 1)).await;
    assert_eq!(texts(&found.map_err(|_| "not found")??), ["a"]);
    Ok(())
}
