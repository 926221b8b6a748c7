//! The core of BabelQueue for Rust: one strict JSON envelope for messages between services in any
//! language, and a worker that handles them by the contract's rules.
//!
//! A program depends on the crate of its broker, which brings this one along as its module `core`.
//! The broker in [`memory`] is for unit tests and for queues that need not outlive the process.
//!
//! ```
//! use babelqueue_core::memory::Memory;
//! use babelqueue_core::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated { order_id: u64 }
//!
//! impl Message for OrderCreated {
//!     const URN: &'static str = "urn:babel:orders:created";
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Memory::new();
//! let producer = Producer::new(broker.clone()).queue("orders");
//! producer.publish(&OrderCreated { order_id: 1042 }).await?;
//!
//! let worker = Worker::new(broker)
//!     .queue("orders")
//!     .handle(|order: Incoming<OrderCreated>| async move {
//!         println!("order {}", order.order_id);
//!         Ok(())
//!     });
//! // A program would give it `shutdown_signal()`.
//! worker.run_until(async {}).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | publish | [`producer`] |
//! | handle messages | [`worker`], [`handler`]; what stands around a handler: [`handler::layers`] |
//! | retry, dead-letter, answer unknown URNs | [`decide::Policy`], [`retry`] |
//! | move dead letters back | [`redrive`] |
//! | handle a message once | [`idempotency`] |
//! | check payloads | [`schema`] |
//! | read or build a message by hand | [`envelope`], [`verdict`], [`poison_record`] |
//! | test handlers | `harness`, with the feature of that name |
//! | write a transport | [`transport`], and `test_kit`, with the feature `test-kit` |

mod bounded_text;
pub mod clock;
pub mod dead_letter;
pub mod decide;
pub mod envelope;
mod error;
mod flag;
pub mod handler;
#[cfg(feature = "harness")]
pub mod harness;
pub mod headers;
pub mod idempotency;
mod json;
pub mod memory;
pub mod poison_record;
pub mod prelude;
pub mod producer;
pub mod random;
pub mod redrive;
pub mod replay;
pub mod retry;
pub mod schema;
#[cfg(feature = "test-kit")]
pub mod test_kit;
pub mod transport;
pub mod urn;
pub mod verdict;
pub mod version_gate;
#[cfg(any(feature = "test-kit", feature = "harness"))]
mod watched;
pub mod worker;

pub use error::{BoxError, Error};
pub use headers::Headers;
