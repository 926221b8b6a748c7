use std::borrow::Cow;

use super::scanner::NAME_MAX;
use super::{Expected, Fault, FaultKind};

/// How many bytes from `at` on are plain text of a string: neither quote, backslash nor control
/// character. Eight at a time; the body is known to be UTF-8, so bytes from 0x80 on are plain.
#[inline]
pub(crate) fn plain_run(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let mut run = 0;
    while let Some(chunk) = rest.get(run..).and_then(<[u8]>::first_chunk::<8>) {
        let ends = string_ends(u64::from_le_bytes(*chunk));
        if ends != 0 {
            return run + (ends.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    while let Some(byte) = rest.get(run) {
        if matches!(byte, b'"' | b'\\' | ..0x20) {
            break;
        }
        run += 1;
    }
    run
}

/// The high bit of each byte that ends a plain run. A borrow can mark a byte too many, but only
/// above a true one, and the lowest mark is what counts.
#[inline]
const fn string_ends(chunk: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    // With bit 1 flipped, the quote (0x22) and the control characters are what is below 0x21.
    let low = chunk ^ (ONES * 0x02);
    let low = low.wrapping_sub(ONES * 0x21) & !low;
    let slashes = chunk ^ (ONES * b'\\' as u64);
    let slashes = slashes.wrapping_sub(ONES) & !slashes;
    (low | slashes) & HIGH
}

/// Checks the escape at `at` (its backslash) and gives the offset after it. A surrogate has to come
/// as a pair (contract §18.7).
pub(crate) fn escape(text: &[u8], at: usize) -> Result<usize, Fault> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            let unit =
                code_unit(text, at).ok_or_else(|| Fault::syntax(Expected::Hexadecimal, at + 2))?;
            match unit {
                0xD800..=0xDBFF if code_unit(text, at + 6).is_some_and(is_low_surrogate) => {
                    Ok(at + 12)
                }
                0xD800..=0xDFFF => Err(Fault::new(FaultKind::LoneSurrogate, at)),
                _ => Ok(at + 6),
            }
        }
        _ => Err(Fault::syntax(Expected::Escape, at + 1)),
    }
}

/// The text that a string's content means; of one that is not valid, something near it.
pub(crate) fn unescape(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        // By far the most frequent, and cheaper than the lossy conversion.
        return match std::str::from_utf8(raw) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(raw),
        };
    }
    let mut text = String::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let run = plain_run(raw, at);
        text.push_str(&String::from_utf8_lossy(&raw[at..at + run]));
        at += run;
        let Some(byte) = raw.get(at) else {
            break;
        };
        let (char, next) = match byte {
            b'\\' => unescape_one(raw, at),
            // In a valid string nothing else ends a plain run.
            byte => (char::from(*byte), at + 1),
        };
        text.push(char);
        at = next;
    }
    Cow::Owned(text)
}

/// [`unescape`] into a buffer. A name longer than it gives one of the buffer's length, which no
/// known name has.
pub(crate) fn unescape_name<'n>(raw: &[u8], buffer: &'n mut [u8; NAME_MAX]) -> &'n [u8] {
    let mut held = 0;
    let mut at = 0;
    while at < raw.len() {
        let mut utf8 = [0; 4];
        let (piece, next): (&[u8], usize) = if raw[at] == b'\\' {
            let (char, next) = unescape_one(raw, at);
            (char.encode_utf8(&mut utf8).as_bytes(), next)
        } else {
            (&raw[at..=at], at + 1)
        };
        let Some(room) = buffer.get_mut(held..held + piece.len()) else {
            return buffer;
        };
        room.copy_from_slice(piece);
        held += piece.len();
        at = next;
    }
    &buffer[..held]
}

/// Whether a valid string's content means nothing but the contract's blanks (§2.6b): judged on the
/// unescaped text, where `\t` and `\u0020` are blanks too.
pub(crate) fn is_blank(raw: &[u8]) -> bool {
    let mut at = 0;
    while at < raw.len() {
        let (char, next) = match raw[at] {
            b'\\' => unescape_one(raw, at),
            byte => (char::from(byte), at + 1),
        };
        if !matches!(char, ' ' | '\t' | '\n' | '\x0B' | '\x0C' | '\r') {
            return false;
        }
        at = next;
    }
    true
}

/// Appends `text` as a JSON string, escaping only what has to be (contract §1.3).
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let run = plain_run(bytes, at);
        out.extend_from_slice(&bytes[at..at + run]);
        at += run;
        let Some(byte) = bytes.get(at) else {
            break;
        };
        match short_escape(*byte) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                b'0' + (byte >> 4),
                b"0123456789abcdef"[usize::from(byte & 0xF)],
            ]),
        }
        at += 1;
    }
    out.push(b'"');
}

/// How many bytes [`write_string`] appends.
pub(crate) fn written_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut len = 2;
    let mut at = 0;
    loop {
        let run = plain_run(bytes, at);
        len += run;
        at += run;
        let Some(byte) = bytes.get(at) else {
            return len;
        };
        len += if short_escape(*byte).is_some() { 2 } else { 6 };
        at += 1;
    }
}

const fn short_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' => Some(byte),
        0x08 => Some(b'b'),
        0x0C => Some(b'f'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        _ => None,
    }
}

/// The character of the valid escape at `at`, and the offset after it.
fn unescape_one(raw: &[u8], at: usize) -> (char, usize) {
    let simple = match raw.get(at + 1) {
        Some(b'b') => '\x08',
        Some(b'f') => '\x0C',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unescape_unit(raw, at),
        Some(byte) => char::from(*byte),
        None => char::REPLACEMENT_CHARACTER,
    };
    (simple, at + 2)
}

fn unescape_unit(raw: &[u8], at: usize) -> (char, usize) {
    let (code, next) = match (code_unit(raw, at), code_unit(raw, at + 6)) {
        (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) => {
            let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            (Some(code), at + 12)
        }
        (unit, _) => (unit, at + 6),
    };
    let char = code.and_then(char::from_u32);
    (char.unwrap_or(char::REPLACEMENT_CHARACTER), next)
}

/// The UTF-16 unit of the `\uXXXX` at `at`.
fn code_unit(text: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', hex @ ..] = text.get(at..at + 6)? else {
        return None;
    };
    hex.iter().try_fold(0, |unit, digit| {
        Some(unit << 4 | char::from(*digit).to_digit(16)?)
    })
}

const fn is_low_surrogate(unit: u32) -> bool {
    matches!(unit, 0xDC00..=0xDFFF)
}
