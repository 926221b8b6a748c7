//! The frame that carries headers in the SDK layout (contract §10.5), and what looks like one.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::transport::{
    Delivery, Outgoing, Settled, Settlement, Subscription, Transport as _,
};
use babelqueue_redis::Layout;
use redis::AsyncCommands as _;

use crate::common::{self, unique};
use crate::server::{bare, receive, shared, subscribe, texts};
use crate::{Outcome, trials};

trials![
    a_body_that_looks_like_a_frame_comes_out_as_it_went_in,
    what_others_wrote_into_a_frame_stays_in_its_record,
];

async fn settle(subscription: &Subscription, delivery: Arc<Delivery>, how: Settlement) -> Outcome {
    let answer = subscription
        .settler
        .settle(vec![(delivery, how)])
        .await
        .remove(0);
    assert_eq!(answer?, Settled::Done);
    Ok(())
}

fn letter(queue: &str, record: &'static str) -> Settlement {
    Settlement::DeadLetter {
        queue: queue.into(),
        record: record.into(),
        verbatim: false,
        attempts: 1,
    }
}

async fn a_body_that_looks_like_a_frame_comes_out_as_it_went_in() -> Outcome {
    const BODY: &str = r#"{"job":"urn:a","__bq_frame":1,"body":"lost","data":{},"attempts":0}"#;
    const COUNTED: &str = r#"{"job":"urn:a","__bq_frame":1,"body":"lost","data":{},"attempts":1}"#;
    const RECORD: &str = r#"{"job":"urn:a","__bq_frame":1,"body":"lost","dead_letter":{}}"#;
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let queue = unique("frame-like");
        let dead = format!("{queue}.dlq");
        for result in redis.publish(vec![Outgoing::new(&*queue, BODY)]).await {
            result?;
        }
        let mut subscription = subscribe(&redis, &queue).await?;
        let first = receive(&mut subscription, 1).await?;
        assert_eq!(texts(&first), [BODY], "{layout:?}");
        let retry = Settlement::Retry {
            body: COUNTED.into(),
            attempts: 1,
            delay: Duration::ZERO,
        };
        settle(&subscription, first[0].clone(), retry).await?;
        let second = receive(&mut subscription, 1).await?;
        assert_eq!(texts(&second), [COUNTED], "{layout:?}");
        settle(&subscription, second[0].clone(), letter(&dead, RECORD)).await?;

        let mut dead_letters = subscribe(&redis, &dead).await?;
        let third = receive(&mut dead_letters, 1).await?;
        assert_eq!(texts(&third), [RECORD], "{layout:?}");
        settle(&dead_letters, third[0].clone(), Settlement::Ack).await?;
    }
    Ok(())
}

async fn what_others_wrote_into_a_frame_stays_in_its_record() -> Outcome {
    let redis = shared(Layout::Sdk).await?;
    let queue = unique("frame");
    let dead = format!("{queue}.dlq");
    let theirs = r#"{"job": "urn:a", "__bq_frame": 1, "body": "lost", "data": {"n": 1e400}}"#;
    let mut bare = bare(&common::url()).await?;
    let _: u64 = bare.rpush(&queue, theirs).await?;
    let mut subscription = subscribe(&redis, &queue).await?;
    let held = receive(&mut subscription, 1).await?;
    // By the contract it is a frame, and this is its body.
    assert_eq!(texts(&held), ["lost"]);
    settle(&subscription, held[0].clone(), letter(&dead, "{}")).await?;
    let there: Vec<String> = bare.lrange(&dead, 0, -1).await?;
    assert_eq!(there, [theirs.replace("\"lost\"", "\"{}\"")]);
    let _: u64 = bare.del(&dead).await?;
    Ok(())
}
