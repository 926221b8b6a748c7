use std::collections::HashMap;

use super::document::{items, members, string};
use super::number::Decimal;

/// Whether two well-formed texts mean the same value: numbers by value, strings after unescaping,
/// objects whatever the order of their members. No deeper than the shallower of the two.
pub(super) fn equal(a: &str, b: &str) -> bool {
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => {
            let (a, b) = (members(a), members(b));
            let b: HashMap<_, _> = b.into_iter().collect();
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        (Some(b'['), Some(b'[')) => {
            let (mut a, mut b) = (items(a), items(b));
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (Some(a), Some(b)) if equal(a, b) => {}
                    _ => return false,
                }
            }
        }
        (Some(b'"'), Some(b'"')) => string(a) == string(b),
        _ => match (Decimal::read(a), Decimal::read(b)) {
            (Some(a), Some(b)) => a == b,
            // `true`, `false`, `null`, or values of two kinds.
            _ => a == b,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_by_meaning() {
        for (a, b) in [
            ("1", "1.0"),
            ("1e2", "100"),
            (r#""a""#, r#""a""#),
            ("null", "null"),
            ("[ ]", "[]"),
            ("[1, [2.0]]", "[1.0,[2]]"),
            (r#"{"a": 1, "b": {}}"#, r#"{"b":{ },"a":1.0}"#),
            // The last value of a repeated name is its value.
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ] {
            assert!(equal(a, b) && equal(b, a), "{a} and {b}");
        }
        for (a, b) in [
            ("1", "true"),
            ("0", "false"),
            ("0", "null"),
            ("1", r#""1""#),
            ("9007199254740992", "9007199254740993"),
            ("{}", "[]"),
            ("[1]", "[1,1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":1}"#),
        ] {
            assert!(!equal(a, b) && !equal(b, a), "{a} and {b}");
        }
    }
}
