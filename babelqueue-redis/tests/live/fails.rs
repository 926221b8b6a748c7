//! Servers that die, connections that break or go silent, answers that are lost.

use std::collections::BTreeSet;
use std::time::Duration;

use babelqueue_core::transport::{Settled, Settlement, Subscription};
use babelqueue_redis::{Config, Redis};
use redis::AsyncCommands as _;
use tokio::time::{Instant, sleep, timeout};

use crate::common::unique;
use crate::proxy::Proxy;
use crate::server::{
    DURABLE, PATIENCE, Private, bare, eventually, handle, publish, receive, subscribe, texts,
};
use crate::{Fault, Outcome, trials};

trials![
    a_server_that_is_killed_loses_nothing,
    what_was_out_is_settled_over_the_next_connection,
    a_closed_idle_connection_is_noticed,
    a_silent_connection_is_given_up,
    an_answer_lost_with_its_connection_is_no_failure,
    a_reserve_whose_answer_was_lost_comes_back_at_its_deadline,
    a_reserve_whose_answer_was_lost_is_found_where_leases_never_end,
    closing_gives_back_what_an_unanswered_reserve_took,
    a_slow_script_of_somebody_else_is_waited_for,
    a_server_that_starts_late_is_found,
    settling_gives_up_when_the_lease_is_over,
];

