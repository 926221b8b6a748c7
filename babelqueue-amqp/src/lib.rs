//! BabelQueue over RabbitMQ (AMQP 0-9-1), 3.10 and later.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use babelqueue_amqp::prelude::*;
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
//! let amqp = Amqp::connect("amqp://guest:guest@localhost").await?;
//!
//! let producer = Producer::new(amqp.clone()).queue("orders");
//! producer.publish(&OrderCreated { order_id: 1042 }).await?;
//!
//! Worker::new(amqp)
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
//! # How a settlement is carried out
//!
//! | settlement | what the broker is told |
//! |---|---|
//! | ack | `basic.ack`, several in one where the tags allow |
//! | retry | a copy, confirmed, then the ack; through a queue of its own for a delay |
//! | release | `basic.nack` with requeue: back to its place; with a delay, or with a new body, as a retry |
//! | dead letter | a copy, confirmed, then the ack; the queue is declared first |
//! | abandon | `basic.nack` with requeue |
//!
//! A delivery is settled over the channel that it came by, or not at all: after a reconnect a late
//! acknowledgement is answered [`Fenced`](babelqueue_core::transport::Settled::Fenced), and nothing is
//! sent. A copy whose confirm fails or does not come gives the message back.

mod arguments;
mod config;
mod confirms;
mod delay;
mod failure;
mod flights;
mod generation;
mod link;
pub mod prelude;
#[doc(hidden)]
pub mod project;
mod publisher;
mod settler;
mod subscription;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod transport;

pub use babelqueue_core as core;

pub use arguments::{ArgumentValue, QueueArguments};
pub use config::{Config, Declare};
pub use transport::Amqp;

/// The broker's name in errors, logs and tables.
const BROKER: &str = "rabbitmq";
