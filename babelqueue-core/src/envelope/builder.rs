use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::finite;
use super::members::{Forbidden, Members};
use super::{Cause, EncodeError, Envelope, Kind, SCHEMA_VERSION};
use crate::clock::{Clock, SystemClock};
use crate::headers::{is_blank, trim_blanks};
use crate::json::{self, Fault, FaultKind, Scanner, Span};
use crate::urn::Message;

/// What we stamp as `meta.lang`. The suite's schema does not list it yet (contract §5.6): a tool that
/// runs the producer schema complains at `/meta/lang`, a consumer has to take it.
pub const LANG: &str = "rust";

/// The queue that an envelope is made for where none is named (contract §5.1).
const DEFAULT_QUEUE: &str = "default";

/// The members of `meta` that the builder writes itself.
const CORE_META: [&str; 5] = ["id", "queue", "lang", "schema_version", "created_at"];

impl Envelope {
    /// Starts an envelope for a URN that is known at run time. Blanks (ASCII) around it are cut off.
    pub fn builder<'a>(urn: impl Into<Cow<'a, str>>) -> EnvelopeBuilder<'a> {
        EnvelopeBuilder::new(urn.into())
    }

    /// Starts an envelope that holds `message` under its type's URN.
    pub fn of<'a, M: Message + Serialize + ?Sized>(message: &M) -> EnvelopeBuilder<'a> {
        EnvelopeBuilder::new(Cow::Borrowed(M::URN)).data(message)
    }
}

/// Makes an [`Envelope`] (contract §5). What is wrong with an input is told by
/// [`build`](Self::build); the first mistake counts.
#[derive(Debug, Clone)]
#[must_use = "an envelope is made by `build`"]
pub struct EnvelopeBuilder<'a> {
    urn: Cow<'a, str>,
    data: Option<Cow<'a, [u8]>>,
    queue: Option<Cow<'a, str>>,
    trace_id: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    created_at: Option<i64>,
    meta: Vec<(String, Vec<u8>)>,
    mistake: Option<EncodeError>,
}

impl<'a> EnvelopeBuilder<'a> {
    fn new(urn: Cow<'a, str>) -> Self {
        Self {
            urn,
            data: None,
            queue: None,
            trace_id: None,
            id: None,
            created_at: None,
            meta: Vec::new(),
            mistake: None,
        }
    }

    /// The payload: whatever serialises as a JSON object. `{}` where it is never set.
    pub fn data<T: Serialize + ?Sized>(mut self, data: &T) -> Self {
        match to_json("/data", data) {
            Ok(json) => self.data = Some(Cow::Owned(json)),
            Err(mistake) => self.note(mistake),
        }
        self
    }

    /// The payload as JSON text, which goes out as it is.
    pub fn data_raw(mut self, json: impl Into<Cow<'a, str>>) -> Self {
        self.data = Some(match json.into() {
            Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
            Cow::Owned(json) => Cow::Owned(json.into_bytes()),
        });
        self
    }

