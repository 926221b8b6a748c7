//! What goes in, and what a confirm is worth.

use std::time::Duration;

use babelqueue_amqp::{Amqp, Declare};
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Outgoing, PublishOptions, Transport as _};
use babelqueue_core::{Error, Headers};
use bytes::Bytes;
use lapin::options::BasicGetOptions;
use lapin::types::AMQPValue;

use crate::common::{CLOSING, Failed, Server, Test, body, ensure, publish, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(bytes_headers_and_properties_go_through),
        test!(a_batch_keeps_its_order_beyond_the_window),
        test!(each_of_a_large_batch_is_answered_in_its_place),
        test!(many_tasks_share_one_channel),
        test!(a_missing_queue_is_an_error_and_the_others_are_not),
        test!(a_deleted_queue_is_declared_again),
        test!(an_oversized_header_breaks_nothing),
        test!(an_oversized_message_is_named),
        test!(a_full_queue_is_an_error),
    ]
}

async fn bytes_headers_and_properties_go_through(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("bytes"));
    let odd = Bytes::from_static(b"\x00\xFF not \r\n json");
    let mut outgoing = Outgoing::new(&*queue, odd.clone());
    outgoing.headers = Headers::from_iter([("traceparent", "00-1"), ("x-attempts", "7")]);
    let second = Outgoing::new(&*queue, body(1));
    for published in amqp.publish(vec![outgoing, second]).await {
        published?;
    }

    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let first = reader.one().await?;
    ensure!(first.body == odd, "the body came back as {:?}", first.body);
    let headers: Vec<_> = first.headers.iter().collect();
    ensure!(headers == [("traceparent", "00-1")], "headers: {headers:?}");
    ensure!(
        first.facts.attempts.is_none(),
        "a forged count: {:?}",
        first.facts
    );
    let second = reader.one().await?;
    ensure!(
        second.body == body(1),
        "the body came back as {:?}",
        second.body
    );
    ensure!(
        second.facts.attempts == Some(0),
        "count: {:?}",
        second.facts
    );
    reader.ack(&first).await?;
    reader.receiver.close(CLOSING).await?;

    let bare = server.bare().await?;
    bare.wait_for(&queue, 1).await?;
    let message = bare
        .channel
        .basic_get(queue.as_str().into(), BasicGetOptions::default())
        .await?;
    let message = message.ok_or("the unsettled message did not go back")?;
    let header = |name: &str| {
        message
            .properties
            .headers()
            .as_ref()?
            .inner()
            .get(name)
            .cloned()
    };
    ensure!(
        header("x-attempts") == Some(AMQPValue::LongInt(0)),
        "{:?}",
        message.properties
    );
    ensure!(
        *message.properties.delivery_mode() == Some(2),
        "{:?}",
        message.properties
    );
    bare.delete(&queue).await
}

