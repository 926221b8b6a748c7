//! Pieces of a JSON text that is known to be well-formed.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::json::{self, Scanner};

/// Whether `text` is one JSON value.
pub(super) fn well_formed(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.blanks();
    scanner.value::<false>().is_ok() && scanner.end().is_ok()
}

/// The members of an object, each with the text of its value. A repeated name stands where it stood
/// first, with its last value, as JSON parsers keep it.
pub(super) fn members(object: &str) -> Vec<(Cow<'_, str>, &str)> {
    let mut members: Vec<(Cow<'_, str>, &str)> = Vec::new();
    let mut places = HashMap::new();
    let mut scanner = Scanner::new(object);
    // No error: the text is well-formed.
    let _ = scanner.object(|scanner, key| {
        let start = scanner.at();
        scanner.value::<false>()?;
        let value = &object[start..scanner.at()];
        let name = key.text();
        let place = *places.entry(name.clone()).or_insert(members.len());
        match members.get_mut(place) {
            Some(member) => member.1 = value,
            None => members.push((name, value)),
        }
        Ok(())
    });
    members
}

/// The texts of an array's items.
pub(super) fn items(array: &str) -> impl Iterator<Item = &str> {
    let mut scanner = Scanner::new(array);
    let mut opening = "[";
    std::iter::from_fn(move || {
        scanner.blanks();
        scanner.word(opening).ok()?;
        scanner.blanks();
        opening = ",";
        let start = scanner.at();
        // Not in an empty array.
        scanner.value::<false>().ok()?;
        Some(&array[start..scanner.at()])
    })
}

/// What a string's text means; `None` where `value` is no string.
pub(super) fn string(value: &str) -> Option<Cow<'_, str>> {
    let content = value.strip_prefix('"')?.strip_suffix('"')?;
    Some(json::unescape(content.as_bytes()))
}

/// How deep arrays and objects stand in one another: 0 for what is neither.
pub(super) fn depth(value: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = value.bytes();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            // What it escapes ends no string.
            b'\\' => drop(bytes.next()),
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_what_stands_in_no_string() {
        for (value, expected) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{}],"b":[]}"#, 3),
            (r#""[[[""#, 0),
            (r#"["\"[[", "\\", [1]]"#, 2),
        ] {
            assert_eq!(depth(value), expected, "{value}");
        }
    }
}
