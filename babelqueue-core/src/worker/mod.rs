//! Running handlers over queues.
//!
//! A [`Worker`] receives from one queue or several, runs up to
//! [`concurrency`](Worker::concurrency) handlers at once, and settles each delivery once, by the
//! contract's rules ([`decide`](crate::decide)). It does not die with its broker: it ends when it is
//! told to, or on an error that no retry can mend.
//!
//! ```
//! use std::time::Duration;
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
//! let (done, is_done) = tokio::sync::oneshot::channel();
//! let done = std::sync::Mutex::new(Some(done));
//! let stopped = Worker::new(broker)
//!     .queue("orders")
//!     .concurrency(64)
//!     .retry(Retry::attempts(5).backoff(Duration::from_secs(1), 2.0))
//!     .dead_letter(true)
//!     .handle(move |order: Incoming<OrderCreated>| {
//!         assert_eq!((order.order_id, order.attempt()), (1042, 1));
//!         done.lock().unwrap().take().map(|done| done.send(()));
//!         async { Ok(()) }
//!     })
//!     .run_until(is_done)
//!     .await?;
//! assert_eq!(stopped.counts.handled, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! One loop, spawned as a task of its own, owns the receivers and all books; each handler runs in a
//! task that reports to it over a channel. Where the handlers of a lane are quick, one task takes
//! several of its deliveries, one after another, until one is not acknowledged or takes its time. At
//! most one receive, one extend and one settle call (or as many as the transport's
//! [`settle_calls`](crate::transport::Capabilities::settle_calls)) are in flight for each queue, and
//! what gathers meanwhile goes along with the next. After a settlement that failed, receiving pauses:
//! what fails in the pause does not lengthen it, and a settle call without a failure starts over with
//! the shortest one, so that a single message whose record the broker never takes does not hold up
//! those that go well.

// `queue` keeps one queue's books: `held` what is unsettled, `buffer` what waits and for which lane,
// `finished` what is to be settled, `lease` when to renew. `task` takes deliveries from the buffer to
// their settlements, `desk` makes those out. `run` is the loop, `calls` what it has in flight, `stop`
// how it ends.

mod backoff;
mod buffer;
mod builder;
mod calls;
mod config;
mod desk;
mod finished;
mod held;
mod lease;
mod queue;
mod routes;
mod run;
#[cfg(feature = "signal")]
mod signal;
mod status;
mod stop;
mod task;
#[cfg(test)]
mod tests;

pub use builder::Worker;
#[cfg(feature = "signal")]
pub use signal::shutdown_signal;
pub use status::{Counts, Phase, Status};
pub use stop::{StopReason, StopRequest, Stopped};
