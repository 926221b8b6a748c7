//! Queues: declared, checked, or left alone.

use std::time::Duration;

use babelqueue_amqp::{Amqp, Declare, QueueArguments};
use babelqueue_core::Error;
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Delay, Outgoing, PublishOptions, Settlement, Transport as _};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use crate::common::{CLOSING, Failed, Server, Test, body, ensure, is_quiet, publish, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(other_arguments_are_refused_with_a_hint),
        test!(the_default_is_what_the_other_sdks_declare),
        test!(a_dead_letter_queue_is_declared_before_its_use),
        test!(passive_checks_what_it_consumes_and_declares_nothing),
        test!(a_deleted_queue_is_declared_again_by_its_consumer),
    ]
}

async fn other_arguments_are_refused_with_a_hint(server: Server) -> Result<(), Failed> {
    let queue = unique("mismatch");
    let arguments = QueueArguments::new().max_priority(5);
    publish(
        &Amqp::open(server.config()?.queue_arguments(arguments))?,
        &queue,
        [body(0)],
    )
    .await?;
    let plain = Amqp::open(server.config()?)?;
    for error in [
        Consumer::open(&plain, &queue, 1).await.err(),
        plain
            .publish(vec![Outgoing::new(&*queue, body(1))])
            .await
            .remove(0)
            .err(),
    ] {
        let error = error.ok_or("a mismatch was not noticed")?;
        ensure!(matches!(error, Error::Refused { .. }), "{error}");
        let text = error.to_string();
        ensure!(
            ["x-max-priority", "queue_arguments_for", &queue]
                .iter()
                .all(|it| text.contains(it)),
            "{text}"
        );
    }
    server.bare().await?.delete(&queue).await
}

async fn the_default_is_what_the_other_sdks_declare(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("plain"));
    publish(&amqp, &queue, [body(0)]).await?;
    let bare = server.bare().await?;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    bare.channel
        .queue_declare(queue.as_str().into(), options, FieldTable::default())
        .await?;
    bare.delete(&queue).await
}

async fn a_dead_letter_queue_is_declared_before_its_use(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("source"));
    let dlq = format!("{queue}.dlq");
    publish(&amqp, &queue, [body(0)]).await?;
    let mut reader = Consumer::open(&amqp, &queue, 1).await?;
    let delivery = reader.one().await?;
    let settlement = Settlement::DeadLetter {
        queue: dlq.as_str().into(),
        record: body(7),
        verbatim: false,
        attempts: 3,
    };
    reader.settle(&delivery, settlement).await??;
    let mut dead = Consumer::open(&amqp, &dlq, 1).await?;
    let record = dead.one().await?;
    ensure!(
        record.body == body(7),
        "the record came back as {:?}",
        record.body
    );
    ensure!(
        record.facts.attempts == Some(3),
        "count: {:?}",
        record.facts
    );
    dead.ack(&record).await?;
    dead.receiver.close(CLOSING).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    let left = bare.ready(&queue).await?;
    ensure!(left == Some(0), "{left:?} are still in the source");
    bare.delete(&dlq).await?;
    bare.delete(&queue).await
}

async fn passive_checks_what_it_consumes_and_declares_nothing(
    server: Server,
) -> Result<(), Failed> {
    let (there, missing) = (unique("there"), unique("missing"));
    let arguments = QueueArguments::new().max_priority(5);
    let maker = Amqp::open(server.config()?.queue_arguments(arguments))?;
    publish(&maker, &there, [body(0), body(1)]).await?;

    let passive = Amqp::open(server.config()?.declare(Declare::Passive))?;
    ensure!(
        passive.capabilities().delay == Delay::Unsupported,
        "it claims a delay"
    );
    ensure!(
        !passive.capabilities().rules.backoff,
        "it claims a back-off"
    );
    let error = Consumer::open(&passive, &missing, 1)
        .await
        .err()
        .ok_or("no such queue")?;
    ensure!(matches!(error, Error::Refused { .. }), "{error}");
    ensure!(error.to_string().contains("404"), "{error}");
    let mut delayed = Outgoing::new(&*there, body(2));
    delayed.options = PublishOptions::new().delay(Duration::from_secs(1));
    let error = passive
        .publish(vec![delayed])
        .await
        .remove(0)
        .err()
        .ok_or("delayed")?;
    ensure!(matches!(error, Error::Unsupported { .. }), "{error}");

    // A missing dead-letter queue loses nothing: the message is given back.
    let mut reader = Consumer::open(&passive, &there, 1).await?;
    let delivery = reader.one().await?;
    let settlement = Settlement::DeadLetter {
        queue: missing.as_str().into(),
        record: body(7),
        verbatim: false,
        attempts: 3,
    };
    let error = reader
        .settle(&delivery, settlement)
        .await?
        .err()
        .ok_or("no dead-letter queue")?;
    ensure!(error.to_string().contains(&missing), "{error}");
    let again = reader.one().await?;
    ensure!(
        again.body == body(0),
        "another message came: {:?}",
        again.body
    );
    // A retry's delay is left out.
    let retry = Settlement::Retry {
        body: body(0),
        attempts: 1,
        delay: Duration::from_mins(1),
    };
    reader.settle(&again, retry).await??;
    let other = reader.one().await?;
    reader.ack(&other).await?;
    let retried = reader.one().await?;
    ensure!(
        retried.facts.attempts == Some(1),
        "count: {:?}",
        retried.facts
    );
    reader.ack(&retried).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    ensure!(bare.ready(&missing).await?.is_none(), "it was declared");
    bare.delete(&there).await
}

async fn a_deleted_queue_is_declared_again_by_its_consumer(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("consumed"));
    let mut reader = Consumer::open(&amqp, &queue, 2).await?;
    publish(&amqp, &queue, [body(0)]).await?;
    let held = reader.one().await?;
    let bare = server.bare().await?;
    bare.delete(&queue).await?;
    let error = reader
        .receiver
        .receive(1)
        .await
        .err()
        .ok_or("it was not cancelled")?;
    ensure!(
        error.is_transient() && error.to_string().contains("cancelled"),
        "{error}"
    );
    ensure!(held.is_lost(), "what came from it is not lost");
    // Declared again by the next receive, which then waits.
    let mut again = None;
    for _ in 0..20 {
        ensure!(
            is_quiet(&mut reader, Duration::from_secs(2)).await,
            "something came"
        );
        again = bare.ready(&queue).await?;
        if again.is_some() {
            break;
        }
    }
    ensure!(again == Some(0), "it was not declared again: {again:?}");
    reader.receiver.close(CLOSING).await?;
    bare.delete(&queue).await
}
