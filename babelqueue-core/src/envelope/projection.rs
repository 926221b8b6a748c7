use std::borrow::Cow;

use super::members::{Members, content};
use crate::json::{self, Span};

/// What the native properties of a message are made of (contract §11C): each member only if it is
/// there and of its schema type, a string only if it is not empty, a number only if it is not
/// negative.
///
/// It is read from the very bytes that are sent, a poison record among them, and never fails: a body
/// that is no JSON object gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Projection<'a> {
    /// `job`, else `urn`, whichever names the message (contract §2.6).
    pub urn: Option<Cow<'a, str>>,
    /// `trace_id`.
    pub trace_id: Option<Cow<'a, str>>,
    /// `meta.id`.
    pub id: Option<Cow<'a, str>>,
    /// `meta.queue`.
    pub queue: Option<Cow<'a, str>>,
    /// `meta.lang`.
    pub lang: Option<Cow<'a, str>>,
    /// `meta.schema_version`.
    pub schema_version: Option<i64>,
    /// `meta.created_at`, in milliseconds since the Unix epoch.
    pub created_at_ms: Option<i64>,
    /// `attempts`.
    pub attempts: Option<i64>,
}

impl<'a> Projection<'a> {
    /// The projection of `body`.
    pub fn of(body: &'a [u8]) -> Self {
        let Ok(members) = Members::lenient(body) else {
            return Self::default();
        };
        let string = |span: Span| {
            content(span.of(body))
                .filter(|text| !text.is_empty())
                .map(json::unescape)
        };
        let integer = |span: Span| json::int64(span.of(body)).filter(|number| *number >= 0);
        Self {
            urn: members.identity(body).and_then(string),
            trace_id: string(members.trace_id),
            id: string(members.id),
            queue: string(members.queue),
            lang: string(members.lang),
            schema_version: integer(members.schema_version),
            created_at_ms: integer(members.created_at),
            attempts: integer(members.attempts),
        }
    }
}
