//! `forbidden_keys`: decode warns and drops; what goes out has none.

use super::document::{decode, encoded, holds_values, lacks_pointers};
use crate::{Case, Met, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    let expected = case.text("expect")?;
    if expected != "warn" {
        return Err(unknown("expectation", expected).into());
    }
    let decoded = decode(case)?;
    let pointer = case.text("forbidden_key")?;
    let named = decoded.warnings.iter().filter(|w| w.pointer() == pointer);
    same(
        format_args!("warnings naming {pointer}"),
        &named.count(),
        &1,
    )?;
    same("rewritten", &decoded.rewritten, &true)?;

    let document = encoded(&decoded.envelope)?;
    lacks_pointers(&document, case, "expect_absent_after_reencode")?;
    if case.get("expect_preserved").is_some() {
        holds_values(&document, case, "expect_preserved")?;
    }
    // All that was not forbidden is as it was.
    let mut rest = case.fixture_json("file")?;
    rest = match pointer.strip_prefix("/meta/") {
        Some(key) => rest.with("meta", |meta| meta.without(key)),
        None => rest.without(pointer.trim_start_matches('/')),
    };
    same("the rest of the envelope", &document, &rest)
}
