//! What is published, and in how many requests.

use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName;
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Outgoing, PublishOptions, Settled, Settlement, Transport as _};
use babelqueue_core::{Error, Headers};
use babelqueue_sqs::{Sqs, aws_sdk_sqs};
use bytes::Bytes;

use crate::common::front::{Front, Verdict};
use crate::common::{CLOSING, Failed, Server, Test, body, ensure, publish, quick, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_message_is_what_other_sdks_expect),
        test!(a_queue_is_found_by_url_and_by_prefix),
        test!(messages_published_at_once_share_requests),
        test!(a_request_holds_no_more_bytes_than_it_may),
        test!(the_queues_own_limit_counts),
        test!(what_sqs_cannot_hold_is_an_error),
        test!(a_fifo_queue_takes_groups_and_deduplication_ids),
        test!(a_queue_that_dedups_by_content_gets_no_id),
    ]
}

async fn a_message_is_what_other_sdks_expect(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("wire"));
    server.create(&queue).await?;
    let mut outgoing = Outgoing::new(&*queue, body(7));
    outgoing.headers = Headers::from_iter([("tenant", "Zoë")]);
    sqs.publish(vec![outgoing]).await.remove(0)?;

    let request = server.bare()?.receive_message();
    let request = request.queue_url(server.queue_url(&queue).await?);
    let received = request.message_attribute_names("All").wait_time_seconds(10);
    let message = received
        .send()
        .await?
        .messages
        .unwrap_or_default()
        .remove(0);
    ensure!(
        message.body.as_deref().map(str::as_bytes) == Some(&body(7)[..]),
        "{message:?}"
    );
    let attributes = message.message_attributes.unwrap_or_default();
    let mut found: Vec<_> = attributes
        .iter()
        .map(|(name, value)| (name.as_str(), value.data_type(), value.string_value()))
        .collect();
    found.sort_unstable();
    let expected = [
        ("bq-created-at", "Number", Some("1")),
        ("bq-job", "String", Some("urn:babel:test:made")),
        ("bq-message-id", "String", Some("m-7")),
        ("bq-schema-version", "Number", Some("1")),
        ("bq-source-lang", "String", Some("rust")),
        ("bq-trace-id", "String", Some("t-7")),
        ("tenant", "String", Some("Zoë")),
    ];
    ensure!(found == expected, "{found:?}");
    server.delete(&queue).await
}

async fn a_queue_is_found_by_url_and_by_prefix(server: Server) -> Result<(), Failed> {
    let queue = unique("named");
    server.create(&queue).await?;
    let url = server.queue_url(&queue).await?;
    let prefix = url.rsplit_once('/').ok_or("no slash")?.0.to_owned();
    let front = Front::start(Some(server.address()?), |_| Verdict::Forward).await?;

    let by_url = Sqs::open(quick(&front.url())?);
    publish(&by_url, &url, [body(1)]).await?;
    let by_prefix = Sqs::open(quick(&front.url())?.prefix(prefix)?);
    publish(&by_prefix, &queue, [body(2)]).await?;
    ensure!(front.count("GetQueueUrl") == 0, "it was asked for the URL");

    let mut reader = Consumer::open(&by_url, &url, 2).await?;
    let (one, two) = (reader.one().await?, reader.one().await?);
    let mut came = [&one.body, &two.body];
    came.sort_unstable();
    ensure!(came == [&body(1), &body(2)], "{came:?}");
    ensure!(*one.queue == *url, "it is called {}", one.queue);
    reader.ack(&one).await?;
    reader.ack(&two).await?;
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}

async fn messages_published_at_once_share_requests(server: Server) -> Result<(), Failed> {
    const MESSAGES: u64 = 100;
    let queue = unique("shared");
    server.create(&queue).await?;
    let front = Front::start(Some(server.address()?), |_| Verdict::Forward).await?;
    let sqs = Sqs::open(quick(&front.url())?);
    publish(&sqs, &queue, [body(0)]).await?;
    ensure!(
        front.count("SendMessageBatch") == 1,
        "one that is alone does not wait for others"
    );

    let publishes = (1..=MESSAGES).map(|number| {
        let (sqs, queue) = (sqs.clone(), queue.clone());
        tokio::spawn(async move { publish(&sqs, &queue, [body(number)]).await })
    });
    for publish in publishes.collect::<Vec<_>>() {
        publish.await??;
    }
    let requests = front.count("SendMessageBatch") - 1;
    ensure!(
        requests <= 20,
        "{requests} requests for {MESSAGES} messages"
    );
    server.delete(&queue).await
}

async fn a_request_holds_no_more_bytes_than_it_may(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("large"));
    server.create(&queue).await?;
    let large = |number: u32| Bytes::from(format!("{number}{}", "x".repeat(300_000)));
    publish(&sqs, &queue, (0..7).map(large)).await?;
    let mut reader = Consumer::open(&sqs, &queue, 7).await?;
    let mut came = Vec::new();
    for _ in 0..7 {
        let delivery = reader.one().await?;
        reader.ack(&delivery).await?;
        came.push(delivery.body[0]);
    }
    came.sort_unstable();
    ensure!(came == *b"0123456", "{came:?}");
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}

