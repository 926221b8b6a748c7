//! What a dead-letter copy says of its failure, and where it goes (contract §6).

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Utc};

use crate::Error;
use crate::bounded_text::cut;
use crate::envelope::LANG;
use crate::json::{self, Kind};
use crate::transport::DeadLetterNaming;

/// How long the texts of a block are at most, in bytes: what is longer is cut between two characters
/// when the block is written, and an ellipsis stands for the rest. So no error can make a record much
/// larger than its message (control characters are escaped, which takes six bytes for one).
pub const TEXT_LIMIT: usize = 4096;

/// Why a message was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its handler failed until the attempts were used up, or rejected it.
    Failed,
    /// No handler takes its URN.
    UnknownUrn,
    /// Its body is no envelope, or has no identity.
    Poison,
}

impl Reason {
    /// As the contract writes it: `failed`, `unknown_urn`, `poison`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::UnknownUrn => "unknown_urn",
            Self::Poison => "poison",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The `dead_letter` block (contract §6.1). All seven members are always written, a `None` as
/// `null`, as the peers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub reason: Reason,
    /// What went wrong, in words; written up to [`TEXT_LIMIT`].
    pub error: Option<String>,
    /// The error's type, as the language names it; written up to [`TEXT_LIMIT`].
    pub exception: Option<String>,
    /// When, in milliseconds since the Unix epoch.
    pub failed_at: i64,
    /// The queue that the message was consumed from, and that a redrive returns it to (§18.8).
    pub original_queue: String,
    /// How often it had been delivered.
    pub attempts: i64,
    /// The SDK that wrote the block; [`LANG`] unless changed.
    pub lang: Option<String>,
}

impl DeadLetter {
    /// A block without error and exception, stamped with our language tag.
    pub fn new(
        reason: Reason,
        original_queue: impl Into<String>,
        attempts: i64,
        failed_at: i64,
    ) -> Self {
        Self {
            reason,
            error: None,
            exception: None,
            failed_at,
            original_queue: original_queue.into(),
            attempts,
            lang: Some(LANG.to_owned()),
        }
    }

    /// Sets what went wrong, in words.
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Sets the error's type.
    pub fn exception(mut self, exception: impl Into<String>) -> Self {
        self.exception = Some(exception.into());
        self
    }

    /// The block as compact JSON, its members in the contract's order.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(b"{\"reason\":");
        json::write_string(&mut out, self.reason.as_str());
        out.extend_from_slice(b",\"error\":");
        write_nullable(&mut out, self.error.as_deref());
        out.extend_from_slice(b",\"exception\":");
        write_nullable(&mut out, self.exception.as_deref());
        out.extend_from_slice(b",\"failed_at\":");
        json::write_int64(&mut out, self.failed_at);
        out.extend_from_slice(b",\"original_queue\":");
        json::write_string(&mut out, &self.original_queue);
        out.extend_from_slice(b",\"attempts\":");
        json::write_int64(&mut out, self.attempts);
        out.extend_from_slice(b",\"lang\":");
        write_nullable(&mut out, self.lang.as_deref());
        out.push(b'}');
        out
    }
}

fn write_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => json::write_string(out, &cut(text)),
        None => out.extend_from_slice(b"null"),
    }
}

/// A `dead_letter` block as somebody wrote it: each member only where it is there and of its type.
/// Any text is taken for `reason` (contract §2A.4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recorded<'a> {
    /// Why; compare it with [`Reason::as_str`].
    pub reason: Option<Cow<'a, str>>,
    /// What went wrong, in words.
    pub error: Option<Cow<'a, str>>,
    /// The error's type.
    pub exception: Option<Cow<'a, str>>,
    /// When, in milliseconds since the Unix epoch.
    pub failed_at: Option<i64>,
    /// The queue that it was consumed from.
    pub original_queue: Option<Cow<'a, str>>,
    /// How often it had been delivered.
    pub attempts: Option<i64>,
    /// The SDK that wrote it.
    pub lang: Option<Cow<'a, str>>,
}

impl<'a> Recorded<'a> {
    /// [`failed_at`](Self::failed_at) as a time; `None` also beyond what chrono can hold.
    pub fn failed_at_time(&self) -> Option<DateTime<Utc>> {
        self.failed_at.and_then(DateTime::from_timestamp_millis)
    }

