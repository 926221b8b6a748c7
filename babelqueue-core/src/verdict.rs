//! What a body is, before anybody reads it (contract §2A).

use crate::envelope::members::Members;

/// The verdict of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// An envelope with an identity: it goes to a handler.
    Ok,
    /// Well formed and well typed, but neither `job` nor `urn` names it. Its fate is poison's; the
    /// Kafka cases of the suite tell it apart.
    NoIdentity,
    /// Not an envelope: it never reaches a handler.
    Poison,
}

impl Verdict {
    /// As the suite writes it: `ok`, `no_identity`, `poison`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NoIdentity => "no_identity",
            Self::Poison => "poison",
        }
    }

    /// Whether the body takes the poison route (contract §8): everything but [`Verdict::Ok`].
    pub const fn is_poison(self) -> bool {
        !matches!(self, Self::Ok)
    }
}

/// The verdict of `body`: one pass, no allocation for an ordinary body.
/// [`Envelope::decode`](crate::envelope::Envelope::decode) gives the cause as well.
///
/// ```
/// use babelqueue_core::verdict::{self, Verdict};
///
/// assert_eq!(verdict::of(br#"{"job":"urn:babel:orders:created"}"#), Verdict::Ok);
/// assert_eq!(verdict::of(br#"{"JOB":"urn:babel:orders:created"}"#), Verdict::NoIdentity);
/// assert_eq!(verdict::of(br#"{"job":"urn:babel:orders:created","attempts":1.0}"#), Verdict::Poison);
/// ```
pub fn of(body: &[u8]) -> Verdict {
    match Members::checked(body) {
        Err(_) => Verdict::Poison,
        Ok(members) if members.identity(body).is_none() => Verdict::NoIdentity,
        Ok(_) => Verdict::Ok,
    }
}
