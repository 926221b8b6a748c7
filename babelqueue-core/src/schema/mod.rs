//! Checking `data` against a schema for its URN (contract §17A, ADR-0024).
//!
//! The keywords are a subset of JSON Schema draft-07, the same in every SDK, and so is the order of
//! the checks: the first violation of a payload is the same text everywhere.
//!
//! ```
//! use babelqueue_core::schema::Schema;
//!
//! let schema = Schema::parse(r#"{
//!     "type": "object",
//!     "required": ["order_id"],
//!     "properties": {"order_id": {"type": "integer", "minimum": 1}},
//!     "additionalProperties": false
//! }"#)?;
//!
//! assert!(schema.check(r#"{"order_id": 1042}"#).is_ok());
//! let violation = schema.check(r#"{"order_id": 0}"#).unwrap_err();
//! assert_eq!(violation.to_string(), "order_id: below_minimum");
//! # Ok::<_, babelqueue_core::schema::SchemaError>(())
//! ```
//!
//! # What is checked
//!
//! `const`, then `enum`, then by `type`, where it is one word: for an `object` first `required`,
//! then its members as they stand in the document (`properties`, `additionalProperties` where it is
//! `false`); for an `array` its `items`; for a `string` `minLength` in code points; for an `integer`
//! or `number` `minimum`. A schema without a `type`, or with a list of types, is checked for `const`
//! and `enum` only. Every other keyword is ignored.
//!
//! Numbers are compared by value, whatever their size and spelling: `1.0` is an integer and equal to
//! `1`. A boolean is never a number. `data` is read as the text that it is: nothing is rounded.

mod check;
mod document;
mod equal;
mod node;
mod number;
mod provider;

use std::fmt;

pub use provider::{Provider, Registry, RegistryError, Schemas};

use crate::Error;
use crate::envelope::Envelope;
use check::Path;
use node::Node;

/// A schema for the payload of one URN.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

impl Schema {
    /// Reads a schema from its JSON text.
    ///
    /// # Errors
    ///
    /// It is no JSON object, is nested deeper than 128 schemas, or one of the keywords of the subset
    /// has a value that it can't have. A schema that would silently check nothing is refused.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        if !document::well_formed(text) {
            return Err(SchemaError::new(&Path::Root, "is not JSON"));
        }
        let root = Node::parse(text.trim_ascii(), &Path::Root, 0)?;
        Ok(Self { root })
    }

    /// Checks a payload, given as its JSON text.
    ///
    /// # Errors
    ///
    /// The first violation, in the order that the [module](self) states.
    pub fn check(&self, data: &str) -> Result<(), Violation> {
        if document::well_formed(data) {
            self.root.check(data.trim_ascii(), &Path::Root)
        } else {
            Err(Violation::at(&Path::Root, Code::NotJson))
        }
    }
}

/// Checks an envelope's `data` against the schema of its URN: right before it is published, or
/// before its handler runs. A URN without a schema passes; absent or null `data` counts as `{}`.
///
/// # Errors
///
/// The first violation.
pub fn check(schemas: &dyn Provider, envelope: &Envelope) -> Result<(), InvalidPayload> {
    let urn = envelope.urn();
    let Some(schema) = schemas.schema_for(&urn) else {
        return Ok(());
    };
    let data = envelope.data_json().filter(|data| *data != "null");
    // Well-formed: it stands in an envelope.
    let checked = schema.root.check(data.unwrap_or("{}"), &Path::Root);
    checked.map_err(|violation| InvalidPayload {
        urn: urn.into_owned(),
        violation,
    })
}

/// A payload that its schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data of {urn:?} does not match its schema: {violation}")]
#[non_exhaustive]
pub struct InvalidPayload {
    /// The message's URN.
    pub urn: String,
    /// The first violation.
    pub violation: Violation,
}

impl From<InvalidPayload> for Error {
    fn from(invalid: InvalidPayload) -> Self {
        Self::message(&invalid).with_source(invalid)
    }
}

/// Where a payload breaks its schema, and how. Shown as `path: code`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The place: `customer.lines[2].sku`, or `<root>`.
    pub path: String,
    /// The rule.
    pub code: Code,
}

impl Violation {
    fn at(path: &Path<'_>, code: Code) -> Self {
        Self {
            path: path.to_string(),
            code,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.code.as_str())
    }
}

impl std::error::Error for Violation {}

/// The rule that a payload breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// `const` is another value.
    WrongConst,
    /// `enum` does not hold the value.
    NotInEnum,
    /// `type` is `object`.
    NotAnObject,
    /// A member that `required` names is not there.
    MissingRequired,
    /// `additionalProperties` is `false`, and `properties` does not name the member.
    AdditionalNotAllowed,
    /// `type` is `array`.
    NotAnArray,
    /// `type` is `string`.
    NotAString,
    /// The string has fewer code points than `minLength`.
    BelowMinLength,
    /// `type` is `integer`.
    NotAnInteger,
    /// `type` is `number`.
    NotANumber,
    /// The number is less than `minimum`.
    BelowMinimum,
    /// `type` is `boolean`.
    NotABoolean,
    /// `type` is `null`.
    NotNull,
    /// The payload is no JSON text at all; not a word of the contract, whose payloads are parsed.
    NotJson,
}

impl Code {
    /// The word that all SDKs use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WrongConst => "wrong_const",
            Self::NotInEnum => "not_in_enum",
            Self::NotAnObject => "not_an_object",
            Self::MissingRequired => "missing_required",
            Self::AdditionalNotAllowed => "additional_not_allowed",
            Self::NotAnArray => "not_an_array",
            Self::NotAString => "not_a_string",
            Self::BelowMinLength => "below_min_length",
            Self::NotAnInteger => "not_an_integer",
            Self::NotANumber => "not_a_number",
            Self::BelowMinimum => "below_minimum",
            Self::NotABoolean => "not_a_boolean",
            Self::NotNull => "not_null",
            Self::NotJson => "not_json",
        }
    }
}

/// A schema that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema at {path} {problem}")]
pub struct SchemaError {
    path: String,
    problem: String,
}

impl SchemaError {
    fn new(path: &Path<'_>, problem: impl Into<String>) -> Self {
        Self {
            path: path.to_string(),
            problem: problem.into(),
        }
    }
}

#[cfg(test)]
mod tests;
