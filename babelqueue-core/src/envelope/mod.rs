//! The envelope: what travels on every broker, byte for byte the same (contract §1–3, §5).
//!
//! An [`Envelope`] is the received bytes plus where each known member lies in them. Nothing is
//! parsed twice and nothing is written anew: a retry splices `attempts` into the bytes, and numbers
//! such as `1e400` or a 40-digit integer, `{}` against `[]`, unknown keys, order and spelling all
//! come back as they came. A handler reads `data` straight into its own type.
//!
//! ```
//! use babelqueue_core::envelope::Envelope;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated {
//!     order_id: u64,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sent = Envelope::builder("urn:babel:orders:created")
//!     .queue("orders")
//!     .data(&OrderCreated { order_id: 1042 })
//!     .build()?;
//!
//! let received = Envelope::decode(sent.encode()?)?.envelope;
//! assert!(received.accepts());
//! assert_eq!(received.data::<OrderCreated>()?.order_id, 1042);
//! assert_eq!(received.with_attempts(1).attempts(), Some(1));
//! # Ok(())
//! # }
//! ```

mod builder;
mod data;
mod decode;
mod encode;
mod finite;
pub(crate) mod members;
mod projection;
mod splice;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};

pub use builder::{EnvelopeBuilder, LANG};
pub use data::DataError;
pub use decode::{Cause, DecodeError, Decoded, Warning};
pub use encode::EncodeError;
pub use projection::Projection;

pub use crate::json::Kind;

use crate::dead_letter::Recorded;
use crate::json::{self, Span};
use decode::text_of;
use members::{Members, content};

/// The `meta.schema_version` that this version of the contract writes and takes (§1).
pub const SCHEMA_VERSION: i64 = 1;

/// One message as it travels. It always has an identity. Cloning is cheap: the bytes are shared.
#[derive(Clone)]
pub struct Envelope {
    bytes: Bytes,
    members: Members,
}

impl Envelope {
    /// Decodes a received body: one pass, and no allocation where nothing has to be dropped from it
    /// and `body` is a [`Bytes`] already.
    ///
    /// A forbidden key or a `urn` is dropped from the envelope's bytes with a warning (contract §2.5,
    /// §2.6); each warning is also a `tracing` event. Member names are compared byte for byte after
    /// unescaping; of a repeated member the last one counts (§2.2), and every one has to have the
    /// right type (§18.17).
    ///
    /// # Errors
    ///
    /// What makes the body poison, or that it has no identity (§2A).
    pub fn decode(body: impl Into<Bytes>) -> Result<Decoded, DecodeError> {
        decode::decode(body.into())
    }

