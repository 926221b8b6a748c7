//! What lies in Redis beside the envelope: whole-second scores, and the frame that carries headers
//! (contract §10.5, §11). Pure.
//!
//! Redis has no native properties, so nothing is projected: the stored element is the envelope, byte
//! for byte, unless headers travel with it.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use babelqueue_core::Headers;
use bytes::Bytes;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The score of a message that may be given out no sooner than `delay` from `now`, both since the
/// epoch: `floor(now) + ceil(delay)` (contract §11B.2).
pub fn available_at(now: Duration, delay: Duration) -> u64 {
    now.as_secs().saturating_add(whole_seconds(delay))
}

/// `delay` in whole seconds, rounded up.
pub(crate) fn whole_seconds(delay: Duration) -> u64 {
    delay
        .as_secs()
        .saturating_add(u64::from(delay.subsec_nanos() > 0))
}

/// What is stored for `body` with `headers`: the body itself where there are none, else the frame.
/// `None` for a body that is not UTF-8, which no frame can carry.
pub(crate) fn frame(body: &Bytes, headers: &Headers) -> Option<Bytes> {
    if headers.is_empty() {
        return Some(body.clone());
    }
    let body = std::str::from_utf8(body).ok()?;
    let mut out = String::with_capacity(body.len() + body.len() / 4 + 128);
    out.push_str(r#"{"__bq_frame":1,"headers":{"#);
    for (at, (name, value)) in headers.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_json(&mut out, name);
        out.push(':');
        push_json(&mut out, value);
    }
    out.push_str(r#"},"body":"#);
    push_json(&mut out, body);
    out.push('}');
    Some(out.into())
}

/// The body and the headers of a stored value. What is not a frame is the body, all of it.
pub(crate) fn unframe(stored: &Bytes) -> (Bytes, Headers) {
    let framed = may_be_a_frame(stored)
        .then(|| serde_json::from_slice::<Frame<'_>>(stored).ok())
        .flatten()
        .and_then(Frame::open);
    framed.unwrap_or_else(|| (stored.clone(), Headers::new()))
}

/// A cheap look that never misses a frame: its key stands there in letters, or with an escape in it.
fn may_be_a_frame(stored: &[u8]) -> bool {
    static KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("__bq_frame"));
    static ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u00"));
    KEY.find(stored).is_some() || ESCAPE.find(stored).is_some()
}

/// A frame as it lies in JSON. Of a repeated member the last one counts.
struct Frame<'a> {
    mark: Option<&'a RawValue>,
    headers: Option<&'a RawValue>,
    body: Option<&'a RawValue>,
}

impl Frame<'_> {
    fn open(self) -> Option<(Bytes, Headers)> {
        if !is_truthy(self.mark?.get()) {
            return None;
        }
        let body: String = serde_json::from_str(self.body?.get()).ok()?;
        let headers = self
            .headers
            .and_then(|headers| serde_json::from_str::<TextMap>(headers.get()).ok())
            .unwrap_or_default();
        Some((body.into(), headers.0))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Frame<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> serde::de::Visitor<'de> for Members {
            type Value = Frame<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Frame<'de>, A::Error> {
                let mut frame = Frame {
                    mark: None,
                    headers: None,
                    body: None,
                };
                while let Some(key) = map.next_key::<Name<'_>>()? {
                    let value: &RawValue = map.next_value()?;
                    match &*key.0 {
                        "__bq_frame" => frame.mark = Some(value),
                        "headers" => frame.headers = Some(value),
                        "body" => frame.body = Some(value),
                        _ => {}
                    }
                }
                Ok(frame)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The entries of an object whose values are text; others are left out.
#[derive(Default)]
struct TextMap(Headers);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> serde::de::Visitor<'de> for Entries {
            type Value = TextMap;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<TextMap, A::Error> {
                let mut headers = Headers::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value: &RawValue = map.next_value()?;
                    if let Ok(value) = serde_json::from_str::<String>(value.get()) {
                        headers.insert(name, value);
                    }
                }
                Ok(TextMap(headers))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// Truth as the peers take it: not null, false, zero, or empty.
