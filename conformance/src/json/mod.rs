//! JSON as the suite needs it: every number keeps its literal, a repeated name keeps each of its
//! values, and equality tells `1` from `1.0`, `true` from `1` and `{}` from `[]`.
//!
//! Deliberately not the core's scanner nor `serde_json`: what judges the core must not share its
//! mistakes, and `serde_json`'s values round numbers and stop at depth 128.

mod number;
mod parse;
#[cfg(feature = "runners")]
mod serialize;

use std::fmt::{self, Write as _};

pub use parse::{ParseError, parse};

/// A JSON value.
#[derive(Debug, Clone)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was spelled.
    Number(Box<str>),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: its members in order, a repeated name as often as it stands there.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The member `name`; the last one where the name is repeated (contract §2.2).
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        members
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// The value at an RFC 6901 pointer; `""` is the value itself.
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        let mut value = self;
        for token in pointer.strip_prefix('/')?.split('/') {
            let token = token.replace("~1", "/").replace("~0", "~");
            value = match value {
                Self::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                other => other.get(&token)?,
            };
        }
        Some(value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An integer literal that fits; `1.0` and `1e0` do not count as integers.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(literal) => literal.parse().ok(),
            _ => None,
        }
    }

    /// A number as the nearest double.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(literal) => literal.parse().ok(),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members of an object, in order.
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The distinct names of an object's members, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .as_object()
            .unwrap_or_default()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The same object without any member `name`.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        match self {
            Self::Object(members) => Self::Object(
                members
                    .iter()
                    .filter(|(known, _)| known != name)
                    .cloned()
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// The same object with each member `name` changed.
    #[must_use]
    pub fn with(&self, name: &str, change: impl Fn(&Self) -> Self) -> Self {
        match self {
            Self::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(known, value)| {
                        let value = if known == name {
                            change(value)
                        } else {
                            value.clone()
                        };
                        (known.clone(), value)
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// What kind of value it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Self {
        Self::Number(value.to_string().into())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Typed and deep. The order of members carries no meaning, and of a repeated name the last value
/// counts; numbers are equal when both are integers or neither is, and they denote the same decimal.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => number::same(a, b),
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(_), Self::Object(_)) => {
                let names = self.names();
                names == other.names() && names.iter().all(|name| self.get(name) == other.get(name))
            }
            _ => false,
        }
    }
}

/// Compact JSON text; numbers as they were spelled.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(literal) => f.write_str(literal),
            Self::String(text) => write_string(f, text),
            Self::Array(items) => {
                f.write_char('[')?;
                for (i, item) in items.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{item}")?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    write_string(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        parse(text).unwrap()
    }

    #[test]
    fn equality_is_typed() {
        for (a, b) in [
            ("1", "true"),
            ("1", "1.0"),
            ("1", "\"1\""),
            ("{}", "[]"),
            ("0", "null"),
            ("9007199254740993", "9007199254740992"),
            ("[1,2]", "[2,1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
        ] {
            assert_ne!(json(a), json(b), "{a} against {b}");
        }
        for (a, b) in [
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            ("1e400", "10E399"),
            ("0.5", "5e-1"),
            ("0", "-0"),
            (r#""\u00e9""#, "\"é\""),
        ] {
            assert_eq!(json(a), json(b), "{a} against {b}");
        }
    }

    #[test]
    fn literals_come_back_as_they_were_spelled() {
        let text = r#"{"n":[1e400,-0.50,123456789012345678901234567890],"s":"a\"\\\n\u0001é"}"#;
        assert_eq!(json(text).to_string(), text);
    }

    #[test]
    fn pointers_follow_rfc_6901() {
        let value = json(r#"{"a/b":{"m~n":[10,20]},"":1}"#);
        assert_eq!(value.pointer("/a~1b/m~0n/1"), Some(&Json::from(20)));
        assert_eq!(value.pointer("/"), Some(&Json::from(1)));
        assert_eq!(value.pointer(""), Some(&value));
        assert_eq!(value.pointer("/a~1b/none"), None);
    }
}
