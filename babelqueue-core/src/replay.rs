//! Recognising a redriven message (contract §17A, ADR-0027).
//!
//! A message that was dead-lettered after it had sent its e-mail should be handled again without
//! sending it twice. [Redrive](crate::redrive) can mark what it brings back with a header; a
//! handler asks for it, and leaves out the effects that reach beyond its own store.
//!
//! ```
//! use babelqueue_core::{Headers, replay};
//!
//! let headers = Headers::from_iter([(replay::HEADER, "1")]);
//! let receipt = replay::bypass_external_effects(&headers, || "e-mail sent");
//! assert_eq!(receipt, None);
//! ```

use crate::Headers;

/// The header that marks a redriven message; it is a header on every binding that carries headers,
/// never a contract property (contract §10.2).
pub const HEADER: &str = "bq-replay-bypass";

/// What [`HEADER`] is set to. Any value that is not empty counts as a mark (contract §10.4).
pub const MARK: &str = "1";

/// Whether the message that these headers came with was redriven with the mark.
pub fn is_replay(headers: &Headers) -> bool {
    headers.get(HEADER).is_some_and(|value| !value.is_empty())
}

/// The headers of a redriven copy: those of the dead letter, with the mark where this redrive asks
/// for it (`bypass`), and without an older one where it does not.
#[must_use]
pub fn marked(headers: &Headers, bypass: bool) -> Headers {
    let mut headers = headers.clone();
    if bypass {
        headers.insert(HEADER, MARK);
    } else {
        headers.remove(HEADER);
    }
    headers
}

/// Runs `effect`, or skips it where the message is a replay and gives `None`.
///
/// An asynchronous effect is a future, which does nothing until it is awaited: pass a closure that
/// makes it, and await what comes back.
pub fn bypass_external_effects<T>(headers: &Headers, effect: impl FnOnce() -> T) -> Option<T> {
    (!is_replay(headers)).then(effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_marks_a_replay() {
        for value in ["1", "0", "true", "\u{A0}"] {
            assert!(is_replay(&Headers::from_iter([(HEADER, value)])), "{value}");
        }
        assert!(!is_replay(&Headers::new()));
        assert!(!is_replay(&Headers::from_iter([("BQ-Replay-Bypass", "1")])));
    }

    #[test]
    fn each_redrive_marks_for_itself() {
        let headers = Headers::from_iter([("tenant", "acme"), (HEADER, "yes")]);
        let marked = |bypass| marked(&headers, bypass);
        assert_eq!(marked(true).get(HEADER), Some(MARK));
        assert_eq!(marked(false), Headers::from_iter([("tenant", "acme")]));
        assert!(is_replay(&super::marked(&Headers::new(), true)));
    }

    #[test]
    fn effects_run_unless_it_is_a_replay() {
        let mut ran = 0;
        assert_eq!(
            bypass_external_effects(&Headers::new(), || ran += 1),
            Some(())
        );
        let marked = Headers::from_iter([(HEADER, MARK)]);
        assert_eq!(bypass_external_effects(&marked, || ran += 1), None);
        assert_eq!(ran, 1);
    }
}
