//! `identity_verdict`: which bodies are envelopes (contract §2A).

use babelqueue_core::envelope::Envelope;
use babelqueue_core::verdict;

use crate::{Case, Met, same};

pub(super) fn run(case: &Case) -> Met {
    let body = case.text("body")?;
    let expected = case.text("expect")?;
    let word = |poison: bool| if poison { "poison" } else { "ok" };
    let verdict = verdict::of(body.as_bytes());
    same("verdict", word(verdict.is_poison()), expected)?;

    let decoded = Envelope::decode(body.to_owned());
    same("decode", word(decoded.is_err()), expected)?;
    match decoded {
        // One scan decides both: they must name the same cause.
        Err(error) => same("decode's verdict", &error.verdict(), &verdict),
        Ok(decoded) => same(
            "a blank identity",
            &decoded.envelope.urn().is_empty(),
            &false,
        ),
    }
}
