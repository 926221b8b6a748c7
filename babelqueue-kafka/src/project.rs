//! Envelope to record, and record to facts; pure (contract §16.1–5, §16.7).

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::decide::parse_count;
use babelqueue_core::envelope::Projection;
use babelqueue_core::headers::Reserved;
use babelqueue_core::transport::{Facts, Outgoing, PublishOptions, VersionProperty};
use babelqueue_core::{Error, Headers, replay};
use bytes::Bytes;

pub use crate::headers::{NewHeaders, RecordHeaders};
use crate::tiers::{RetryTiers, millis, stem};

const JOB: &str = "bq-job";
const TRACE_ID: &str = "bq-trace-id";
const MESSAGE_ID: &str = "bq-message-id";
const SCHEMA_VERSION: &str = "bq-schema-version";
const SOURCE_LANG: &str = "bq-source-lang";
const ATTEMPTS: &str = "bq-attempts";
/// How long a record in a tier topic is held, in milliseconds.
const DELAY: &str = "bq-delay";
/// Where the re-injector brings it back to.
const ORIGINAL_TOPIC: &str = "bq-original-topic";

/// What every copy writes anew or leaves out; the rest of a received record's headers goes along
/// untouched.
const WRITTEN: [&str; 8] = [
    JOB,
    TRACE_ID,
    MESSAGE_ID,
    SCHEMA_VERSION,
    SOURCE_LANG,
    ATTEMPTS,
    DELAY,
    ORIGINAL_TOPIC,
];

/// The names that are the binding's own.
const RESERVED: Reserved = Reserved::new(&[], &["bq-"]);

/// A record on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition; `None` for the one that the key says, or any.
    pub partition: Option<i32>,
    /// The key; null (`None`) and empty differ.
    pub key: Option<Bytes>,
    /// The value.
    pub body: Bytes,
    /// The headers.
    pub headers: NewHeaders,
    /// Milliseconds since the Unix epoch; `None` for the time of the write.
    pub timestamp: Option<i64>,
}

/// What a copy of a received record is made from.
#[derive(Debug, Clone, Copy)]
pub struct Received<'r> {
    /// The topic that it was consumed from.
    pub topic: &'r str,
    /// Its key.
    pub key: Option<&'r Bytes>,
    /// Its headers.
    pub headers: &'r RecordHeaders,
}

/// The record of a publish: to its topic, or, with a delay, to the shortest tier that is no shorter.
///
/// It is stamped with `meta.created_at` (contract §16.1): a topic's retention counts from there, and
/// a broker refuses a stamp that its topic does not allow (`message.timestamp.*`). With a delay it
/// has the time of the write.
///
/// # Errors
///
/// [`Error::Unsupported`]: an option that Kafka lacks, or a delay that no tier is long enough for.
pub fn publish(outgoing: Outgoing, tiers: &RetryTiers) -> Result<NewRecord, Error> {
    refuse_unsupported(&outgoing.options)?;
    let projection = Projection::of(&outgoing.body);
    let mut headers = projected(&projection, None);
    let mut timestamp = projection.created_at_ms.filter(|created| *created >= 0);
    let mut topic = outgoing.queue;
    if let Some(delay) = outgoing.options.delay.filter(|delay| !delay.is_zero()) {
        let tier = tiers
            .for_delay(delay)
            .ok_or_else(|| too_long(tiers, delay))?;
        headers = controlled(headers, millis(delay), &topic);
        topic = tier.topic(&topic).into();
        timestamp = None;
    }
    for (name, value) in RESERVED.carried(&outgoing.headers) {
        headers = headers.with(sendable(name)?, Some(value.as_bytes()));
    }
    Ok(NewRecord {
        topic,
        partition: outgoing.options.partition,
        key: outgoing.options.key,
        body: outgoing.body,
        headers,
        timestamp,
    })
}