    /// The message's URN: the exact text of `job`, never trimmed, never blank (contract §2.6).
    pub fn urn(&self) -> Cow<'_, str> {
        self.string(self.members.job).unwrap_or_default()
    }

    /// `trace_id`, where it is a string. It is forwarded untouched (golden rule GR-4).
    pub fn trace_id(&self) -> Option<Cow<'_, str>> {
        self.string(self.members.trace_id)
    }

    /// `meta.id`, where it is a string: the message's own id, by which duplicates are known.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.string(self.members.id)
    }

    /// `meta.queue`, where it is a string: the logical queue it was made for.
    pub fn queue(&self) -> Option<Cow<'_, str>> {
        self.string(self.members.queue)
    }

    /// `meta.lang`, where it is a string: the SDK that made the message. Any text is taken (§2.4).
    pub fn lang(&self) -> Option<Cow<'_, str>> {
        self.string(self.members.lang)
    }

    /// `meta.schema_version`, where it is there and not null.
    pub fn schema_version(&self) -> Option<i64> {
        self.integer(self.members.schema_version)
    }

    /// `meta.created_at` in milliseconds since the Unix epoch, where it is there and not null.
    pub fn created_at_ms(&self) -> Option<i64> {
        self.integer(self.members.created_at)
    }

    /// [`created_at_ms`](Self::created_at_ms) as a time; `None` also beyond what chrono can hold
    /// (some 262,000 years either way).
    pub fn created_at(&self) -> Option<DateTime<Utc>> {
        self.created_at_ms()
            .and_then(DateTime::from_timestamp_millis)
    }

    /// `attempts`, where it is there and not null: how often the message was delivered before.
    pub fn attempts(&self) -> Option<i64> {
        self.integer(self.members.attempts)
    }

    /// The text of `data`, `null` included; `None` where it is absent.
    pub fn data_json(&self) -> Option<&str> {
        self.text(self.members.data)
    }

    /// The text of a member of `meta`, by the name that it means; of a repeated one the last.
    pub fn meta_json(&self, key: &str) -> Option<&str> {
        let meta = self.text(self.members.meta)?;
        json::last_member(meta, key).map(|span| &meta[span.range()])
    }

    /// The text of a member at the top of the envelope, by the name that it means; of a repeated one
    /// the last.
    pub fn extra_json(&self, key: &str) -> Option<&str> {
        let root = self.text(self.members.root)?;
        json::last_member(root, key).map(|span| &root[span.range()])
    }

    /// What a dead-letter copy says of its failure (contract §6), where it is one.
    pub fn dead_letter(&self) -> Option<Recorded<'_>> {
        Recorded::read(self.text(self.members.dead_letter)?)
    }

    /// Whether a consumer takes it (contract §2B): the schema version is 1, `data` an object,
    /// `attempts` there, and `trace_id` not blank. An envelope can decode and not be accepted.
    pub fn accepts(&self) -> bool {
        self.unaccepted().is_none()
    }

    /// Why a consumer does not take it: the JSON pointer of the first member that
    /// [`accepts`](Self::accepts) fails on; `None` where it does.
    pub fn unaccepted(&self) -> Option<&'static str> {
        unaccepted(&self.members, &self.bytes)
    }

    /// The canonical bytes, as they are published.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The canonical bytes of an envelope that is not needed any more.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The bytes to publish.
    ///
    /// # Errors
    ///
    /// The envelope carries a forbidden key or a `urn` (contract §3.1). One that was decoded or
    /// built never does.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        encode::refuse_forbidden(&self.members)?;
        Ok(self.bytes.clone())
    }

    fn text(&self, span: Span) -> Option<&str> {
        (!span.is_absent()).then(|| text_of(span.of(&self.bytes)))
    }

    fn string(&self, span: Span) -> Option<Cow<'_, str>> {
        content(span.of(&self.bytes)).map(json::unescape)
    }

    fn integer(&self, span: Span) -> Option<i64> {
        json::int64(span.of(&self.bytes))
    }
}

/// Whether a consumer takes `body` (contract §2B): it decodes, and the envelope
/// [`accepts`](Envelope::accepts). Never fails, whatever the bytes.
pub fn accepts(body: &[u8]) -> bool {
    Members::checked(body).is_ok_and(|members| {
        members.identity(body).is_some() && unaccepted(&members, body).is_none()
    })
}

fn unaccepted(members: &Members, body: &[u8]) -> Option<&'static str> {
    let not_blank = |span: Span| content(span.of(body)).is_some_and(|text| !json::is_blank(text));
    if json::int64(members.schema_version.of(body)) != Some(SCHEMA_VERSION) {
        Some("/meta/schema_version")
    } else if Kind::of(members.data.of(body)) != Some(Kind::Object) {
        Some("/data")
    } else if json::int64(members.attempts.of(body)).is_none() {
        Some("/attempts")
    } else if !not_blank(members.trace_id) {
        Some("/trace_id")
    } else {
        None
    }
}

/// Equal are envelopes of equal bytes.
impl PartialEq for Envelope {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Envelope {}

/// What identifies it; `data` is the user's.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("urn", &self.urn())
            .field("id", &self.id())
            .field("attempts", &self.attempts())
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