async fn a_server_that_is_killed_loses_nothing() -> Outcome {
    for query in ["layout=sdk&retry_after=2", "layout=laravel&retry_after=2"] {
        let mut server = Private::start(&DURABLE).await?;
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        let queue = unique("killed");
        let sent: BTreeSet<String> = (0..300).map(|n| n.to_string()).collect();
        let bodies: Vec<&str> = sent.iter().map(String::as_str).collect();
        publish(&redis, &queue, &bodies).await?;

        let mut subscription = subscribe(&redis, &queue).await?;
        let mut done = BTreeSet::new();
        let mut rounds = 0;
        while done.len() < sent.len() {
            let deliveries = receive(&mut subscription, 1).await?;
            rounds += 1;
            if rounds % 100 == 50 {
                server.kill()?;
                server.run().await?;
            }
            let names = texts(&deliveries);
            let batch = deliveries
                .into_iter()
                .map(|d| (d, Settlement::Ack))
                .collect();
            for (name, answer) in names
                .into_iter()
                .zip(subscription.settler.settle(batch).await)
            {
                if matches!(answer, Ok(Settled::Done)) {
                    assert!(done.insert(name), "acknowledged twice");
                }
            }
            assert!(rounds < 2_000, "it goes round and round");
        }
        assert_eq!(done, sent);
        assert!(rounds >= 300);
        subscription.receiver.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}

async fn what_was_out_is_settled_over_the_next_connection() -> Outcome {
    let mut server = Private::start(&DURABLE).await?;
    let redis = handle(Config::from_url(&server.url(""))?).await?;
    publish(&redis, "orders", &["a", "b"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let held = receive(&mut subscription, 2).await?;

    server.kill()?;
    // Begun while there is no server.
    let settler = subscription.settler.clone();
    let settling = tokio::spawn(async move {
        let retry = Settlement::Retry {
            body: "b2".into(),
            attempts: 1,
            delay: Duration::ZERO,
        };
        let batch = held.into_iter().zip([Settlement::Ack, retry]).collect();
        settler.settle(batch).await
    });
    sleep(Duration::from_millis(200)).await;
    assert!(!settling.is_finished());
    server.run().await?;
    for answer in settling.await.expect("no panic") {
        assert_eq!(answer?, Settled::Done);
    }
    assert_eq!(texts(&receive(&mut subscription, 1).await?), ["b2"]);
    assert_eq!(redis.counts().fenced, 0);
    Ok(())
}

async fn a_closed_idle_connection_is_noticed() -> Outcome {
    let server = Private::start(&[]).await?;
    let redis = handle(Config::from_url(&server.url(""))?).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let mut bare = bare(&server.url("")).await?;
    for n in 0..3 {
        publish(&redis, "orders", &[&n.to_string()]).await?;
        // As `timeout 300` in the server's configuration does.
        let mut kill = redis::cmd("CLIENT");
        let _: u64 = kill
            .arg("KILL")
            .arg("SKIPME")
            .arg("yes")
            .query_async(&mut bare)
            .await?;
        let noticed = || async { format!("{redis:?}").contains("connected: false") };
        assert!(eventually(noticed).await);
    }
    publish(&redis, "orders", &["3"]).await?;
    let deliveries = receive(&mut subscription, 4).await?;
    assert_eq!(texts(&deliveries), ["0", "1", "2", "3"]);
    Ok(())
}

async fn a_silent_connection_is_given_up() -> Outcome {
    for query in ["layout=sdk", "layout=laravel"] {
        let server = Private::start(&[]).await?;
        let proxy = Proxy::to(server.address()).await?;
        let config =
            Config::from_url(&proxy.url(query))?.response_timeout(Duration::from_secs(2))?;
        let redis = handle(config).await?;
        let queue = unique("silent");
        let mut subscription = subscribe(&redis, &queue).await?;
        publish(&redis, &queue, &["a"]).await?;
        let held = receive(&mut subscription, 1).await?;
        let idle = timeout(Duration::from_millis(100), subscription.receiver.receive(1)).await;
        assert!(idle.is_err());

        proxy.set_silent(true);
        let error = timeout(PATIENCE, publish(&redis, &queue, &["lost?"])).await;
        let error = error
            .map_err(|_| "the call hangs")?
            .err()
            .ok_or("answered")?;
        assert!(error.is_transient(), "{error:?}");
        // The wait that blocks has longer, and is given up as well.
        let error = timeout(PATIENCE, subscription.receiver.receive(1)).await;
        let error = error
            .map_err(|_| "the wait hangs")?
            .err()
            .ok_or("answered")?;
        assert!(error.is_transient(), "{error:?}");

        proxy.set_silent(false);
        let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
        assert_eq!(
            subscription.settler.settle(batch).await.remove(0)?,
            Settled::Done
        );
        let redis2 = redis.clone();
        let queue2 = queue.clone();
        let published =
            eventually(|| async { publish(&redis2, &queue2, &["b"]).await.is_ok() }).await;
        assert!(published);
        let woken = receive(&mut subscription, 1).await?;
        assert!(texts(&woken)[0] == "b" || texts(&woken)[0] == "lost?");
    }
    Ok(())
}

async fn an_answer_lost_with_its_connection_is_no_failure() -> Outcome {
    for query in ["layout=sdk", "layout=laravel"] {
        let server = Private::start(&[]).await?;
        let proxy = Proxy::to(server.address()).await?;
        let redis = handle(Config::from_url(&proxy.url(query))?).await?;
        let mut subscription = subscribe(&redis, "orders").await?;
        // So that the server knows the scripts: its word that it does not is an answer, too.
        publish(&redis, "orders", &["first"]).await?;
        let first = receive(&mut subscription, 1).await?.remove(0);
        subscription
            .settler
            .settle(vec![(first, Settlement::Ack)])
            .await
            .remove(0)?;
        publish(&redis, "orders", &["a", "b", "c"]).await?;
        let held = receive(&mut subscription, 3).await?;

        proxy.swallow_one_answer();
        let retry = Settlement::Retry {
            body: "b2".into(),
            attempts: 1,
            delay: Duration::ZERO,
        };
        let letter = Settlement::DeadLetter {
            queue: "orders.dlq".into(),
            record: "{}".into(),
            verbatim: false,
            attempts: 1,
        };
        let batch = held
            .into_iter()
            .zip([Settlement::Ack, retry, letter])
            .collect();
        for answer in subscription.settler.settle(batch).await {
            assert_eq!(answer?, Settled::Done, "{query}");
        }
        // It ran once: the second run found each settled, and says so apart.
        let counts = redis.counts();
        assert_eq!((counts.fenced, counts.unconfirmed), (0, 3), "{query}");
        assert_eq!(
            texts(&receive(&mut subscription, 1).await?),
            ["b2"],
            "{query}"
        );
        let mut bare = bare(&server.url("")).await?;
        let dead: u64 = bare.llen(redis.config().keys("orders.dlq").ready()).await?;
        assert_eq!(dead, 1, "{query}");
        let more = timeout(
            Duration::from_millis(1_300),
            subscription.receiver.receive(1),
        )
        .await;
        assert!(more.is_err(), "{query}: a second copy");
    }
    Ok(())
}

async fn a_reserve_whose_answer_was_lost_comes_back_at_its_deadline() -> Outcome {
    for query in ["layout=sdk&retry_after=2", "layout=laravel&retry_after=2"] {
        let server = Private::start(&[]).await?;
        let proxy = Proxy::to(server.address()).await?;
        let redis = handle(Config::from_url(&proxy.url(query))?).await?;
        let mut subscription = unanswered(&server, &proxy, &redis).await?;
        let mut bodies = texts(&receive(&mut subscription, 3).await?);
        bodies.sort_unstable();
        assert_eq!(bodies, ["a", "b", "c"], "{query}");
    }
    Ok(())
}

async fn a_reserve_whose_answer_was_lost_is_found_where_leases_never_end() -> Outcome {
    let server = Private::start(&[]).await?;
    let proxy = Proxy::to(server.address()).await?;
    let redis = handle(Config::from_url(&proxy.url("retry_after=null"))?).await?;
    let mut subscription = unanswered(&server, &proxy, &redis).await?;

    let found = receive(&mut subscription, 3).await?;
    assert_eq!(texts(&found), ["a", "b", "c"]);
    publish(&redis, "orders", &["d"]).await?;
    let last = receive(&mut subscription, 1).await?;
    assert_eq!(texts(&last), ["d"], "nothing comes twice");
    let batch = found.into_iter().chain(last);
    let batch = batch.map(|d| (d, Settlement::Ack)).collect();
    for answer in subscription.settler.settle(batch).await {
        assert_eq!(answer?, Settled::Done);
    }
    let left: Vec<String> = bare(&server.url("")).await?.keys("*").await?;
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

async fn closing_gives_back_what_an_unanswered_reserve_took() -> Outcome {
    let server = Private::start(&[]).await?;
    let proxy = Proxy::to(server.address()).await?;
    let redis = handle(Config::from_url(&proxy.url("retry_after=null"))?).await?;
    let mut subscription = unanswered(&server, &proxy, &redis).await?;

    subscription.receiver.close(Duration::from_secs(30)).await?;
    let mut bare = bare(&server.url("")).await?;
    let ready: Vec<String> = bare.lrange("orders", 0, -1).await?;
    assert_eq!(ready, ["a", "b", "c"]);
    let in_flight: u64 = bare.llen("orders:processing").await?;
    assert_eq!(in_flight, 0);
    Ok(())
}

/// A subscription whose last reserve took `a`, `b` and `c`, and had no answer.
async fn unanswered(server: &Private, proxy: &Proxy, redis: &Redis) -> Result<Subscription, Fault> {
    let mut subscription = subscribe(redis, "orders").await?;
    // So that the server knows the scripts: its word that it does not is an answer, too.
    publish(redis, "orders", &["first"]).await?;
    let first = receive(&mut subscription, 1).await?.remove(0);
    let batch = vec![(first, Settlement::Ack)];
    subscription.settler.settle(batch).await.remove(0)?;

    publish(redis, "orders", &["a", "b", "c"]).await?;
    proxy.swallow_one_answer();
    let answer = subscription.receiver.receive(3).await;
    let error = answer.err().ok_or("answered")?;
    assert!(error.is_transient(), "{error:?}");
    let mut bare = bare(&server.url("")).await?;
    let ready = redis.config().keys("orders").ready().to_owned();
    let waiting: u64 = bare.llen(ready).await?;
    assert_eq!(waiting, 0, "the server has done the work");
    Ok(subscription)
}

async fn a_slow_script_of_somebody_else_is_waited_for() -> Outcome {
    let server = Private::start(&["--lua-time-limit", "300"]).await?;
    let redis = handle(Config::from_url(&server.url(""))?).await?;
    publish(&redis, "orders", &["a"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let held = receive(&mut subscription, 1).await?;

    let mut slow = bare(&server.url("")).await?;
    let running = tokio::spawn(async move {
        let script = "local t = redis.call('TIME'); local stop = t[1] * 1000 + t[2] / 1000 + 1200 \
                      repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > stop";
        redis::cmd("EVAL")
            .arg(script)
            .arg(0)
            .query_async::<()>(&mut slow)
            .await
    });
    sleep(Duration::from_millis(100)).await;
    // First unanswered, then, after the time limit, told that the server is busy: tried again.
    let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
    let answer = subscription.settler.settle(batch).await.remove(0);
    assert_eq!(answer?, Settled::Done);
    running.await.expect("no panic")?;
    publish(&redis, "orders", &["b"]).await?;
    assert_eq!(texts(&receive(&mut subscription, 1).await?), ["b"]);
    Ok(())
}

async fn a_server_that_starts_late_is_found() -> Outcome {
    let mut server = Private::start(&[]).await?;
    server.kill()?;
    let redis = Redis::open(Config::from_url(&server.url(""))?)?;
    let error = publish(&redis, "orders", &["a"])
        .await
        .err()
        .ok_or("taken")?;
    assert!(error.is_transient(), "{error:?}");
    server.run().await?;
    publish(&redis, "orders", &["a"]).await?;
    Ok(())
}

async fn settling_gives_up_when_the_lease_is_over() -> Outcome {
    let mut server = Private::start(&DURABLE).await?;
    let redis = handle(Config::from_url(&server.url("retry_after=2"))?).await?;
    publish(&redis, "orders", &["a"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let held = receive(&mut subscription, 1).await?;
    server.kill()?;
    let started = Instant::now();
    let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
    let error = subscription
        .settler
        .settle(batch)
        .await
        .remove(0)
        .err()
        .ok_or("settled")?;
    assert!(error.is_transient(), "{error:?}");
    // Without a lease it would go on for 30 s.
    assert!(started.elapsed() < Duration::from_secs(20));
    server.run().await?;
    assert_eq!(texts(&receive(&mut subscription, 1).await?), ["a"]);
    Ok(())
}