/// The server does not say its limit; a listener of ours says one in its place.
async fn the_queues_own_limit_counts(server: Server) -> Result<(), Failed> {
    let queue = unique("limit");
    server.create(&queue).await?;
    let front = Front::start(Some(server.address()?), |request| {
        if request.action == "GetQueueAttributes" {
            let limit = r#"{"Attributes":{"MaximumMessageSize":"1024","VisibilityTimeout":"30"}}"#;
            return Verdict::Answer(200, limit.into());
        }
        Verdict::Forward
    })
    .await?;
    let sqs = Sqs::open(quick(&front.url())?);
    let mut outgoing = Outgoing::new(&*queue, "x".repeat(1000));
    publish(&sqs, &queue, [outgoing.body.clone()]).await?;
    outgoing.headers = Headers::from_iter([("tenant", "a".repeat(20))]);
    let refused = sqs.publish(vec![outgoing]).await.remove(0);
    ensure!(
        matches!(&refused, Err(Error::Message { context, .. }) if context.contains("1032 bytes") && context.contains("1024")),
        "{refused:?}"
    );
    ensure!(front.count("SendMessageBatch") == 1, "it was sent");
    server.delete(&queue).await
}

async fn what_sqs_cannot_hold_is_an_error(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("refused"));
    server.create(&queue).await?;
    let headers = |count: u32| {
        (0..count)
            .map(|n| (format!("h{n}"), "v"))
            .collect::<Headers>()
    };
    let with = |body: Bytes, headers: Headers, options: PublishOptions| {
        let mut outgoing = Outgoing::new(&*queue, body);
        outgoing.headers = headers;
        outgoing.options = options;
        outgoing
    };
    let none = || (Headers::new(), PublishOptions::new());
    let batch = vec![
        with(body(0), headers(5), none().1),
        with(Bytes::from_static(b"caf\xe9"), none().0, none().1),
        with(body(1), headers(4), none().1),
        with(Bytes::from_static(b"a\x0bb"), none().0, none().1),
        with(body(2), none().0, PublishOptions::new().group("g")),
        with(
            body(3),
            none().0,
            PublishOptions::new().deduplication_id("d"),
        ),
    ];
    let answers = sqs.publish(batch).await;
    let done: Vec<_> = answers.iter().map(Result::is_ok).collect();
    ensure!(
        done == [false, false, true, false, false, false],
        "{answers:?}"
    );
    let mut reader = Consumer::open(&sqs, &queue, 8).await?;
    let only = reader.one().await?;
    ensure!(only.body == body(1) && only.headers.len() == 4, "{only:?}");
    reader.ack(&only).await?;
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}

async fn a_fifo_queue_takes_groups_and_deduplication_ids(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("ids.fifo"));
    server.create(&queue).await?;
    let with = |number, options| {
        let mut outgoing = Outgoing::new(&*queue, body(number));
        outgoing.options = options;
        outgoing
    };
    let options = PublishOptions::new;
    let batch = vec![
        with(1, options()),
        // The same `meta.id`: dropped.
        with(1, options()),
        with(1, options().deduplication_id("another").group("north")),
        with(2, options().deduplication_id("another").group("north")),
        with(3, options().group("north")),
    ];
    let answers = sqs.publish(batch).await;
    ensure!(answers.iter().all(Result::is_ok), "{answers:?}");
    let delayed = with(4, options().delay(std::time::Duration::ZERO));
    let answer = sqs.publish(vec![delayed]).await.remove(0);
    ensure!(
        matches!(answer, Err(Error::Unsupported { .. })),
        "{answer:?}"
    );

    let mut reader = Consumer::open(&sqs, &queue, 8).await?;
    let mut came = Vec::new();
    for _ in 0..3 {
        let delivery = reader.one().await?;
        let lane = delivery.lane.as_ref().ok_or("no lane")?;
        came.push((lane.key.clone(), delivery.body.clone()));
        reader.ack(&delivery).await?;
    }
    came.sort_unstable();
    let expected = [
        (Bytes::from(queue.clone()), body(1)),
        (Bytes::from_static(b"north"), body(1)),
        (Bytes::from_static(b"north"), body(3)),
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    ensure!(came == expected, "{came:?}");
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}

async fn a_queue_that_dedups_by_content_gets_no_id(server: Server) -> Result<(), Failed> {
    let queue = unique("content.fifo");
    let by_content = [(QueueAttributeName::ContentBasedDeduplication, "true")];
    server.create_with(&queue, &by_content).await?;
    let front = Front::start(Some(server.address()?), |_| Verdict::Forward).await?;
    let sqs = Arc::new(Sqs::open(quick(&front.url())?));
    publish(&sqs, &queue, [body(1)]).await?;
    let sent = front.bodies("SendMessageBatch").remove(0);
    ensure!(!sent.contains("MessageDeduplicationId"), "{sent}");
    let mut reader = Consumer::open(&sqs, &queue, 1).await?;
    let delivery = reader.one().await?;
    let answer = reader.settle(&delivery, Settlement::Ack).await??;
    ensure!(answer == Settled::Done, "{answer:?}");
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}
