//! `trim`: which blanks are blanks (contract §2.6, §5.2).

use babelqueue_core::envelope::{self, Envelope, Warning};

use super::document::{decode, encoded, holds_values, retried};
use crate::{Case, Json, Met, holds, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    match case.text("mode")? {
        "make" => make(case),
        "decode" => identity(case),
        "accepts" => accepts(case),
        "reemit" => reemit(case),
        word => Err(unknown("mode", word).into()),
    }
}

fn make(case: &Case) -> Met {
    let mut builder = Envelope::builder(case.text("urn")?);
    if case.get("trace_id").is_some() {
        builder = builder.trace_id(case.text("trace_id")?);
    }
    let built = builder.build();
    if let Some(word) = case.need("expect")?.as_str() {
        let found = if built.is_err() { "reject" } else { "made" };
        return same("outcome", found, word);
    }
    let document = encoded(&built?)?;
    for (name, expected) in case.members("expect")? {
        same(name, &document.get(name), &Some(expected))?;
    }
    Ok(())
}

/// Shared with `job_type`: what the identity is, whether there is one, and whether decode warns.
pub(super) fn identity(case: &Case) -> Met {
    let valid = case.flag("valid")?;
    let decoded = match decode(case) {
        Err(_) if !valid => return Ok(()),
        Ok(_) if !valid => return holds(false, "it is decoded, expected no identity"),
        decoded => decoded?,
    };
    let expected = case.need("expect")?.get("urn").and_then(Json::as_str);
    same("urn", &Some(&*decoded.envelope.urn()), &expected)?;
    let expected = case.flag("expect_warning")?;
    same("warns", &!decoded.warnings.is_empty(), &expected)?;
    if expected {
        let pointers: Vec<_> = decoded.warnings.iter().map(Warning::pointer).collect();
        same("warnings", &pointers, &vec!["/job"])?;
    }
    Ok(())
}

fn accepts(case: &Case) -> Met {
    let body = case.fixture("file")?;
    let expected = case.flag("expect_accepts")?;
    same("accepts", &envelope::accepts(&body), &expected)?;
    let decoded = Envelope::decode(body);
    same("decodes", &decoded.is_ok(), &case.flag("expect_decode_ok")?)?;
    same(
        "the envelope accepts",
        &decoded?.envelope.accepts(),
        &expected,
    )
}

fn reemit(case: &Case) -> Met {
    let envelope = retried(&decode(case)?.envelope);
    let document = encoded(&envelope)?;
    holds_values(&document, case, "expect_preserved")?;
    same(
        "/attempts",
        &document.get("attempts"),
        &Some(case.need("expect_attempts")?),
    )
}
