//! `data_shape`: `data` is an object, and an empty one is `{}`.

use babelqueue_core::envelope::{self, Envelope};

use crate::{Case, Json, Met, Unreadable, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    match case.text("mode")? {
        "encode" => encode(case),
        "decode" => decode(case),
        word => Err(unknown("mode", word).into()),
    }
}

/// The raw text of what goes out, not its value: `[]` would compare unequal, but so must `{ }`.
fn encode(case: &Case) -> Met {
    let data = case.need("data")?;
    let members = data
        .as_object()
        .ok_or_else(|| Unreadable("`data` is no object".to_owned()))?;
    let builder = Envelope::builder(case.text("urn")?).queue(case.text("queue")?);
    let mut written = vec![builder.clone().data_raw(data.to_string()).build()?];
    if members.is_empty() {
        // Nothing set, an empty map and an empty struct are as empty as `{}`.
        written.push(builder.clone().build()?);
        written.push(builder.data(&serde_json::Map::new()).build()?);
    }
    let expected = case.text("expect_encoded_data_json")?;
    for envelope in written {
        let body = envelope.encode()?;
        let again = Envelope::decode(body)?.envelope;
        same("data", &again.data_json(), &Some(expected))?;
    }
    Ok(())
}

fn decode(case: &Case) -> Met {
    let body = case.fixture("file")?;
    let valid = case.get("valid").and_then(Json::as_bool);
    same("accepts", &Some(envelope::accepts(&body)), &valid)?;
    let taken = Envelope::decode(body).is_ok_and(|decoded| decoded.envelope.accepts());
    same("decoded and accepted", &Some(taken), &valid)
}
