//! The scanner and its kin against `serde_json` and the standard library, from seeds.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;
use crate::random::Random;

/// Whether `text` is one JSON value, by our scanner.
fn is_json(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let mut scanner = Scanner::new(text);
    scanner.blanks();
    scanner.value::<false>().is_ok() && scanner.end().is_ok()
}

fn pick<'a, T: ?Sized>(random: &Random, from: &[&'a T]) -> &'a T {
    from[below(random, from.len())]
}

fn below(random: &Random, end: usize) -> usize {
    usize::try_from(random.next_u64() % end as u64).unwrap_or_default()
}

/// JSON text with a bit of everything, its numbers all finite, at most `depth` deep.
fn any_value(random: &Random, depth: usize, out: &mut String) {
    let kinds = if depth == 0 { 4 } else { 6 };
    blanks(random, out);
    match below(random, kinds) {
        0 => out.push_str(pick(random, &["null", "true", "false"])),
        1 => out.push_str(pick(
            random,
            &[
                "0",
                "-0",
                "17",
                "-3.25",
                "1e3",
                "2E-7",
                "0.5e+10",
                "9223372036854775808",
            ],
        )),
        2 | 3 => any_string(random, out),
        4 => {
            out.push('[');
            for at in 0..below(random, 4) {
                if at > 0 {
                    out.push(',');
                }
                any_value(random, depth - 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for at in 0..below(random, 4) {
                if at > 0 {
                    out.push(',');
                }
                any_string(random, out);
                out.push(':');
                any_value(random, depth - 1, out);
            }
            out.push('}');
        }
    }
    blanks(random, out);
}

fn any_string(random: &Random, out: &mut String) {
    out.push('"');
    for _ in 0..below(random, 5) {
        out.push_str(pick(
            random,
            &[
                "a",
                "job",
                "plain text of some length",
                "é",
                "☕",
                "😀",
                r"\n",
                r#"\""#,
                r"\\",
                r"\/",
                r"\u0041",
                r"\u00e9",
                r"\ud83d\ude00",
                "\u{7f}",
                "~",
                "/",
            ],
        ));
    }
    out.push('"');
}

fn blanks(random: &Random, out: &mut String) {
    if below(random, 4) == 0 {
        out.push_str(pick(random, &[" ", "\n", "\t", "\r\n", "  "]));
    }
}

/// One to three bytes changed, added or taken away, or the end cut off.
fn damage(random: &Random, text: &mut Vec<u8>) {
    const BYTES: &[u8] = b"{}[]:,\"\\ \n\t0159-+.eEtrufalsn/bd\x00\x0b\x1f\x7f\x80\xc3\xa9\xff";
    for _ in 0..=below(random, 3) {
        let at = below(random, text.len() + 1);
        let byte = BYTES[below(random, BYTES.len())];
        match below(random, 8) {
            0 => text.truncate(at),
            1 | 2 if at < text.len() => drop(text.remove(at)),
            3 | 4 => text.insert(at, byte),
            _ if at < text.len() => text[at] = byte,
            _ => text.push(byte),
        }
    }
}

#[test]
fn json_is_what_serde_json_calls_so() {
    let random = Random::seeded(1);
    let mut valid = 0;
    for round in 0..30_000 {
        let mut text = String::new();
        any_value(&random, 5, &mut text);
        let mut text = text.into_bytes();
        if round % 3 > 0 {
            damage(&random, &mut text);
        }
        // `Value` refuses numbers beyond a double, which damage can make; `IgnoredAny` takes them,
        // and lone surrogates too.
        let value = serde_json::from_slice::<Value>(&text);
        let out_of_range =
            matches!(&value, Err(error) if error.to_string().starts_with("number out of range"));
        let expected =
            value.is_ok() || (out_of_range && serde_json::from_slice::<IgnoredAny>(&text).is_ok());
        assert_eq!(
            is_json(&text),
            expected,
            "{:?}",
            String::from_utf8_lossy(&text)
        );
        valid += usize::from(expected);
    }
    assert!((8_000..25_000).contains(&valid), "{valid} were valid");
}

#[test]
fn nesting_of_any_depth_and_order_is_followed() {
    let random = Random::seeded(2);
    for depth in (1..400).chain([5_000, 100_000]) {
        let objects: Vec<bool> = (0..depth).map(|_| below(&random, 2) == 0).collect();
        let mut text = String::new();
        for object in &objects {
            text.push_str(if *object { "{\"a\":" } else { "[" });
        }
        text.push('1');
        for object in objects.iter().rev() {
            text.push(if *object { '}' } else { ']' });
        }
        assert!(is_json(text.as_bytes()), "depth {depth}");

        // One bracket of the wrong kind, wherever it is, is one too many.
        let wrong = text.len() - 1 - below(&random, depth);
        let mut text = text.into_bytes();
        text[wrong] = if text[wrong] == b'}' { b']' } else { b'}' };
        assert!(!is_json(&text), "depth {depth}, bracket at {wrong}");
    }
}

#[test]
fn a_plain_run_ends_where_it_would_byte_by_byte() {
    let random = Random::seeded(3);
    for _ in 0..20_000 {
        let text: Vec<u8> = (0..below(&random, 40))
            .map(|_| match below(&random, 12) {
                0 => b'"',
                1 => b'\\',
                2 => u8::try_from(below(&random, 0x20)).unwrap_or(0),
                3 => b'!' + u8::try_from(below(&random, 3)).unwrap_or(0),
                4 => 0x80 | random.next_u64().to_le_bytes()[0],
                _ => random.next_u64().to_le_bytes()[0],
            })
            .collect();
        let naive = text
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))
            .unwrap_or(text.len());
        assert_eq!(text::plain_run(&text, 0), naive, "{text:?}");
    }
}