    /// `meta.queue`, the logical queue; `default` where it is never set.
    pub fn queue(mut self, queue: impl Into<Cow<'a, str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// The trace that this message continues. Blanks (ASCII) around it are cut off; where nothing is
    /// left, and where it is never set, one is minted. Any text is taken.
    pub fn trace_id(mut self, trace_id: impl Into<Cow<'a, str>>) -> Self {
        self.trace_id = Some(trace_id.into());
        self
    }

    /// The message's own id in place of a minted UUID v4, by which consumers know duplicates.
    pub fn id(mut self, id: impl Into<Cow<'a, str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Takes `meta.created_at` from `clock`, now.
    pub fn clock(mut self, clock: &dyn Clock) -> Self {
        self.created_at = Some(clock.unix_millis());
        self
    }

    /// An extension member of `meta` beside the core ones; a vendor's block goes as a whole under
    /// `ext` (contract §2.3). A core key, a forbidden key and a key that was set before are refused
    /// (§5.4).
    pub fn meta<T: Serialize + ?Sized>(mut self, key: impl Into<String>, value: &T) -> Self {
        match self.meta_entry(key.into(), value) {
            Ok(entry) => self.meta.push(entry),
            Err(mistake) => self.note(mistake),
        }
        self
    }

    /// Makes the envelope.
    ///
    /// # Errors
    ///
    /// The first mistake among the inputs; nothing is dropped silently.
    pub fn build(mut self) -> Result<Envelope, EncodeError> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let parts = Parts {
            urn: trim_blanks(&self.urn),
            trace_id: self.trace_id.as_deref().map(trim_blanks),
            id: self.id.as_deref(),
            queue: self.queue.as_deref().unwrap_or(DEFAULT_QUEUE),
            data: self.data.as_deref().map_or(b"{}", <[u8]>::trim_ascii),
            created_at: self.created_at.unwrap_or_else(|| SystemClock.unix_millis()),
            meta: &self.meta,
        };
        parts.check()?;
        let envelope = parts.write();
        if u32::try_from(envelope.bytes.len()).is_err() {
            return Err(EncodeError::Invalid {
                pointer: String::new(),
                cause: Cause::TooLarge,
            });
        }
        debug_assert_eq!(Ok(envelope.members), Members::checked(&envelope.bytes));
        Ok(envelope)
    }

    fn meta_entry<T: Serialize + ?Sized>(
        &self,
        key: String,
        value: &T,
    ) -> Result<(String, Vec<u8>), EncodeError> {
        if CORE_META.contains(&key.as_str()) {
            return Err(EncodeError::CoreKey {
                pointer: meta_pointer(&key),
            });
        }
        if Forbidden::in_meta(&key).is_some() {
            return Err(EncodeError::ForbiddenKey {
                pointer: meta_pointer(&key),
            });
        }
        if self.meta.iter().any(|(known, _)| *known == key) {
            return Err(EncodeError::RepeatedKey {
                pointer: meta_pointer(&key),
            });
        }
        let pointer = meta_pointer(&key);
        let json = to_json(&pointer, value)?;
        one_value::<false>(&json).map_err(|fault| invalid(&pointer, fault, &json))?;
        Ok((key, json))
    }

    fn note(&mut self, mistake: EncodeError) {
        self.mistake.get_or_insert(mistake);
    }
}

/// All that goes into the body.
struct Parts<'a> {
    urn: &'a str,
    trace_id: Option<&'a str>,
    id: Option<&'a str>,
    queue: &'a str,
    data: &'a [u8],
    created_at: i64,
    meta: &'a [(String, Vec<u8>)],
}

