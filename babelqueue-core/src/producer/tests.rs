use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::clock::ManualClock;
use crate::schema::{InvalidPayload, Schema, Schemas};
use crate::transport::{Capabilities, Delivery, Rules, SubscribeOptions, Subscription};

/// Not a broker: takes what is published, and fails what it is told to.
#[derive(Clone)]
struct Outbox {
    capabilities: Capabilities,
    sent: Arc<Mutex<Vec<Outgoing>>>,
    refuse: Option<&'static str>,
    answers: usize,
}

impl Outbox {
    fn new() -> Self {
        let mut capabilities = Capabilities::new("outbox", Rules::MEMORY);
        capabilities.headers = true;
        Self {
            capabilities,
            sent: Arc::default(),
            refuse: None,
            answers: usize::MAX,
        }
    }

    fn sent(&self) -> Vec<Outgoing> {
        self.sent.lock().unwrap().clone()
    }
}

#[async_trait]
impl Transport for Outbox {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let answer = |outgoing: &Outgoing| match self.refuse {
            Some(queue) if *outgoing.queue == *queue => Err(Error::transient("publish", queue)),
            _ => Ok(()),
        };
        let answers = batch.iter().map(answer).take(self.answers).collect();
        self.sent.lock().unwrap().extend(batch);
        answers
    }

    async fn subscribe(&self, _: &str, _: SubscribeOptions) -> Result<Subscription, Error> {
        Err(Error::refused("subscribe", "nothing comes in here"))
    }
}

