//! `extension_write` and `encode_reject`: the producer's write API (contract §3.1, §5.4).

use babelqueue_core::envelope::{EncodeError, Envelope, EnvelopeBuilder};

use super::document::{encoded, holds_values, retried};
use crate::{Case, Json, Met, Unmet, Unreadable, same, unknown};

/// What the write API takes stands in the envelope, and still does after a retry.
pub(super) fn extension_write(case: &Case) -> Met {
    let mut builder = builder(case)?;
    for (key, value) in case.members("meta")? {
        builder = builder.meta(key, value);
    }
    let envelope = builder.build()?;
    holds_values(&encoded(&envelope)?, case, "expect_envelope")?;

    let decoded = Envelope::decode(envelope.encode()?)?;
    same("warnings", &decoded.warnings, &Vec::new())?;
    let again = encoded(&retried(&decoded.envelope))?;
    holds_values(&again, case, "expect_envelope")?;
    same("/attempts", &again.get("attempts"), &Some(&Json::from(1)))
}

/// No way to a forbidden or repeated key gives an envelope.
pub(super) fn encode_reject(case: &Case) -> Met {
    let expected = case.text("expect")?;
    let found = match encode(case)? {
        Ok(()) => "encoded",
        Err(error) => {
            same(
                "offending key",
                &error.pointer(),
                &case.text("offending_key")?,
            )?;
            "reject"
        }
    };
    same("outcome", found, expected)
}

/// Builds and encodes: the entries of `meta` and `meta_entries` through the write API, extras right
/// into the envelope, as a message that carried them would have them.
fn encode(case: &Case) -> Result<Result<(), EncodeError>, Unmet> {
    let mut builder = builder(case)?;
    let mut entries = Vec::new();
    if case.get("meta").is_some() {
        entries.extend(
            case.members("meta")?
                .iter()
                .map(|(key, value)| (key.as_str(), value)),
        );
    }
    if case.get("meta_entries").is_some() {
        for entry in case.items("meta_entries")? {
            let [key, value] = entry.as_array().unwrap_or_default() else {
                return Err(unknown("entry", entry).into());
            };
            entries.push((key.as_str().unwrap_or_default(), value));
        }
    }
    for (key, value) in entries {
        builder = builder.meta(key, value);
    }
    let mut envelope = match builder.build() {
        Ok(envelope) => envelope,
        Err(error) => return Ok(Err(error)),
    };
    for (place, prefix) in [("extras_top", "/"), ("extras_meta", "/meta/")] {
        if case.get(place).is_none() {
            continue;
        }
        for (key, value) in case.members(place)? {
            envelope =
                envelope.with_unchecked_member(&format!("{prefix}{key}"), &value.to_string());
        }
    }
    Ok(envelope.encode().map(|_| ()))
}

fn builder(case: &Case) -> Result<EnvelopeBuilder<'_>, Unreadable> {
    Ok(Envelope::builder(case.text("urn")?)
        .queue(case.text("queue")?)
        .data_raw(case.need("data")?.to_string()))
}
