//! What lies in Redis beside the envelope: whole-second scores, and the frame that carries headers
//! (contract §10.5, §11). Pure.
//!
//! Redis has no native properties, so nothing is projected: the stored element is the envelope, byte
//! for byte, unless headers travel with it, or it looks like the frame that carries them.

use std::ops::Range;
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

/// What is stored for `body` with `headers`: the frame where there are headers, or where a reader would
/// take the body for a frame; else the body itself. `None` for a body that is not UTF-8, which no frame
/// can carry.
pub(crate) fn frame(body: &Bytes, headers: &Headers) -> Option<Bytes> {
    if headers.is_empty() && Frame::read(body).is_none() {
        return Some(body.clone());
    }
    let body = std::str::from_utf8(body).ok()?;
    let mut out = String::with_capacity(body.len() + body.len() / 4 + 128);
    out.push_str(r#"{"__bq_frame":1,"headers":"#);
    push_headers(&mut out, headers);
    out.push_str(r#","body":"#);
    push_json(&mut out, body);
    out.push('}');
    Some(out.into())
}

/// What is stored for `body` with `headers` in place of `stored`. Of a frame all stays but the body, and
/// the headers where they differ: what else somebody wrote into it is kept, too. `None` as for [`frame`].
pub(crate) fn reframe(stored: &Bytes, body: &Bytes, headers: &Headers) -> Option<Bytes> {
    let (Some(old), Ok(whole)) = (Frame::read(stored), std::str::from_utf8(stored)) else {
        return frame(body, headers);
    };
    let body = std::str::from_utf8(body).ok()?;
    let mut text = String::with_capacity(body.len() + body.len() / 4);
    push_json(&mut text, body);
    let body_at = place(whole, old.body_json);
    let mut changes = vec![(body_at.clone(), text)];
    if *headers != old.headers {
        let mut text = String::new();
        let at = if let Some(json) = old.headers_json {
            place(whole, json)
        } else {
            text.push_str(r#","headers":"#);
            body_at.end..body_at.end
        };
        push_headers(&mut text, headers);
        changes.push((at, text));
    }
    changes.sort_unstable_by_key(|(at, _)| at.start);
    let mut out = String::with_capacity(whole.len() + changes[0].1.len());
    let mut kept = 0;
    for (at, text) in changes {
        out.push_str(&whole[kept..at.start]);
        out.push_str(&text);
        kept = at.end;
    }
    out.push_str(&whole[kept..]);
    Some(out.into())
}

/// The body and the headers of a stored value. What is not a frame is the body, all of it.
pub(crate) fn unframe(stored: &Bytes) -> (Bytes, Headers) {
    match Frame::read(stored) {
        Some(frame) => (frame.body.into(), frame.headers),
        None => (stored.clone(), Headers::new()),
    }
}

/// Where a part lies that was borrowed from the whole.
fn place(whole: &str, part: &RawValue) -> Range<usize> {
    let part = part.get();
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// A frame, opened (contract §10.5).
struct Frame<'a> {
    body: String,
    body_json: &'a RawValue,
    headers: Headers,
    headers_json: Option<&'a RawValue>,
}

impl<'a> Frame<'a> {
    /// Opens a stored value, if it is a frame.
    fn read(stored: &'a [u8]) -> Option<Self> {
        if !may_be_a_frame(stored) {
            return None;
        }
        let Members {
            mark,
            headers,
            body,
        } = serde_json::from_slice(stored).ok()?;
        if !is_truthy(mark?.get()) {
            return None;
        }
        let entries = headers.and_then(|json| serde_json::from_str::<TextMap>(json.get()).ok());
        Some(Self {
            body: text(body?)?,
            body_json: body?,
            headers: entries.unwrap_or_default().0,
            headers_json: headers,
        })
    }
}

/// A cheap look that never misses a frame: its key stands there in letters, or with an escape in it.
fn may_be_a_frame(stored: &[u8]) -> bool {
    static KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("__bq_frame"));
    static ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u00"));
    KEY.find(stored).is_some() || ESCAPE.find(stored).is_some()
}

/// The members of a frame as they lie in JSON. Of a repeated one the last counts.
struct Members<'a> {
    mark: Option<&'a RawValue>,
    headers: Option<&'a RawValue>,
    body: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> serde::de::Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members<'de>, A::Error> {
                let mut members = Members {
                    mark: None,
                    headers: None,
                    body: None,
                };
                while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    match text(name).as_deref() {
                        Some("__bq_frame") => members.mark = Some(value),
                        Some("headers") => members.headers = Some(value),
                        Some("body") => members.body = Some(value),
                        _ => {}
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Each)
    }
}

