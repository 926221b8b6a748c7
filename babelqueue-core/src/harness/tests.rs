use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Became, Harness};
use crate::memory::{Fault, Verb};
use crate::prelude::*;
use crate::transport::{Outgoing, Transport};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Order {
    id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

/// Order 1 is handled, 2 fails, 3 is dropped, 4 is rejected.
fn worker(broker: Arc<dyn Transport>) -> Worker {
    Worker::shared(broker)
        .queue("orders")
        .queue("more")
        .concurrency(8)
        .retry(Retry::attempts(2).backoff(Duration::from_mins(1), 1.0))
        .dead_letter(true)
        .handle(|order: Incoming<Order>| async move {
            match order.id {
                2 => Err(Failure::msg("no")),
                3 => Ok(Outcome::Drop),
                4 => Ok(Outcome::Reject),
                _ => Ok(Outcome::Done),
            }
        })
}

#[tokio::test(start_paused = true)]
async fn each_step_moves_one_message() {
    let mut harness = Harness::start(worker);
    assert!(harness.step().await.is_none());
    let orders = harness.producer("orders");
    for id in [1, 3, 4] {
        orders.publish(&Order { id }).await.unwrap();
    }
    assert_eq!(harness.memory().depth("orders").ready, 3);
    let step = harness.step().await.unwrap();
    assert!(step.is_handled());
    assert_eq!(step.envelope().unwrap().data::<Order>().unwrap().id, 1);
    assert_eq!(harness.memory().depth("orders").ready, 2);
    assert!(harness.step().await.unwrap().is_dropped());
    let rejected = harness.step().await.unwrap();
    assert!(rejected.is_dead_lettered());
    assert_eq!(rejected.queue(), "orders");
    assert_eq!(harness.memory().depth("orders.dlq").ready, 1);
    assert!(harness.step().await.is_none());
    assert_eq!(harness.steps().len(), 3);
    let stopped = harness.stop().await.unwrap();
    assert_eq!(stopped.counts.received, 3);
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_a_delay() {
    let mut harness = Harness::start(worker);
    let order = Order { id: 2 };
    harness.producer("orders").publish(&order).await.unwrap();
    let started = Instant::now();
    let became = harness.step().await.unwrap().became;
    let delay = Duration::from_mins(1);
    assert_eq!(became, Became::Retried { attempts: 1, delay });
    assert_eq!(started.elapsed(), Duration::ZERO);
    let last = harness.step().await.unwrap();
    assert_eq!(started.elapsed(), delay);
    let record = last.record().unwrap();
    let block = record.dead_letter().unwrap();
    assert_eq!(
        (block.reason.as_deref(), block.attempts),
        (Some("failed"), Some(2))
    );
    assert_eq!(harness.published::<Order>(), [order]);
}

#[tokio::test(start_paused = true)]
async fn queues_take_turns() {
    let mut harness = Harness::start(worker);
    for id in [10, 11] {
        for queue in ["orders", "more"] {
            harness
                .producer(queue)
                .publish(&Order { id })
                .await
                .unwrap();
        }
    }
    let steps = harness.run().await;
    let queues: Vec<_> = steps.iter().map(super::Step::queue).collect();
    assert_eq!(queues, ["orders", "more", "orders", "more"]);
}

#[tokio::test(start_paused = true)]
async fn poison_and_failures_of_the_broker_show() {
    let mut harness = Harness::start(worker);
    let poison = vec![Outgoing::new("orders", Bytes::from_static(b"poison"))];
    harness.memory().publish(poison).await.remove(0).unwrap();
    let step = harness.step().await.unwrap();
    assert!(step.is_dead_lettered());
    assert!(step.envelope().is_none() && step.record().is_none());

    harness.memory().fail(Verb::Settle, 1, Fault::Before);
    harness
        .producer("orders")
        .publish(&Order { id: 1 })
        .await
        .unwrap();
    assert_eq!(harness.step().await.unwrap().became, Became::Unsettled);
    assert!(harness.step().await.unwrap().is_handled(), "it came again");
}
