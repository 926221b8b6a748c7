//! BabelQueue over Redis: reliable queues in the SDKs' own layout and in Laravel's.
//!
//! ```no_run
//! use std::time::Duration;
//! use babelqueue_redis::{Redis, prelude::*};
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
//! let redis = Redis::connect("redis://127.0.0.1").await?;
//!
//! let producer = Producer::new(redis.clone()).queue("orders");
//! producer.publish(&OrderCreated { order_id: 1042 }).await?;
//!
//! Worker::new(redis)
//!     .queue("orders")
//!     .concurrency(64)
//!     .retry(Retry::attempts(5))
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
//! Redis 6.2 or later is needed. [`Config::from_url`] tells the URL's form; a cluster wants the
//! feature `cluster` and the queue's name in braces (`{orders}`), TLS the feature `tls`.
//!
//! # What becomes of a delivery
//!
//! Each row is one step of a script that settles many at once, and each script run is atomic.
//!
//! | The core wants | [`Layout::Sdk`] | [`Layout::Laravel`] |
//! |---|---|---|
//! | `Ack` | gate, then out of `:processing` | out of `:reserved` |
//! | `Retry` | gate, copy to the end of `<q>` with its headers, then as `Ack`; no delay | copy into `:delayed`, out of `:reserved` |
//! | `Release` | as `Retry`, with the element as it was | as `Retry`, with the body as it was |
//! | `DeadLetter` | gate, record to the end of `<dlq>` with its headers, then as `Ack` | gate, record and wake-up to the dead-letter queue, then as `Ack` |
//! | `Abandon` | nothing: the sweep brings it back at its deadline; at once where there is none | the body as it was into `:delayed`, due at its deadline |
//! | `Native` | refused: Redis has no dead-lettering of its own | the same |
//!
//! The gate is the reservation's own mark: once it is gone, because it was swept, migrated or settled
//! before, nothing is touched and the answer is `Fenced`. That also makes a settlement safe to send
//! again, so one whose connection broke is sent again until its lease is over. The exception is a
//! `Release` in the Laravel layout: given out again, its message has the mark that it had before, so it
//! is sent once, and fails where the answer is lost. What fails comes back as after `Abandon`: a copy
//! that the server refuses (the dead-letter key holds something else, a right is missing) loses nothing.
//! Out of memory settling goes on: a move frees what it takes.
//!
//! # Leases
//!
//! A reservation is a mark in the server and not a tie to a connection: what is out when a connection
//! breaks stays ours, and is settled over the next. It ends [`retry_after`](Config::retry_after) later
//! unless it is renewed, as the worker does for what runs and for what waits in its buffer. Deadlines
//! are whole seconds (contract §11), so a lease is up to a second shorter than configured, and is
//! reported so. All consumers of a queue have to agree on the time;
//! [`server_time`](Config::server_time) makes them.
//!
//! # What to know
//!
//! - **A message that takes its process down.** In the SDK layout it comes back uncounted (contract
//!   §11A.4), so it can do it again without end. [`RedisStore`] with
//!   [`exclusive`](babelqueue_core::idempotency::Idempotent::exclusive) keeps two workers from running
//!   it side by side; a count of starts has to be kept by the handler. In the Laravel layout it is
//!   counted like any other.
//! - **Recovery in the Laravel layout** brings back what Redis's own JSON library wrote when the message
//!   was reserved: `[]` has become `{}`, integers beyond 14 digits are rounded, keys are in another
//!   order. That is Laravel's way, and happens only after a consumer died. Two messages of the very same
//!   bytes are one there.
//! - **Many messages in flight.** Settling walks `:processing` from its head, so it costs the more, the
//!   further a message lies from the oldest: nothing to speak of in order, and in random order at 50,000
//!   in flight some hundred times as much. Keep `concurrency` in the hundreds, or use several queues.
//! - **Headers in the SDK layout** travel in a frame around the body (contract §10.5). A body that a
//!   reader would take for a frame is framed too, and comes out as it went in. What else somebody has
//!   written into a frame stays there through retries and dead letters.
//! - **An empty body** in the SDK layout is never recovered (contract §11A.4); it is poison, and
//!   dead-lettered at its first delivery.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod error;
mod idempotency;
mod layout;
mod project;
mod publish;
mod queue;
mod reply;
mod reservation;
mod scripts;
mod slot;
mod subscription;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub use babelqueue_core as core;
pub use babelqueue_core::{Error, Headers};
pub use config::Config;
pub use idempotency::RedisStore;
pub use layout::{Keys, Layout};
pub use project::available_at;
pub use transport::{CountsSnapshot, Redis};

#[doc(hidden)]
pub use queue::{Queue, Reserved};

/// What most programs use: `use babelqueue_redis::prelude::*`.
pub mod prelude {
    pub use babelqueue_core::prelude::*;

    pub use crate::{Config, Redis};
}
