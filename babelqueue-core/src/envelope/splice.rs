//! Changes to one member, spliced into the received bytes.

use bytes::Bytes;

use super::Envelope;
use super::decode::text_of;
use super::members::Members;
use crate::dead_letter::DeadLetter;
use crate::json::{self, Edit, Span};

const ATTEMPTS: &[u8] = b",\"attempts\":";
const DEAD_LETTER: &[u8] = b",\"dead_letter\":";

impl Envelope {
    /// The envelope with `attempts` set, and every other byte as it was: one allocation. A `null`
    /// gives way, of a repeated member the last one (which is the one that counts), and where there
    /// is none it is added at the end.
    #[must_use]
    pub fn with_attempts(&self, attempts: i64) -> Self {
        let mut buffer = [0; json::DIGITS_MAX];
        let digits = json::decimal(attempts, &mut buffer);
        let mut changed = self.with_member(self.members.attempts, ATTEMPTS, digits, self.end());
        if self.members.attempts.is_absent() {
            let start = changed.end() - digits.len();
            changed.members.attempts = Span::new(start, changed.end());
        }
        changed
    }

    /// The envelope with the dead-letter block set, and every other byte as it was. An older block
    /// gives way (contract §6.2).
    #[must_use]
    pub fn with_dead_letter(&self, block: &DeadLetter) -> Self {
        let block = block.to_json();
        let place = self.after_attempts();
        let mut changed = self.with_member(self.members.dead_letter, DEAD_LETTER, &block, place);
        if self.members.dead_letter.is_absent() {
            let start = place + DEAD_LETTER.len();
            changed.members.dead_letter = Span::new(start, start + block.len());
        }
        changed
    }

    /// The envelope without a dead-letter block, and every other byte as it was: what a redrive
    /// sends back.
    #[must_use]
    pub fn without_dead_letter(&self) -> Self {
        if self.members.dead_letter.is_absent() {
            return self.clone();
        }
        let start = self.members.root.range().start;
        let stripped = json::edit_object(text_of(&self.bytes), start, |key, _| {
            if key.text() == "dead_letter" {
                Edit::Drop
            } else {
                Edit::Keep
            }
        });
        // The bytes were scanned when the envelope was made, so neither can fail; if it did, the
        // block would stay rather than the message get lost.
        match stripped.map(|body| (Members::checked(&body), body)) {
            Ok((Ok(members), body)) => Self {
                bytes: Bytes::from(body),
                members,
            },
            _ => self.clone(),
        }
    }

