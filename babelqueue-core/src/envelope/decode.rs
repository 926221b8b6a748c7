use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::Envelope;
use super::members::{Forbidden, Members, is_identity};
use crate::json::{self, Edit, Fault, FaultKind, Kind};
use crate::verdict::Verdict;

/// A decoded body: the envelope, and what was noticed on the way.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The envelope, in its canonical bytes.
    pub envelope: Envelope,
    /// What a producer should mend; each is in the log too, at level `WARN`.
    pub warnings: Vec<Warning>,
    /// Whether the canonical bytes differ from the received ones: a forbidden key was dropped, or
    /// `urn` folded into `job` (contract §2.5, §2.6). A path that gives back received bytes has to
    /// give back the canonical ones then (§3.2).
    pub rewritten: bool,
}

/// Something in a body that its producer should not write, and that does not keep the message from
/// being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Warning {
    /// A key that no envelope may carry was there, and was dropped (contract §2.5).
    ForbiddenKey {
        /// Its pointer: `/timestamp`, `/meta/ts` …
        pointer: &'static str,
    },
    /// `job` is not a string, so `urn` took its place (§2.6a).
    JobNotAString {
        /// What it is.
        found: Kind,
    },
    /// `urn` stood beside a valid `job`, and was dropped (§2.6c).
    UrnBesideJob,
}

impl Warning {
    /// The RFC 6901 pointer of the member that it is about.
    pub const fn pointer(&self) -> &'static str {
        match self {
            Self::ForbiddenKey { pointer } => pointer,
            Self::JobNotAString { .. } => "/job",
            Self::UrnBesideJob => "/urn",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForbiddenKey { pointer } => {
                write!(
                    f,
                    "`{pointer}` is a key that no envelope may carry: dropped"
                )
            }
            Self::JobNotAString { found } => {
                write!(
                    f,
                    "`/job` is {found}, expected a string: `/urn` taken instead"
                )
            }
            Self::UrnBesideJob => f.write_str("`/urn` stands beside a valid `/job`: dropped"),
        }
    }
}

/// Why a body is no envelope (contract §2A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    cause: Cause,
    offset: usize,
    pointer: String,
}

impl DecodeError {
    /// What is wrong.
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// Where in the body: the offset of a byte.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The RFC 6901 pointer of the value in which that byte lies, `""` for the whole body. In a body
    /// that is nested very deeply or has very long names it is an ancestor's.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// [`Verdict::NoIdentity`] or [`Verdict::Poison`].
    pub const fn verdict(&self) -> Verdict {
        match self.cause {
            Cause::NoIdentity { .. } => Verdict::NoIdentity,
            _ => Verdict::Poison,
        }
    }

    #[cold]
    fn at(fault: Fault, body: &[u8]) -> Self {
        let pointer = match fault.kind {
            FaultKind::TooLarge | FaultKind::Empty => String::new(),
            _ => json::pointer_at(body, fault.at()),
        };
        Self {
            cause: fault.kind.into(),
            offset: fault.at(),
            pointer,
        }
    }

    #[cold]
    fn no_identity(members: &Members, body: &[u8]) -> Self {
        Self {
            cause: Cause::NoIdentity {
                job: Kind::of(members.job.of(body)),
                urn: Kind::of(members.urn.of(body)),
            },
            offset: 0,
            pointer: String::new(),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pointer.as_str(), &self.cause) {
            (_, cause @ Cause::NoIdentity { .. }) => return write!(f, "{cause}"),
            ("", cause) => write!(f, "the body {cause}")?,
            (pointer, cause) => write!(f, "`{pointer}` {cause}")?,
        }
        write!(f, " (at byte {})", self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// What makes a body poison, or leaves it without identity (contract §2A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// 4 GiB or more: no broker carries that, and offsets are kept in 32 bits.
    TooLarge,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// Nothing, or only whitespace.
    Empty,
    /// Not one JSON value under the strict grammar of RFC 8259.
    Syntax {
        /// What should have stood there.
        expected: &'static str,
    },
    /// A `\uD800`–`\uDFFF` escape without its other half (§18.7).
    LoneSurrogate,
    /// One JSON value, but not an object.
    NotAnObject {
        /// What it is.
        found: Kind,
    },
    /// A member that the contract knows has another type.
    WrongType {
        /// What it is.
        found: Kind,
        /// What it has to be.
        expected: &'static str,
    },
    /// An integer member that is not an integer literal of 64 bits: `1.0`, `1e3`, 2^63.
    NotInt64,
    /// A number in `data` that is no finite double: `1e400`.
    NotFinite,
    /// Neither `job` nor `urn` is a string that is not blank (§2.6).
    NoIdentity {
        /// What `job` is, where there is one.
        job: Option<Kind>,
        /// What `urn` is, where there is one.
        urn: Option<Kind>,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("is larger than 4 GiB"),
            Self::NotUtf8 => f.write_str("is not UTF-8"),
            Self::Empty => f.write_str("is empty, expected a JSON object"),
            Self::Syntax { expected } => write!(f, "is not JSON: expected {expected}"),
            Self::LoneSurrogate => f.write_str("has a surrogate escape without its other half"),
            Self::NotAnObject { found } => write!(f, "is {found}, expected an object"),
            Self::WrongType { found, expected } => write!(f, "is {found}, expected {expected}"),
            Self::NotInt64 => f.write_str("is a number, expected a 64-bit integer literal"),
            Self::NotFinite => f.write_str("is a number too large for a double"),
            Self::NoIdentity { job, urn } => {
                f.write_str("the message has no identity: `job` is ")?;
                identity_state(f, *job)?;
                f.write_str(", `urn` is ")?;
                identity_state(f, *urn)
            }
        }
    }
}

fn identity_state(f: &mut fmt::Formatter<'_>, kind: Option<Kind>) -> fmt::Result {
    match kind {
        None => f.write_str("absent"),
        Some(Kind::String) => f.write_str("blank"),
        Some(kind) => write!(f, "{kind}"),
    }
}

impl From<FaultKind> for Cause {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::TooLarge => Self::TooLarge,
            FaultKind::Utf8 => Self::NotUtf8,
            FaultKind::Empty => Self::Empty,
            FaultKind::Syntax(expected) => Self::Syntax {
                expected: expected.as_str(),
            },
            FaultKind::LoneSurrogate => Self::LoneSurrogate,
            FaultKind::NotAnObject(found) => Self::NotAnObject { found },
            FaultKind::WrongType { found, expected } => Self::WrongType {
                found,
                expected: expected.as_str(),
            },
            FaultKind::NotInt64 => Self::NotInt64,
            FaultKind::NotFinite => Self::NotFinite,
        }
    }
}

