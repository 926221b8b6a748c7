//! What a message of SQS can hold. What it cannot is an error here, for the service itself would
//! replace some of it without a word.

use aws_sdk_sqs::types::MessageAttributeValue;
use babelqueue_core::Error;

use crate::project::Attributes;

/// The most attributes of one message.
pub(crate) const MAX_ATTRIBUTES: usize = 10;

/// The most messages of one request.
pub(crate) const MAX_ENTRIES: usize = 10;

/// The largest message that the service knows, unless the queue says less; and the most that one
/// request holds.
pub(crate) const MAX_BYTES: usize = 1_048_576;

/// The same where the service is an older one.
const OLD_MAX_BYTES: usize = 262_144;

/// The body as text.
///
/// # Errors
///
/// [`Error::Message`] where it is empty, is not UTF-8, or has a character that XML 1.0 lacks.
pub(crate) fn text(body: &[u8]) -> Result<&str, Error> {
    let refused = |what: String| Err(Error::message(format!("the body {what}; SQS takes text")));
    let Ok(text) = std::str::from_utf8(body) else {
        return refused("is not UTF-8".into());
    };
    if text.is_empty() {
        return refused("is empty".into());
    }
    match text.char_indices().find(|(_, c)| !is_allowed(*c)) {
        Some((at, c)) => refused(format!("has U+{:04X} at byte {at}", u32::from(c))),
        None => Ok(text),
    }
}

/// Checks what becomes an attribute of its own.
///
/// # Errors
///
/// [`Error::Message`] that names the header.
pub(crate) fn check_header(name: &str, value: &str) -> Result<(), Error> {
    let lower = name.to_ascii_lowercase();
    let problem = if name.len() > 256 {
        "its name has more than 256 bytes"
    } else if !name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
    {
        "a name has letters, digits, `_`, `-` and `.`"
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        "a `.` stands between other characters"
    } else if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        "such names are Amazon's own"
    } else if !value.chars().all(is_allowed) {
        "its value has a character that SQS does not take"
    } else {
        return Ok(());
    };
    Err(Error::message(format!("header `{name}`: {problem}")))
}

/// How much of the limit a message takes: its body, and each attribute's name, type and value.
pub(crate) fn size(body: &str, attributes: &Attributes) -> usize {
    let attributes = attributes.iter();
    let sizes = attributes.map(|(name, value)| name.len() + value_size(value));
    body.len() + sizes.sum::<usize>()
}

/// The most that one request may hold, for a queue whose messages may have `max_message` bytes. A
/// queue may be set low; only one above what the older service had tells that the service is newer.
pub(crate) fn max_request(max_message: usize) -> usize {
    if max_message > OLD_MAX_BYTES {
        MAX_BYTES
    } else {
        OLD_MAX_BYTES
    }
}

fn value_size(value: &MessageAttributeValue) -> usize {
    let text = value.string_value().map_or(0, str::len);
    let binary = value.binary_value().map_or(0, |blob| blob.as_ref().len());
    value.data_type().len() + text + binary
}

/// What XML 1.0 allows.
const fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    #[test]
    fn a_body_that_the_service_would_change_is_refused() {
        for body in ["a", " \t\r\n", "é😀\u{FFFD}\u{7F}\u{85}"] {
            assert_eq!(text(body.as_bytes()).unwrap(), body);
        }
        for (body, said) in [
            (&b""[..], "is empty"),
            (b"caf\xe9", "is not UTF-8"),
            (b"a\0", "U+0000 at byte 1"),
            (b"\x1f", "U+001F"),
            ("\u{FFFE}".as_bytes(), "U+FFFE"),
            ("\u{FFFF}".as_bytes(), "U+FFFF"),
        ] {
            let error = text(body).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_header_that_is_no_attribute_is_named() {
        for name in ["traceparent", "a.b-c_9", "bq-replay-bypass"] {
            check_header(name, "é").unwrap();
        }
        let long = "n".repeat(257);
        for name in ["a b", "ä", ".a", "a.", "a..b", "AWS.x", "amazon.x", &long] {
            let error = check_header(name, "v").unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(check_header("a", "\u{1}").is_err());
    }

    #[test]
    fn names_types_and_values_count() {
        let attributes = project::projected(br#"{"job":"urn:a","meta":{"schema_version":1}}"#);
        // bq-job, String, urn:a; bq-schema-version, Number, 1.
        assert_eq!(size("body", &attributes), 4 + 6 + 6 + 5 + 17 + 6 + 1);
    }

    #[test]
    fn a_small_queue_does_not_make_small_requests() {
        assert_eq!(max_request(1024), 262_144);
        assert_eq!(max_request(262_144), 262_144);
        assert_eq!(max_request(1_048_576), 1_048_576);
    }
}
