//! The conformance suite of `BabelQueue`, vendored as data in `suite/`, and what runs it.
//!
//! A package's `tests/conformance.rs` is a thin adapter: it names its bindings, and gives one
//! function for each of its sections; the core's sections come along by themselves.
//!
//! Without the feature `runners` there is only the reading of the suite.

pub mod base64;
mod case;
#[cfg(feature = "runners")]
mod core_rules;
#[cfg(feature = "runners")]
mod harness;
pub mod json;
#[cfg(feature = "runners")]
mod met;
#[cfg(feature = "runners")]
mod page;
mod suite;

/// The example of the repository's page compiles.
#[cfg(all(doctest, feature = "runners"))]
#[doc = include_str!("../../README.md")]
struct Readme;

use std::fmt;

pub use case::Case;
#[cfg(feature = "runners")]
pub(crate) use core_rules::core_sections;
#[cfg(feature = "runners")]
pub use harness::{Package, RESULTS};
pub use json::Json;
#[cfg(feature = "runners")]
pub use met::{Met, Unmet, holds, same, unknown};
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
