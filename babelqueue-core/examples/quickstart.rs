//! The life of three orders: one is handled, one fails and is retried, one is dead-lettered and later
//! redriven. On the broker in memory, so that nothing has to be installed:
//!
//! ```sh
//! cargo run -p babelqueue-core --example quickstart
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use babelqueue_core::envelope::Envelope;
use babelqueue_core::memory::Memory;
use babelqueue_core::prelude::*;
use babelqueue_core::redrive::Redrive;
use serde::{Deserialize, Serialize};

/// A message is a type of your own, with the URN by which other languages know it.
#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order_id: u64,
    card: Card,
}

impl Message for OrderPlaced {
    const URN: &'static str = "urn:babel:orders:placed";
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Card {
    Good,
    /// The bank does not answer the first time.
    Slow,
    /// Refused until somebody mends the shop's account.
    Refused,
}

/// What the handlers share.
#[derive(Clone, Default)]
struct Bank {
    account_is_mended: Arc<AtomicBool>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tour().await.map(|_| ())
}

/// The whole tour; gives the broker as it is left.
pub(crate) async fn tour() -> Result<Memory, Box<dyn Error>> {
    let broker = Memory::new();
    let bank = Bank::default();

    say("1. Three orders are published to the queue `orders`.");
    let producer = Producer::new(broker.clone()).queue("orders");
    for (order_id, card) in [(1, Card::Good), (2, Card::Slow), (3, Card::Refused)] {
        let id = producer.publish(&OrderPlaced { order_id, card }).await?;
        say(&format!("   order {order_id} is message {id}"));
    }

    say("2. A worker handles them: at most 3 deliveries each, then the dead-letter queue.");
    work_off(&broker, &bank).await?;

    say("3. What is in `orders.dlq`, and why:");
    for stored in broker.snapshot("orders.dlq").ready {
        let envelope = Envelope::decode(stored.body)?.envelope;
        let order: OrderPlaced = envelope.data()?;
        let block = envelope.dead_letter().unwrap_or_default();
        say(&format!(
            "   order {}: {} after {} deliveries: {}",
            order.order_id,
            block.reason.unwrap_or_default(),
            block.attempts.unwrap_or_default(),
            block.error.unwrap_or_default(),
        ));
    }

    say("4. The account is mended, and the dead letters are redriven to where they came from.");
    bank.account_is_mended.store(true, Ordering::Relaxed);
    let redrive = Redrive::new(broker.clone(), "orders.dlq").idle(Duration::from_millis(100));
    for item in redrive.run().await?.items {
        let to = item.to.as_deref().unwrap_or("nowhere");
        say(&format!(
            "   message {} goes to `{to}`",
            item.message_id.unwrap_or_default()
        ));
    }
    work_off(&broker, &bank).await?;

    let left = broker.depth("orders").total() + broker.depth("orders.dlq").total();
    say(&format!("5. Messages left in both queues: {left}."));
    Ok(broker)
}

/// Runs a worker until the queue is empty.
async fn work_off(broker: &Memory, bank: &Bank) -> Result<(), Box<dyn Error>> {
    Worker::new(broker.clone())
        .queue("orders")
        .concurrency(4)
        .retry(Retry::attempts(3).backoff(Duration::from_millis(200), 2.0))
        .dead_letter(true)
        .state(bank.clone())
        .handle(charge)
        .run_until(emptied(broker.clone()))
        .await?;
    Ok(())
}

/// The handler: any error is a failed delivery.
async fn charge(order: Incoming<OrderPlaced>) -> Result<(), Failure> {
    let bank: &Bank = order.state()?;
    let refusal = match order.card {
        Card::Slow if order.attempt() == 1 => Some("the bank does not answer"),
        Card::Refused if !bank.account_is_mended.load(Ordering::Relaxed) => {
            Some("the shop's account is closed")
        }
        _ => None,
    };
    let outcome = refusal.unwrap_or("paid");
    say(&format!(
        "   order {}, delivery {}: {outcome}",
        order.order_id,
        order.attempt()
    ));
    refusal.map_or(Ok(()), |refusal| Err(Failure::msg(refusal)))
}

/// Ready once nothing waits in the queue, is being handled, or waits for its retry.
async fn emptied(broker: Memory) {
    while broker.depth("orders").total() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[expect(clippy::print_stdout, reason = "what the example is for")]
fn say(line: &str) {
    println!("{line}");
}
