//! Leases, and what happens when they end.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::clock::{Clock as _, ManualClock, SystemClock};
use babelqueue_core::transport::{Settled, Settlement};
use babelqueue_redis::{Config, Layout};
use redis::AsyncCommands as _;
use tokio::time::Instant;

use crate::common::{config, unique, url};
use crate::server::{bare, handle, publish, receive, stays_empty, subscribe};
use crate::{Fault, Outcome, trials};

trials![
    a_lease_is_reported_as_short_as_it_is,
    a_renewed_lease_keeps_the_message,
    an_expired_lease_is_fenced_and_marked_lost,
    a_foreign_delivery_is_refused,
    server_time_makes_the_scores,
    the_peers_see_our_reservations_in_their_keys,
];

const LAYOUTS: [Layout; 2] = [Layout::Sdk, Layout::Laravel];

fn short(layout: Layout) -> Result<Config, Fault> {
    Ok(config()?
        .with_layout(layout)
        .retry_after(Some(Duration::from_secs(2)))?)
}

async fn a_lease_is_reported_as_short_as_it_is() -> Outcome {
    for layout in LAYOUTS {
        let clock = Arc::new(ManualClock::at(Duration::from_millis(1_000_700)));
        let redis = handle(short(layout)?.clock(clock)).await?;
        let queue = unique("short");
        publish(&redis, &queue, &["a"]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let before = Instant::now();
        let delivery = receive(&mut subscription, 1).await?.remove(0);
        // Score 1000 + 2; it is 1000.7 now. Counted from when it was asked for.
        let lease = Duration::from_millis(1_300);
        let end = delivery.lease_end().ok_or("no lease")?;
        assert!(end >= before + lease, "{:?} early", before + lease - end);
        assert!(end <= Instant::now() + lease, "{:?}", end - before);
    }
    Ok(())
}

async fn a_renewed_lease_keeps_the_message() -> Outcome {
    for layout in LAYOUTS {
        // A clock that stands still while the machine is busy with something else.
        let clock = Arc::new(ManualClock::at(SystemClock.unix_time()));
        let config = short(layout)?.clock(clock.clone());
        let redis = handle(config.clone()).await?;
        let queue = unique("renewed");
        publish(&redis, &queue, &["a", "b"]).await?;
        let mut ours = subscribe(&redis, &queue).await?;
        let mut theirs = subscribe(&handle(config).await?, &queue).await?;
        let held = receive(&mut ours, 2).await?;
        // A lease and a half, and it is renewed three times.
        for _ in 0..3 {
            clock.advance(Duration::from_secs(1));
            let before = Instant::now();
            for end in ours.settler.extend(&held).await {
                assert!(end? > before + Duration::from_secs(1));
            }
            assert!(
                stays_empty(&mut theirs, Duration::from_millis(200)).await,
                "{layout:?}"
            );
        }
        let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
        for answer in ours.settler.settle(batch).await {
            assert_eq!(answer?, Settled::Done);
        }
    }
    Ok(())
}

async fn an_expired_lease_is_fenced_and_marked_lost() -> Outcome {
    for layout in LAYOUTS {
        let redis = handle(short(layout)?).await?;
        let queue = unique("expired");
        // Counted in the Laravel layout, so that a later reservation of the same message differs.
        let bodies = ["1", "2", "3"].map(|id| format!(r#"{{"id":{id},"attempts":0}}"#));
        publish(&redis, &queue, &bodies.each_ref().map(String::as_str)).await?;
        let mut ours = subscribe(&redis, &queue).await?;
        let held = receive(&mut ours, 3).await?;
        let mut theirs = subscribe(&handle(short(layout)?).await?, &queue).await?;
        let again = receive(&mut theirs, 3).await?;
        assert_eq!(again.len(), 3);

        for delivery in &held {
            assert!(
                !ours.settler.begin(delivery),
                "its lease is over by our clock"
            );
        }
        let refused = ours.settler.extend(&held[..1]).await.remove(0);
        assert!(refused.is_err_and(|error| error.is_lost()));
        assert!(held[0].is_lost());
        // Lost: without a word to the server. The others: behind the gate.
        let letter = Settlement::DeadLetter {
            queue: format!("{queue}.dlq").into(),
            record: "{}".into(),
            verbatim: false,
            attempts: 1,
        };
        let batch = held
            .iter()
            .cloned()
            .zip([Settlement::Ack, Settlement::Ack, letter])
            .collect();
        for answer in ours.settler.settle(batch).await {
            assert_eq!(answer?, Settled::Fenced, "{layout:?}");
        }
        assert!(held.iter().all(|delivery| delivery.is_lost()));
        assert_eq!(redis.counts().fenced, 2);

        let batch = again.into_iter().map(|d| (d, Settlement::Ack)).collect();
        for answer in theirs.settler.settle(batch).await {
            assert_eq!(answer?, Settled::Done, "theirs is untouched");
        }
        let left: Vec<String> = bare(&url()).await?.keys(format!("*{queue}*")).await?;
        let left: Vec<_> = left
            .iter()
            .filter(|key| !key.ends_with(":notify"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    Ok(())
}

async fn a_foreign_delivery_is_refused() -> Outcome {
    use babelqueue_core::transport::Delivery;
    let redis = handle(short(Layout::Sdk)?).await?;
    let queue = unique("foreign");
    let subscription = subscribe(&redis, &queue).await?;
    let foreign = Arc::new(Delivery::new("elsewhere".into(), "body".into()));
    let answer = subscription
        .settler
        .settle(vec![(foreign, Settlement::Ack)])
        .await
        .remove(0);
    assert!(answer.is_err_and(|error| error.is_lost()));
    Ok(())
}

async fn server_time_makes_the_scores() -> Outcome {
    for layout in LAYOUTS {
        // Our own clock would be asked for nothing.
        let redis = handle(config()?.with_layout(layout).server_time()).await?;
        let queue = unique("server-time");
        publish(&redis, &queue, &["a"]).await?;
        let mut subscription = subscribe(&redis, &queue).await?;
        let (before, asked_at) = (SystemClock.unix_time(), Instant::now());
        let delivery = receive(&mut subscription, 1).await?.remove(0);
        let set = match layout {
            Layout::Sdk => format!("{queue}:processing:deadlines"),
            _ => format!("queues:{queue}:reserved"),
        };
        let scores: Vec<(String, f64)> = bare(&url()).await?.zrange_withscores(set, 0, -1).await?;
        let expected = before.as_secs() + 90..=SystemClock.unix_time().as_secs() + 90;
        let score = Duration::from_secs_f64(scores[0].1).as_secs();
        assert!(
            expected.contains(&score),
            "{layout:?}: {score}, expected {expected:?}"
        );
        let end = delivery.lease_end().ok_or("no lease")?;
        let passed = Instant::now() - asked_at;
        let lease = end - asked_at;
        assert!(
            lease >= Duration::from_secs(89) && lease <= Duration::from_secs(90) + passed,
            "{layout:?}: {lease:?}"
        );
        subscription.settler.extend(&[delivery]).await.remove(0)?;
    }
    Ok(())
}

/// What lies in Redis while a message is in flight, by the contract's names.
async fn the_peers_see_our_reservations_in_their_keys() -> Outcome {
    let redis = handle(short(Layout::Sdk)?).await?;
    let queue = unique("peers");
    publish(&redis, &queue, &["a"]).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let _held = receive(&mut subscription, 1).await?;
    let mut bare = bare(&url()).await?;
    let processing: Vec<String> = bare.lrange(format!("{queue}:processing"), 0, -1).await?;
    assert_eq!(processing, ["a"]);
    let deadlines: Vec<String> = bare
        .zrange(format!("{queue}:processing:deadlines"), 0, -1)
        .await?;
    assert_eq!(deadlines.len(), 1);
    assert_eq!((deadlines[0].len(), &deadlines[0][32..]), (34, ":a"));
    Ok(())
}
