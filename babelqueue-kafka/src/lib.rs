//! BabelQueue over Apache Kafka: confirmed writes, order by partition or by key, retry tiers and
//! the re-injector that goes with them.
//!
//! ```no_run
//! use babelqueue_kafka::{Config, Kafka, Order, RetryTiers, prelude::*};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated { order_id: u64 }
//!
//! impl Message for OrderCreated {
//!     const URN: &'static str = "urn:babel:orders:created";
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("127.0.0.1:9092")
//!     .order(Order::Key)
//!     .retry_tiers(RetryTiers::recommended());
//! let kafka = Kafka::open(config).await?;
//!
//! let producer = Producer::new(kafka.clone()).queue("orders");
//! producer
//!     .message(&OrderCreated { order_id: 1042 })
//!     .key("customer-7")
//!     .send()
//!     .await?;
//!
//! Worker::new(kafka)
//!     .queue("orders")
//!     .concurrency(64)
//!     .retry(Retry::attempts(4))
//!     .dead_letter(true)
//!     .handle(|order: Incoming<OrderCreated>| async move {
//!         println!("order {} on attempt {}", order.order_id, order.attempt());
//!         Ok(())
//!     })
//!     .run_until(async { /* a signal */ })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of a delivery
//!
//! | The core wants | Kafka does |
//! |---|---|
//! | `Ack` | The record is done. Progress is committed every [`commit_interval`](Config::commit_interval), up to the lowest record that is not done, with what is done above it in the commit's metadata. |
//! | `Retry` | A copy to the tier of its count, confirmed; then as `Ack`. Key and headers go along. Without tiers an error: the record holds its lane and comes again at once. |
//! | `DeadLetter` | A copy to the dead-letter topic, confirmed; then as `Ack`. |
//! | `Release`, `Abandon`, `Native` | The record and what was given out behind it in its lane come again, in order, without a count. |
//!
//! A copy that is not confirmed counts as not written: the record comes again.
//!
//! # Lanes
//!
//! Records of one partition are handled one after another ([`Order::Partition`], the default), or
//! those of one key ([`Order::Key`]): then one partition feeds many handlers, and records without a
//! key have no order. A record that fails holds up its own lane only.
//!
//! # Rebalances
//!
//! When a partition goes to another member, its handlers that run may finish
//! ([`revoke_timeout`](Config::revoke_timeout)), what waits is dropped, and the last commit is seen
//! to have arrived before the group is told. The client's default assignors stop every partition in
//! a rebalance; with the property `partition.assignment.strategy` at `cooperative-sticky`, or
//! `group.protocol` at `consumer`, those that stay go on meanwhile. All members of a group have to
//! agree on it, the peers of other SDKs too, which is why it is not the default.
//!
//! One thread polls the client whatever the handlers do, so a handler may take longer than
//! `max.poll.interval.ms`. One that hangs keeps its lane until its own time-out: give it one.
//!
//! # What Kafka does not count
//!
//! Kafka does not count deliveries. A message whose handler takes the process down comes again
//! without an attempt, for ever. Where that can happen, keep a count aside: an idempotency store can
//! count starts.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod batches;
mod book;
mod config;
mod error;
mod headers;
mod log;
mod producer;
mod progress;
pub mod project;
mod record;
mod reinject;
mod subscription;
mod tiers;
mod topology;
mod transport;

pub use config::{Config, DEFAULT_GROUP, NewTopics, Order, REINJECT_GROUP};
pub use reinject::Reinjector;
pub use tiers::{DEFAULT_RETRY_TIERS_MS, RetryTiers, Tier};
pub use transport::Kafka;

pub use babelqueue_core as core;

/// What most programs use: `use babelqueue_kafka::prelude::*`.
pub mod prelude {
    pub use babelqueue_core::prelude::*;

    pub use crate::{Config, Kafka};
}

#[doc(no_inline)]
pub use babelqueue_core::Error;

/// The broker's name in errors, logs and tables.
const BROKER: &str = "kafka";
