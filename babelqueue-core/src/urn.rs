//! Names of message types (contract §4).

use std::fmt;
use std::str::FromStr;

/// A type of message that a program sends or handles: it names its URN once, and `publish(&order)`
/// and `handle(|order: Incoming<Order>| …)` need no string.
///
/// ```
/// use babelqueue_core::urn::Message;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderCreated {
///     order_id: u64,
/// }
///
/// impl Message for OrderCreated {
///     const URN: &'static str = "urn:babel:orders:created";
/// }
/// ```
pub trait Message {
    /// The URN, stable once a message of it was published; [`Urn::check`] tells whether it has the
    /// recommended form.
    const URN: &'static str;
}

/// A URN of the recommended form (contract §4.1): `urn:babel:<context>:<event-or-command>`, the
/// context of `[a-z0-9-]`, the tail of lower-case parts with dots between them.
///
/// Only for who asks: nothing in this crate refuses a URN for its form. The one hard rule is that it
/// is not blank (§4.2). Another namespace than `babel` is fine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Urn(String);

impl Urn {
    /// Holds `text` against the recommended form.
    ///
    /// # Errors
    ///
    /// What departs from it.
    pub fn check(text: &str) -> Result<(), UrnError> {
        let problem = problem(text);
        problem.map_or(Ok(()), |problem| {
            Err(UrnError {
                urn: text.to_owned(),
                problem,
            })
        })
    }

    /// The URN's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Urn {
    type Err = UrnError;

    fn from_str(text: &str) -> Result<Self, UrnError> {
        Self::check(text).map(|()| Self(text.to_owned()))
    }
}

impl From<Urn> for String {
    fn from(urn: Urn) -> Self {
        urn.0
    }
}

impl AsRef<str> for Urn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Urn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A URN departs from the recommended form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URN {urn:?} {problem}")]
pub struct UrnError {
    urn: String,
    problem: &'static str,
}

fn problem(text: &str) -> Option<&'static str> {
    let mut parts = text.splitn(4, ':');
    if parts.next() != Some("urn") {
        return Some("does not begin with `urn:`");
    }
    let (Some(namespace), Some(context), Some(tail)) = (parts.next(), parts.next(), parts.next())
    else {
        return Some(
            "has fewer than four parts, expected `urn:babel:<context>:<event-or-command>`",
        );
    };
    if !is_word(namespace) {
        return Some("has a namespace with something else than lower-case letters, digits and `-`");
    }
    if !is_word(context) {
        return Some("has a context with something else than lower-case letters, digits and `-`");
    }
    if !tail.split('.').all(is_tail_part) {
        return Some(
            "has a last part with something else than lower-case letters, digits, `-` and `_`, in dot-separated pieces",
        );
    }
    None
}

fn is_word(part: &str) -> bool {
    !part.is_empty()
        && part
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn is_tail_part(part: &str) -> bool {
    !part.is_empty()
        && part
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recommended_form_is_taken() {
        for urn in [
            "urn:babel:orders:created",
            "urn:babel:order-lines:item.indexed.v2",
            "urn:acme:a1:b_c",
            "urn:babel:orders:created:v2",
        ] {
            assert_eq!(urn.parse::<Urn>().map(String::from), Ok(urn.to_owned()));
        }
    }

    #[test]
    fn an_error_says_what_departs() {
        for (urn, problem) in [
            ("", "the URN \"\" does not begin with `urn:`"),
            (
                "URN:babel:a:b",
                "the URN \"URN:babel:a:b\" does not begin with `urn:`",
            ),
            (
                "urn:babel:orders",
                "the URN \"urn:babel:orders\" has fewer than four parts, expected `urn:babel:<context>:<event-or-command>`",
            ),
        ] {
            assert_eq!(Urn::check(urn).unwrap_err().to_string(), problem);
        }
        for urn in [
            "urn:Babel:a:b",
            "urn::a:b",
            "urn:babel::b",
            "urn:babel:a b:c",
            "urn:babel:a:",
            "urn:babel:a:B",
            "urn:babel:a:b..c",
            "urn:babel:a:b.",
            "urn:babel:a:\u{2003}",
            " urn:babel:a:b",
        ] {
            assert!(Urn::check(urn).is_err(), "{urn}");
        }
    }
}
