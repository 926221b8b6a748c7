//! The version gate, before any body is decoded (contract §9).
//!
//! A message says beside its body which version of the envelope it holds. One that we do not speak
//! is settled without a look at the body: never decoded, never handed to a handler, never retried.
//! What becomes of it instead is [`decide`](crate::decide)'s table of §9.5.

use crate::headers::is_blank;
use crate::transport::VersionProperty;

/// The one version of the envelope that this crate speaks.
pub const SUPPORTED: i64 = 1;

/// Whether a delivery passes, by its version property (contract §9.1–2).
///
/// Absent, null and blank (empty or only ASCII blanks) pass, and so do exactly `"1"`, untrimmed, and
/// a native integer 1 of any width.
///
/// # Errors
///
/// Anything else, with the value as it is to be logged.
pub fn check(property: &VersionProperty) -> Result<(), Rejected> {
    match property {
        VersionProperty::Absent | VersionProperty::Integer(SUPPORTED) => Ok(()),
        VersionProperty::Text(text) if is_blank(text) || &**text == "1" => Ok(()),
        VersionProperty::Text(text) | VersionProperty::Other(text) => Err(Rejected::new(text)),
        VersionProperty::Integer(version) => Err(Rejected::new(&version.to_string())),
    }
}

/// Whether a body passes, by its own `meta.schema_version`: the second check, after the verdict
/// (contract §18.5). A body that names no version passes.
///
/// # Errors
///
/// Any version but 1.
pub fn check_body(schema_version: Option<i64>) -> Result<(), Rejected> {
    match schema_version {
        None | Some(SUPPORTED) => Ok(()),
        Some(version) => Err(Rejected::new(&version.to_string())),
    }
}

/// A schema version that we do not speak.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported schema version {value:?}, expected \"1\"")]
pub struct Rejected {
    value: String,
}

impl Rejected {
    /// The rejected value, at most 64 characters of it and then `...` (contract §9.4).
    pub fn value(&self) -> &str {
        &self.value
    }

    fn new(value: &str) -> Self {
        const SHOWN: usize = 64;
        let value = match value.char_indices().nth(SHOWN) {
            None => value.to_owned(),
            Some((end, _)) => format!("{}...", &value[..end]),
        };
        Self { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> VersionProperty {
        VersionProperty::Text(value.into())
    }

    #[test]
    fn absent_blank_and_one_pass() {
        let integer = VersionProperty::Integer(1);
        let passing = ["1", "", " \t", " ", "\n\x0B\x0C\r"].map(text);
        for property in passing.iter().chain([&VersionProperty::Absent, &integer]) {
            assert_eq!(check(property), Ok(()), "{property:?}");
        }
    }

    #[test]
    fn everything_else_is_rejected_untrimmed() {
        for value in [
            "2",
            "01",
            "x",
            " 1",
            "1 ",
            "\t1\n",
            "\u{A0}",
            "\u{85}",
            "\u{3000}",
            "\u{FEFF}",
            "\u{A0}1",
            "1\u{3000}",
            "null",
            "1.0",
        ] {
            let rejected = check(&text(value)).expect_err(value);
            assert_eq!(rejected.value(), value);
        }
        for property in [
            VersionProperty::Integer(2),
            VersionProperty::Integer(0),
            // A float, a boolean: of another type than text or integer, whatever it looks like.
            VersionProperty::Other("1".into()),
            VersionProperty::Other("".into()),
        ] {
            assert!(check(&property).is_err(), "{property:?}");
        }
    }

    #[test]
    fn the_body_is_held_to_the_same_version() {
        assert_eq!(check_body(None), Ok(()));
        assert_eq!(check_body(Some(1)), Ok(()));
        for version in [2, 0, -1, i64::MAX] {
            let rejected = check_body(Some(version)).expect_err("not 1");
            assert_eq!(rejected.value(), version.to_string());
        }
    }

    #[test]
    fn a_long_value_is_cut_after_64_characters() {
        let exact = "é".repeat(64);
        assert_eq!(check(&text(&exact)).expect_err("not 1").value(), exact);

        let long = "é".repeat(65);
        let shown = format!("{exact}...");
        assert_eq!(check(&text(&long)).expect_err("not 1").value(), shown);
    }
}
