use std::fmt;

use serde::Deserialize;

use super::{Envelope, Kind};
use crate::json;

impl Envelope {
    /// `data` as the handler's own type, read straight from the bytes. Where `data` is absent, `null`
    /// is read in its place, so that `Option<T>` and `()` take it.
    ///
    /// # Errors
    ///
    /// `data` does not fit `T`; the error names the field. The contract makes that a failure of the
    /// handler, not poison (§7.3).
    pub fn data<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DataError> {
        let data = self.data_json().unwrap_or("null");
        serde_json::from_str(data).map_err(|error| DataError::new(data, &error))
    }
}

/// `data` does not fit the type that a handler wants. It names the field and the kind of its value,
/// never the value, which is the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataError {
    pointer: String,
    problem: String,
}

impl DataError {
    #[cold]
    fn new(data: &str, error: &serde_json::Error) -> Self {
        let offset = offset_of(data, error);
        let mut pointer = String::from("/data");
        pointer.push_str(&json::pointer_at(data.as_bytes(), offset));
        Self {
            problem: problem(error, data, offset),
            pointer,
        }
    }

    /// The RFC 6901 pointer of the field, from the root of the envelope: `/data/lines/3/price`. A
    /// missing field is told by the object that lacks it. Where serde reads by way of a buffer
    /// (untagged and internally tagged enums, `flatten`) it does not say where it was, and this is
    /// the buffered value's.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.pointer, self.problem)
    }
}

impl std::error::Error for DataError {}

/// The offset of the last byte that serde took before it gave up.
fn offset_of(data: &str, error: &serde_json::Error) -> usize {
    let line_start = match error.line().checked_sub(2) {
        Some(newlines) => data
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .nth(newlines)
            .map_or(0, |(at, _)| at + 1),
        None => 0,
    };
    line_start + error.column().saturating_sub(1)
}

/// What serde says, with the kind of the value in place of the value.
fn problem(error: &serde_json::Error, data: &str, offset: usize) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    let shows_a_value = ["invalid type: ", "invalid value: ", "unknown variant "];
    if shows_a_value.iter().any(|start| message.starts_with(start))
        && let Some((_, expected)) = message.rsplit_once(", expected ")
    {
        return match kind_at(data.as_bytes(), offset) {
            Some(found) => format!("is {found}, expected {expected}"),
            None => format!("is not what was expected: {expected}"),
        };
    }
    format!("does not fit: {message}")
}

/// The kind of the value whose last byte, or whose opening bracket, is at `offset`.
fn kind_at(data: &[u8], offset: usize) -> Option<Kind> {
    match data.get(offset)? {
        b'}' => Some(Kind::Object),
        b']' => Some(Kind::Array),
        b'"' => Some(Kind::String),
        _ => {
            let before = data.get(..=offset)?;
            let scalar = before
                .iter()
                .rposition(
                    |byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.'),
                )
                .map_or(0, |at| at + 1);
            Kind::of(data.get(scalar.min(offset)..)?)
        }
    }
}
