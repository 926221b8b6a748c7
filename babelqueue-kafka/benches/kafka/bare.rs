//! The client by itself, with the settings that the transport gives it.

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureProducer;

/// The headers that the contract asks for, of [`BODY`](crate::BODY).
pub(crate) fn headers() -> OwnedHeaders {
    let pairs = [
        ("bq-job", "urn:babel:orders:created"),
        ("bq-trace-id", "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"),
        ("bq-message-id", "f1e2d3c4-b5a6-4789-90ab-cdef01234567"),
        ("bq-schema-version", "1"),
        ("bq-source-lang", "rust"),
        ("bq-attempts", "0"),
    ];
    let room = OwnedHeaders::new_with_capacity(pairs.len());
    pairs.into_iter().fold(room, |headers, (key, value)| {
        let value = Some(value);
        headers.insert(Header { key, value })
    })
}

pub(crate) fn producer(servers: &str) -> FutureProducer {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("message.timeout.ms", "30000")
        .create()
        .expect("a producer")
}

pub(crate) fn consumer(servers: &str, topic: &str) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", format!("bare-{}", uuid::Uuid::new_v4()))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "8192")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[topic]).expect("a subscription");
    consumer
}
