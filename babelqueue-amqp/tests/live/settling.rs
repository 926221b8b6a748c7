//! Settlements, and what becomes of those that come too late.

use std::time::{Duration, Instant};

use babelqueue_amqp::{Amqp, QueueArguments};
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Settled, Settlement};
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldArray, FieldTable};

use crate::common::{
    CLOSING, Failed, PATIENCE, Server, Test, body, ensure, is_quiet, publish, test, unique,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(acks_in_any_order_leave_nothing),
        test!(a_second_settlement_is_fenced),
        test!(a_release_goes_back_to_its_place),
        test!(the_prefetch_is_kept),
        test!(a_close_gives_back_what_was_not_received),
        test!(a_dropped_receiver_gives_back_and_can_still_be_settled),
        test!(what_a_stranger_sent_is_retried_without_side_effects),
        test!(a_quorum_queue_counts_and_is_never_worn_out_by_giving_back),
    ]
}

async fn acks_in_any_order_leave_nothing(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("acks"));
    publish(&amqp, &queue, (0..100).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 100).await?;
    let mut deliveries = Vec::new();
    while deliveries.len() < 100 {
        deliveries.push(reader.one().await?);
    }
    // Every seventh is given back in the midst of the acknowledgements.
    let settle = |number: usize| match number % 7 {
        3 => Settlement::release(),
        _ => Settlement::Ack,
    };
    let mut batch: Vec<_> = deliveries.into_iter().enumerate().collect();
    batch.sort_by_key(|(number, _)| number * 37 % 101);
    for chunk in batch.chunks(9) {
        let chunk = chunk
            .iter()
            .map(|(number, delivery)| (delivery.clone(), settle(*number)));
        for answer in reader.settler.settle(chunk.collect()).await {
            ensure!(answer? == Settled::Done, "not done");
        }
    }
    // The 14 that were given back come again, and nothing else.
    let mut again = Vec::new();
    for _ in 0..14 {
        let delivery = reader.one().await?;
        reader.ack(&delivery).await?;
        again.push(delivery.body.clone());
    }
    again.sort();
    let mut expected: Vec<_> = (0..100)
        .filter(|number| number % 7 == 3)
        .map(body)
        .collect();
    expected.sort();
    ensure!(again == expected, "others came again");
    ensure!(
        is_quiet(&mut reader, Duration::from_millis(300)).await,
        "more came"
    );
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    let left = bare.ready(&queue).await?;
    ensure!(left == Some(0), "{left:?} are left");
    bare.delete(&queue).await
}

async fn a_second_settlement_is_fenced(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("twice"));
    publish(&amqp, &queue, [body(0), body(1)]).await?;
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let delivery = reader.one().await?;
    reader.ack(&delivery).await?;
    // An acknowledgement would close the channel, a copy would double the message.
    let retry = Settlement::Retry {
        body: body(9),
        attempts: 1,
        delay: Duration::ZERO,
    };
    for settlement in [Settlement::Ack, Settlement::release(), retry] {
        let answer = reader.settle(&delivery, settlement).await??;
        ensure!(answer == Settled::Fenced, "answered {answer:?}");
    }
    let other = reader.one().await?;
    ensure!(
        other.body == body(1),
        "another message came: {:?}",
        other.body
    );
    reader.ack(&other).await?;
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

async fn a_release_goes_back_to_its_place(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("released"));
    publish(&amqp, &queue, (0..5).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 1).await?;
    let delivery = reader.one().await?;
    reader.settle(&delivery, Settlement::release()).await??;
    let again = reader.one().await?;
    ensure!(again.body == body(0), "it lost its place");
    ensure!(
        again.facts.attempts == Some(0),
        "it was counted: {:?}",
        again.facts
    );
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

async fn the_prefetch_is_kept(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("prefetch"));
    publish(&amqp, &queue, (0..10).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 4).await?;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(reader.one().await?);
    }
    ensure!(
        is_quiet(&mut reader, Duration::from_millis(300)).await,
        "a fifth came"
    );
    let ready = server.bare().await?.ready(&queue).await?;
    ensure!(ready == Some(6), "{ready:?} are ready");
    reader.ack(&held[2]).await?;
    reader.one().await?;
    ensure!(
        is_quiet(&mut reader, Duration::from_millis(300)).await,
        "two came for one"
    );
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