#[test]
fn escapes_mean_what_serde_json_reads() {
    let random = Random::seeded(4);
    for _ in 0..5_000 {
        let mut text = String::new();
        any_string(&random, &mut text);
        let expected: String = serde_json::from_str(&text).unwrap();
        let raw = &text.as_bytes()[1..text.len() - 1];
        assert_eq!(unescape(raw), expected);
        let short = text::unescape_name(raw, &mut [0; NAME_MAX]).to_vec();
        if expected.len() <= NAME_MAX {
            assert_eq!(short, expected.as_bytes());
        } else {
            assert_eq!(short.len(), NAME_MAX, "longer than any known name");
        }
    }
}

#[test]
fn strings_are_written_as_serde_json_writes_them() {
    let every: String = (0..0x2100).filter_map(char::from_u32).collect();
    for text in ["", "plain", "\"\\/\u{7f}é☕😀", &every] {
        let mut out = Vec::new();
        write_string(&mut out, text);
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            serde_json::to_string(text).unwrap()
        );
        assert_eq!(written_len(text), out.len());
    }
}

#[test]
fn blank_is_judged_on_the_unescaped_text() {
    for blank in [
        "",
        " ",
        r"\t",
        r"\n\r\f",
        r"\u0020\u000b\u0009",
        r"   \u000C",
    ] {
        assert!(is_blank(blank.as_bytes()), "{blank:?}");
    }
    for content in [
        "a", "\u{a0}", r"\u00a0", r"\u2003", r"\b", r"\\", r" \u0000", r"\/", "\u{3000}",
    ] {
        assert!(!is_blank(content.as_bytes()), "{content:?}");
    }
}

