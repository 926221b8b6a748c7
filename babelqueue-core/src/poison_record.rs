//! What is kept of a body that is no envelope (contract §6A).

use bytes::Bytes;

use crate::dead_letter::DeadLetter;
use crate::envelope::members::Members;
use crate::json;

/// The dead-letter record of a poison body.
///
/// A body that is one strict JSON object without a `dead_letter` of its own gets the block spliced
/// in, every other byte as it was. Anything else is wrapped:
/// `{"raw": <the body>, "dead_letter": …}`, as text, or where it is not UTF-8 in base64 with
/// `"raw_encoding": "base64"`. The body is never decoded and written anew, so numbers, repeated
/// members and any nesting survive.
pub fn write(body: &[u8], block: &DeadLetter) -> Bytes {
    let block = block.to_json();
    let record = match std::str::from_utf8(body) {
        Err(_) => wrap_bytes(body, &block),
        Ok(text) => match Members::lenient(body) {
            Ok(members) if members.dead_letter.is_absent() && !members.root.is_absent() => {
                splice(members.root.of(body), &block)
            }
            _ => wrap_text(text, &block),
        },
    };
    Bytes::from(record)
}

const BLOCK: &[u8] = b"\"dead_letter\":";
const RAW: &[u8] = b"{\"raw\":";
const BASE64: &[u8] = b",\"raw_encoding\":\"base64\"";

/// `object` without its final brace, then the block.
fn splice(object: &[u8], block: &[u8]) -> Vec<u8> {
    let members = object.strip_suffix(b"}").unwrap_or(object);
    let is_empty = members.iter().skip(1).all(u8::is_ascii_whitespace);
    let mut record = Vec::with_capacity(object.len() + BLOCK.len() + block.len() + 1);
    record.extend_from_slice(members);
    if !is_empty {
        record.push(b',');
    }
    close(record, block)
}

fn wrap_text(body: &str, block: &[u8]) -> Vec<u8> {
    let raw_len = json::written_len(body);
    let mut record = Vec::with_capacity(RAW.len() + raw_len + 2 + BLOCK.len() + block.len());
    record.extend_from_slice(RAW);
    json::write_string(&mut record, body);
    record.push(b',');
    close(record, block)
}

fn wrap_bytes(body: &[u8], block: &[u8]) -> Vec<u8> {
    let raw_len = body.len().div_ceil(3) * 4 + 2;
    let rest = BASE64.len() + 2 + BLOCK.len() + block.len();
    let mut record = Vec::with_capacity(RAW.len() + raw_len + rest);
    record.extend_from_slice(RAW);
    record.push(b'"');
    write_base64(&mut record, body);
    record.push(b'"');
    record.extend_from_slice(BASE64);
    record.push(b',');
    close(record, block)
}

fn close(mut record: Vec<u8>, block: &[u8]) -> Vec<u8> {
    record.extend_from_slice(BLOCK);
    record.extend_from_slice(block);
    record.push(b'}');
    record
}

/// Standard base64 with padding (RFC 4648 §4).
fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        let mut letters = [18, 12, 6, 0].map(|shift| ALPHABET[(word >> shift & 63) as usize]);
        letters[group.len() + 1..].fill(b'=');
        out.extend_from_slice(&letters);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::dead_letter::Reason;

    fn block() -> DeadLetter {
        DeadLetter::new(Reason::Poison, "orders", 0, 1)
    }

    fn record(body: impl AsRef<[u8]>) -> String {
        String::from_utf8(write(body.as_ref(), &block()).to_vec()).unwrap()
    }

    fn with_block(before: &str) -> String {
        let block = String::from_utf8(block().to_json()).unwrap();
        format!("{before}\"dead_letter\":{block}}}")
    }

    #[test]
    fn an_object_gets_the_block_and_keeps_every_byte() {
        for (body, before) in [
            ("{}", "{"),
            (" { \n} ", "{ \n"),
            (r#"{"job":5}"#, r#"{"job":5,"#),
            ("\t{ \"a\" : 1 }\r\n", "{ \"a\" : 1 ,"),
            (
                r#"{"n":1e400,"n":-0,"s":"\u00e9é"}"#,
                r#"{"n":1e400,"n":-0,"s":"\u00e9é","#,
            ),
            (
                r#"{"data":{"dead_letter":1}}"#,
                r#"{"data":{"dead_letter":1},"#,
            ),
            (r#"{"dead_letter ":1}"#, r#"{"dead_letter ":1,"#),
        ] {
            assert_eq!(record(body), with_block(before));
        }
    }

    #[test]
    fn any_nesting_is_spliced() {
        let body = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            record(&body),
            with_block(&format!("{},", &body[..body.len() - 1]))
        );
    }

    #[test]
    fn other_text_is_wrapped_as_a_string() {
        for body in [
            "",
            " ",
            "not json",
            "[{}]",
            "null",
            "5",
            "{\"a\":1",
            "{} {}",
            "\u{feff}{}",
            r#"{"dead_letter":null}"#,
            r#"{"dead_\u006cetter":{}}"#,
            r#"{"a":NaN}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"\udc00":1}"#,
            "\0\u{1f}\u{7f}\"\\/é☕",
            "{'a':1}",
            "{\"a\":01}",
        ] {
            let record = record(body);
            assert!(record.ends_with(&with_block(",")), "{record}");
            let value: Value = serde_json::from_str(&record).unwrap();
            assert_eq!(value["raw"], body);
            assert_eq!(value.as_object().unwrap().len(), 2, "{record}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_wrapped_in_base64() {
        for (body, raw) in [
            (&b"\xff"[..], "/w=="),
            (b"\xe2\x82", "4oI="),
            (b"\xff\xfe\xfd", "//79"),
            (b"{\"a\":\"\xff\"}", "eyJhIjoi/yJ9"),
            (b"\x80\x00\x10\x83\x10\x51\x87\x20\x92", "gAAQgxBRhyCS"),
        ] {
            assert_eq!(
                record(body),
                with_block(&format!(r#"{{"raw":"{raw}","raw_encoding":"base64","#))
            );
        }
    }

    #[test]
    fn a_record_is_allocated_to_measure() {
        for body in [&b"{\"a\":1}"[..], b"\n", b"\xff", b"\xff\xff", b"{}"] {
            let record = match std::str::from_utf8(body) {
                Ok(text) if text == "\n" => wrap_text(text, b"{}"),
                Ok(_) => splice(body, b"{}"),
                Err(_) => wrap_bytes(body, b"{}"),
            };
            assert!(record.capacity() - record.len() <= 1, "{record:?}");
        }
    }
}