impl Parts<'_> {
    fn check(&self) -> Result<(), EncodeError> {
        if self.urn.is_empty() {
            return Err(EncodeError::BlankUrn);
        }
        if self.queue.is_empty() {
            return Err(EncodeError::Blank {
                pointer: "/meta/queue",
                expected: "a queue's name",
            });
        }
        if self.id.is_some_and(is_blank) {
            return Err(EncodeError::Blank {
                pointer: "/meta/id",
                expected: "an id",
            });
        }
        check_data(self.data)
    }

    /// The envelope: compact, its members in the contract's order (§1.2), nothing escaped that need
    /// not be (§1.3). Where each lies is noted on the way, so that it need not be scanned.
    fn write(&self) -> Envelope {
        let mut out = Vec::with_capacity(self.len());
        let mut members = Members::default();
        out.extend_from_slice(b"{\"job\":");
        members.job = written(&mut out, |out| json::write_string(out, self.urn));
        out.extend_from_slice(b",\"trace_id\":");
        let trace_id = self.trace_id.filter(|trace_id| !trace_id.is_empty());
        members.trace_id = written(&mut out, |out| write_or_mint(out, trace_id));
        out.extend_from_slice(b",\"data\":");
        members.data = written(&mut out, |out| out.extend_from_slice(self.data));
        out.extend_from_slice(b",\"meta\":");
        members.meta = written(&mut out, |out| self.write_meta(out, &mut members));
        out.extend_from_slice(b",\"attempts\":");
        members.attempts = written(&mut out, |out| out.push(b'0'));
        out.push(b'}');
        members.root = Span::new(0, out.len());
        Envelope {
            bytes: Bytes::from(out),
            members,
        }
    }

    fn write_meta(&self, out: &mut Vec<u8>, members: &mut Members) {
        out.extend_from_slice(b"{\"id\":");
        members.id = written(out, |out| write_or_mint(out, self.id));
        out.extend_from_slice(b",\"queue\":");
        members.queue = written(out, |out| json::write_string(out, self.queue));
        out.extend_from_slice(b",\"lang\":");
        members.lang = written(out, |out| json::write_string(out, LANG));
        out.extend_from_slice(b",\"schema_version\":");
        members.schema_version = written(out, |out| json::write_int64(out, SCHEMA_VERSION));
        out.extend_from_slice(b",\"created_at\":");
        members.created_at = written(out, |out| json::write_int64(out, self.created_at));
        for (key, json) in self.meta {
            out.push(b',');
            json::write_string(out, key);
            out.push(b':');
            out.extend_from_slice(json);
        }
        out.push(b'}');
    }

    /// Room for the body, exactly, where nothing has to be escaped.
    fn len(&self) -> usize {
        const NAMES: usize = r#"{"job":"","trace_id":"","data":,"meta":{"id":"","queue":"","lang":"","schema_version":1,"created_at":},"attempts":0}"#.len();
        let id_len = |id: Option<&str>| id.map_or(Hyphenated::LENGTH, str::len);
        let extras: usize = self
            .meta
            .iter()
            .map(|(key, json)| key.len() + json.len() + 4)
            .sum();
        let created_at = json::decimal(self.created_at, &mut [0; json::DIGITS_MAX]).len();
        let strings = self.urn.len() + self.queue.len() + LANG.len();
        NAMES
            + strings
            + id_len(self.trace_id)
            + id_len(self.id)
            + self.data.len()
            + created_at
            + extras
    }
}

/// Where what `write` appends lies.
fn written(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Span {
    let start = out.len();
    write(out);
    Span::new(start, out.len())
}

fn write_or_mint(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => json::write_string(out, text),
        None => json::write_string(
            out,
            Uuid::new_v4()
                .hyphenated()
                .encode_lower(&mut Uuid::encode_buffer()),
        ),
    }
}

fn to_json<T: Serialize + ?Sized>(pointer: &str, value: &T) -> Result<Vec<u8>, EncodeError> {
    finite::to_json(value).map_err(|unwritable| EncodeError::Serialize {
        pointer: unwritable.pointer(pointer),
        problem: unwritable.problem,
    })
}

/// `data` has to be one object with finite numbers (contract §1.4, §3.3).
fn check_data(data: &[u8]) -> Result<(), EncodeError> {
    one_value::<true>(data).map_err(|fault| invalid("/data", fault, data))?;
    match data.iter().find_map(|byte| Kind::starting(*byte)) {
        Some(Kind::Object) | None => Ok(()),
        Some(found) => Err(EncodeError::DataNotAnObject { found }),
    }
}

/// Holds `text` against the grammar: one JSON value, and blanks around it at most.
fn one_value<const FINITE: bool>(text: &[u8]) -> Result<(), Fault> {
    let text = std::str::from_utf8(text)
        .map_err(|error| Fault::new(FaultKind::Utf8, error.valid_up_to()))?;
    let mut scanner = Scanner::new(text);
    scanner.blanks();
    scanner.value::<FINITE>()?;
    scanner.end()
}

fn meta_pointer(key: &str) -> String {
    format!("/meta/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn invalid(base: &str, fault: Fault, text: &[u8]) -> EncodeError {
    EncodeError::Invalid {
        pointer: format!("{base}{}", json::pointer_at(text, fault.at())),
        cause: fault.kind.into(),
    }
}

#[cfg(test)]
mod tests;