    /// Reads a block; `None` where it is `null`.
    pub(crate) fn read(block: &'a str) -> Option<Self> {
        if Kind::of(block.as_bytes()) != Some(Kind::Object) {
            return None;
        }
        let member = |name| json::last_member(block, name).map(|span| &block[span.range()]);
        let string = |name| {
            let value: &'a str = member(name)?;
            let content = value.strip_prefix('"')?.strip_suffix('"')?;
            Some(json::unescape(content.as_bytes()))
        };
        let integer = |name| member(name).and_then(|value| json::int64(value.as_bytes()));
        Some(Self {
            reason: string("reason"),
            error: string("error"),
            exception: string("exception"),
            failed_at: integer("failed_at"),
            original_queue: string("original_queue"),
            attempts: integer("attempts"),
            lang: string("lang"),
        })
    }
}

/// The name of the dead-letter queue of `queue`: `explicit`, else made from the source's name with
/// `suffix`, else with the binding's own (contract §6.3). An empty name or suffix counts as unset.
///
/// # Errors
///
/// [`Error::Config`] where it is `queue` itself.
pub fn queue_name(
    queue: &str,
    explicit: Option<&str>,
    suffix: Option<&str>,
    naming: DeadLetterNaming,
) -> Result<String, Error> {
    let explicit = explicit.filter(|name| !name.is_empty());
    let suffix = suffix.filter(|suffix| !suffix.is_empty());
    let name = match (explicit, naming) {
        (Some(name), _) => name.to_owned(),
        (None, DeadLetterNaming::DotSuffix) => format!("{queue}{}", suffix.unwrap_or(".dlq")),
        (None, DeadLetterNaming::Sqs) => {
            let suffix = suffix.unwrap_or("-dlq");
            match queue.strip_suffix(".fifo") {
                Some(base) => format!("{base}{suffix}.fifo"),
                None => format!("{queue}{suffix}"),
            }
        }
    };
    if name == queue {
        let problem = format!("is {name:?}, the queue itself, expected another one");
        return Err(Error::config("dead_letter_queue", problem));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeadLetterNaming::{DotSuffix, Sqs};

    #[test]
    fn a_block_has_all_seven_members() {
        let bare = DeadLetter::new(Reason::UnknownUrn, "orders", 3, 5);
        assert_eq!(
            String::from_utf8(bare.to_json()).unwrap(),
            r#"{"reason":"unknown_urn","error":null,"exception":null,"failed_at":5,"original_queue":"orders","attempts":3,"lang":"rust"}"#
        );
        let full = DeadLetter { lang: None, ..bare }
            .error("a\"\n☕")
            .exception("E");
        assert_eq!(
            String::from_utf8(full.to_json()).unwrap(),
            r#"{"reason":"unknown_urn","error":"a\"\n☕","exception":"E","failed_at":5,"original_queue":"orders","attempts":3,"lang":null}"#
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "é".repeat(TEXT_LIMIT);
        let block = DeadLetter::new(Reason::Failed, "orders", 3, 5)
            .error(&*long)
            .exception(&*long)
            .to_json();
        let read = Recorded::read(std::str::from_utf8(&block).unwrap()).unwrap();
        for text in [read.error.unwrap(), read.exception.unwrap()] {
            assert!(text.ends_with("é…") && text.len() <= TEXT_LIMIT, "{text}");
        }
    }

    #[test]
    fn a_peer_s_block_is_read_as_far_as_it_goes() {
        let read = Recorded::read(
            r#"{"reason":"gone","err\u006fr":"a\u0062","failed_at":-0,"attempts":null,"attempts":2,"x":1}"#,
        )
        .unwrap();
        assert_eq!(read.failed_at_time(), Some(DateTime::UNIX_EPOCH));
        assert_eq!(read.reason.unwrap(), "gone");
        assert_eq!(read.error.unwrap(), "ab");
        assert_eq!((read.failed_at, read.attempts), (Some(0), Some(2)));
        assert_eq!(
            (read.original_queue, read.exception, read.lang),
            (None, None, None)
        );
        assert_eq!(Recorded::read("null"), None);
    }

    #[test]
    fn names_follow_the_binding() {
        for (queue, explicit, suffix, naming, expected) in [
            ("orders", None, None, DotSuffix, "orders.dlq"),
            ("orders", None, Some(""), DotSuffix, "orders.dlq"),
            ("orders", Some(""), Some("-x"), DotSuffix, "orders-x"),
            ("orders", Some("dead"), Some("-x"), Sqs, "dead"),
            ("orders", None, None, Sqs, "orders-dlq"),
            ("orders.fifo", None, None, Sqs, "orders-dlq.fifo"),
            ("orders.fifo", None, Some("-x"), Sqs, "orders-x.fifo"),
            ("orders.fifo", None, None, DotSuffix, "orders.fifo.dlq"),
        ] {
            let name = queue_name(queue, explicit, suffix, naming).ok();
            assert_eq!(name.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_dead_letter_queue_is_not_its_own_source() {
        assert!(queue_name("orders", Some("orders"), None, DotSuffix).is_err());
    }
}
