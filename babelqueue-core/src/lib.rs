//! The core of BabelQueue for Rust.

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
