//! Decoding a fixture, writing it again, and looking at what came out.

use babelqueue_core::envelope::{Decoded, Envelope};
use bytes::Bytes;

use crate::{Case, Json, Met, Unmet, holds, json, same};

/// Decodes the fixture that the member `file` points at.
pub(super) fn decode(case: &Case) -> Result<Decoded, Unmet> {
    Ok(Envelope::decode(case.fixture("file")?)?)
}

/// The envelope as a retry writes it: `attempts` one more, absent and null counting as 0.
pub(super) fn retried(envelope: &Envelope) -> Envelope {
    let attempts = envelope.attempts().unwrap_or_default();
    envelope.with_attempts(attempts + 1)
}

/// What encoding the envelope gives, read as JSON.
pub(super) fn encoded(envelope: &Envelope) -> Result<Json, Unmet> {
    parse(&envelope.encode()?)
}

/// Bytes read as JSON.
pub(super) fn parse(bytes: &Bytes) -> Result<Json, Unmet> {
    Ok(json::parse(std::str::from_utf8(bytes)?)?)
}

/// Every pointer of the case's member `name` holds its value in `document`.
pub(super) fn holds_values(document: &Json, case: &Case, name: &str) -> Met {
    for (pointer, expected) in case.members(name)? {
        same(pointer, &document.pointer(pointer), &Some(expected))?;
    }
    Ok(())
}

/// No pointer of the case's member `name`, where it has one, is in `document`.
pub(super) fn lacks_pointers(document: &Json, case: &Case, name: &str) -> Met {
    for pointer in case.get(name).and_then(Json::as_array).unwrap_or_default() {
        let pointer = pointer.as_str().unwrap_or_default();
        // A pointer to the whole document would be there whatever it holds.
        holds(!pointer.is_empty(), "an empty pointer")?;
        holds(
            document.pointer(pointer).is_none(),
            format_args!("{pointer} is there, expected it absent"),
        )?;
    }
    Ok(())
}