/// The text of a JSON string; none for another value, and for one with half of a surrogate pair, which
/// no text has.
fn text(json: &RawValue) -> Option<String> {
    serde_json::from_str(json.get()).ok()
}

/// The entries of an object whose name and value are text; each other one is left out.
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
                while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    if let (Some(name), Some(value)) = (text(name), text(value)) {
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

fn push_headers(out: &mut String, headers: &Headers) {
    out.push('{');
    for (at, (name, value)) in headers.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_json(out, name);
        out.push(':');
        push_json(out, value);
    }
    out.push('}');
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
    fn a_header_that_is_no_text_costs_no_other() {
        let text =
            r#"{"__bq_frame":1,"headers":{"a":"b","\ud800":"x","c":"\udc00","d":"e"},"body":"x"}"#;
        let expected = (stored("x"), headers(&[("a", "b"), ("d", "e")]));
        assert_eq!(unframe(&stored(text)), expected);
    }

    #[test]
    fn a_frame_may_have_more_members_of_any_name() {
        let text = r#"{"\ud800":1,"__bq_frame":1,"n":1e400,"body":"x"}"#;
        assert_eq!(unframe(&stored(text)), (stored("x"), Headers::new()));
    }

    #[test]
    fn a_body_that_looks_like_a_frame_comes_out_as_it_went_in() {
        for text in [
            r#"{"job":"urn:a","__bq_frame":1,"body":"lost","data":{"n":1}}"#,
            r#" {"\u005f_bq_frame":true,"headers":{"a":"b"},"body":""}"#,
        ] {
            let body = stored(text);
            let framed = frame(&body, &Headers::new()).expect("text");
            assert_ne!(framed, body);
            assert_eq!(unframe(&framed), (body, Headers::new()));
        }
        // What no reader opens stays as it is.
        let body = stored(r#"{"job":"urn:a","data":{"__bq_frame":1,"body":"x"}}"#);
        assert_eq!(frame(&body, &Headers::new()), Some(body));
    }

    #[test]
    fn of_a_frame_only_the_body_is_replaced() {
        let old = r#" {"job": "urn:a", "headers": {"a": "b", "n": 1, "\ud800": "x"},
            "body": "lost", "__bq_frame": 1, "data": {"n": 1e400}} "#;
        let (_, headers) = unframe(&stored(old));
        let new = reframe(&stored(old), &stored("{\"attempts\":1}"), &headers);
        let expected = old.replace(r#""lost""#, r#""{\"attempts\":1}""#);
        assert_eq!(new, Some(stored(&expected)));
        // Our own frame is what it would be if it were made anew.
        let framed = frame(&stored("old"), &headers).expect("text");
        let (new, anew) = (stored("new"), frame(&stored("new"), &headers));
        assert_eq!(reframe(&framed, &new, &headers), anew);
    }

    #[test]
    fn of_a_frame_the_headers_are_replaced_where_they_differ() {
        let headers = headers(&[("a", "b"), ("c", "d")]);
        for (old, expected) in [
            (
                r#"{"__bq_frame":1,"headers":{"a":"b"},"body":"x","more":1}"#,
                r#"{"__bq_frame":1,"headers":{"a":"b","c":"d"},"body":"y","more":1}"#,
            ),
            (
                r#"{"body":"x","__bq_frame":1,"headers":null}"#,
                r#"{"body":"y","__bq_frame":1,"headers":{"a":"b","c":"d"}}"#,
            ),
            (
                r#"{"__bq_frame":1,"body":"x","more":1}"#,
                r#"{"__bq_frame":1,"body":"y","headers":{"a":"b","c":"d"},"more":1}"#,
            ),
        ] {
            let new = reframe(&stored(old), &stored("y"), &headers).expect("text");
            assert_eq!(new, stored(expected));
            assert_eq!(unframe(&new), (stored("y"), headers.clone()));
        }
    }

    #[test]
    fn what_is_no_frame_is_framed_as_it_needs() {
        let bare = stored(r#"{"job":"urn:a"}"#);
        let none = Headers::new();
        assert_eq!(reframe(&bare, &stored("y"), &none), Some(stored("y")));
        let headers = headers(&[("a", "b")]);
        let (new, framed) = (stored("y"), frame(&stored("y"), &headers));
        assert_eq!(reframe(&bare, &new, &headers), framed);
        let bytes = Bytes::from_static(b"\xff");
        assert_eq!(reframe(&framed.expect("text"), &bytes, &headers), None);
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
