//! Delays by queues that expire into their target.

use std::time::{Duration, Instant};

use babelqueue_amqp::{Amqp, QueueArguments};
use babelqueue_core::Headers;
use babelqueue_core::transport::{Outgoing, PublishOptions, Settlement, Transport as _};

use crate::common::{CLOSING, Failed, Server, Test, body, ensure, publish, test, unique};
use babelqueue_core::test_kit::Consumer;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_delayed_message_comes_no_sooner),
        test!(a_short_delay_does_not_wait_behind_a_long_one),
        test!(a_retry_waits_and_keeps_its_headers),
        test!(a_quorum_queues_delays_work_alike),
        test!(a_message_expires_when_it_should),
    ]
}

fn delayed(queue: &str, number: u64, delay: Duration) -> Outgoing {
    let mut outgoing = Outgoing::new(queue, body(number));
    outgoing.options = PublishOptions::new().delay(delay);
    outgoing
}

async fn a_delayed_message_comes_no_sooner(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("delayed"));
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let start = Instant::now();
    let delay = Duration::from_millis(1450);
    amqp.publish(vec![delayed(&queue, 1, delay)])
        .await
        .remove(0)?;
    let bare = server.bare().await?;
    // Rounded up. It may have waited long enough by now, but its queue stays.
    let waiting = format!("{queue}.delay.1500");
    ensure!(
        bare.ready(&waiting).await?.is_some(),
        "it does not wait in `{waiting}`"
    );
    let delivery = reader.one().await?;
    ensure!(
        start.elapsed() >= delay,
        "it came after {:?}",
        start.elapsed()
    );
    ensure!(
        delivery.body == body(1),
        "the body came back as {:?}",
        delivery.body
    );
    ensure!(
        delivery.headers.is_empty(),
        "the broker's own: {:?}",
        delivery.headers
    );
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    bare.delete(&waiting).await?;
    bare.delete(&queue).await
}

async fn a_short_delay_does_not_wait_behind_a_long_one(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("mixed"));
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let batch = vec![
        delayed(&queue, 1, Duration::from_mins(5)),
        delayed(&queue, 2, Duration::from_millis(300)),
    ];
    for published in amqp.publish(batch).await {
        published?;
    }
    let delivery = reader.one().await?;
    ensure!(delivery.body == body(2), "the longer one came first");
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    bare.delete(&format!("{queue}.delay.300")).await?;
    bare.delete(&format!("{queue}.delay.300000")).await?;
    bare.delete(&queue).await
}

async fn a_retry_waits_and_keeps_its_headers(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("retried"));
    let mut outgoing = Outgoing::new(&*queue, body(1));
    outgoing.headers = Headers::from_iter([("traceparent", "00-1"), ("tenant", "acme")]);
    // It outlives the delay, so that it must not cut the delay short either.
    outgoing.options = PublishOptions::new().time_to_live(Duration::from_millis(700));
    // Before, so that it goes out as soon as it comes in, and does not expire.
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    amqp.publish(vec![outgoing]).await.remove(0)?;
    let mut delivery = reader.one().await?;
    // Each time through the same delay queue: the broker must not take it for a loop.
    for attempts in 1..=3 {
        let start = Instant::now();
        let retry = Settlement::Retry {
            body: body(u64::from(attempts)),
            attempts,
            delay: Duration::from_secs(1),
        };
        reader.settle(&delivery, retry).await??;
        delivery = reader.one().await?;
        ensure!(
            start.elapsed() >= Duration::from_millis(995),
            "after {:?}",
            start.elapsed()
        );
        ensure!(
            delivery.facts.attempts == Some(attempts),
            "count: {:?}",
            delivery.facts
        );
        let headers: Vec<_> = delivery.headers.iter().collect();
        ensure!(
            headers == [("tenant", "acme"), ("traceparent", "00-1")],
            "headers: {headers:?}"
        );
    }
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    bare.delete(&format!("{queue}.delay.1000")).await?;
    bare.delete(&queue).await
}

async fn a_quorum_queues_delays_work_alike(server: Server) -> Result<(), Failed> {
    let queue = unique("quorum");
    let amqp = Amqp::open(server.config()?.queue_arguments(QueueArguments::quorum()))?;
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    publish(&amqp, &queue, [body(0)]).await?;
    let delivery = reader.one().await?;
    let start = Instant::now();
    let retry = Settlement::Retry {
        body: body(1),
        attempts: 1,
        delay: Duration::from_millis(500),
    };
    reader.settle(&delivery, retry).await??;
    let delivery = reader.one().await?;
    ensure!(
        start.elapsed() >= Duration::from_millis(495),
        "after {:?}",
        start.elapsed()
    );
    ensure!(
        delivery.facts.attempts == Some(1),
        "count: {:?}",
        delivery.facts
    );
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    bare.delete(&format!("{queue}.delay.500")).await?;
    bare.delete(&queue).await
}

async fn a_message_expires_when_it_should(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("expires"));
    let mut short = Outgoing::new(&*queue, body(1));
    short.options = PublishOptions::new().time_to_live(Duration::from_millis(200));
    let lasting = Outgoing::new(&*queue, body(2));
    for published in amqp.publish(vec![short, lasting]).await {
        published?;
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let delivery = reader.one().await?;
    ensure!(delivery.body == body(2), "the expired message came");
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}