async fn a_close_gives_back_what_was_not_received(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("close"));
    publish(&amqp, &queue, (0..10).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 8).await?;
    let held = reader.one().await?;
    let settler = reader.settler.clone();
    let late = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let settling = Instant::now();
        let answers = settler.settle(vec![(held, Settlement::Ack)]).await;
        (settling, answers)
    });
    // Far longer than it has to wait.
    let close = reader.receiver.close(Duration::from_mins(15));
    tokio::time::timeout(PATIENCE, close)
        .await
        .map_err(|_| "it waited after the last")??;
    let closed = Instant::now();
    let (settling, mut answers) = late.await?;
    ensure!(settling < closed, "it did not wait for the last");
    let answer = answers.remove(0)?;
    ensure!(answer == Settled::Done, "answered {answer:?}");
    let bare = server.bare().await?;
    bare.wait_for(&queue, 9).await?;
    bare.delete(&queue).await
}

async fn a_dropped_receiver_gives_back_and_can_still_be_settled(
    server: Server,
) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("dropped"));
    publish(&amqp, &queue, (0..10).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 8).await?;
    let held = reader.one().await?;
    let settler = reader.settler.clone();
    drop(reader);
    let bare = server.bare().await?;
    bare.wait_for(&queue, 9).await?;
    let answer = settler
        .settle(vec![(held, Settlement::Ack)])
        .await
        .remove(0)?;
    ensure!(answer == Settled::Done, "answered {answer:?}");
    bare.wait_for(&queue, 9).await?;
    bare.delete(&queue).await
}

/// Properties that a broker or a stranger set must not be sent as they are: `user_id` closes the
/// channel of another user, `CC` sends a copy to yet another queue, `x-death` is the broker's.
async fn what_a_stranger_sent_is_retried_without_side_effects(
    server: Server,
) -> Result<(), Failed> {
    let (amqp, queue, other) = (Amqp::open(server.config()?)?, unique("ours"), unique("cc"));
    publish(&amqp, &other, [body(0)]).await?;
    publish(&amqp, &queue, []).await?;
    let mut reader = Consumer::open(&amqp, &queue, 1).await?;
    let bare = server.bare().await?;
    let mut table = FieldTable::default();
    let cc = FieldArray::from(vec![AMQPValue::LongString(other.as_str().into())]);
    table.insert("CC".into(), AMQPValue::FieldArray(cc));
    table.insert("number".into(), AMQPValue::LongInt(5));
    table.insert("x-attempts".into(), AMQPValue::ShortInt(1));
    let properties = BasicProperties::default()
        .with_headers(table)
        .with_user_id("guest".into())
        .with_reply_to("replies".into());
    let publish = bare.channel.basic_publish(
        "".into(),
        queue.as_str().into(),
        BasicPublishOptions::default(),
        b"{}",
        properties,
    );
    publish.await?.await?;
    let delivery = reader.one().await?;
    ensure!(
        delivery.facts.attempts == Some(1),
        "count: {:?}",
        delivery.facts
    );
    let retry = Settlement::Retry {
        body: body(2),
        attempts: 2,
        delay: Duration::ZERO,
    };
    reader.settle(&delivery, retry).await??;
    let again = reader.one().await?;
    ensure!(again.facts.attempts == Some(2), "count: {:?}", again.facts);
    reader.ack(&again).await?;
    reader.receiver.close(CLOSING).await?;
    let copies = bare.ready(&other).await?;
    ensure!(
        copies == Some(2),
        "{copies:?} with the stranger's own copy are there"
    );
    bare.delete(&other).await?;
    bare.delete(&queue).await
}

/// A message that takes its process down comes to its cap; one that is only given back does not.
async fn a_quorum_queue_counts_and_is_never_worn_out_by_giving_back(
    server: Server,
) -> Result<(), Failed> {
    let queue = unique("counted");
    let config = || Ok::<_, Failed>(server.config()?.queue_arguments(QueueArguments::quorum()));
    let amqp = Amqp::open(config()?)?;
    publish(&amqp, &queue, [body(0)]).await?;
    // 4.0 would throw it away at 20.
    let mut reader = Consumer::open(&amqp, &queue, 1).await?;
    for round in 0..25 {
        let delivery = reader.one().await?;
        let counted = delivery.facts.deliveries.unwrap_or(0);
        ensure!(counted <= 2, "counted {counted} in round {round}");
        reader.settle(&delivery, Settlement::release()).await??;
    }
    let delivery = reader.one().await?;
    let counted = delivery.facts.deliveries.unwrap_or(0);
    drop(delivery);
    reader.receiver.close(CLOSING).await?;

    // A consumer that dies with it.
    for deaths in 1..=3 {
        let dying = Amqp::open(config()?)?;
        let mut reader = Consumer::open(&dying, &queue, 1).await?;
        let delivery = reader.one().await?;
        let now = delivery.facts.deliveries.unwrap_or(0);
        ensure!(
            now == counted + deaths,
            "{now} after {deaths} deaths and {counted} before"
        );
        dying.close().await;
    }
    server.bare().await?.delete(&queue).await
}
