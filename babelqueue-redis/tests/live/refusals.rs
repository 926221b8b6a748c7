//! What the server refuses: credentials, rights, types, space, writes to a replica.

use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, Settled, Settlement, Transport as _};
use babelqueue_redis::{Config, Layout, Redis};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::common::unique;
use crate::server::{
    Private, bare, eventually, handle, publish, receive, shared, subscribe, texts,
};
use crate::{Outcome, common, trials};

trials![
    wrong_credentials_are_refused,
    a_server_that_is_no_cluster_is_not_taken_for_one,
    an_acl_user_with_the_rights_works_and_one_without_is_told,
    a_unix_socket_works,
    a_dead_letter_key_of_the_wrong_type_loses_nothing,
    a_queue_key_of_the_wrong_type_loses_nothing,
    a_full_server_refuses_messages_and_still_drains,
    a_replica_refuses_for_now,
    a_flushed_script_cache_is_filled_again,
    an_old_protocol_is_spoken_where_it_is_asked_for,
];

async fn wrong_credentials_are_refused() -> Outcome {
    let server = Private::start(&["--requirepass", "right"]).await?;
    let url = |password: &str| format!("redis://:{password}@{}", server.address());
    Redis::connect(&url("right")).await?;
    for bad in [url("wrong"), server.url("")] {
        let error = Redis::connect(&bad).await.err().ok_or("let in")?;
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(
            !format!("{error} {error:?}").contains("wrong@"),
            "{error:?}"
        );
    }
    Ok(())
}

async fn a_server_that_is_no_cluster_is_not_taken_for_one() -> Outcome {
    let server = Private::start(&[]).await?;
    let url = format!("redis://{}?cluster=1", server.address());
    let error = Redis::connect(&url).await.err().ok_or("let in")?;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("`cluster`"), "{error}");
    Ok(())
}