async fn a_batch_keeps_its_order_beyond_the_window(server: Server) -> Result<(), Failed> {
    let amqp = Amqp::open(server.config()?.publish_window(7)?)?;
    let queue = unique("order");
    publish(&amqp, &queue, (0..200).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 50).await?;
    for number in 0..200 {
        let delivery = reader.one().await?;
        ensure!(delivery.body == body(number), "out of order at {number}");
        reader.ack(&delivery).await?;
    }
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

/// A batch is sent in parts, and what is wrong with some of it is known before the rest is answered.
async fn each_of_a_large_batch_is_answered_in_its_place(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("large"));
    let is_wrong = |number: u64| number % 60 == 7 || (128..256).contains(&number);
    let batch = (0..500).map(|number| {
        let mut outgoing = Outgoing::new(queue.as_str(), body(number));
        outgoing.options.partition = is_wrong(number).then_some(1);
        outgoing
    });
    let published = amqp.publish(batch.collect()).await;
    ensure!(published.len() == 500, "{} answers", published.len());
    for (number, answer) in (0..).zip(&published) {
        let refused = matches!(answer, Err(Error::Unsupported { .. }));
        ensure!(refused == is_wrong(number), "{number}: {answer:?}");
        ensure!(refused || answer.is_ok(), "{number}: {answer:?}");
    }
    let mut reader = Consumer::open(&amqp, &queue, 50).await?;
    for number in (0..500).filter(|number| !is_wrong(*number)) {
        let delivery = reader.one().await?;
        ensure!(delivery.body == body(number), "out of order at {number}");
        reader.ack(&delivery).await?;
    }
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

async fn many_tasks_share_one_channel(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (
        Amqp::open(server.config()?.publish_window(16)?)?,
        unique("tasks"),
    );
    let tasks = (0..100).map(|number| {
        let (amqp, queue) = (amqp.clone(), queue.clone());
        tokio::spawn(async move { publish(&amqp, &queue, [body(number)]).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let bare = server.bare().await?;
    let ready = bare.ready(&queue).await?;
    ensure!(ready == Some(100), "{ready:?} of 100 are there");
    bare.delete(&queue).await
}

/// The client hands a returned message to whichever confirm it completes next.
async fn a_missing_queue_is_an_error_and_the_others_are_not(server: Server) -> Result<(), Failed> {
    let (there, missing) = (unique("there"), unique("missing"));
    let maker = Amqp::open(server.config()?)?;
    publish(&maker, &there, [body(0)]).await?;

    let passive = Amqp::open(server.config()?.declare(Declare::Passive))?;
    let mut confirmed = 1;
    for round in 0..20 {
        let to = |number: u64| {
            if number % 7 == round % 7 {
                &missing
            } else {
                &there
            }
        };
        let batch = (0..60).map(|number| Outgoing::new(to(number).as_str(), body(number)));
        let published = passive.publish(batch.collect()).await;
        for (number, published) in (0..).zip(published) {
            match published {
                Ok(()) => {
                    ensure!(to(number) == &there, "a lost message was reported as sent");
                    confirmed += 1;
                }
                Err(error) => {
                    let refused = matches!(error, Error::Refused { .. });
                    ensure!(refused, "not refused: {error}");
                }
            }
        }
    }
    let bare = server.bare().await?;
    let ready = bare.ready(&there).await?.unwrap_or_default();
    ensure!(
        ready == 20 * 51 + 1 || ready == 20 * 52 + 1 || ready > 1000,
        "{ready} are there"
    );
    ensure!(confirmed <= ready, "{confirmed} confirmed, {ready} there");
    bare.delete(&there).await
}

async fn a_deleted_queue_is_declared_again(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("deleted"));
    publish(&amqp, &queue, [body(0)]).await?;
    let bare = server.bare().await?;
    bare.delete(&queue).await?;
    let error = publish(&amqp, &queue, [body(1)]).await.err();
    let error = error.ok_or("a message to a deleted queue was reported as sent")?;
    ensure!(error.to_string().contains("was deleted"), "{error}");
    publish(&amqp, &queue, [body(2)]).await?;
    bare.delete(&queue).await
}

async fn an_oversized_header_breaks_nothing(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("header"));
    let mut large = Outgoing::new(&*queue, body(0));
    large.headers = Headers::from_iter([("large", "x".repeat(200_000))]);
    let fits = {
        let mut fits = Outgoing::new(&*queue, body(1));
        fits.headers = Headers::from_iter([("large", "x".repeat(120_000))]);
        fits
    };
    let published = amqp.publish(vec![large, fits]).await;
    ensure!(
        matches!(published[0], Err(Error::Message { .. })),
        "{:?}",
        published[0]
    );
    ensure!(published[1].is_ok(), "{:?}", published[1]);
    server.bare().await?.delete(&queue).await
}

async fn an_oversized_message_is_named(server: Server) -> Result<(), Failed> {
    if server.name == "rabbitmq" {
        // 3.10 takes up to 128 MB, 4.0 up to 16.
        return Ok(());
    }
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("large"));
    let large = Bytes::from(vec![b'x'; 16 * 1024 * 1024 + 1]);
    let published = amqp.publish(vec![Outgoing::new(&*queue, large)]).await;
    ensure!(
        matches!(published[0], Err(Error::Message { .. })),
        "{:?}",
        published[0]
    );
    publish(&amqp, &queue, [body(1)]).await?;
    server.bare().await?.delete(&queue).await
}

async fn a_full_queue_is_an_error(server: Server) -> Result<(), Failed> {
    use babelqueue_amqp::QueueArguments;
    let queue = unique("full");
    let arguments = QueueArguments::new()
        .argument("x-max-length", 2)
        .argument("x-overflow", "reject-publish");
    let amqp = Amqp::open(server.config()?.queue_arguments(arguments))?;
    let batch = (0..5).map(|number| Outgoing::new(&*queue, body(number)));
    let published = amqp.publish(batch.collect()).await;
    let taken = published
        .iter()
        .filter(|published| published.is_ok())
        .count();
    ensure!(taken == 2, "{taken} of a queue of 2");
    ensure!(
        published[4].as_ref().is_err_and(Error::is_transient),
        "{:?}",
        published[4]
    );
    let unsupported = Outgoing {
        options: PublishOptions::new().key("k").delay(Duration::ZERO),
        ..Outgoing::new(&*queue, body(9))
    };
    let published = amqp.publish(vec![unsupported]).await;
    ensure!(
        matches!(published[0], Err(Error::Unsupported { .. })),
        "{:?}",
        published[0]
    );
    server.bare().await?.delete(&queue).await
}
