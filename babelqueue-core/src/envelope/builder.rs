use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::Envelope;
use super::finite;
use super::members::{Forbidden, Members};
use super::{Cause, Kind, SCHEMA_VERSION};
use crate::Error;
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

/// Why an envelope cannot be made or sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The URN is empty, or nothing but blanks (contract §5.2).
    #[error("`/job` is blank, expected a URN")]
    BlankUrn,
    /// A text that has to hold something is blank.
    #[error("`{pointer}` is blank, expected {expected}")]
    Blank {
        /// The member's pointer.
        pointer: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// The payload is no JSON object (§3.3).
    #[error("`/data` is {found}, expected an object")]
    DataNotAnObject {
        /// What it is.
        found: Kind,
    },
    /// A key that no envelope may carry (§3.1).
    #[error("`{pointer}` is a key that no envelope may carry")]
    ForbiddenKey {
        /// Its pointer.
        pointer: String,
    },
    /// A core member of `meta`, which the builder writes itself (§5.4).
    #[error("`{pointer}` is a core key, which the envelope sets itself")]
    CoreKey {
        /// Its pointer.
        pointer: String,
    },
    /// A member of `meta` that was set before (§5.4).
    #[error("`{pointer}` was set before")]
    RepeatedKey {
        /// Its pointer.
        pointer: String,
    },
    /// A value has no JSON: a NaN, an infinity, a map whose keys are no text, or its own `Serialize`
    /// failed.
    #[error("`{pointer}` cannot be written as JSON: {problem}")]
    Serialize {
        /// The field's pointer.
        pointer: String,
        /// What serde says.
        problem: String,
    },
    /// JSON text that was handed in is not what an envelope may hold (§2A): `1e400`, a lone
    /// surrogate escape, or no JSON at all.
    #[error("`{pointer}` {cause}")]
    Invalid {
        /// The pointer of the value that is wrong.
        pointer: String,
        /// What is wrong with it.
        cause: Cause,
    },
}

impl EncodeError {
    /// The RFC 6901 pointer of the member that it is about.
    pub fn pointer(&self) -> &str {
        match self {
            Self::BlankUrn => "/job",
            Self::DataNotAnObject { .. } => "/data",
            Self::Blank { pointer, .. } => pointer,
            Self::ForbiddenKey { pointer }
            | Self::CoreKey { pointer }
            | Self::RepeatedKey { pointer }
            | Self::Serialize { pointer, .. }
            | Self::Invalid { pointer, .. } => pointer,
        }
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Self::message(&error).with_source(error)
    }
}