pub(super) fn decode(body: Bytes) -> Result<Decoded, DecodeError> {
    let members = Members::checked(&body).map_err(|fault| DecodeError::at(fault, &body))?;
    if members.identity(&body).is_none() {
        return Err(DecodeError::no_identity(&members, &body));
    }
    if !members.needs_rewrite() {
        return Ok(Decoded {
            envelope: Envelope {
                bytes: body,
                members,
            },
            warnings: Vec::new(),
            rewritten: false,
        });
    }
    let warnings = warnings(&members, &body);
    let canonical = canonical(&body, &members).map_err(|fault| DecodeError::at(fault, &body))?;
    let members =
        Members::checked(&canonical).map_err(|fault| DecodeError::at(fault, &canonical))?;
    let envelope = Envelope {
        bytes: Bytes::from(canonical),
        members,
    };
    for warning in &warnings {
        tracing::warn!(
            pointer = warning.pointer(),
            urn = %envelope.urn(),
            id = envelope.id().as_deref(),
            "{warning}"
        );
    }
    Ok(Decoded {
        envelope,
        warnings,
        rewritten: true,
    })
}

fn warnings(members: &Members, body: &[u8]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    match Kind::of(members.job.of(body)) {
        Some(Kind::String) if is_identity(members.job.of(body)) => {
            if !members.urn.is_absent() {
                warnings.push(Warning::UrnBesideJob);
            }
        }
        None | Some(Kind::String) => {}
        Some(found) => warnings.push(Warning::JobNotAString { found }),
    }
    warnings.extend(
        members
            .forbidden
            .pointers()
            .map(|pointer| Warning::ForbiddenKey { pointer }),
    );
    warnings
}

/// The body without its forbidden keys, and with `urn` folded into `job`; the rest byte for byte.
fn canonical(body: &Bytes, members: &Members) -> Result<Vec<u8>, Fault> {
    let job_is_identity = is_identity(members.job.of(body));
    json::edit_object(
        text_of(body),
        members.root.range().start,
        |key, value| match key.text().as_ref() {
            "job" if value == members.job && !job_is_identity => {
                Edit::Value(Cow::Borrowed(members.urn.of(body)))
            }
            "urn" if value == members.urn && members.job.is_absent() => Edit::Name("job"),
            "urn" => Edit::Drop,
            name if Forbidden::is_at_top(name) => Edit::Drop,
            "meta" if value == members.meta => match without_forbidden(value.of(body)) {
                Ok(meta) => Edit::Value(Cow::Owned(meta)),
                Err(_) => Edit::Keep,
            },
            _ => Edit::Keep,
        },
    )
}

/// `meta` without its forbidden keys; fails where it is no object.
fn without_forbidden(meta: &[u8]) -> Result<Vec<u8>, Fault> {
    json::edit_object(text_of(meta), 0, |key, _| {
        match Forbidden::in_meta(&key.text()) {
            Some(_) => Edit::Drop,
            None => Edit::Keep,
        }
    })
}

/// The text of a part of a body that was found to be UTF-8.
pub(super) fn text_of(part: &[u8]) -> &str {
    std::str::from_utf8(part).unwrap_or_default()
}
