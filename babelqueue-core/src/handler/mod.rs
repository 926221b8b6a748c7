//! What a user writes to handle a message.
//!
//! Most handlers are async closures that take an [`Incoming<T>`] and return `Ok(())` or an error;
//! the worker turns them into a [`Handler`]. They say more by returning an [`Outcome`], and how a
//! failed message goes on by what they do to their [`Failure`].
//!
//! ```
//! use babelqueue_core::handler::{Failure, Incoming, Outcome};
//! # #[derive(serde::Deserialize)] struct Order { order_id: u64, paid: bool }
//!
//! async fn ship(order: Incoming<Order>) -> Result<Outcome, Failure> {
//!     if !order.paid {
//!         return Ok(Outcome::Retry);
//!     }
//!     if order.attempt() > 1 {
//!         println!("order {} once more", order.order_id);
//!     }
//!     Ok(Outcome::Done)
//! }
//! ```

mod blocking;
mod caught;
mod context;
mod failure;
mod function;
mod incoming;
pub mod layers;
mod outcome;
mod report;
mod state;

use std::pin::Pin;
use std::sync::Arc;

pub use blocking::Blocking;
pub(crate) use blocking::Turn;
pub(crate) use caught::{caught, clear_away, discard, poll_caught};
pub use context::Context;
pub(crate) use context::Surroundings;
pub use failure::{Failure, Panicked};
pub use function::Function;
pub use incoming::Incoming;
pub use outcome::Outcome;
pub use state::MissingState;
pub(crate) use state::State;

/// What a [`Handler`] returns: a boxed future of its verdict.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

/// Handles messages of one URN.
///
/// Dyn-safe, so that routes and layers are plain `Arc<dyn Handler>`s. Closures become one by
/// [`Function`] or [`Blocking`]; write the trait out for what needs the message untyped.
///
/// A worker calls it in a task of its own for each message, several at a time; quick ones of one lane
/// share a task, one after another. A panic, in `call` or in the future, is a failure like any other
/// ([`Panicked`]).
pub trait Handler: Send + Sync + 'static {
    /// Starts to handle one message.
    fn call(&self, context: Context) -> HandlerFuture;

    /// Whether a call, once it runs, goes on even when its future is dropped, as
    /// [`Blocking`] does: the worker then reports it at the stop's deadline, and does not give its
    /// message back. Asked of the handler itself, not of the layers around it.
    fn is_blocking(&self) -> bool {
        false
    }
}

impl<H: Handler + ?Sized> Handler for Arc<H> {
    fn call(&self, context: Context) -> HandlerFuture {
        (**self).call(context)
    }

    fn is_blocking(&self) -> bool {
        (**self).is_blocking()
    }
}

/// Wraps a handler: a timeout, a check of the payload, a span around it. [`layers`] has some, and
/// the order in which they stand.
///
/// What a layer returns is what the worker sees: a layer that fails makes the message fail.
pub trait Layer: Send + Sync + 'static {
    /// The handler to call in place of `inner`.
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler>;
}

// A worker keeps its routes and layers boxed.
const _: Option<(&dyn Handler, &dyn Layer)> = None;

#[cfg(test)]
mod tests;
