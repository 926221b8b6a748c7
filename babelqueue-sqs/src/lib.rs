//! BabelQueue over Amazon SQS, standard and FIFO queues.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use babelqueue_sqs::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated {
//!     order_id: u64,
//! }
//!
//! impl Message for OrderCreated {
//!     const URN: &'static str = "urn:babel:orders:created";
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let sqs = Sqs::connect("sqs://eu-west-1").await?;
//!
//! let producer = Producer::new(sqs.clone()).queue("orders");
//! producer.publish(&OrderCreated { order_id: 1042 }).await?;
//!
//! Worker::new(sqs)
//!     .queue("orders")
//!     .concurrency(64)
//!     .retry(Retry::attempts(5).backoff(Duration::from_secs(1), 2.0))
//!     .dead_letter(true)
//!     .handle(|order: Incoming<OrderCreated>| async move {
//!         println!("order {} on attempt {}", order.order_id, order.attempt());
//!         Ok(())
//!     })
//!     .run_until(std::future::pending::<()>())
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Queues and their dead-letter queues (`orders-dlq`, `orders-dlq.fifo`) have to exist. A queue is
//! named by its name or by its full URL.
//!
//! # How a settlement is carried out
//!
//! | settlement | what SQS is told |
//! |---|---|
//! | ack | `DeleteMessageBatch` |
//! | retry | `ChangeMessageVisibilityBatch` to the delay, at most 12 h; SQS counts |
//! | release | the same; SQS counts this as well |
//! | dead letter | `SendMessageBatch`, confirmed, then `DeleteMessageBatch` |
//! | native, abandon | nothing: the visibility timeout brings it back, or the queue's redrive policy takes it |
//!
//! A receipt handle is good for the one receive that it came from. A delivery whose visibility has
//! passed by our clock is settled [`Fenced`](babelqueue_core::transport::Settled::Fenced), and SQS is
//! told nothing: a late delete could take the message away from whoever has it now.

mod batch;
mod client;
mod config;
mod content;
mod delay;
mod failure;
mod out;
mod polls;
pub mod prelude;
#[doc(hidden)]
pub mod project;
mod publisher;
mod queues;
mod receiver;
mod settler;
mod transport;

pub use aws_sdk_sqs;
pub use babelqueue_core as core;
pub use config::Config;
#[doc(hidden)]
pub use delay::{publish_seconds, visibility_seconds};
pub use transport::Sqs;

/// The broker's name in errors, logs and tables.
const BROKER: &str = "sqs";
