//! What could not be settled: it comes back without the worker, and as it came (contract §7.8).

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Settled, Settlement, Subscription};
use babelqueue_redis::{Config, Layout, Redis};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::common::{self, unique};
use crate::proxy::Proxy;
use crate::server::{
    Private, bare, eventually, handle, publish, receive, stays_empty, subscribe, texts,
};
use crate::{Fault, Outcome, trials};

trials![
    a_refused_copy_without_a_lease_comes_back_at_once,
    a_refused_copy_comes_back_unaltered_in_the_laravel_layout,
    what_the_server_has_no_room_for_is_given_back_by_the_next_call,
    what_is_owed_is_given_back_on_leaving,
    a_release_without_an_answer_takes_nobodys_reservation,
];

/// What Redis's own JSON library would alter.
const BODY: &str =
    r#"{"job":"urn:a","data":{"n":1234567890123456789,"l":[], "f":1.50},"attempts":0}"#;

/// Settles with a dead letter that the server does not take.
async fn fail(subscription: &Subscription, delivery: &Arc<Delivery>) -> Result<Error, Fault> {
    let letter = Settlement::DeadLetter {
        queue: format!("{}.dlq", delivery.queue).into(),
        record: "{}".into(),
        verbatim: false,
        attempts: 1,
    };
    let batch = vec![(Arc::clone(delivery), letter)];
    let answer = subscription.settler.settle(batch).await.remove(0);
    Ok(answer.err().ok_or("it was taken")?)
}

async fn ack(subscription: &Subscription, delivery: Arc<Delivery>) -> Result<Settled, Error> {
    let batch = vec![(delivery, Settlement::Ack)];
    subscription.settler.settle(batch).await.remove(0)
}

/// Keeps something else under the dead-letter queue's key.
async fn spoil(bare: &mut MultiplexedConnection, redis: &Redis, queue: &str) -> Outcome {
    let dead = redis.config().keys(&format!("{queue}.dlq"));
    Ok(bare.set(dead.ready(), "a string").await?)
}

