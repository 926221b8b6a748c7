//! A message's way through a worker, over the broker in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::decide::{Policy, UnknownUrn};
use crate::envelope::Envelope;
use crate::handler::{Context, Handler, HandlerFuture, Layer};
use crate::memory::Memory;
use crate::prelude::*;
use crate::transport::{Outgoing, Transport};
use crate::worker::{StopReason, Stopped};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

async fn publish(memory: &Memory, ids: impl IntoIterator<Item = u64>) {
    let orders: Vec<_> = ids.into_iter().map(|id| Order { id }).collect();
    let producer = Producer::new(memory.clone()).queue("orders");
    for result in producer.publish_all(&orders).await {
        result.unwrap();
    }
}

/// Runs until nothing is left of `orders`, delayed messages included.
async fn drain(memory: &Memory, worker: Worker) -> Stopped {
    let emptied = async {
        while memory.depth("orders").total() > 0 {
            sleep(Duration::from_millis(100)).await;
        }
    };
    worker.run_until(emptied).await.unwrap()
}

fn dead_letters(memory: &Memory) -> Vec<Envelope> {
    let stored = memory.snapshot("orders.dlq").ready.into_iter();
    stored
        .map(|stored| Envelope::decode(stored.body).unwrap().envelope)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn messages_are_handled_and_acknowledged() {
    let memory = Memory::new();
    publish(&memory, 0..100).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handled = Arc::clone(&seen);
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .concurrency(8)
        .handle(move |order: Incoming<Order>| {
            let handled = Arc::clone(&handled);
            async move {
                sleep(Duration::from_millis(5)).await;
                handled.lock().unwrap().push(order.id);
                Ok(())
            }
        });
    let stopped = drain(&memory, worker).await;
    assert_eq!(stopped.reason, StopReason::Requested);
    assert_eq!(stopped.in_flight, 0);
    assert_eq!(
        (stopped.counts.received, stopped.counts.handled),
        (100, 100)
    );
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn never_more_handlers_than_the_concurrency() {
    let memory = Memory::new();
    publish(&memory, 0..50).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .concurrency(7)
        .handle(move |_: Incoming<Order>| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(3)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
    drain(&memory, worker).await;
    assert_eq!(peak.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_after_the_back_off_and_then_dead_lettered() {
    let memory = Memory::new();
    publish(&memory, [7]).await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let start = tokio::time::Instant::now();
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .retry(Retry::attempts(3).backoff(Duration::from_secs(10), 2.0))
        .dead_letter(true)
        .handle(move |order: Incoming<Order>| {
            seen.lock()
                .unwrap()
                .push((order.attempt(), start.elapsed().as_secs()));
            async move { "x".parse::<u8>().map(drop).map_err(Failure::from) }
        });
    let stopped = drain(&memory, worker).await;
    assert_eq!(*attempts.lock().unwrap(), [(1, 0), (2, 10), (3, 30)]);
    assert_eq!(
        (stopped.counts.retried, stopped.counts.dead_lettered),
        (2, 1)
    );
    let [record] = &*dead_letters(&memory) else {
        panic!()
    };
    let block = record.dead_letter().unwrap();
    assert_eq!(record.attempts(), Some(3));
    assert_eq!(block.reason.as_deref(), Some("failed"));
    assert_eq!(
        block.error.as_deref(),
        Some("invalid digit found in string")
    );
    assert_eq!(
        block.exception.as_deref(),
        Some("core::num::error::ParseIntError")
    );
    assert_eq!(block.original_queue.as_deref(), Some("orders"));
}

#[tokio::test(start_paused = true)]
async fn each_outcome_goes_its_own_way() {
    let memory = Memory::new();
    publish(&memory, 0..6).await;
    let start = tokio::time::Instant::now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&seen);
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .retry(Retry::attempts(2).backoff(Duration::from_secs(1), 1.0))
        .dead_letter(true)
        .handle(move |order: Incoming<Order>| {
            calls
                .lock()
                .unwrap()
                .push((order.id, order.attempt(), start.elapsed().as_secs()));
            async move {
                if order.attempt() > 1 {
                    return Ok(Outcome::Done);
                }
                match order.id {
                    0 => Ok(Outcome::Done),
                    1 => Ok(Outcome::Retry),
                    2 => Ok(Outcome::RetryAfter(Duration::from_secs(20))),
                    3 => Ok(Outcome::Reject),
                    4 => Ok(Outcome::Drop),
                    _ => Err(Failure::msg("later").retry_after(Duration::from_secs(40))),
                }
            }
        });
    let stopped = drain(&memory, worker).await;
    let counts = stopped.counts;
    assert_eq!((counts.handled, counts.retried), (4, 3));
    assert_eq!((counts.dead_lettered, counts.dropped), (1, 1));
    let seen = seen.lock().unwrap();
    assert_eq!(seen[6..], [(1, 2, 1), (2, 2, 20), (5, 2, 40)]);
    let [record] = &*dead_letters(&memory) else {
        panic!()
    };
    assert_eq!(record.data::<Order>().unwrap().id, 3);
    let block = record.dead_letter().unwrap();
    assert_eq!(block.error.as_deref(), Some("the handler rejected it"));
    assert_eq!(block.exception, None);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_wherever_it_happens() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on the way out");
        }
    }
    let memory = Memory::new();
    publish(&memory, 0..3).await;
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .retry(Retry::attempts(1))
        .dead_letter(true)
        .handle(|order: Incoming<Order>| {
            assert!(order.id != 0, "in the call");
            let bomb = (order.id == 2).then(|| Bomb);
            async move {
                assert!(order.id != 1, "in the future");
                drop(bomb);
                Ok(())
            }
        });
    let stopped = drain(&memory, worker).await;
    assert_eq!(stopped.counts.dead_lettered, 3);
    let errors: Vec<_> = dead_letters(&memory)
        .iter()
        .map(|record| {
            let block = record.dead_letter().unwrap();
            assert_eq!(block.exception.as_deref(), Some("Panicked"));
            block.error.unwrap().into_owned()
        })
        .collect();
    for text in ["in the call", "in the future", "on the way out"] {
        assert!(
            errors.iter().any(|error| error.contains(text)),
            "{errors:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_no_envelope_reach_the_dead_letter_queue_and_no_handler() {
    let memory = Memory::new();
    let bodies = [
        "not JSON",
        "{}",
        r#"{"job":"urn:babel:orders:created","attempts":"1"}"#,
    ];
    let batch = bodies.map(|body| Outgoing::new("orders", body)).to_vec();
    memory.publish(batch).await;
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .dead_letter(true)
        .handle(|order: Incoming<Order>| async move {
            panic!("handled {}", order.id) as Result<(), Failure>
        });
    let stopped = drain(&memory, worker).await;
    assert_eq!(stopped.counts.dead_lettered, 3);
    let records = memory.snapshot("orders.dlq").ready;
    assert_eq!(records.len(), 3);
    for record in records {
        let text = String::from_utf8(record.body.to_vec()).unwrap();
        assert!(text.contains(r#""reason":"poison""#), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_urn_that_nobody_takes_goes_by_the_queues_own_strategy() {
    let memory = Memory::new();
    let producer = Producer::new(memory.clone());
    for queue in ["fails", "deletes", "keeps"] {
        let draft = producer.message_urn("urn:x:unknown", &serde_json::json!({}));
        draft.queue(queue).send().await.unwrap();
    }
    let strategy = |strategy| Policy::default().on_unknown_urn(strategy);
    let stopped = Worker::new(memory.clone())
        .queue_with(
            "fails",
            Policy::default()
                .retry(Retry::attempts(2))
                .dead_letter(true),
        )
        .queue_with("deletes", strategy(UnknownUrn::Delete))
        .queue_with("keeps", strategy(UnknownUrn::DeadLetter))
        .handle(|_: Incoming<Order>| async { Ok(()) })
        .run_until(sleep(Duration::from_secs(1)))
        .await
        .unwrap();
    let counts = stopped.counts;
    assert_eq!(
        (counts.retried, counts.dropped, counts.dead_lettered),
        (1, 1, 2)
    );
    for (queue, attempts) in [("fails.dlq", 2), ("keeps.dlq", 0)] {
        let record = memory.snapshot(queue).ready.remove(0);
        let record = Envelope::decode(record.body).unwrap().envelope;
        assert_eq!(record.attempts(), Some(attempts));
        let block = record.dead_letter().unwrap();
        assert_eq!(block.reason.as_deref(), Some("unknown_urn"));
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_be_are_told_before_anything_starts() {
    let worker = Worker::new(Memory::new()).concurrency(0);
    let error = worker.run_until(std::future::ready(())).await.unwrap_err();
    assert!(error.to_string().contains("`concurrency`"), "{error}");
    let twice = Worker::new(Memory::new())
        .handle(|_: Incoming<Order>| async { Ok(()) })
        .handle(|_: Incoming<Order>| async { Ok(()) });
    let error = twice.run_until(std::future::ready(())).await.unwrap_err();
    assert!(error.to_string().contains(Order::URN), "{error}");
}

/// Notes its name around the handler.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Layer for Named {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        Arc::new(Inside(self.0, Arc::clone(&self.1), inner))
    }
}

struct Inside(
    &'static str,
    Arc<Mutex<Vec<&'static str>>>,
    Arc<dyn Handler>,
);

impl Handler for Inside {
    fn call(&self, context: Context) -> HandlerFuture {
        self.1.lock().unwrap().push(self.0);
        self.2.call(context)
    }
}

#[tokio::test(start_paused = true)]
async fn layers_wrap_every_handler_and_the_first_is_the_outermost() {
    let memory = Memory::new();
    publish(&memory, [1]).await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .layer(Named("outer", Arc::clone(&calls)))
        .handle(|_: Incoming<Order>| async { Ok(()) })
        .layer(Named("inner", Arc::clone(&calls)));
    drain(&memory, worker).await;
    assert_eq!(*calls.lock().unwrap(), ["outer", "inner"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_takes_its_urn_at_run_time_and_publishes_on() {
    let memory = Memory::new();
    let producer = Producer::new(memory.clone());
    let draft = producer.message_urn("urn:x:first", &serde_json::json!({"n": 1}));
    draft
        .queue("orders")
        .trace_id("trace-1")
        .send()
        .await
        .unwrap();
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .state(producer.queue("next"))
        .handle_urn(
            "urn:x:first",
            |message: Incoming<serde_json::Value>| async move {
                let n = message["n"].as_u64().ok_or_else(|| Failure::msg("no n"))?;
                message.producer()?.publish(&Order { id: n + 1 }).await?;
                Ok(())
            },
        );
    assert_eq!(drain(&memory, worker).await.counts.handled, 1);
    let next = memory.snapshot("next").ready.remove(0);
    let next = Envelope::decode(next.body).unwrap().envelope;
    assert_eq!(next.trace_id().as_deref(), Some("trace-1"));
    assert_eq!(next.data::<Order>().unwrap().id, 2);
}

/// A producer leaves the blanks out, and so has a handler to.
#[tokio::test(start_paused = true)]
async fn blanks_around_the_urn_of_a_type_are_on_neither_side() {
    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct Blank {}

    impl Message for Blank {
        const URN: &'static str = " urn:test:blank\t";
    }

    let memory = Memory::new();
    let producer = Producer::new(memory.clone()).queue("q");
    producer.publish(&Blank {}).await.unwrap();
    let worker = Worker::new(memory).queue("q");
    let worker = worker.handle(|_: Incoming<Blank>| async { Ok(()) });
    let stopped = worker.run_until(tokio::time::sleep(Duration::from_secs(1)));
    assert_eq!(stopped.await.unwrap().counts.handled, 1);
}

#[tokio::test(start_paused = true)]
async fn data_that_does_not_fit_is_a_failure_that_names_the_field() {
    let memory = Memory::new();
    let producer = Producer::new(memory.clone()).queue("orders");
    let wrong = serde_json::json!({"id": "seven"});
    producer.publish_urn(Order::URN, &wrong).await.unwrap();
    let worker = Worker::new(memory.clone())
        .queue("orders")
        .retry(Retry::attempts(1))
        .dead_letter(true)
        .handle(|_: Incoming<Order>| async { Ok(()) });
    drain(&memory, worker).await;
    let [record] = &*dead_letters(&memory) else {
        panic!()
    };
    let block = record.dead_letter().unwrap();
    assert_eq!(block.exception.as_deref(), Some("DataError"));
    let error = block.error.unwrap();
    assert!(
        error.contains("/data/id") && !error.contains("seven"),
        "{error}"
    );
}
