//! `cases`: what is decoded and accepted, and what is not.

use babelqueue_core::envelope::{self, Envelope};

use super::document::{decode, encoded};
use crate::{Case, Json, Met, holds, json, same};

pub(super) fn run(case: &Case) -> Met {
    if !case.flag("valid")? {
        let body = case.fixture("file")?;
        let accepted = Envelope::decode(body.clone()).is_ok_and(|d| d.envelope.accepts());
        holds(!accepted, "it is decoded and accepted, expected a refusal")?;
        return holds(!envelope::accepts(&body), "`accepts` takes the body");
    }
    let decoded = decode(case)?;
    let envelope = &decoded.envelope;
    holds(envelope.accepts(), "the envelope is not accepted")?;
    holds(
        envelope::accepts(&case.fixture("file")?),
        "`accepts` refuses the body",
    )?;

    for (name, expected) in case.members("expect")? {
        let found = match name.as_str() {
            "urn" => Some(Json::from(&*envelope.urn())),
            "data" => envelope.data_json().map(json::parse).transpose()?,
            "attempts" => envelope.attempts().map(Json::from),
            "lang" => envelope.lang().map(|lang| Json::from(&*lang)),
            "schema_version" => envelope.schema_version().map(Json::from),
            "dead_letter" => {
                dead_letter(envelope, expected)?;
                continue;
            }
            // A newer suite's.
            _ => continue,
        };
        same(name, &found.as_ref(), &Some(expected))?;
    }
    for (name, text) in [
        ("meta.id", envelope.id()),
        ("trace_id", envelope.trace_id()),
    ] {
        holds(
            text.is_some_and(|text| !text.is_empty()),
            format_args!("{name} is missing or empty"),
        )?;
    }
    Ok(())
}

/// The block holds at least these members, both as it is read and as it goes out again.
fn dead_letter(envelope: &Envelope, expected: &Json) -> Met {
    let block = envelope.dead_letter().unwrap_or_default();
    let written = encoded(envelope)?;
    for (name, expected) in expected.as_object().unwrap_or_default() {
        let read = match name.as_str() {
            "reason" => block.reason.as_deref(),
            "original_queue" => block.original_queue.as_deref(),
            _ => expected.as_str(),
        };
        same(name, &read, &expected.as_str())?;
        let pointer = format!("/dead_letter/{name}");
        same(&pointer, &written.pointer(&pointer), &Some(expected))?;
    }
    Ok(())
}
