//! Waiting at an empty queue.

use std::time::Duration;

use babelqueue_core::transport::Settlement;
use babelqueue_redis::{Config, Layout};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::common::{config, unique};
use crate::server::{
    Private, bare, eventually, handle, publish, receive, shared, stays_empty, subscribe, texts,
    within,
};
use crate::{Fault, Outcome, trials};

trials![
    an_idle_receiver_wakes_on_a_push,
    one_push_wakes_one_of_many_receivers,
    the_wait_changes_nothing,
    a_waiting_receiver_brings_back_what_a_dead_consumer_held,
    what_a_peer_pushes_without_a_token_is_found,
];

async fn an_idle_receiver_wakes_on_a_push() -> Outcome {
    let server = Private::start(&[]).await?;
    for query in ["layout=sdk", "layout=laravel"] {
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        let queue = unique("idle");
        let mut bare = bare(&server.url("")).await?;
        let mut waits = Vec::new();
        for n in 0..11 {
            let mut subscription = subscribe(&redis, &queue).await?;
            let receiving = tokio::spawn(async move {
                let deliveries = receive(&mut subscription, 1).await;
                (Instant::now(), deliveries.map(|d| (d, subscription)))
            });
            at_the_server(&mut bare, 1).await?;
            let before = scripts_run(&mut bare).await?;
            sleep(Duration::from_millis(100)).await;
            let polls = scripts_run(&mut bare).await? - before;
            // Once a second in the Laravel layout, for what becomes due.
            assert!(polls <= 1, "{query}: {polls} polls");
            let pushed = Instant::now();
            publish(&redis, &queue, &[&n.to_string()]).await?;
            let (woken, received) = receiving.await.expect("no panic");
            waits.push(woken.saturating_duration_since(pushed));
            let (deliveries, subscription) = received?;
            assert_eq!(texts(&deliveries), [n.to_string()]);
            let batch = deliveries
                .into_iter()
                .map(|d| (d, Settlement::Ack))
                .collect();
            subscription.settler.settle(batch).await.remove(0)?;
        }
        waits.sort_unstable();
        // The benchmark says how quick. Here it has to be the push that wakes it, and not the end of
        // the wait: 5 s, or what is left of a second in the Laravel layout.
        assert!(waits[5] < Duration::from_millis(400), "{query}: {waits:?}");
    }
    Ok(())
}

async fn one_push_wakes_one_of_many_receivers() -> Outcome {
    const RECEIVERS: usize = 64;
    let server = Private::start(&[]).await?;
    for query in ["layout=sdk", "layout=laravel"] {
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        let queue = unique("many");
        let mut bare = bare(&server.url("")).await?;
        let started = scripts_run(&mut bare).await?;
        let mut waiting = JoinSet::new();
        for _ in 0..RECEIVERS {
            let mut subscription = subscribe(&redis, &queue).await?;
            waiting.spawn(async move { receive(&mut subscription, 1).await.is_ok() });
        }
        // Each has looked once, and one of them waits there.
        let all_looked = || {
            let mut bare = bare.clone();
            async move {
                let run = scripts_run(&mut bare).await.unwrap_or_default();
                run > started + RECEIVERS as u64
            }
        };
        assert!(eventually(all_looked).await);
        at_the_server(&mut bare, 1).await?;
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
        // One took it; the next in line looked once and waits, and in the Laravel layout once a second
        // again. Its push is a script, too.
        assert!(run < 20, "{query}: {run} scripts for one push");
    }
    Ok(())
}

/// Waits until so many clients wait in a call that blocks.
async fn at_the_server(bare: &mut MultiplexedConnection, count: u64) -> Outcome {
    let blocked = || {
        let mut bare = bare.clone();
        async move {
            let mut info = redis::cmd("INFO");
            let info = info.arg("clients").query_async::<String>(&mut bare).await;
            let info = info.unwrap_or_default();
            info.contains(&format!("blocked_clients:{count}\r"))
        }
    };
    if eventually(blocked).await {
        return Ok(());
    }
    Err("nobody waits at the server".into())
}

async fn scripts_run(bare: &mut MultiplexedConnection) -> Result<u64, Fault> {
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
        // Around the deadline, though no push wakes it; the blocking call would end after 5 s.
        within(Duration::from_millis(4_500), || async {
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
            drop(held);
            Ok(started.elapsed())
        })
        .await?;
    }
    Ok(())
}

async fn what_a_peer_pushes_without_a_token_is_found() -> Outcome {
    // By the look once a second; the blocking call would end after 5 s.
    within(Duration::from_secs(4), || async {
        let redis = shared(Layout::Laravel).await?;
        let queue = unique("tokenless");
        let mut subscription = subscribe(&redis, &queue).await?;
        assert!(stays_empty(&mut subscription, Duration::from_millis(50)).await);
        let mut bare = bare(&crate::common::url()).await?;
        let _: u64 = bare.rpush(format!("queues:{queue}"), "a").await?;
        let started = Instant::now();
        assert_eq!(texts(&receive(&mut subscription, 1).await?), ["a"]);
        Ok(started.elapsed())
    })
    .await
}
