//! What is checked at the start, and what records keep.

use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, SubscribeOptions, Transport as _};
use babelqueue_kafka::{NewTopics, RetryTiers};

use crate::{Fault, Outcome, broker};

crate::trials!(
    missing_topics_are_named,
    missing_topics_are_made_on_request,
    a_publish_to_a_missing_topic_fails,
    a_publish_to_a_partition_goes_there,
    a_full_queue_keeps_the_order,
);

fn tiers() -> Result<RetryTiers, Error> {
    RetryTiers::new([Duration::from_millis(300)])
}

async fn missing_topics_are_named() -> Outcome {
    let unique = broker::unique();
    let kafka = broker::connect(broker::config(&unique).retry_tiers(tiers()?)).await?;
    let topic = format!("named-{unique}");
    broker::create(&topic, 1).await?;
    let dead_letter = format!("{topic}.dlq");
    let options = SubscribeOptions::with_prefetch(1).dead_letter(dead_letter.as_str());
    let Err(error) = kafka.subscribe(&topic, options).await else {
        return Err("a subscription without its topics".into());
    };
    let text = error.to_string();
    let named = [format!("{topic}.retry.1"), dead_letter];
    if error.is_transient() || !named.iter().all(|name| text.contains(name)) {
        return Err(format!("it says: {text}").into());
    }
    broker::remove(&[&topic]).await
}

async fn missing_topics_are_made_on_request() -> Outcome {
    let unique = broker::unique();
    let new = NewTopics {
        partitions: 2,
        replication: 1,
    };
    let config = broker::config(&unique)
        .retry_tiers(tiers()?)
        .create_topics(new);
    let kafka = broker::connect(config).await?;
    let topic = format!("made-{unique}");
    let mut subscription = kafka
        .subscribe(&topic, SubscribeOptions::with_prefetch(1))
        .await?;
    kafka
        .publish(vec![Outgoing::new(topic.as_str(), "{}")])
        .await;
    let received = subscription.receiver.receive(1).await?;
    if received.len() != 1 {
        return Err("nothing came".into());
    }
    subscription.receiver.close(Duration::ZERO).await?;
    broker::remove(&[&topic, &format!("{topic}.retry.1")]).await
}

async fn a_publish_to_a_missing_topic_fails() -> Outcome {
    let unique = broker::unique();
    let config = broker::config(&unique).confirm_timeout(Duration::from_secs(10));
    let kafka = broker::connect(config).await?;
    let message = Outgoing::new(format!("missing-{unique}"), "{}");
    match kafka.publish(vec![message]).await.remove(0) {
        Err(Error::Refused { .. }) => Ok(()),
        other => Err(format!("it answers {other:?}").into()),
    }
}

async fn a_publish_to_a_partition_goes_there() -> Outcome {
    let unique = broker::unique();
    let kafka = broker::connect(broker::config(&unique)).await?;
    let topic = format!("partition-{unique}");
    broker::create(&topic, 3).await?;
    let mut message = Outgoing::new(topic.as_str(), "{}");
    message.options.partition = Some(2);
    for answer in kafka.publish(vec![message]).await {
        answer?;
    }
    let mut subscription = kafka
        .subscribe(&topic, SubscribeOptions::with_prefetch(8))
        .await?;
    let received = subscription.receiver.receive(8).await?;
    let scope = received[0].lane.as_ref().map(|lane| lane.scope);
    if scope != Some(2) {
        return Err(format!("it went to {scope:?}").into());
    }
    subscription.receiver.close(Duration::ZERO).await?;
    broker::remove(&[&topic]).await
}

/// Four publishers' worth of messages through a queue of 100: in order, each with its header.
async fn a_full_queue_keeps_the_order() -> Outcome {
    let unique = broker::unique();
    let config = broker::config(&unique).property("queue.buffering.max.messages", "100");
    let kafka = broker::connect(config).await?;
    let topic = format!("full-{unique}");
    broker::create(&topic, 1).await?;
    let publishes = (0..20_u32).map(|publisher| {
        let batch = (0..100)
            .map(|at| {
                let number = publisher * 100 + at;
                let mut message = Outgoing::new(topic.as_str(), format!("{{\"at\":{number}}}"));
                message.headers.insert("at", number.to_string());
                message
            })
            .collect();
        kafka.publish(batch)
    });
    let answers = futures_util::future::join_all(publishes).await;
    for answer in answers.into_iter().flatten() {
        answer?;
    }
    let mut subscription = kafka
        .subscribe(&topic, SubscribeOptions::with_prefetch(4_096))
        .await?;
    let mut at = 0;
    while at < 2_000 {
        for delivery in subscription.receiver.receive(4_096).await? {
            let expected = format!("{{\"at\":{at}}}");
            if *delivery.body != *expected.as_bytes() {
                let found = String::from_utf8_lossy(&delivery.body);
                return Err(Fault::from(format!("{found} in the place of {expected}")));
            }
            let header = delivery.headers.get("at");
            if header != Some(&*at.to_string()) {
                return Err(format!("{header:?} beside {expected}").into());
            }
            at += 1;
        }
    }
    subscription.receiver.close(Duration::ZERO).await?;
    broker::remove(&[&topic]).await
}