/// Refuses an envelope that carries what none may carry.
pub(super) fn refuse_forbidden(members: &Members) -> Result<(), EncodeError> {
    let urn = (!members.urn.is_absent()).then_some("/urn");
    match urn.into_iter().chain(members.forbidden.pointers()).next() {
        None => Ok(()),
        Some(pointer) => Err(EncodeError::ForbiddenKey {
            pointer: pointer.to_owned(),
        }),
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
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::ser::Error as _;
    use serde_json::json;

    use super::*;
    use crate::clock::ManualClock;

    fn builder() -> EnvelopeBuilder<'static> {
        Envelope::builder("urn:babel:orders:created")
            .trace_id("7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b")
            .id("f1e2d3c4-b5a6-4789-90ab-cdef01234567")
            .clock(&ManualClock::at(Duration::from_secs(1_749_132_727)))
    }

    #[derive(Serialize)]
    struct Titled {
        title: &'static str,
        lines: [u8; 0],
    }

    fn text(builder: EnvelopeBuilder<'_>) -> String {
        String::from_utf8(builder.build().unwrap().into_bytes().to_vec()).unwrap()
    }

    fn mistake(builder: EnvelopeBuilder<'_>) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn the_body_is_compact_in_the_contract_s_order_and_unescaped() {
        let built = builder()
            .queue("orders")
            .data(&Titled {
                title: "Café </b> ☕",
                lines: [],
            })
            .meta("vendor", "é/")
            .meta("ext", &json!({"acme": {}}));
        assert_eq!(
            text(built),
            r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"title":"Café </b> ☕","lines":[]},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000,"vendor":"é/","ext":{"acme":{}}},"attempts":0}"#
        );
    }

    #[test]
    fn what_is_not_given_is_minted_or_defaulted() {
        let first = Envelope::builder("urn:a").trace_id(" \t").build().unwrap();
        let second = Envelope::builder("urn:a").build().unwrap();
        assert_eq!(first.queue().unwrap(), "default");
        assert_eq!(first.data_json(), Some("{}"));
        assert!(first.created_at_ms().unwrap() > 1_700_000_000_000);
        assert!(first.accepts());
        let ids = [first.id(), first.trace_id(), second.id(), second.trace_id()];
        let distinct: std::collections::HashSet<_> = ids.iter().flatten().collect();
        assert_eq!(distinct.len(), 4);
        for id in ids.into_iter().flatten() {
            assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 4);
        }
    }

    #[test]
    fn texts_that_need_escapes_come_back() {
        let odd = "a\"b\\c\nd\u{1}é";
        let envelope = Envelope::builder(odd)
            .queue(odd)
            .trace_id(odd)
            .id(odd)
            .meta(odd, odd);
        let envelope = Envelope::decode(envelope.build().unwrap().into_bytes())
            .unwrap()
            .envelope;
        assert_eq!(envelope.urn(), odd);
        assert_eq!(envelope.queue().unwrap(), odd);
        assert_eq!(envelope.trace_id().unwrap(), odd);
        assert_eq!(envelope.id().unwrap(), odd);
        assert_eq!(
            envelope.meta_json(odd).unwrap(),
            serde_json::to_string(odd).unwrap()
        );
    }

    #[test]
    fn data_has_to_be_an_object() {
        assert_eq!(
            mistake(builder().data(&[1, 2])),
            "`/data` is an array, expected an object"
        );
        assert_eq!(
            mistake(builder().data(&())),
            "`/data` is null, expected an object"
        );
        assert_eq!(
            mistake(builder().data("text")),
            "`/data` is a string, expected an object"
        );
        assert_eq!(
            mistake(builder().data_raw(" 5")),
            "`/data` is a number, expected an object"
        );
        assert_eq!(
            text(builder().data(&BTreeMap::<String, u8>::new())),
            text(builder().data_raw(" {} \n"))
        );
    }

    #[test]
    fn raw_data_goes_out_as_it_is_or_not_at_all() {
        let raw = r#"{"big": 123456789012345678901234567890, "n":1.50e2, "a":1, "a":2}"#;
        assert_eq!(
            builder().data_raw(raw).build().unwrap().data_json(),
            Some(raw)
        );
        assert_eq!(
            mistake(builder().data_raw(r#"{"a":{"n":[1,1e400]}}"#)),
            "`/data/a/n/1` is a number too large for a double"
        );
        assert_eq!(
            mistake(builder().data_raw(r#"{"a":"\ud800"}"#)),
            "`/data/a` has a surrogate escape without its other half"
        );
        assert_eq!(
            mistake(builder().data_raw(r#"{"a":1}}"#)),
            "`/data` is not JSON: expected the end of the body"
        );
        assert_eq!(
            mistake(builder().data_raw("")),
            "`/data` is not JSON: expected a value"
        );
    }

    #[test]
    fn meta_refuses_core_keys_forbidden_keys_and_a_key_twice() {
        for key in ["id", "queue", "lang", "schema_version", "created_at"] {
            let error = builder().meta(key, "x").build().unwrap_err();
            assert_eq!(
                error,
                EncodeError::CoreKey {
                    pointer: format!("/meta/{key}")
                }
            );
        }
        for key in ["max_retries", "attempts", "source", "ts"] {
            let error = builder().meta(key, "x").build().unwrap_err();
            assert_eq!(
                error,
                EncodeError::ForbiddenKey {
                    pointer: format!("/meta/{key}")
                }
            );
        }
        let error = builder()
            .meta("ext", &1)
            .meta("a/b~", &2)
            .meta("a/b~", &3)
            .build()
            .unwrap_err();
        assert_eq!(
            error,
            EncodeError::RepeatedKey {
                pointer: "/meta/a~1b~0".to_owned()
            }
        );
        assert!(
            builder()
                .meta("timestamp", &1)
                .meta("ID", &1)
                .build()
                .is_ok()
        );
    }

    #[test]
    fn blanks_are_refused_where_something_has_to_be() {
        let blank = |urn: &'static str| Envelope::builder(urn).build();
        assert_eq!(blank(" \t\n\x0B\x0C\r").unwrap_err(), EncodeError::BlankUrn);
        assert_eq!(blank("\u{2003}").unwrap().urn(), "\u{2003}");
        assert_eq!(
            mistake(builder().queue("")),
            "`/meta/queue` is blank, expected a queue's name"
        );
        assert_eq!(
            mistake(builder().id(" ")),
            "`/meta/id` is blank, expected an id"
        );
    }

    #[test]
    fn a_number_that_is_none_is_refused_where_it_stands() {
        #[derive(Serialize)]
        struct Line {
            price: f64,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Unit {
            Ratio(Option<f32>),
            Pair(f32, f32),
            Sized { width: f64 },
        }
        let line = |price| BTreeMap::from([("a/b", vec![Line { price: 1.0 }, Line { price }])]);
        assert_eq!(
            mistake(builder().data(&line(f64::NAN))),
            "`/data/a~1b/1/price` cannot be written as JSON: NaN is no JSON number"
        );
        assert!(builder().data(&line(f64::MAX)).build().is_ok());
        for (unit, pointer) in [
            (Unit::Ratio(Some(f32::INFINITY)), "/meta/unit/ratio"),
            (Unit::Pair(0.5, f32::NEG_INFINITY), "/meta/unit/1"),
            (Unit::Sized { width: f64::NAN }, "/meta/unit/width"),
        ] {
            let error = builder().meta("unit", &unit).build().unwrap_err();
            assert_eq!(error.pointer(), pointer);
        }
        let keyed = BTreeMap::from([(7_u8, (1, f64::NAN))]);
        let error = builder().data(&keyed).build().unwrap_err();
        assert_eq!(error.pointer(), "/data/7/1");
    }

    #[test]
    fn data_is_written_as_serde_json_writes_it() {
        #[derive(Serialize)]
        enum Shape {
            Unit,
            New(u8),
            Pair(i64, char),
            Named { x: Option<()>, y: u128 },
        }
        #[derive(Serialize)]
        struct All {
            raw: Box<serde_json::value::RawValue>,
            number: serde_json::Number,
            shapes: Vec<Shape>,
            floats: (f32, f64),
            map: BTreeMap<i32, bool>,
            bytes: &'static [u8],
            newtype: std::num::Wrapping<i8>,
            text: std::net::Ipv4Addr,
            #[serde(flatten)]
            more: BTreeMap<String, serde_json::Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            none: Option<u8>,
        }
        let all = All {
            raw: serde_json::from_str(r#"{"n": 1.50e2 }"#).unwrap(),
            number: 42.into(),
            shapes: vec![
                Shape::Unit,
                Shape::New(1),
                Shape::Pair(-2, 'é'),
                Shape::Named {
                    x: None,
                    y: u128::MAX,
                },
            ],
            floats: (0.1, 1e300),
            map: BTreeMap::from([(-1, true)]),
            bytes: b"ab",
            newtype: std::num::Wrapping(-3),
            text: std::net::Ipv4Addr::LOCALHOST,
            more: BTreeMap::from([("z".to_owned(), json!([null, {"a": 1.5}]))]),
            none: None,
        };
        let envelope = builder().data(&all).build().unwrap();
        assert_eq!(
            envelope.data_json().unwrap(),
            serde_json::to_string(&all).unwrap()
        );
    }

    #[test]
    fn the_first_mistake_is_told() {
        struct Unwritable;
        impl Serialize for Unwritable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(S::Error::custom("out of ink"))
            }
        }
        let broken = builder().data(&Unwritable).meta("id", &1);
        assert_eq!(
            mistake(broken),
            "`/data` cannot be written as JSON: out of ink"
        );
    }
}
