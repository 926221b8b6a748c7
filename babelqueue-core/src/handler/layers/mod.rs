//! Layers to put around handlers, and the order in which everything around a handler stands.
//!
//! # The order
//!
//! A message goes through these from the top, and what comes of it goes back from the bottom. The
//! first three are the worker's and always there; the rest are layers, of which the one that a
//! worker is given first is the outermost.
//!
//! | | what | why there |
//! |---|---|---|
//! | 1 | gate, verdict, attempts ([`classify`](crate::decide::classify)) | what no handler may see, no layer sees |
//! | 2 | retry, dead letter, drop ([`decide`](crate::decide::decide)) | it goes by what the outermost layer returns: a layer that fails makes the message fail, one that returns [`Outcome::Done`] has it acknowledged |
//! | 3 | the catch of a panic | a layer can panic as well |
//! | 4 | a span ([`from_fn`]) | so that it covers what follows, with its result |
//! | 5 | [`Idempotent`](crate::idempotency::Idempotent) | what is skipped is neither decrypted nor checked; what fails below is not remembered, and gives its claim up |
//! | 6 | [`Timeout`] | inside, so that one that times out gives its claim up as well; its wait for another's claim ends by that one's lease |
//! | 7 | decryption of fields | a schema is for clear text (contract §17A) |
//! | 8 | [`ValidatePayload`] | right before the handler |
//! | 9 | the handler | |
//!
//! Nothing enforces 4 to 8; a worker given them in another order runs them in that order. A lease is
//! renewed outside all of them, and a message that waits for its retry waits in the broker, not in a
//! layer.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use babelqueue_core::handler::{Function, Handler, Incoming, Layer};
//! use babelqueue_core::handler::layers::Timeout;
//! use babelqueue_core::idempotency::{Idempotent, MemoryStore};
//! # #[derive(serde::Deserialize)] struct Order {}
//!
//! let handler = Function::new(|_: Incoming<Order>| async { Ok(()) });
//! let handler = Timeout::after(Duration::from_secs(30)).layer(Arc::new(handler));
//! let handler = Idempotent::new(Arc::new(MemoryStore::new())).layer(handler);
//! # let _: Arc<dyn Handler> = handler;
//! ```

mod catch_panic;
mod from_fn;
mod idempotent;
mod timeout;
#[cfg(feature = "tower")]
mod tower;
mod validate_payload;

pub use catch_panic::CatchPanic;
pub use from_fn::{FromFn, from_fn};
pub use timeout::{TimedOut, Timeout};
#[cfg(feature = "tower")]
pub use tower::{HandlerService, ServiceFailure, Tower, TowerHandler};
pub use validate_payload::ValidatePayload;

#[cfg(doc)]
use super::Outcome;

#[cfg(test)]
mod tests;