fn is_truthy(json: &str) -> bool {
    match json.as_bytes() {
        b"null" | b"false" | b"\"\"" => false,
        [b'[' | b'{', inner @ .., _] => !inner.iter().all(u8::is_ascii_whitespace),
        [b'-' | b'0'..=b'9', ..] => json.parse::<f64>().is_ok_and(|number| number != 0.0),
        _ => true,
    }
}

fn push_json(out: &mut String, text: &str) {
    // Text always serialises; the fallback is unreachable, and is no panic.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(entries: &[(&str, &str)]) -> Headers {
        entries.iter().copied().collect()
    }

    fn stored(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn without_headers_the_body_is_stored_as_it_is_even_where_it_is_not_text() {
        let body = Bytes::from_static(b"\xff\x00");
        assert_eq!(frame(&body, &Headers::new()), Some(body));
    }

    #[test]
    fn a_frame_has_the_peers_bytes_and_opens_again() {
        let body = stored("{\"job\":\"urn:a\",\"data\":{\"t\":\"\u{e9}\\n/<\"}}");
        let headers = headers(&[("traceparent", "00-x"), ("note", "\"q\" \u{2603}")]);
        let framed = frame(&body, &headers).expect("text");
        assert_eq!(
            framed,
            stored(concat!(
                r#"{"__bq_frame":1,"headers":{"traceparent":"00-x","note":"\"q\" ☃"},"#,
                r#""body":"{\"job\":\"urn:a\",\"data\":{\"t\":\"é\\n/<\"}}"}"#
            ))
        );
        assert_eq!(unframe(&framed), (body, headers));
    }

    #[test]
    fn a_body_that_is_not_text_cannot_be_framed() {
        assert_eq!(
            frame(&Bytes::from_static(b"\xff"), &headers(&[("a", "b")])),
            None
        );
    }

    #[test]
    fn what_only_looks_like_a_frame_is_the_body() {
        for text in [
            "",
            "__bq_frame",
            r#"{"__bq_frame":0,"headers":{},"body":"x"}"#,
            r#"{"__bq_frame":null,"body":"x"}"#,
            r#"{"__bq_frame":"","body":"x"}"#,
            r#"{"__bq_frame":[ ],"body":"x"}"#,
            r#"{"__bq_frame":1,"body":{}}"#,
            r#"{"__bq_frame":1,"headers":{}}"#,
            r#"{"__bq_frame":1,"body":"x"} trailing"#,
            r#"[{"__bq_frame":1,"body":"x"}]"#,
            r#"{"job":"urn:a","data":{"__bq_frame":1,"body":"x"}}"#,
            r#"{"__bq_frame":1,"body":"\ud800"}"#,
        ] {
            assert_eq!(
                unframe(&stored(text)),
                (stored(text), Headers::new()),
                "{text}"
            );
        }
    }

    #[test]
    fn every_true_mark_opens_and_headers_that_are_not_text_are_left_out() {
        for mark in ["1", "true", "-0.5", "\"yes\"", "[0]", "{\"a\":1}"] {
            let text = format!(
                r#" {{"\u005f_bq_frame":{mark},"body":"old","body":"x","headers":{{"a":"b","n":1,"e":""}}}} "#
            );
            assert_eq!(
                unframe(&stored(&text)),
                (stored("x"), headers(&[("a", "b")])),
                "{mark}"
            );
        }
    }

    #[test]
    fn a_frame_with_no_headers_object_has_no_headers() {
        for headers in ["", r#""headers":null,"#, r#""headers":[1],"#] {
            let text = format!(r#"{{"__bq_frame":1,{headers}"body":"x"}}"#);
            assert_eq!(unframe(&stored(&text)), (stored("x"), Headers::new()));
        }
    }

    #[test]
    fn a_delay_rounds_up_and_now_rounds_down() {
        let at =
            |now, delay| available_at(Duration::from_secs_f64(now), Duration::from_secs_f64(delay));
        assert_eq!(at(1000.7, 1.5), 1002);
        assert_eq!(at(1000.999, 0.0), 1000);
        assert_eq!(available_at(Duration::MAX, Duration::MAX), u64::MAX);
    }
}
