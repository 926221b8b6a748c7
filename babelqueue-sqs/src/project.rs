//! Between an envelope and the attributes of a message, both ways, without a broker (contract §13.1–2).

use std::collections::BTreeMap;

use aws_sdk_sqs::types::MessageAttributeValue;
use babelqueue_core::envelope::Projection;
use babelqueue_core::headers::Reserved;
use babelqueue_core::transport::{Facts, VersionProperty};
use babelqueue_core::{Error, Headers, replay};

use crate::content::{self, MAX_ATTRIBUTES};

const JOB: &str = "bq-job";
const TRACE_ID: &str = "bq-trace-id";
const MESSAGE_ID: &str = "bq-message-id";
const SCHEMA_VERSION: &str = "bq-schema-version";
const SOURCE_LANG: &str = "bq-source-lang";
const CREATED_AT: &str = "bq-created-at";

const CONTRACT: &[&str] = &[
    JOB,
    TRACE_ID,
    MESSAGE_ID,
    SCHEMA_VERSION,
    SOURCE_LANG,
    CREATED_AT,
];

/// What is not the user's among the attributes.
const RESERVED: Reserved = Reserved::new(CONTRACT, &["bq-", "bq_"]);

/// The attributes of one message, by name.
pub type Attributes = BTreeMap<String, MessageAttributeValue>;

/// The attributes that `body` alone gives: six of a full envelope.
pub fn projected(body: &[u8]) -> Attributes {
    let body = Projection::of(body);
    let text = |value: Option<&str>| Some(("String", value?.to_owned()));
    let number = |value: Option<i64>| Some(("Number", value?.to_string()));
    [
        (JOB, text(body.urn.as_deref())),
        (TRACE_ID, text(body.trace_id.as_deref())),
        (MESSAGE_ID, text(body.id.as_deref())),
        (SCHEMA_VERSION, number(body.schema_version)),
        (SOURCE_LANG, text(body.lang.as_deref())),
        (CREATED_AT, number(body.created_at_ms)),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        let (kind, value) = value?;
        // What no attribute can hold stays in the body, where it counts.
        content::check_header(name, &value).ok()?;
        Some((name.to_owned(), attribute(kind, &value)?))
    })
    .collect()
}

/// The attributes of a message that is published for the first time.
///
/// # Errors
///
/// [`Error::Message`] for a header that cannot be an attribute, and for more than ten attributes.
pub fn published(body: &[u8], headers: &Headers) -> Result<Attributes, Error> {
    let mut attributes = projected(body);
    let contract = attributes.len();
    for (name, value) in RESERVED.carried(headers) {
        content::check_header(name, value)?;
        if let Some(value) = attribute("String", value) {
            attributes.insert(name.to_owned(), value);
        }
    }
    if attributes.len() > MAX_ATTRIBUTES {
        return Err(Error::message(format!(
            "it has {} headers beside {contract} attributes of the contract; SQS takes \
             {MAX_ATTRIBUTES} attributes in all",
            attributes.len() - contract
        )));
    }
    Ok(attributes)
}

/// The attributes of a dead letter: its own projection, and the rest as received. A record may be no
/// envelope at all; what it lacks is left out (contract §11C).
pub(crate) fn dead_lettered(received: &Attributes, record: &[u8]) -> Attributes {
    let kept = received
        .iter()
        .filter(|(name, _)| !CONTRACT.contains(&name.as_str()));
    let kept = kept.map(|(name, value)| (name.clone(), value.clone()));
    with_projection(kept.collect(), record)
}

/// The attributes of a dead letter that is to be handled again, with the replay mark or without. A
/// `verbatim` one keeps what it came with (contract §9.6).
pub(crate) fn redriven(
    received: &Attributes,
    body: &[u8],
    verbatim: bool,
    bypass: bool,
) -> Attributes {
    let mut attributes = received.clone();
    attributes.remove(replay::HEADER);
    if !verbatim {
        attributes.retain(|name, _| !CONTRACT.contains(&name.as_str()));
    }
    if bypass && let Some(mark) = attribute("String", replay::MARK) {
        // Of eleven the one goes that the body says as well.
        if attributes.len() == MAX_ATTRIBUTES {
            attributes.remove(CREATED_AT);
        }
        attributes.insert(replay::HEADER.to_owned(), mark);
    }
    if verbatim {
        attributes
    } else {
        with_projection(attributes, body)
    }
}

/// What SQS says of a delivery: how often it was received before (contract §13.2), and the version
/// that it was sent with, if that is text.
pub fn facts(receive_count: Option<&str>, attributes: &Attributes) -> Facts {
    let mut facts = Facts::default();
    let count = receive_count.and_then(|count| count.parse::<u32>().ok());
    facts.deliveries = count.and_then(|count| count.checked_sub(1));
    facts.version = match attributes.get(SCHEMA_VERSION) {
        Some(value) => value
            .string_value()
            .map_or(VersionProperty::Absent, |text| {
                VersionProperty::Text(text.into())
            }),
        None => VersionProperty::Absent,
    };
    facts
}

/// What a handler sees of the attributes: the text in them.
pub fn surfaced(attributes: &Attributes) -> Headers {
    RESERVED.surfaced(
        attributes
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.string_value()?))),
    )
}

/// The same with what `body` says, as far as there is room: all of that stands in the body too.
fn with_projection(mut attributes: Attributes, body: &[u8]) -> Attributes {
    let projected = projected(body);
    // The version first: it is the one that a consumer acts upon.
    let version = projected.get_key_value(SCHEMA_VERSION);
    let others = projected.iter().filter(|(name, _)| *name != SCHEMA_VERSION);
    for (name, value) in version.into_iter().chain(others) {
        if attributes.len() < MAX_ATTRIBUTES {
            attributes.insert(name.clone(), value.clone());
        }
    }
    attributes
}

/// An attribute; none of an empty text, which SQS refuses.
fn attribute(kind: &str, value: &str) -> Option<MessageAttributeValue> {
    let builder = MessageAttributeValue::builder().data_type(kind);
    let built = builder.string_value(value).build().ok();
    built.filter(|_| !value.is_empty())
}

#[cfg(test)]
mod tests;