#[derive(Serialize)]
struct Order {
    order_id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

fn envelope(outgoing: &Outgoing) -> Envelope {
    Envelope::decode(outgoing.body.clone()).unwrap().envelope
}

#[tokio::test]
async fn a_typed_message_goes_out_under_its_urn_and_gives_its_id() {
    let outbox = Outbox::new();
    let clock = Arc::new(ManualClock::at(Duration::from_secs(7)));
    let producer = Producer::new(outbox.clone()).queue("orders").clock(clock);
    let id = producer.publish(&Order { order_id: 1 }).await.unwrap();

    let sent = outbox.sent();
    let [outgoing] = &*sent else {
        panic!("{sent:?}")
    };
    assert_eq!(&*outgoing.queue, "orders");
    let envelope = envelope(outgoing);
    assert!(envelope.accepts());
    assert_eq!(envelope.urn(), Order::URN);
    assert_eq!(envelope.queue().as_deref(), Some("orders"));
    assert_eq!(envelope.id().as_deref(), Some(id.as_str()));
    assert_eq!(envelope.created_at_ms(), Some(7000));
    assert_eq!(envelope.attempts(), Some(0));
    assert_eq!(envelope.data_json(), Some(r#"{"order_id":1}"#));
}

#[tokio::test]
async fn the_default_queue_is_the_contracts() {
    let outbox = Outbox::new();
    let producer = Producer::new(outbox.clone());
    producer.publish(&Order { order_id: 1 }).await.unwrap();
    assert_eq!(&*outbox.sent()[0].queue, "default");
}

#[tokio::test]
async fn a_draft_carries_every_option() {
    let outbox = Outbox::new();
    Producer::new(outbox.clone())
        .queue("orders")
        .message(&Order { order_id: 1 })
        .queue("slow")
        .trace_id("trace-9")
        .meta("ext", &json!({"acme": 1}))
        .header("tenant", "acme")
        .header("blank", " ")
        .delay(Duration::from_mins(1))
        .key("customer-7")
        .group("customer-7")
        .send()
        .await
        .unwrap();

    let sent = outbox.sent();
    let envelope = envelope(&sent[0]);
    assert_eq!(&*sent[0].queue, "slow");
    assert_eq!(envelope.queue().as_deref(), Some("slow"));
    assert_eq!(envelope.trace_id().as_deref(), Some("trace-9"));
    assert_eq!(envelope.meta_json("ext"), Some(r#"{"acme":1}"#));
    assert_eq!(sent[0].headers, Headers::from_iter([("tenant", "acme")]));
    let options = PublishOptions::new()
        .delay(Duration::from_mins(1))
        .key("customer-7")
        .group("customer-7");
    assert_eq!(sent[0].options, options);
}

#[tokio::test]
async fn a_message_that_cannot_be_encoded_is_not_sent() {
    let outbox = Outbox::new();
    let producer = Producer::new(outbox.clone());
    let blank = producer.publish_urn(" ", &json!({})).await;
    let array = producer.publish_urn("urn:x", &json!([1])).await;
    let twice = producer
        .message(&Order { order_id: 1 })
        .meta("a", &1)
        .meta("a", &2)
        .send()
        .await;
    for result in [blank, array, twice] {
        assert!(matches!(result, Err(Error::Message { .. })), "{result:?}");
    }
    assert!(outbox.sent().is_empty());
}

#[tokio::test]
async fn many_go_out_at_once_and_each_has_its_own_result() {
    let outbox = Outbox {
        refuse: Some("closed"),
        ..Outbox::new()
    };
    let producer = Producer::new(outbox.clone()).queue("orders");
    let order = Order { order_id: 1 };
    let drafts = [
        producer.message(&order),
        producer.message_urn("", &json!({})),
        producer.message(&order).queue("closed"),
        producer.message(&order),
    ];
    let results = producer.send_all(drafts).await;
    assert!(results[0].is_ok() && results[3].is_ok());
    assert!(matches!(results[1], Err(Error::Message { .. })));
    assert!(matches!(results[2], Err(Error::Transient { .. })));
    assert_eq!(outbox.sent().len(), 3);

    let orders = [Order { order_id: 5 }, Order { order_id: 6 }];
    let results = producer.publish_all(&orders).await;
    let ids: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    let sent = outbox.sent();
    assert_eq!(envelope(&sent[3]).id().as_deref(), Some(ids[0].as_str()));
    assert_eq!(envelope(&sent[4]).data_json(), Some(r#"{"order_id":6}"#));
}

#[tokio::test]
async fn a_transport_that_gives_too_few_answers_has_not_confirmed_the_rest() {
    let outbox = Outbox {
        answers: 1,
        ..Outbox::new()
    };
    let producer = Producer::new(outbox);
    let orders = [Order { order_id: 5 }, Order { order_id: 6 }];
    let results = producer.publish_all(&orders).await;
    assert!(results[0].is_ok());
    assert!(results[1].as_ref().is_err_and(Error::is_transient));
}

#[tokio::test]
async fn nothing_is_asked_of_the_broker_for_nothing() {
    let outbox = Outbox {
        answers: 0,
        ..Outbox::new()
    };
    let none: [Order; 0] = [];
    assert!(Producer::new(outbox).publish_all(&none).await.is_empty());
}

#[tokio::test]
async fn headers_are_left_out_where_the_broker_carries_none() {
    let mut outbox = Outbox::new();
    outbox.capabilities.headers = false;
    let producer = Producer::new(outbox.clone());
    for _ in 0..2 {
        let draft = producer.message(&Order { order_id: 1 });
        draft.header("tenant", "acme").send().await.unwrap();
    }
    assert!(outbox.sent().iter().all(|sent| sent.headers.is_empty()));
    assert!(producer.outlet.warned.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_handler_publishes_on_under_the_same_trace() {
    let outbox = Outbox::new();
    let incoming = Envelope::builder("urn:x")
        .trace_id("trace-1")
        .build()
        .unwrap();
    let delivery = Delivery::new(Arc::from("in"), incoming.bytes().clone());
    let context = Context::new(incoming, Arc::new(delivery), 0)
        .with_state(Producer::new(outbox.clone()).queue("out"));

    let producer = context.producer().unwrap();
    producer.publish(&Order { order_id: 1 }).await.unwrap();
    let draft = producer.message(&Order { order_id: 2 });
    draft.trace_id("other").send().await.unwrap();
    // The one in the state is as it was.
    let plain = context.state::<Producer>().unwrap();
    plain.publish(&Order { order_id: 3 }).await.unwrap();

    let sent = outbox.sent();
    let trace = |index: usize| envelope(&sent[index]).trace_id().unwrap().into_owned();
    assert_eq!(trace(0), "trace-1");
    assert_eq!(trace(1), "other");
    assert_ne!(trace(2), "trace-1");
}

#[tokio::test]
async fn a_ready_envelope_goes_out_byte_for_byte() {
    let outbox = Outbox::new();
    let body = r#"{ "job":"urn:x", "trace_id":"t", "data":{"n":1.50}, "x": [], "meta":{"id":"i"}}"#;
    let envelope = Envelope::decode(body).unwrap().envelope;
    let producer = Producer::new(outbox.clone()).queue("other");
    let headers = Headers::from_iter([("a", "b")]);
    let options = PublishOptions::new().priority(3);
    let id = producer
        .publish_envelope(&envelope, headers.clone(), options.clone())
        .await
        .unwrap();
    assert_eq!(id.to_string(), "i");
    let sent = outbox.sent();
    assert_eq!(sent[0].body, body);
    assert_eq!(&*sent[0].queue, "other");
    assert_eq!((&sent[0].headers, &sent[0].options), (&headers, &options));
}

#[tokio::test]
async fn a_queue_without_a_name_is_none() {
    let outbox = Outbox::new();
    let producer = Producer::new(outbox.clone()).queue("");
    let envelope = Envelope::builder("urn:a").build().unwrap();
    let options = PublishOptions::new();
    let ready = producer.publish_envelope(&envelope, Headers::new(), options);
    let error = ready.await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Config {
                option: "queue",
                ..
            }
        ),
        "{error:?}"
    );
    let data = serde_json::json!({});
    assert!(producer.publish_urn("urn:a", &data).await.is_err());
    assert!(outbox.sent().is_empty());
}

#[tokio::test]
async fn what_breaks_its_schema_is_not_sent() {
    let schema = Schema::parse(r#"{"type":"object","required":["amount"]}"#).unwrap();
    let schemas = Schemas::new().with("urn:a", schema);
    let outbox = Outbox::new();
    let producer = Producer::new(outbox.clone()).schemas(Arc::new(schemas));

    let error = producer.publish_urn("urn:a", &json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Message { .. }));
    let source = std::error::Error::source(&error).expect("a source");
    assert!(source.is::<InvalidPayload>());
    assert!(outbox.sent().is_empty());

    let ready = Envelope::builder("urn:a").data(&json!({})).build().unwrap();
    let none = (Headers::new(), PublishOptions::new());
    let error = producer.publish_envelope(&ready, none.0, none.1).await;
    assert!(matches!(error, Err(Error::Message { .. })), "{error:?}");
    assert!(outbox.sent().is_empty());

    let valid = json!({"amount": 1});
    producer.publish_urn("urn:a", &valid).await.unwrap();
    producer.publish_urn("urn:b", &json!({})).await.unwrap();
    assert_eq!(outbox.sent().len(), 2);
}