/// The copy that retries a received record with this body as its `attempts`-th retry: by way of the
/// tier that the count says, never of a delay (contract §16.5).
///
/// # Errors
///
/// [`Error::Unsupported`]: there are no tiers.
pub fn retry(
    received: Received<'_>,
    body: Bytes,
    attempts: u32,
    tiers: &RetryTiers,
) -> Result<NewRecord, Error> {
    let tier = tiers
        .for_retry(attempts.saturating_sub(1))
        .ok_or_else(|| no_tiers(received.topic))?;
    let headers = projected(&Projection::of(&body), Some(attempts));
    let headers = controlled(headers, tier.millis(), received.topic);
    let headers = carried(headers, received.headers);
    Ok(copy(
        tier.topic(received.topic).into(),
        received.key,
        body,
        headers,
    ))
}

/// The dead-letter record of a received one. One that is the received body byte for byte
/// (`verbatim`) keeps the received headers byte for byte as well, so that a redrive meets the
/// version gate again (contract §9.6).
pub fn dead_letter(
    received: Received<'_>,
    topic: Arc<str>,
    record: Bytes,
    verbatim: bool,
    attempts: u32,
) -> NewRecord {
    let headers = if verbatim {
        received.headers.iter().collect()
    } else {
        let headers = projected(&Projection::of(&record), Some(attempts));
        carried(headers, received.headers)
    };
    copy(topic, received.key, record, headers)
}

/// The copy of a dead letter that is to be handled again, with the replay mark or without.
pub fn redrive(
    received: Received<'_>,
    topic: Arc<str>,
    body: Bytes,
    verbatim: bool,
    bypass: bool,
) -> NewRecord {
    let mut record = dead_letter(received, topic, body, verbatim, 0);
    let unmarked = record.headers.iter();
    record.headers = unmarked
        .filter(|(name, _)| *name != replay::HEADER)
        .collect();
    if bypass {
        let mark = replay::MARK.as_bytes();
        record.headers = record.headers.with(replay::HEADER, Some(mark));
    }
    record
}

/// The record of a tier as it goes back: key, value and headers as they are, but for the tier's own
/// two; to where its header says, or to the topic that the tier is named after (contract §16.7).
pub fn bring_back(received: Received<'_>, body: Bytes) -> NewRecord {
    let named = received.headers.first(ORIGINAL_TOPIC).and_then(text);
    let named = named.filter(|topic| !topic.is_empty());
    let stem = stem(received.topic).map(|(stem, _)| stem);
    let headers = received
        .headers
        .iter()
        .filter(|(name, _)| *name != DELAY && *name != ORIGINAL_TOPIC)
        .collect();
    let topic = named.or(stem).unwrap_or(received.topic);
    copy(topic.into(), received.key, body, headers)
}

/// What a record's headers say to the core (contract §9.1, §16.3). Of a repeated header the first
/// counts.
pub fn facts(received: &RecordHeaders) -> Facts {
    let mut facts = Facts::default();
    let (mut version, mut attempts, mut original) = (None, None, None);
    for (name, value) in received.fields() {
        let first = if name == SCHEMA_VERSION.as_bytes() {
            &mut version
        } else if name == ATTEMPTS.as_bytes() {
            &mut attempts
        } else if name == ORIGINAL_TOPIC.as_bytes() {
            &mut original
        } else {
            continue;
        };
        first.get_or_insert(value);
    }
    facts.version = version
        .flatten()
        .map_or(VersionProperty::Absent, version_property);
    facts.attempts = attempts.flatten().and_then(parse_count);
    facts.original_queue = original
        .flatten()
        .and_then(text)
        .filter(|topic| !topic.is_empty())
        .map(Into::into);
    facts
}

/// The headers that a handler sees: text, and none of the binding's own (contract §10.2).
pub fn surfaced(received: &RecordHeaders) -> Headers {
    let texts = received
        .iter()
        .filter_map(|(name, value)| Some((name, text(value?)?)));
    RESERVED.surfaced(texts)
}

/// Whether a header of this name may be one of those that a handler sees.
pub(crate) fn is_surfaced(name: &str) -> bool {
    !RESERVED.contains(name)
}

