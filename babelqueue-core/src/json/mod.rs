//! Strict JSON over bytes: one iterative scanner (no recursion, whatever the nesting), and what the
//! envelope needs beside it. Nothing here allocates for an ordinary body.
//!
//! `serde_json` does the typed reading of `data`. It cannot give the verdict of a body (contract
//! §2A): a `RawValue` lets `1e400`, lone surrogate escapes and integers beyond 64 bits through, a
//! `Value` rounds numbers and stops at a depth of 128.

mod edit;
mod number;
mod pointer;
mod scanner;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;
use std::ops::Range;

pub(crate) use edit::{Edit, edit_object, last_member};
pub(crate) use number::{DIGITS_MAX, decimal, int64, write_int64};
pub(crate) use pointer::pointer_at;
pub(crate) use scanner::{Key, NAME_MAX, Scanner};
pub(crate) use text::{is_blank, unescape, write_string, written_len};

/// The kind of a JSON value, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number, of any size and form.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// The kind of the value that starts with `byte`; `None` where no value starts so.
    pub(crate) fn starting(byte: u8) -> Option<Self> {
        match byte {
            b'n' => Some(Self::Null),
            b't' | b'f' => Some(Self::Boolean),
            b'-' | b'0'..=b'9' => Some(Self::Number),
            b'"' => Some(Self::String),
            b'[' => Some(Self::Array),
            b'{' => Some(Self::Object),
            _ => None,
        }
    }

    /// The kind of a value's text.
    pub(crate) fn of(value: &[u8]) -> Option<Self> {
        value.first().and_then(|byte| Self::starting(*byte))
    }
}

/// With its article: `a string`, `null`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// Where a value lies in a body. 32 bits keep an envelope small; [`Fault::TooLarge`] guards them.
/// The default is an absent value: no JSON value is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a body of 4 GiB or more is refused before it is scanned"
    )]
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    pub(crate) const fn is_absent(self) -> bool {
        self.end == 0
    }

    pub(crate) const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes of the value; none where it is absent.
    pub(crate) fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }
}

/// What the scanner stopped at, and where. Eight bytes, so that a result travels in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    at: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    TooLarge,
    Utf8,
    Empty,
    /// Not JSON: what was expected.
    Syntax(Expected),
    LoneSurrogate,
    NotAnObject(Kind),
    WrongType {
        found: Kind,
        expected: Expected,
    },
    NotInt64,
    NotFinite,
}

impl Fault {
    #[cold]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a body of 4 GiB or more is refused before it is scanned"
    )]
    pub(crate) const fn new(kind: FaultKind, at: usize) -> Self {
        Self {
            kind,
            at: at as u32,
        }
    }

    #[cold]
    pub(crate) const fn syntax(expected: Expected, at: usize) -> Self {
        Self::new(FaultKind::Syntax(expected), at)
    }

    /// Offset of the byte in the body.
    pub(crate) const fn at(self) -> usize {
        self.at as usize
    }
}

/// What should have stood in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Value,
    Name,
    Colon,
    CommaOrBrace,
    CommaOrBracket,
    EndOfBody,
    EndOfString,
    NoControl,
    Escape,
    Hexadecimal,
    Digit,
    NoLeadingZero,
    StringOrNull,
    IntegerOrNull,
    ObjectOrNull,
}

impl Expected {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "a value",
            Self::Name => "a member's name",
            Self::Colon => "`:`",
            Self::CommaOrBrace => "`,` or `}`",
            Self::CommaOrBracket => "`,` or `]`",
            Self::EndOfBody => "the end of the body",
            Self::EndOfString => "the end of the string",
            Self::NoControl => "no bare control character",
            Self::Escape => "an escape",
            Self::Hexadecimal => "four hexadecimal digits",
            Self::Digit => "a digit",
            Self::NoLeadingZero => "no digit after a leading zero",
            Self::StringOrNull => "a string or null",
            Self::IntegerOrNull => "a 64-bit integer or null",
            Self::ObjectOrNull => "an object or null",
        }
    }
}
