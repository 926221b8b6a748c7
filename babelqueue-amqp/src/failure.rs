//! The client's errors, as the core knows them.

use std::fmt::Display;
use std::io;

use babelqueue_core::Error;
use lapin::ErrorKind;

/// A failure to set something up (connect, open a channel, declare, consume): a refusal where the
/// broker's answer will be the same next time.
pub(crate) fn setup(operation: &'static str, context: impl Display, error: lapin::Error) -> Error {
    let context = format!("{context}: {}", in_words(&error));
    let mapped = if is_refusal(error.kind()) {
        Error::refused(operation, context)
    } else {
        Error::transient(operation, context)
    };
    mapped.with_source(error)
}

/// A failure of what was up already. It passes: whether the broker refuses for good shows when it is
/// set up again.
pub(crate) fn running(
    operation: &'static str,
    context: impl Display,
    error: lapin::Error,
) -> Error {
    let context = format!("{context}: {}", in_words(&error));
    Error::transient(operation, context).with_source(error)
}

/// Whether the broker closed the channel or the connection for a message of `len` bytes that it will
/// never take.
pub(crate) fn is_too_large(error: &lapin::Error, len: usize) -> bool {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return false;
    };
    let size = format!("message size {len} ");
    said.get_id() == PRECONDITION_FAILED && said.get_message().as_str().contains(&size)
}

/// Whether the broker closed the channel because this user may not publish.
pub(crate) fn is_denied(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(said) if said.get_id() == ACCESS_REFUSED)
}

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const RESOURCE_LOCKED: u16 = 405;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// What the broker said, with a hint where users stumble.
fn in_words(error: &lapin::Error) -> String {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return error.to_string();
    };
    let hint = match said.get_id() {
        PRECONDITION_FAILED if said.get_message().as_str().contains("inequivalent arg") => {
            " (the queue exists with other arguments: set the same in `Config::queue_arguments_for`, \
             or leave its declaration to others with `Declare::Passive`)"
        }
        _ => "",
    };
    format!("{} {}{hint}", said.get_id(), said.get_message())
}

fn is_refusal(kind: &ErrorKind) -> bool {
    match kind {
        ErrorKind::ProtocolError(said) => match said.get_id() {
            ACCESS_REFUSED | RESOURCE_LOCKED | PRECONDITION_FAILED | NOT_ALLOWED => true,
            // In a cluster it also means that the queue's home node is away.
            NOT_FOUND => !is_away(said.get_message().as_str()),
            _ => false,
        },
        ErrorKind::InvalidProtocolVersion(_) | ErrorKind::AuthProviderError(_) => true,
        // A certificate that is not trusted, or no TLS at the other end.
        ErrorKind::IOError(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

fn is_away(message: &str) -> bool {
    ["inaccessible", "is stopped", "timeout", "is down"]
        .iter()
        .any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind};

    use super::*;

    fn broker_says(code: u16, message: &str) -> lapin::Error {
        let kind = AMQPErrorKind::from_id(code).unwrap();
        ErrorKind::ProtocolError(AMQPError::new(kind, message.into())).into()
    }

    #[test]
    fn what_stays_refused_is_told_from_what_passes() {
        for (code, message, refused) in [
            (403, "ACCESS_REFUSED - Login was refused", true),
            (404, "NOT_FOUND - no queue 'q' in vhost '/'", true),
            (
                404,
                "NOT_FOUND - home node of queue 'q' is down or inaccessible",
                false,
            ),
            (405, "RESOURCE_LOCKED - exclusive", true),
            (
                406,
                "PRECONDITION_FAILED - inequivalent arg 'x-max-priority'",
                true,
            ),
            (530, "NOT_ALLOWED - vhost nope not found", true),
            (541, "INTERNAL_ERROR", false),
            (320, "CONNECTION_FORCED", false),
            (504, "CHANNEL_ERROR", false),
        ] {
            let error = setup("declare", "queue `q`", broker_says(code, message));
            assert_eq!(!error.is_transient(), refused, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(message) && text.contains("queue `q`"),
                "{text}"
            );
            assert!(running("receive", "queue `q`", broker_says(code, message)).is_transient());
        }
    }

    #[test]
    fn a_mismatch_says_what_to_do() {
        let error = broker_says(406, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type'");
        let text = setup("declare", "queue `q`", error).to_string();
        assert!(text.contains("queue_arguments_for"), "{text}");
    }

    #[test]
    fn the_network_passes_and_a_bad_certificate_does_not() {
        let io = |kind| setup("connect", "amqp://h", io::Error::from(kind).into());
        assert!(io(io::ErrorKind::ConnectionRefused).is_transient());
        assert!(io(io::ErrorKind::TimedOut).is_transient());
        assert!(!io(io::ErrorKind::InvalidData).is_transient());
    }

    #[test]
    fn who_may_not_publish_is_told_apart() {
        assert!(is_denied(&broker_says(
            403,
            "ACCESS_REFUSED - write access"
        )));
        assert!(!is_denied(&broker_says(406, "PRECONDITION_FAILED")));
    }

    #[test]
    fn a_message_too_large_is_known_by_its_size() {
        let error = broker_says(
            406,
            "PRECONDITION_FAILED - message size 135 is larger than configured max size 100",
        );
        assert!(is_too_large(&error, 135));
        assert!(!is_too_large(&error, 35) && !is_too_large(&error, 13));
    }
}
