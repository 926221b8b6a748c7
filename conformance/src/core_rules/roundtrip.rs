//! `roundtrip`: what a retry, a redrive or a dead-lettering writes again (contract §2.3).

use babelqueue_core::dead_letter::Reason;
use babelqueue_core::envelope::Decoded;
use bytes::Bytes;

use super::dead_letter;
use super::document::{decode, holds_values, lacks_pointers, parse, retried};
use crate::{Case, Json, Met, Unmet, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    let decoded = decode(case)?;
    same("warnings", &decoded.warnings, &Vec::new())?;
    let document = parse(&match case.get("apply_dead_letter") {
        Some(block) => dead_lettered(case, &decoded, block)?,
        None => retried(&decoded.envelope).encode()?,
    })?;
    same(
        "/attempts",
        &document.get("attempts"),
        &Some(case.need("expect_attempts")?),
    )?;
    holds_values(&document, case, "expect_preserved")?;
    lacks_pointers(&document, case, "expect_absent_after_reencode")?;
    if case.get("apply_dead_letter").is_some() && case.get("expect_dead_letter").is_some() {
        for (name, expected) in case.members("expect_dead_letter")? {
            let found = document.pointer(&format!("/dead_letter/{name}"));
            same(name, &found, &Some(expected))?;
        }
    }
    Ok(())
}

/// The failed delivery is counted by the decision itself.
fn dead_lettered(case: &Case, decoded: &Decoded, block: &Json) -> Result<Bytes, Unmet> {
    let word = |name: &str| block.get(name).and_then(Json::as_str);
    let reason = match word("reason") {
        Some("failed") => Reason::Failed,
        Some("unknown_urn") => Reason::UnknownUrn,
        Some("poison") => Reason::Poison,
        other => return Err(unknown("reason", other).into()),
    };
    let queue = word("original_queue").unwrap_or_default();
    let attempts = decoded.envelope.attempts().unwrap_or_default() + 1;
    dead_letter::record(
        case.fixture("file")?,
        queue,
        reason,
        attempts,
        Some(decoded),
    )
}