    /// The envelope with a member that no write API lets in, at the top or in `meta`: the suite's
    /// `encode_reject` cases start from one (contract §17B.10). `pointer` has one name, or `/meta/`
    /// and one name, both without escapes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_unchecked_member(&self, pointer: &str, json: &str) -> Self {
        let (key, place) = match pointer.strip_prefix("/meta/") {
            Some(key) => (key, self.members.meta.range().end.saturating_sub(1)),
            None => (pointer.trim_start_matches('/'), self.end()),
        };
        let name = format!(",\"{key}\":");
        let changed = self.with_member(Span::default(), name.as_bytes(), json.as_bytes(), place);
        match Members::checked(&changed.bytes) {
            Ok(members) => Self {
                bytes: changed.bytes,
                members,
            },
            Err(_) => self.clone(),
        }
    }

    /// Replaces the value at `span`, or where it is absent inserts `name` and `value` at `place`.
    fn with_member(&self, span: Span, name: &[u8], value: &[u8], place: usize) -> Self {
        let (replaced, name) = if span.is_absent() {
            (place..place, name)
        } else {
            (span.range(), &[][..])
        };
        let len = self.bytes.len() - replaced.len() + name.len() + value.len();
        let mut body = Vec::with_capacity(len);
        body.extend_from_slice(&self.bytes[..replaced.start]);
        body.extend_from_slice(name);
        body.extend_from_slice(value);
        body.extend_from_slice(&self.bytes[replaced.end..]);
        let grown = name.len() + value.len();
        let mut members = self.members;
        members.shift(&replaced, grown);
        Self {
            bytes: Bytes::from(body),
            members,
        }
    }

    /// Where a member goes that follows `attempts`: before the comma or brace after it. At the end
    /// where there is no `attempts`.
    fn after_attempts(&self) -> usize {
        let attempts = self.members.attempts;
        if attempts.is_absent() {
            return self.end();
        }
        let end = attempts.range().end;
        let blanks = self.bytes[end..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace());
        end + blanks.count()
    }

    /// Offset of the closing brace.
    fn end(&self) -> usize {
        self.members.root.range().end - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::Reason;

    fn envelope(body: &str) -> Envelope {
        Envelope::decode(body.to_owned()).unwrap().envelope
    }

    /// The text, after a check that the members are where a scan would find them.
    fn text(envelope: &Envelope) -> &str {
        assert_eq!(Ok(envelope.members), Members::checked(&envelope.bytes));
        text_of(&envelope.bytes)
    }

    fn block() -> DeadLetter {
        DeadLetter::new(Reason::Failed, "orders", 3, 1_749_132_730_000)
    }

    const BLOCK: &str = r#"{"reason":"failed","error":null,"exception":null,"failed_at":1749132730000,"original_queue":"orders","attempts":3,"lang":"rust"}"#;

    #[test]
    fn attempts_change_in_place_and_nothing_else_does() {
        for (body, expected) in [
            (
                r#"{"attempts":0,"job":"j"}"#,
                r#"{"attempts":12,"job":"j"}"#,
            ),
            (
                r#" { "attempts" : 999 , "job":"j"} "#,
                r#" { "attempts" : 12 , "job":"j"} "#,
            ),
            (
                r#"{"job":"j","attempts":null}"#,
                r#"{"job":"j","attempts":12}"#,
            ),
            (r#"{"job":"j"}"#, r#"{"job":"j","attempts":12}"#),
            (r#"{"job":"j" } "#, r#"{"job":"j" ,"attempts":12} "#),
            (
                r#"{"attempts":1,"job":"j","attempts":-2,"data":{"attempts":5}}"#,
                r#"{"attempts":1,"job":"j","attempts":12,"data":{"attempts":5}}"#,
            ),
            (
                r#"{"job":"j","data":{"n":1e300,"big":123456789012345678901234567890,"a":[],"o":{}},"attempts":7,"x":0.10}"#,
                r#"{"job":"j","data":{"n":1e300,"big":123456789012345678901234567890,"a":[],"o":{}},"attempts":12,"x":0.10}"#,
            ),
        ] {
            let changed = envelope(body).with_attempts(12);
            assert_eq!(text(&changed), expected);
            assert_eq!(changed.attempts(), Some(12));
        }
        let extreme = envelope(r#"{"job":"j"}"#).with_attempts(i64::MIN);
        assert_eq!(
            text(&extreme),
            r#"{"job":"j","attempts":-9223372036854775808}"#
        );
    }

    #[test]
    fn a_dead_letter_block_follows_attempts_or_replaces_an_older_one() {
        for (body, expected) in [
            (
                r#"{"job":"j"}"#,
                format!(r#"{{"job":"j","dead_letter":{BLOCK}}}"#),
            ),
            (
                r#"{"job":"j","attempts":3,"x":1}"#,
                format!(r#"{{"job":"j","attempts":3,"dead_letter":{BLOCK},"x":1}}"#),
            ),
            (
                r#"{"dead_letter":{"reason":"old","more":[1]},"job":"j","attempts":3}"#,
                format!(r#"{{"dead_letter":{BLOCK},"job":"j","attempts":3}}"#),
            ),
            (
                r#"{"job":"j","dead_letter":null}"#,
                format!(r#"{{"job":"j","dead_letter":{BLOCK}}}"#),
            ),
        ] {
            let changed = envelope(body).with_dead_letter(&block());
            assert_eq!(text(&changed), expected);
            assert_eq!(changed.dead_letter().unwrap().attempts, Some(3));
            let counted = changed.with_attempts(4);
            assert_eq!(text(&counted).matches("\"attempts\":4").count(), 1);
        }
    }

    #[test]
    fn a_redrive_sends_back_what_was_there_before() {
        for before in [
            r#"{"job":"j","attempts":3,"x": 1 }"#,
            r#"{ "job":"j", "attempts" : 3 , "x": 1 }"#,
            r#"{"job":"j","attempts":3 }"#,
            r#"{ "job":"j" }"#,
        ] {
            let dead = envelope(before).with_dead_letter(&block());
            assert_eq!(text(&dead.without_dead_letter()), before);
            assert_eq!(text(&envelope(before).without_dead_letter()), before);
        }
        let twice = envelope(r#"{"dead_letter":{},"job":"j","dead_l\u0065tter":null}"#);
        assert_eq!(text(&twice.without_dead_letter()), r#"{"job":"j"}"#);
    }

    #[test]
    fn an_unchecked_member_makes_encode_refuse() {
        let built = Envelope::builder("urn:a").build().unwrap();
        for pointer in ["/timestamp", "/urn", "/meta/ts", "/meta/attempts"] {
            let smuggled = built.with_unchecked_member(pointer, "1");
            assert_eq!(smuggled.encode().unwrap_err().pointer(), pointer);
        }
        assert!(built.with_unchecked_member("/x", "1").encode().is_ok());
    }
}
