use std::fmt;

use serde::Deserialize;

use super::{Envelope, Kind};
use crate::json;

impl Envelope {
    /// `data` as the handler's own type, read straight from the bytes. Of a member that is repeated
    /// the last counts (contract §2.2).
    ///
    /// Where `data` is absent, `null` is read in its place, so that `Option<T>` and `()` take it; and
    /// for a type that takes no `null` an empty object, which is what a payload schema sees.
    ///
    /// # Errors
    ///
    /// `data` does not fit `T`; the error names the field. The contract makes that a failure of the
    /// handler, not poison (§7.3).
    pub fn data<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DataError> {
        let data = self.data_json().unwrap_or("null");
        serde_json::from_str(data)
            .or_else(|error| read_leniently(data, &error).ok_or(error))
            .map_err(|error| DataError::new(data, &error))
    }
}

/// What serde refuses and the contract does not: a repeated member, and no data for a type that
/// asks for nothing.
#[cold]
fn read_leniently<'de, T: Deserialize<'de>>(data: &str, error: &serde_json::Error) -> Option<T> {
    if data == "null" {
        return serde_json::from_str("{}").ok();
    }
    if !error.to_string().starts_with("duplicate field") {
        return None;
    }
    // A map in which the last of a name stands.
    let value: serde_json::Value = serde_json::from_str(data).ok()?;
    T::deserialize(value).ok()
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
        let message = error.to_string();
        let offset = offset_of(data, error, &message);
        let mut pointer = String::from("/data");
        pointer.push_str(&json::pointer_at(data.as_bytes(), offset));
        Self {
            problem: problem(error, &message, kind_at(data.as_bytes(), offset)),
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

/// The offset of the last byte that serde took before it gave up; of an object or array that should
/// not be there it takes none.
fn offset_of(data: &str, error: &serde_json::Error, message: &str) -> usize {
    let line_start = match error.line().checked_sub(2) {
        Some(newlines) => data
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .nth(newlines)
            .map_or(0, |(at, _)| at + 1),
        None => 0,
    };
    let next = line_start + error.column();
    match data.as_bytes().get(next) {
        Some(b'{' | b'[') if is_bracket_refused(message) => next,
        _ => next.saturating_sub(1),
    }
}

fn is_bracket_refused(message: &str) -> bool {
    message.starts_with("invalid type: map") || message.starts_with("invalid type: sequence")
}

/// The most of serde's own words that an error repeats: a name in them is the sender's.
const WORDS_MAX: usize = 300;

/// What serde says, with the kind of the value in place of the value.
fn problem(error: &serde_json::Error, message: &str, found: Option<Kind>) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(message);
    let shows_a_value = ["invalid type: ", "invalid value: ", "unknown variant "];
    if shows_a_value.iter().any(|start| message.starts_with(start))
        && let Some((_, expected)) = message.rsplit_once(", expected ")
    {
        return match found {
            Some(found) => format!("is {found}, expected {expected}"),
            None => format!("is not what was expected: {expected}"),
        };
    }
    match message.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("does not fit: {}...", &message[..end]),
        None => format!("does not fit: {message}"),
    }
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashMap;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order<'a> {
        id: u64,
        #[serde(borrow, default)]
        note: Option<Cow<'a, str>>,
        #[serde(default)]
        lines: Vec<Line>,
        #[serde(default)]
        state: Option<State>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Line {
        price: f64,
        pair: Option<(u8, bool)>,
        more: Option<HashMap<String, Vec<i8>>>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum State {
        Open,
        Closed,
    }

    fn envelope(data: &str) -> Envelope {
        Envelope::decode(format!(r#"{{"job":"j","data":{data}}}"#))
            .unwrap()
            .envelope
    }

    fn refusal(data: &str) -> (String, String) {
        let envelope = envelope(data);
        let error = envelope.data::<Order<'_>>().unwrap_err();
        (error.pointer().to_owned(), error.to_string())
    }

    #[test]
    fn data_is_read_into_the_handler_s_type() {
        let envelope =
            envelope(r#"{"id":7,"note":"a\u0062","lines":[{"price":1e2}],"state":"closed"}"#);
        let order: Order<'_> = envelope.data().unwrap();
        assert_eq!(
            (order.id, order.note.as_deref(), order.state),
            (7, Some("ab"), Some(State::Closed))
        );
        assert_eq!(order.lines[0].price.to_bits(), 100_f64.to_bits());
    }

    #[test]
    fn absent_data_reads_as_null() {
        let bare = Envelope::decode(r#"{"job":"j"}"#).unwrap().envelope;
        assert_eq!(bare.data::<Option<State>>(), Ok(None));
        assert_eq!(
            bare.data::<Order<'_>>().unwrap_err().to_string(),
            "`/data` is null, expected struct Order"
        );
    }

    #[test]
    fn a_type_that_asks_for_nothing_takes_absent_data() {
        #[derive(Debug, Default, Deserialize, PartialEq)]
        #[serde(default)]
        struct Ping {
            note: Option<String>,
        }
        for body in [r#"{"job":"j"}"#, r#"{"job":"j","data":null}"#] {
            let bare = Envelope::decode(body).unwrap().envelope;
            assert_eq!(bare.data(), Ok(Ping::default()), "{body}");
        }
    }

    #[test]
    fn of_a_repeated_member_the_last_counts() {
        let data =
            r#"{"id":1,"lines":[{"price":1,"price":2}],"id":18446744073709551615,"note":"a"}"#;
        let envelope = envelope(data);
        let order: Order<'_> = envelope.data().unwrap();
        assert_eq!((order.id, order.note.as_deref()), (u64::MAX, Some("a")));
        assert_eq!(order.lines[0].price.to_bits(), 2_f64.to_bits());
    }

    #[test]
    fn an_error_stays_short() {
        let name = "é".repeat(100_000);
        let (pointer, message) = refusal(&format!(r#"{{"id":1,"{name}":1}}"#));
        assert_eq!(pointer, "/data", "the name is too long to spell out");
        assert!(
            message.len() < 1_000 && message.ends_with("é..."),
            "{message:.400}"
        );
        let (pointer, message) = refusal(&format!(r#"{{"id":"{name}"}}"#));
        assert_eq!(
            (&*pointer, &*message),
            ("/data/id", "`/data/id` is a string, expected u64")
        );
    }

    #[test]
    fn an_error_names_the_field_and_never_its_value() {
        for (data, pointer, message) in [
            (
                r#"{"id":"secret"}"#,
                "/data/id",
                "is a string, expected u64",
            ),
            (
                r#"{"id":"secret, expected nothing"}"#,
                "/data/id",
                "is a string, expected u64",
            ),
            (r#"{"id":-9}"#, "/data/id", "is a number, expected u64"),
            (r#"{"id":1.5}"#, "/data/id", "is a number, expected u64"),
            (r#"{"id":true}"#, "/data/id", "is a boolean, expected u64"),
            (r#"{"id":null}"#, "/data/id", "is null, expected u64"),
            (
                r#"{"id":{"a":1}}"#,
                "/data/id",
                "is an object, expected u64",
            ),
            (r#"{"id":[1]}"#, "/data/id", "is an array, expected u64"),
            (
                r#"{"id":1,"note":5}"#,
                "/data/note",
                "is a number, expected a string",
            ),
            (
                "{\"id\":1,\n\"lines\":[\n {\"price\":1},\n {\"price\":\"x\"}]}",
                "/data/lines/1/price",
                "is a string, expected f64",
            ),
            (
                r#"{"id":1,"lines":[{"price":1,"pair":[300,true]}]}"#,
                "/data/lines/0/pair/0",
                "is a number, expected u8",
            ),
            (
                r#"{"id":1,"lines":[{"price":1,"more":{"a/b":[1,2,"y"]}}]}"#,
                "/data/lines/0/more/a~1b/2",
                "is a string, expected i8",
            ),
            (
                r#"{"id":1,"state":"secret"}"#,
                "/data/state",
                "is a string, expected `open` or `closed`",
            ),
            (
                r#"{"id":1,"lines":{}}"#,
                "/data/lines",
                "is an object, expected a sequence",
            ),
            (
                r#"{"note":"x"}"#,
                "/data",
                "does not fit: missing field `id`",
            ),
            (
                r#"{"id":1,"lines":[{"price":1},{}]}"#,
                "/data/lines/1",
                "does not fit: missing field `price`",
            ),
            (
                r#"{"id":1,"nope":{"a":1}}"#,
                "/data/nope",
                "does not fit: unknown field `nope`, expected one of `id`, `note`, `lines`, `state`",
            ),
            (
                r#"{"id":1,"id":"x"}"#,
                "/data/id",
                "does not fit: duplicate field `id`",
            ),
        ] {
            assert_eq!(
                refusal(data),
                (pointer.to_owned(), format!("`{pointer}` {message}")),
                "{data}"
            );
        }
    }
}
