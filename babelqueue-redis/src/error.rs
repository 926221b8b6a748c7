//! What a failure of the client means: try again, or refused for good.

use std::io;
use std::sync::Arc;

use babelqueue_core::Error;
use redis::{ErrorKind, RedisError, Value};

/// A call that gave no result.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) error: RedisError,
    /// Whether the server may have carried it out: the call was sent, and no answer came. A refusal
    /// is an answer, and a call that found no connection was not sent.
    pub(crate) may_have_run: bool,
}

impl Failure {
    /// No connection was to be had.
    pub(crate) fn not_sent(error: RedisError) -> Self {
        Self {
            error,
            may_have_run: false,
        }
    }

    /// The connection failed under the call, or the server refused it.
    pub(crate) fn of_call(error: RedisError) -> Self {
        Self {
            may_have_run: error.code().is_none(),
            error,
        }
    }

    /// As the core's error, with what was being done and on what.
    pub(crate) fn into_error(self, operation: &'static str, on: &str) -> Error {
        let context = format!("{on}: {}", self.error);
        match meaning(&self.error) {
            Meaning::Transient => Error::transient(operation, context),
            Meaning::Refused("") => Error::refused(operation, context),
            Meaning::Refused(hint) => Error::refused(operation, format_args!("{context} ({hint})")),
        }
        .with_source(self.error)
    }

    pub(crate) fn is_transient(&self) -> bool {
        matches!(meaning(&self.error), Meaning::Transient)
    }
}

/// The core's error for what a script reports of one of its messages: `WRONGTYPE Operation against…`.
pub(crate) fn of_refusal(operation: &'static str, on: &str, refusal: &str) -> Error {
    let refusal = refusal.trim_start_matches('-');
    let context = format!("{on}: {refusal}");
    match by_text(refusal) {
        Meaning::Transient => Error::transient(operation, context),
        Meaning::Refused(_) => Error::refused(operation, context),
    }
}

/// An answer that is not what the script gives. Something else than Redis may be answering.
pub(crate) fn unexpected(operation: &'static str, answer: &Value) -> Error {
    let kind = match answer {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a string",
        Value::Array(_) => "a list of another shape",
        _ => "an answer of another kind",
    };
    Error::transient(
        operation,
        format_args!("the server gave {kind} where a script's list was expected"),
    )
}

/// Whether the connection is of no use any more: it broke, it did not answer in time, or its server
/// is no longer the one that takes writes.
pub(crate) fn needs_a_new_connection(error: &RedisError) -> bool {
    match error.code() {
        Some(code) => matches!(code, "READONLY" | "NOAUTH" | "MASTERDOWN"),
        None => true,
    }
}

enum Meaning {
    Transient,
    /// With a word of advice, or none.
    Refused(&'static str),
}

fn meaning(error: &RedisError) -> Meaning {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => Meaning::Refused(""),
        ErrorKind::Io if is_a_bad_certificate(error) => Meaning::Refused("TLS"),
        _ => match error.code() {
            None => Meaning::Transient,
            Some(code) => by_text(&format!("{code} {}", error.detail().unwrap_or_default())),
        },
    }
}

/// By the first word of a server's error, and where that says nothing, by the rest: before Redis 7 an
/// error within a script comes wrapped in a sentence.
fn by_text(text: &str) -> Meaning {
    const PASSING: [&str; 15] = [
        "OOM",
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "BUSY",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "NOREPLICAS",
        "MISCONF",
        "UNBLOCKED",
        "NOSCRIPT",
        "EXECABORT",
        "UNKILLABLE",
    ];
    const FINAL: [(&str, &str); 6] = [
        ("NOAUTH", ""),
        ("WRONGPASS", ""),
        (
            "NOPERM",
            "the user's ACL has to allow the queue's keys and EVALSHA, EVAL, BLMOVE, BLPOP",
        ),
        (
            "WRONGTYPE",
            "another program keeps something else under this key",
        ),
        ("CROSSSLOT", "put the part that the keys share in braces"),
        ("DENIED", ""),
    ];
    const FINAL_SENTENCES: [(&str, &str); 6] = [
        (
            "cluster support disabled",
            "`cluster` is for a node of a cluster",
        ),
        ("unknown command", "Redis 6.2 or later is needed"),
        ("invalid password", ""),
        ("invalid DB index", ""),
        ("DB index is out of range", ""),
        (
            "WRONGTYPE",
            "another program keeps something else under this key",
        ),
    ];
    let first = text.split([' ', ':']).next().unwrap_or_default();
    if PASSING.contains(&first) {
        return Meaning::Transient;
    }
    FINAL
        .iter()
        .find(|(code, _)| *code == first)
        .or_else(|| FINAL_SENTENCES.iter().find(|(part, _)| text.contains(part)))
        .map_or(Meaning::Transient, |(_, hint)| Meaning::Refused(hint))
}

/// A certificate that does not hold stays so.
fn is_a_bad_certificate(error: &RedisError) -> bool {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<Shared>())
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_server(line: &str) -> RedisError {
        let (code, detail) = line.split_once(' ').expect("a code and a sentence");
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn what_passes_is_transient_and_what_does_not_is_refused() {
        for (line, transient) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                true,
            ),
            (
                "READONLY You can't write against a read only replica.",
                true,
            ),
            ("LOADING Redis is loading the dataset in memory", true),
            ("MASTERDOWN Link with MASTER is down", true),
            ("BUSY Redis is busy running a script.", true),
            ("MISCONF Redis is configured to save RDB snapshots", true),
            ("ERR max number of clients reached", true),
            (
                "ERR Error running script (call to f_x): @user_script:1: OOM command",
                true,
            ),
            ("NOAUTH Authentication required.", false),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                false,
            ),
            (
                "NOPERM this user has no permissions to access one of the keys",
                false,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                false,
            ),
            (
                "ERR Error running script (call to f_x): @user_script:1: WRONGTYPE",
                false,
            ),
            (
                "ERR unknown command 'BLMOVE', with args beginning with: ",
                false,
            ),
        ] {
            let failure = Failure::of_call(from_server(line));
            assert!(!failure.may_have_run, "{line}");
            let error = failure.into_error("receive", "queue `q`");
            assert_eq!(error.is_transient(), transient, "{line}: {error}");
            assert_eq!(of_refusal("settle", "q", line).is_transient(), transient);
        }
    }

    #[test]
    fn a_broken_connection_may_have_carried_the_call_out() {
        let broken = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let failure = Failure::of_call(broken.clone());
        assert!(failure.may_have_run && failure.is_transient());
        assert!(!Failure::not_sent(broken.clone()).may_have_run);
        assert!(needs_a_new_connection(&broken));
    }

    #[test]
    fn a_demoted_server_needs_a_new_connection_and_a_full_one_does_not() {
        assert!(needs_a_new_connection(&from_server(
            "READONLY You can't write"
        )));
        assert!(!needs_a_new_connection(&from_server(
            "OOM command not allowed"
        )));
    }
}
