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
        let attempts = self.members.attempts;
        let place = if attempts.is_absent() {
            self.end()
        } else {
            attempts.range().end
        };
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
        let root = text_of(self.members.root.of(&self.bytes));
        let stripped = json::edit_object(root, |key, _| {
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

    /// Offset of the closing brace.
    fn end(&self) -> usize {
        self.members.root.range().end - 1
    }
}