#[test]
fn a_lone_surrogate_is_a_fault_where_it_stands() {
    for (text, at) in [
        (r#""\ud800""#, 1),
        (r#""ab\uDC00""#, 3),
        (r#""\ud800\u0041""#, 1),
        (r#""\ud800x""#, 1),
        (r#""\ud83d\ude00\ud83d""#, 13),
        (r#"{"\udfff":1}"#, 2),
    ] {
        let fault = Scanner::new(text).value::<false>().unwrap_err();
        assert_eq!(
            (fault.kind, fault.at()),
            (FaultKind::LoneSurrogate, at),
            "{text}"
        );
    }
}

/// Whether a number is taken where it has to be a finite double.
fn is_finite(number: &str) -> bool {
    let mut scanner = Scanner::new(number);
    scanner.value::<true>().is_ok() && scanner.end().is_ok()
}

#[test]
fn finite_is_what_the_standard_library_calls_so() {
    let edge = "17976931348623157";
    let random = Random::seeded(5);
    for _ in 0..20_000 {
        // Around the largest double, in every position of the point.
        let mut digits = edge[..=below(&random, edge.len())].to_owned();
        for _ in 0..below(&random, 8) {
            digits.push(char::from(
                b'0' + u8::try_from(below(&random, 10)).unwrap_or(0),
            ));
        }
        let point = below(&random, digits.len() + 1);
        let zeros = "0".repeat(below(&random, 4));
        let number = match point {
            0 => format!(
                "0.{zeros}{digits}e{}",
                309 + zeros.len() + below(&random, 3) - 1
            ),
            _ if point == digits.len() => {
                format!("{digits}E+{}", 310 - point + below(&random, 3) - 1)
            }
            _ => {
                let (before, after) = digits.split_at(point);
                format!("-{before}.{after}e{}", 309 - point + below(&random, 3))
            }
        };
        let expected: f64 = number.parse().unwrap();
        assert_eq!(is_finite(&number), expected.is_finite(), "{number}");
    }
}

#[test]
fn finiteness_is_exact_at_the_edge_and_far_from_it() {
    let largest = format!("{:.0}", f64::MAX);
    let zeros = "0".repeat(400);
    let million = "0".repeat(1_000_000);
    let (threshold, below_it) = threshold();
    for finite in [
        "0",
        "-0",
        "0e999999999999999999999",
        "0.0E400",
        "1e308",
        "1e-400",
        "1e-99999999999999999999",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        &largest,
        &below_it,
        &format!("{below_it}.999"),
        &format!("0.{zeros}1e700"),
        &format!("1{zeros}e-400"),
        &format!("1{million}e-1000000"),
        &format!("0.{million}1e1000001"),
        &format!("0.{million}"),
    ] {
        assert!(is_finite(finite), "{finite:.60}");
    }
    for infinite in [
        "1e309",
        "-1e400",
        "1.7976931348623159e308",
        "2e308",
        &threshold,
        &format!("-{threshold}"),
        &format!("{threshold}.0"),
        &format!("{largest}0"),
        "1e99999999999999999999999",
        &format!("0.{zeros}1e800"),
        &format!("1{million}e-999600"),
        &format!("1{zeros}"),
    ] {
        assert!(!is_finite(infinite), "{infinite:.60}");
    }
}

/// The least number that rounds to infinity (half a step above the largest double), and the one
/// before it.
fn threshold() -> (String, String) {
    let mut digits = format!("{:.0}", f64::MAX).into_bytes();
    let half_a_step = format!("{:.0}", 2_f64.powi(970));
    let mut carry = 0;
    for (digit, other) in digits
        .iter_mut()
        .rev()
        .zip(half_a_step.bytes().rev().chain(std::iter::repeat(b'0')))
    {
        let sum = *digit - b'0' + other - b'0' + carry;
        *digit = b'0' + sum % 10;
        carry = sum / 10;
    }
    let threshold = String::from_utf8(digits.clone()).unwrap();
    assert_eq!(threshold.parse(), Ok(f64::INFINITY));
    let at = digits.iter().rposition(|digit| *digit != b'0').unwrap();
    digits[at] -= 1;
    digits[at + 1..].fill(b'9');
    let below_it = String::from_utf8(digits).unwrap();
    assert_eq!(below_it.parse(), Ok(f64::MAX));
    (threshold, below_it)
}

#[test]
fn integers_are_read_within_64_bits() {
    for (text, value) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("100000000000000000000", None),
        ("1.0", None),
        ("1e0", None),
        ("", None),
        ("-", None),
        ("null", None),
        ("\"1\"", None),
    ] {
        assert_eq!(int64(text.as_bytes()), value, "{text}");
    }
    for value in [0, 7, -7, 1_749_132_727_000, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        write_int64(&mut out, value);
        assert_eq!(out, value.to_string().into_bytes());
    }
}

#[test]
fn a_pointer_names_the_value_that_holds_the_byte() {
    let text = r#"{"a":{"b/c~":[10,{"d":"x,y]"},[]]},"é\u0041":true, "z" : [ ]}"#;
    for (needle, pointer) in [
        (r#"{"a""#, ""),
        (r#""a""#, "/a"),
        (r#"{"b"#, "/a"),
        ("10", "/a/b~1c~0/0"),
        (r#""d""#, "/a/b~1c~0/1/d"),
        ("y]", "/a/b~1c~0/1/d"),
        (r"},[]", "/a/b~1c~0/1"),
        ("[]]", "/a/b~1c~0/2"),
        ("]},", "/a/b~1c~0"),
        (r#"},"é"#, "/a"),
        ("true", "/éA"),
        ("[ ]", "/z"),
        ("]}", "/z"),
    ] {
        let at = text.rfind(needle).unwrap();
        assert_eq!(pointer_at(text.as_bytes(), at), pointer, "at {needle}");
    }
    assert_eq!(pointer_at(text.as_bytes(), text.len() - 1), "");
    assert_eq!(pointer_at(b"[1,[2", 100), "/1/0");
    assert_eq!(pointer_at(b"", 0), "");
    assert_eq!(pointer_at(b"{\"a\nb\\t\":\xff}", 9), "/a\nb\t");
    assert_eq!(pointer_at(b"{\"\xff\\ud800", 4), "/\u{fffd}\u{fffd}");
}

#[test]
fn a_pointer_into_a_hostile_body_stays_short() {
    let deep = "[".repeat(100_000);
    assert!(pointer_at(deep.as_bytes(), deep.len()).len() <= 2 * 64);
    let long = format!(r#"{{"a":{{"{}":1e400}}}}"#, "x".repeat(100_000));
    assert_eq!(pointer_at(long.as_bytes(), long.len() - 4), "/a");
}

#[test]
fn an_edit_keeps_what_it_does_not_touch() {
    let object = r#"{ "a" : 1 ,"b":[1, 2],"b" : "x" , "c":{} }"#;
    let text = format!("around {object} it");
    let edited = |edit: fn(&str) -> Edit<'static>| {
        let bytes = edit_object(&text, 7, |key, _| edit(&key.text())).unwrap();
        let edited = String::from_utf8(bytes).unwrap();
        let object = edited.strip_prefix("around ").unwrap().strip_suffix(" it");
        object.unwrap().to_owned()
    };
    assert_eq!(edited(|_| Edit::Keep), object);
    assert_eq!(edited(|_| Edit::Drop), "{}");
    assert_eq!(
        edited(|name| if name == "b" { Edit::Drop } else { Edit::Keep }),
        r#"{ "a" : 1 , "c":{} }"#
    );
    assert_eq!(
        edited(|name| if name == "a" { Edit::Drop } else { Edit::Keep }),
        r#"{"b":[1, 2],"b" : "x" , "c":{} }"#
    );
    assert_eq!(
        edited(|name| match name {
            "a" => Edit::Value(b"null".as_slice().into()),
            "c" => Edit::Name("d"),
            _ => Edit::Keep,
        }),
        r#"{ "a" : null ,"b":[1, 2],"b" : "x" , "d":{} }"#
    );
}

#[test]
fn of_a_repeated_member_the_last_is_found() {
    let object = r#"{"a":1,"b":2,"\u0061":{"a":3},"c":"a"}"#;
    let found = |name| last_member(object, name).map(|span| &object[span.range()]);
    assert_eq!(found("a"), Some(r#"{"a":3}"#));
    assert_eq!(found("c"), Some(r#""a""#));
    assert_eq!(found("d"), None);
}
