//! The conformance suite of `BabelQueue`, vendored as data in `suite/`, and what runs it.
//!
//! A package's `tests/conformance.rs` is a thin adapter: it names its bindings, and gives one
//! function for each of its sections; the core's sections come along by themselves.
//!
//! Without the feature `runners` there is only the reading of the suite.

mod case;
pub mod json;
mod suite;

use std::fmt;

pub use case::Case;
pub use json::Json;
pub use suite::{Scope, Section, Suite};

/// The suite on disk is not what the contract says it is; the text says where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}