async fn an_acl_user_with_the_rights_works_and_one_without_is_told() -> Outcome {
    let server = Private::start(&[]).await?;
    let mut bare = bare(&server.url("")).await?;
    let commands = "+@connection +@scripting +@list +@sortedset +time +type";
    acl(
        &mut bare,
        &format!("SETUSER worker on >secret ~orders* {commands}"),
    )
    .await?;
    let url = format!("redis://worker:secret@{}", server.address());
    let redis = Redis::connect(&url).await?;
    publish(&redis, "orders", &["a"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let delivery = receive(&mut subscription, 1).await?.remove(0);
    let answer = subscription
        .settler
        .settle(vec![(delivery, Settlement::Ack)])
        .await
        .remove(0);
    assert_eq!(answer?, Settled::Done);

    let error = publish(&redis, "payments", &["a"])
        .await
        .err()
        .ok_or("let in")?;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("ACL"), "{error}");
    let mut other = subscribe(&redis, "payments").await?;
    let error = other.receiver.receive(1).await.err().ok_or("let in")?;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    Ok(())
}

async fn acl(bare: &mut MultiplexedConnection, words: &str) -> Outcome {
    let mut command = redis::cmd("ACL");
    for word in words.split(' ') {
        command.arg(word);
    }
    Ok(command.query_async(bare).await?)
}

async fn a_unix_socket_works() -> Outcome {
    let server = Private::start(&["--unixsocket", "r.sock"]).await?;
    let socket = server.folder().join("r.sock");
    for (path, db) in [(socket.display().to_string(), 3)] {
        let redis = Redis::connect(&format!("redis+unix://{path}?db={db}&laravel=1")).await?;
        publish(&redis, "orders", &["a"]).await?;
        let mut bare = bare(&format!("redis://{}/{db}", server.address())).await?;
        let there: Vec<String> = bare.lrange("queues:orders", 0, -1).await?;
        assert_eq!(there, ["a"]);
        let mut subscription = subscribe(&redis, "orders").await?;
        assert_eq!(texts(&receive(&mut subscription, 1).await?), ["a"]);
    }
    Ok(())
}

fn letter(queue: &str) -> Settlement {
    Settlement::DeadLetter {
        queue: queue.into(),
        record: "{}".into(),
        verbatim: false,
        attempts: 3,
    }
}

async fn a_dead_letter_key_of_the_wrong_type_loses_nothing() -> Outcome {
    for (layout, prefix) in [(Layout::Sdk, ""), (Layout::Laravel, "queues:")] {
        let lease = Some(Duration::from_secs(3));
        let config = common::config()?.with_layout(layout).retry_after(lease)?;
        let redis = handle(config).await?;
        let queue = unique("wrong-type");
        let dead = format!("{queue}.dlq");
        let mut bare = bare(&common::url()).await?;
        let _: () = bare.set(format!("{prefix}{dead}"), "a string").await?;
        publish(&redis, &queue, &["a", "b"]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let held = receive(&mut subscription, 2).await?;

        let batch = held
            .iter()
            .cloned()
            .zip([letter(&dead), Settlement::Ack])
            .collect();
        let answers = subscription.settler.settle(batch).await;
        assert!(
            matches!(answers[0], Err(Error::Refused { .. })),
            "{answers:?}"
        );
        assert!(matches!(answers[1], Ok(Settled::Done)), "{answers:?}");
        // The first is still in flight, and can still be given back; or it has been already.
        let back = vec![(held[0].clone(), Settlement::release())];
        let given_back = subscription.settler.settle(back).await.remove(0)?;
        let expected = match layout {
            Layout::Sdk => Settled::Done,
            _ => Settled::Fenced,
        };
        assert_eq!(given_back, expected);
        assert_eq!(
            texts(&receive(&mut subscription, 1).await?),
            ["a"],
            "{layout:?}"
        );
    }
    Ok(())
}

async fn a_queue_key_of_the_wrong_type_loses_nothing() -> Outcome {
    for (layout, bad) in [
        (Layout::Sdk, "{q}:processing"),
        (Layout::Sdk, "{q}:processing:deadlines"),
        (Layout::Laravel, "queues:{q}:reserved"),
        (Layout::Laravel, "queues:{q}:notify"),
        (Layout::Laravel, "queues:{q}:delayed"),
    ] {
        let redis = shared(layout).await?;
        let queue = unique("wrong-key");
        let ready = redis.config().keys(&queue).ready().to_owned();
        let mut bare = bare(&common::url()).await?;
        let _: u64 = bare.rpush(&ready, "a").await?;
        let _: () = bare.set(bad.replace("{q}", &queue), "a string").await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let error = subscription
            .receiver
            .receive(1)
            .await
            .err()
            .ok_or("nothing was wrong")?;
        assert!(matches!(error, Error::Refused { .. }), "{bad}: {error:?}");
        let there: Vec<String> = bare.lrange(&ready, 0, -1).await?;
        assert_eq!(there, ["a"], "{bad}");
    }
    Ok(())
}

async fn a_full_server_refuses_messages_and_still_drains() -> Outcome {
    for query in ["layout=sdk", "layout=laravel"] {
        let server = Private::start(&["--maxmemory-policy", "noeviction"]).await?;
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        publish(&redis, "orders", &["a", "b", "c", "d", "e"]).await?;
        let mut bare = bare(&server.url("")).await?;
        let full: () = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(1)
            .query_async(&mut bare)
            .await?;
        let () = full;

        let error = publish(&redis, "orders", &["f"])
            .await
            .err()
            .ok_or("there was room")?;
        assert!(error.is_transient(), "{error:?}");
        assert!(error.to_string().contains("OOM"), "{error}");

        // Consuming frees memory: it has to go on, in every way.
        let mut subscription = subscribe(&redis, "orders").await?;
        let held = receive(&mut subscription, 5).await?;
        for end in subscription.settler.extend(&held).await {
            end?;
        }
        let retry = Settlement::Retry {
            body: "a2".into(),
            attempts: 1,
            delay: Duration::ZERO,
        };
        let ways = [
            retry,
            letter("orders.dlq"),
            Settlement::Ack,
            Settlement::release(),
            letter("orders.dlq"),
        ];
        let batch = held.into_iter().zip(ways).collect();
        for answer in subscription.settler.settle(batch).await {
            assert_eq!(answer?, Settled::Done, "{query}");
        }
        let mut again = texts(&receive(&mut subscription, 2).await?);
        again.sort_unstable();
        assert_eq!(again, ["a2", "d"], "{query}");
        let dead = redis.config().keys("orders.dlq");
        let dead: Vec<String> = bare.lrange(dead.ready(), 0, -1).await?;
        assert_eq!(dead, ["{}", "{}"], "{query}");
    }
    Ok(())
}

async fn a_replica_refuses_for_now() -> Outcome {
    let server = Private::start(&[]).await?;
    let redis = handle(Config::from_url(&server.url(""))?).await?;
    publish(&redis, "orders", &["a"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let held = receive(&mut subscription, 1).await?;

    let mut bare = bare(&server.url("")).await?;
    replicaof(&mut bare, "127.0.0.1", "1").await?;
    let error = publish(&redis, "orders", &["b"])
        .await
        .err()
        .ok_or("taken")?;
    assert!(error.is_transient(), "{error:?}");
    let error = subscription
        .receiver
        .receive(1)
        .await
        .err()
        .ok_or("taken")?;
    assert!(error.is_transient(), "{error:?}");

    // A settlement goes on trying until the server takes writes again.
    let settler = subscription.settler.clone();
    let settling = tokio::spawn(async move {
        let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
        settler.settle(batch).await.remove(0)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!settling.is_finished());
    replicaof(&mut bare, "NO", "ONE").await?;
    assert_eq!(settling.await.expect("no panic")?, Settled::Done);
    publish(&redis, "orders", &["c"]).await?;
    assert_eq!(texts(&receive(&mut subscription, 1).await?), ["c"]);
    Ok(())
}

async fn replicaof(bare: &mut MultiplexedConnection, host: &str, port: &str) -> Outcome {
    let mut command = redis::cmd("REPLICAOF");
    Ok(command.arg(host).arg(port).query_async(bare).await?)
}

async fn a_flushed_script_cache_is_filled_again() -> Outcome {
    let server = Private::start(&[]).await?;
    for query in ["layout=sdk", "layout=laravel"] {
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        let mut bare = bare(&server.url("")).await?;
        let mut subscription = subscribe(&redis, "orders").await?;
        for n in 0..5 {
            flush_scripts(&mut bare).await?;
            publish(&redis, "orders", &[&n.to_string()]).await?;
            flush_scripts(&mut bare).await?;
            let held = receive(&mut subscription, 1).await?;
            flush_scripts(&mut bare).await?;
            subscription.settler.extend(&held).await.remove(0)?;
            flush_scripts(&mut bare).await?;
            let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
            assert_eq!(
                subscription.settler.settle(batch).await.remove(0)?,
                Settled::Done
            );
        }
    }
    Ok(())
}

async fn flush_scripts(bare: &mut MultiplexedConnection) -> Outcome {
    Ok(redis::cmd("SCRIPT").arg("FLUSH").query_async(bare).await?)
}

async fn an_old_protocol_is_spoken_where_it_is_asked_for() -> Outcome {
    let server = Private::start(&[]).await?;
    for (query, protocol) in [("protocol=resp2", "resp=2"), ("", "resp=3")] {
        let redis = handle(Config::from_url(&server.url(query))?).await?;
        let results = redis.publish(vec![Outgoing::new("orders", "a")]).await;
        assert!(results[0].is_ok());
        let mut bare = bare(&server.url("")).await?;
        let listed = || {
            let mut bare = bare.clone();
            async move {
                let clients = redis::cmd("CLIENT")
                    .arg("LIST")
                    .query_async::<String>(&mut bare)
                    .await;
                clients.is_ok_and(|clients| {
                    clients
                        .lines()
                        .any(|line| line.contains("rpush") && line.contains(protocol))
                })
            }
        };
        assert!(eventually(listed).await, "{query}");
        let _: () = redis::cmd("FLUSHALL").query_async(&mut bare).await?;
    }
    Ok(())
}
