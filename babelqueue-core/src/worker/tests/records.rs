//! What goes into a dead-letter record, and what is done where the broker does not take it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::dead_letter::TEXT_LIMIT;
use crate::envelope::Envelope;
use crate::handler::layers::ValidatePayload;
use crate::memory::{Kind, Memory};
use crate::prelude::*;
use crate::schema::{Schema, Schemas};
use crate::transport::{
    Capabilities, Delivery, Outgoing, Rules, Settled, Settlement, Settler, SubscribeOptions,
    Subscription, Transport,
};
use crate::worker::Worker;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    id: u64,
}

impl Message for Job {
    const URN: &'static str = "urn:test:job";
}

/// Has this body dead-lettered at once, and gives the error that its record tells.
async fn error_of(body: String, set_up: impl FnOnce(Worker) -> Worker) -> String {
    let memory = Memory::new();
    let sent = memory.publish(vec![Outgoing::new("q", body.clone())]).await;
    assert!(sent[0].is_ok());
    let worker = Worker::new(memory.clone())
        .queue("q")
        .retry(Retry::attempts(1))
        .dead_letter(true);
    set_up(worker).run_until(sleep(SECOND)).await.unwrap();
    let record = memory.snapshot("q.dlq").ready.remove(0).body;
    // Six bytes for one where it is escaped; the rest of a block is short.
    let most = body.len() + 6 * TEXT_LIMIT + 1000;
    assert!(record.len() < most, "{} of {}", record.len(), body.len());
    let envelope = Envelope::decode(record).unwrap().envelope;
    let error = envelope.dead_letter().unwrap().error.unwrap();
    assert!(error.len() <= TEXT_LIMIT && error.ends_with('…'), "{error}");
    error.into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_long_error_text_is_cut() {
    for text in ["the upstream said: x", "\0\u{1b}[2J\u{202e}"] {
        let body = r#"{"job":"urn:test:job","data":{"id":1}}"#.to_owned();
        let long = text.repeat(100_000);
        let error = error_of(body, |worker| {
            worker.handle(move |_: Incoming<Job>| {
                let long = long.clone();
                async move { Err::<(), _>(Failure::msg(long)) }
            })
        });
        assert!(error.await.starts_with(text));
    }
}

#[tokio::test(start_paused = true)]
async fn so_is_a_text_of_the_senders() {
    let long = "x".repeat(1_000_000);
    let body = format!(r#"{{"job":"urn:{long}","data":{{}}}}"#);
    let error = error_of(body, |worker| worker).await;
    assert!(error.starts_with("no handler takes `urn:x"), "{error}");

    let body = format!(r#"{{"job":"urn:test:job","data":{{"{long}":1}}}}"#);
    let schema = Schema::parse(r#"{"type":"object","additionalProperties":false}"#).unwrap();
    let schemas = Schemas::new().with(Job::URN, schema);
    let error = error_of(body, |worker| {
        worker
            .layer(ValidatePayload::new(Arc::new(schemas)))
            .handle(|_: Incoming<Job>| async { Ok(()) })
    });
    assert!(error.await.contains("xxx"));
}

/// Memory that takes no dead-letter record above a size, as most brokers.
#[derive(Clone)]
struct Narrow {
    memory: Memory,
    most: usize,
    refusals: Arc<AtomicUsize>,
}

struct NarrowSettler {
    narrow: Narrow,
    settler: Arc<dyn Settler>,
}

#[async_trait]
impl Transport for Narrow {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        self.memory.publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let Subscription { receiver, settler } = self.memory.subscribe(queue, options).await?;
        let narrow = self.clone();
        let settler = Arc::new(NarrowSettler { narrow, settler });
        Ok(Subscription { receiver, settler })
    }
}

#[async_trait]
impl Settler for NarrowSettler {
    fn begin(&self, delivery: &Delivery) -> bool {
        self.settler.begin(delivery)
    }

    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let mut too_large = Vec::new();
        let mut taken = Vec::new();
        for (delivery, settlement) in batch {
            let refused = matches!(&settlement, Settlement::DeadLetter { record, .. }
                if record.len() > self.narrow.most);
            too_large.push(refused);
            let settlement = if refused {
                Settlement::Abandon
            } else {
                settlement
            };
            taken.push((delivery, settlement));
        }
        let answers = self.settler.settle(taken).await.into_iter();
        let answered = answers.zip(too_large).map(|(answer, too_large)| {
            if !too_large {
                return answer;
            }
            self.narrow.refusals.fetch_add(1, Ordering::Relaxed);
            Err(Error::message("is larger than the broker takes"))
        });
        answered.collect()
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        self.settler.extend(batch).await
    }
}

/// A wrapper is larger than the body that it wraps. The body stays where it is, unsettled (contract
/// §7.8), and is tried again and again, ever more seldom; the other lanes go on.
#[tokio::test(start_paused = true)]
async fn a_record_that_the_broker_does_not_take_leaves_its_message_and_holds_up_no_other_lane() {
    let memory = Memory::builder()
        .kind(Kind::Rewinding { lanes: 16 })
        .rules(Rules::KAFKA)
        .build();
    let poison = vec![1; 1000];
    let mut batch = vec![Outgoing::new("q", poison.clone())];
    batch[0].options.key = Some("poison".into());
    assert!(memory.publish(batch).await[0].is_ok());
    let producer = Producer::new(memory.clone()).queue("q");
    for id in 0..2000 {
        let key = format!("{}", id % 40);
        producer.message(&Job { id }).key(key).send().await.unwrap();
    }
    let narrow = Narrow {
        memory: memory.clone(),
        most: 2000,
        refusals: Arc::default(),
    };
    let refusals = Arc::clone(&narrow.refusals);
    let handled = Arc::new(Mutex::new(Vec::new()));
    let (start, times) = (Instant::now(), Arc::clone(&handled));
    let worker = Worker::new(narrow)
        .queue("q")
        .dead_letter(true)
        .concurrency(4)
        .handle(move |_: Incoming<Job>| {
            times.lock().unwrap().push(start.elapsed());
            async { Ok(()) }
        });
    let stopped = worker.run_until(sleep(3600 * SECOND)).await.unwrap();
    // What shares the poison's lane waits behind it.
    let left = memory.snapshot("q").ready;
    assert_eq!(left[0].body, poison, "where it was, as it was");
    assert!(left.iter().all(|message| message.lane == left[0].lane));
    let handled = handled.lock().unwrap();
    assert_eq!(handled.len() + left.len(), 2001);
    assert!(left.len() < 500, "{} wait", left.len());
    assert!(
        *handled.last().unwrap() < 60 * SECOND,
        "{:?}",
        handled.last()
    );
    let refusals = refusals.load(Ordering::Relaxed);
    assert!((100..3600).contains(&refusals), "{refusals} in an hour");
    assert_eq!(stopped.counts.unsettled, refusals as u64);
}
