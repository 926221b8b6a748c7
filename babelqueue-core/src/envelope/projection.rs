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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::{DeadLetter, Reason};
    use crate::poison_record;

    #[test]
    fn every_member_of_its_type_is_projected() {
        let body = br#"{"job":"urn:\u0061","trace_id":" ","meta":{"id":"i","queue":"q","lang":"cobol","schema_version":2,"created_at":1749132727000},"attempts":4}"#;
        let projection = Projection::of(body);
        assert_eq!(projection.urn.unwrap(), "urn:a");
        assert_eq!(projection.trace_id.unwrap(), " ");
        assert_eq!(projection.id.unwrap(), "i");
        assert_eq!(projection.queue.unwrap(), "q");
        assert_eq!(projection.lang.unwrap(), "cobol");
        assert_eq!(projection.schema_version, Some(2));
        assert_eq!(projection.created_at_ms, Some(1_749_132_727_000));
        assert_eq!(projection.attempts, Some(4));
        assert_eq!(Projection::of(br#"{"job":5,"urn":"u"}"#).urn.unwrap(), "u");
    }

    #[test]
    fn what_is_missing_empty_or_of_another_type_is_left_out() {
        for body in [
            r#"{"job":"","urn":7,"trace_id":"","meta":{"id":5,"queue":"","lang":null,"schema_version":1.0,"created_at":-1},"attempts":"3"}"#,
            r#"{"job":[],"meta":"x","attempts":1e3,"data":[1e400]}"#,
            r#"{"meta":{"id":"i"},"meta":[]}"#,
            "{}",
            "null",
            "",
            "[]",
            "{\"job\":\"urn:a\"",
            "\u{feff}{\"job\":\"urn:a\"}",
        ] {
            assert_eq!(
                Projection::of(body.as_bytes()),
                Projection::default(),
                "{body}"
            );
        }
        assert_eq!(Projection::of(b"{\"job\":\"\xff\"}"), Projection::default());
    }

    #[test]
    fn a_poison_record_is_projected_as_far_as_it_goes() {
        let block = DeadLetter::new(Reason::Poison, "orders", 2, 1);
        let spliced = poison_record::write(
            br#"{"job":"urn:a","attempts":"x","meta":{"id":"i"}}"#,
            &block,
        );
        let projection = Projection::of(&spliced);
        assert_eq!(
            (projection.urn.as_deref(), projection.id.as_deref()),
            (Some("urn:a"), Some("i"))
        );
        assert_eq!(projection.attempts, None, "not the block's");
        assert_eq!(
            Projection::of(&poison_record::write(b"{", &block)),
            Projection::default()
        );
    }
}