async fn a_refused_copy_without_a_lease_comes_back_at_once() -> Outcome {
    for layout in [Layout::Sdk, Layout::Laravel] {
        let config = common::config()?.with_layout(layout).retry_after(None)?;
        let redis = handle(config).await?;
        let queue = unique("no-lease");
        let mut bare = bare(&common::url()).await?;
        spoil(&mut bare, &redis, &queue).await?;
        publish(&redis, &queue, &[BODY]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let first = receive(&mut subscription, 1).await?.remove(0);
        let error = fail(&subscription, &first).await?;
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        // It is no longer ours to settle.
        assert_eq!(ack(&subscription, first).await?, Settled::Fenced);

        let again = receive(&mut subscription, 1).await?.remove(0);
        assert_eq!(again.body, BODY, "{layout:?}");
        assert_eq!(ack(&subscription, again).await?, Settled::Done);
        for key in redis.config().keys(&queue).iter().take(3) {
            assert!(!bare.exists::<_, bool>(key).await?, "{key} is left");
        }
    }
    Ok(())
}

async fn a_refused_copy_comes_back_unaltered_in_the_laravel_layout() -> Outcome {
    let config = common::config()?.with_layout(Layout::Laravel);
    let lease = Duration::from_secs(2);
    let redis = handle(config.retry_after(Some(lease))?).await?;
    let queue = unique("unaltered");
    let mut bare = bare(&common::url()).await?;
    spoil(&mut bare, &redis, &queue).await?;
    publish(&redis, &queue, &[BODY]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let first = receive(&mut subscription, 1).await?.remove(0);
    let error = fail(&subscription, &first).await?;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let there: Vec<String> = bare
        .zrange(format!("queues:{queue}:delayed"), 0, -1)
        .await?;
    assert_eq!(there, [BODY]);
    assert_eq!(ack(&subscription, first).await?, Settled::Fenced);

    let again = receive(&mut subscription, 1).await?.remove(0);
    assert_eq!(again.body, BODY);
    assert_eq!(ack(&subscription, again).await?, Settled::Done);
    assert!(stays_empty(&mut subscription, Duration::from_secs(3)).await);
    Ok(())
}

/// A server without room, which takes no copy to a key of the wrong type either: it may later.
async fn full(query: &str) -> Result<(Private, Redis, MultiplexedConnection), Fault> {
    let server = Private::start(&["--maxmemory-policy", "noeviction"]).await?;
    let redis = handle(Config::from_url(&server.url(query))?).await?;
    let mut bare = bare(&server.url("")).await?;
    spoil(&mut bare, &redis, "orders").await?;
    publish(&redis, "orders", &[BODY]).await?;
    let () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory")
        .arg(1)
        .query_async(&mut bare)
        .await?;
    Ok((server, redis, bare))
}

async fn what_the_server_has_no_room_for_is_given_back_by_the_next_call() -> Outcome {
    for query in [
        "layout=sdk&retry_after=null",
        "layout=laravel&retry_after=null",
    ] {
        let (_server, redis, _) = full(query).await?;
        let mut subscription = subscribe(&redis, "orders").await?;
        for _ in 0..3 {
            let held = receive(&mut subscription, 1).await?;
            assert_eq!(texts(&held), [BODY], "{query}");
            let error = fail(&subscription, &held[0]).await?;
            assert!(error.is_transient(), "{error:?}");
        }
    }
    Ok(())
}

async fn what_is_owed_is_given_back_on_leaving() -> Outcome {
    for query in [
        "layout=sdk&retry_after=null",
        "layout=laravel&retry_after=null",
    ] {
        let (_server, redis, bare) = full(query).await?;
        let keys = redis.config().keys("orders");
        // Back in the ready list, or due in the set of what is delayed.
        let is_back = || {
            let (mut bare, keys) = (bare.clone(), keys.clone());
            async move {
                let ready = bare.llen::<_, u64>(keys.ready()).await;
                let delayed = bare.zcard::<_, u64>("queues:orders:delayed").await;
                ready == Ok(1) || delayed == Ok(1)
            }
        };
        let mut subscription = subscribe(&redis, "orders").await?;
        let held = receive(&mut subscription, 1).await?;
        fail(&subscription, &held[0]).await?;
        assert!(!is_back().await, "{query}");
        subscription.receiver.close(Duration::from_secs(10)).await?;
        assert!(is_back().await, "{query}");

        let mut subscription = subscribe(&redis, "orders").await?;
        let held = receive(&mut subscription, 1).await?;
        fail(&subscription, &held[0]).await?;
        assert!(!is_back().await, "{query}");
        drop(subscription);
        assert!(eventually(is_back).await, "{query}");
    }
    Ok(())
}

/// Released and reserved anew, a message has the very member in `:reserved` that it had before.
async fn a_release_without_an_answer_takes_nobodys_reservation() -> Outcome {
    let server = Private::start(&[]).await?;
    let proxy = Proxy::to(server.address()).await?;
    let query = "layout=laravel&retry_after=20";
    let ours = handle(Config::from_url(&proxy.url(query))?).await?;
    let theirs = handle(Config::from_url(&server.url(query))?).await?;
    publish(&ours, "orders", &[BODY]).await?;
    let mut first = subscribe(&ours, "orders").await?;
    let held = receive(&mut first, 1).await?.remove(0);
    // So that the server knows the script: its word that it does not is an answer, too.
    publish(&theirs, "others", &["x"]).await?;
    let mut others = subscribe(&theirs, "others").await?;
    let other = receive(&mut others, 1).await?.remove(0);
    assert_eq!(ack(&others, other).await?, Settled::Done);

    proxy.swallow_answers(true);
    let settler = first.settler.clone();
    let releasing = tokio::spawn(async move {
        let batch = vec![(held, Settlement::release())];
        settler.settle(batch).await.remove(0)
    });
    let mut second = subscribe(&theirs, "orders").await?;
    let again = receive(&mut second, 1).await?.remove(0);
    let error = releasing.await.expect("no panic").err();
    let error = error.ok_or("nobody answered")?;
    assert!(error.is_transient(), "{error:?}");

    let mut third = subscribe(&theirs, "orders").await?;
    assert!(stays_empty(&mut third, Duration::from_secs(3)).await);
    assert_eq!(ack(&second, again).await?, Settled::Done);
    assert_eq!(theirs.counts().fenced, 0);
    Ok(())
}
