//! `poison_dlq`: what is kept of a body that is no envelope (contract §6A).

use babelqueue_core::dead_letter::Reason;

use super::{dead_letter, document::parse};
use crate::{Case, Json, Met, Unmet, Unreadable, base64, holds, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    let body = match case.get("body_base64") {
        Some(_) => base64::decode(case.text("body_base64")?)
            .ok_or_else(|| Unreadable("`body_base64` is not base64".to_owned()))?,
        None => case.text("body")?.as_bytes().to_vec(),
    };
    let queue = case
        .block
        .get("original_queue")
        .and_then(Json::as_str)
        .ok_or_else(|| Unreadable("the section has no `original_queue`".to_owned()))?;
    let bytes = dead_letter::record(body, queue, Reason::Poison, 0, None)?;
    let record = parse(&bytes)?;
    let text = std::str::from_utf8(&bytes)?;

    let written = record.get("dead_letter");
    let member = |name: &str| written?.get(name)?.as_str();
    same("dead_letter.reason", &member("reason"), &Some("poison"))?;
    same(
        "dead_letter.original_queue",
        &member("original_queue"),
        &Some(queue),
    )?;

    let expect = case.need("expect")?;
    let wrapper = expect
        .get("record")
        .ok_or_else(|| Unreadable("`expect` has no `record`".to_owned()))?;
    let rest = record.without("dead_letter");
    match expect.get("shape").and_then(Json::as_str) {
        Some("splice" | "wrapper") => same("record", &rest, wrapper),
        Some("splice_or_wrapper") if rest.get("raw").is_some() => same("record", &rest, wrapper),
        Some("splice_or_wrapper") => spliced(text, &rest, expect),
        word => Err(unknown("shape", word).into()),
    }
}

/// A splice at byte level: every literal is there as it was spelled, nothing is wrapped, and the
/// names are the body's own.
fn spliced(text: &str, rest: &Json, expect: &Json) -> Met {
    for literal in strings(expect, "splice_literals")? {
        holds(
            text.contains(literal),
            format_args!("{literal} is not in the record as it was spelled"),
        )?;
    }
    holds(
        rest.get("raw_encoding").is_none(),
        "it has a `raw_encoding`",
    )?;
    let mut expected = strings(expect, "splice_keys")?;
    expected.sort_unstable();
    expected.dedup();
    same("names", &rest.names(), &expected)
}

fn strings<'a>(expect: &'a Json, name: &str) -> Result<Vec<&'a str>, Unmet> {
    expect
        .get(name)
        .and_then(Json::as_array)
        .and_then(|items| items.iter().map(Json::as_str).collect())
        .ok_or_else(|| Unreadable(format!("`expect.{name}` is no list of strings")).into())
}