/// A copy is stamped with the time of the write: the delay of a tier counts from there.
fn copy(topic: Arc<str>, key: Option<&Bytes>, body: Bytes, headers: NewHeaders) -> NewRecord {
    NewRecord {
        topic,
        partition: None,
        key: key.cloned(),
        body,
        headers,
        timestamp: None,
    }
}

fn version_property(value: &[u8]) -> VersionProperty {
    match text(value) {
        // What nearly all records say. The gate takes the number for the text, and it needs no
        // memory.
        Some("1") => VersionProperty::Integer(1),
        Some(text) => VersionProperty::Text(text.into()),
        None => VersionProperty::Other(String::from_utf8_lossy(value).into()),
    }
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// The six, each if its member is there and of its type (contract §11C). `attempts` replaces the
/// body's, which a poison body may not have.
fn projected(of: &Projection<'_>, attempts: Option<u32>) -> NewHeaders {
    let (mut version, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let attempts = attempts.map(i64::from).or(of.attempts);
    let six = [
        (JOB, of.urn.as_deref()),
        (TRACE_ID, of.trace_id.as_deref()),
        (MESSAGE_ID, of.id.as_deref()),
        (
            SCHEMA_VERSION,
            of.schema_version.map(|of| version.format(of)),
        ),
        (SOURCE_LANG, of.lang.as_deref()),
        (ATTEMPTS, attempts.map(|number| count.format(number))),
    ];
    six.into_iter()
        .filter_map(|(name, value)| Some((name, Some(value?.as_bytes()))))
        .collect()
}

fn controlled(headers: NewHeaders, delay_ms: u64, work_topic: &str) -> NewHeaders {
    headers
        .with(DELAY, Some(delay_ms.to_string().as_bytes()))
        .with(ORIGINAL_TOPIC, Some(work_topic.as_bytes()))
}

fn carried(headers: NewHeaders, received: &RecordHeaders) -> NewHeaders {
    received
        .iter()
        .filter(|(name, _)| !WRITTEN.contains(name))
        .fold(headers, |headers, (name, value)| headers.with(name, value))
}

/// The name of a user's header. A received one has no NUL: the client ends it there.
fn sendable(name: &str) -> Result<&str, Error> {
    if name.contains('\0') {
        let context = format!("the header name {name:?} has a NUL, at which readers end it");
        return Err(Error::message(context));
    }
    Ok(name)
}

fn refuse_unsupported(options: &PublishOptions) -> Result<(), Error> {
    let lacking = [
        ("message group", options.group.is_some(), "use a key"),
        (
            "deduplication id",
            options.deduplication_id.is_some(),
            "the producer itself writes a record once",
        ),
        (
            "priority",
            options.priority.is_some(),
            "a topic is read in order",
        ),
        (
            "time to live",
            options.time_to_live.is_some(),
            "retention belongs to the topic",
        ),
        (
            "partition with a delay",
            options.partition.is_some() && options.delay.is_some_and(|delay| !delay.is_zero()),
            "what comes back from a tier goes where its key says",
        ),
    ];
    match lacking.into_iter().find(|(_, asked, _)| *asked) {
        None => Ok(()),
        Some((feature, _, instead)) => Err(Error::Unsupported {
            broker: crate::BROKER,
            feature,
            context: instead.to_owned(),
        }),
    }
}

fn too_long(tiers: &RetryTiers, delay: Duration) -> Error {
    let longest = tiers.iter().last().map(|tier| tier.delay);
    Error::Unsupported {
        broker: crate::BROKER,
        feature: "delay of this length",
        context: match longest {
            Some(longest) => {
                format!("{delay:?} is longer than the longest retry tier, {longest:?}")
            }
            None => "no retry tiers are configured".to_owned(),
        },
    }
}

fn no_tiers(topic: &str) -> Error {
    Error::Unsupported {
        broker: crate::BROKER,
        feature: "retry without retry tiers",
        context: format!("`{topic}` has none: the message holds its lane and comes again at once"),
    }
}

#[cfg(test)]
mod tests;
