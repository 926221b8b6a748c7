//! What most programs use: `use babelqueue_core::prelude::*`.
//!
//! A broker crate re-exports it, with its transport beside it.

pub use crate::decide::{Policy, UnknownUrn};
pub use crate::handler::{Failure, Incoming, Outcome};
pub use crate::producer::Producer;
pub use crate::retry::Retry;
pub use crate::urn::Message;
pub use crate::worker::Worker;
#[cfg(feature = "signal")]
pub use crate::worker::shutdown_signal;
