use super::members::Members;
use super::{Cause, Kind};
use crate::Error;

/// Why an envelope cannot be made or sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The URN is empty, or nothing but blanks (contract §5.2).
    #[error("`/job` is blank, expected a URN")]
    BlankUrn,
    /// A text that has to hold something is blank.
    #[error("`{pointer}` is blank, expected {expected}")]
    Blank {
        /// The member's pointer.
        pointer: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// The payload is no JSON object (§3.3).
    #[error("`/data` is {found}, expected an object")]
    DataNotAnObject {
        /// What it is.
        found: Kind,
    },
    /// A key that no envelope may carry (§3.1).
    #[error("`{pointer}` is a key that no envelope may carry")]
    ForbiddenKey {
        /// Its pointer.
        pointer: String,
    },
    /// A core member of `meta`, which the builder writes itself (§5.4).
    #[error("`{pointer}` is a core key, which the envelope sets itself")]
    CoreKey {
        /// Its pointer.
        pointer: String,
    },
    /// A member of `meta` that was set before (§5.4).
    #[error("`{pointer}` was set before")]
    RepeatedKey {
        /// Its pointer.
        pointer: String,
    },
    /// A value has no JSON: a NaN, an infinity, a map whose keys are no text, or its own `Serialize`
    /// failed.
    #[error("`{pointer}` cannot be written as JSON: {problem}")]
    Serialize {
        /// The field's pointer.
        pointer: String,
        /// What serde says.
        problem: String,
    },
    /// JSON text that was handed in is not what an envelope may hold (§2A): `1e400`, a lone
    /// surrogate escape, or no JSON at all.
    #[error("`{pointer}` {cause}")]
    Invalid {
        /// The pointer of the value that is wrong.
        pointer: String,
        /// What is wrong with it.
        cause: Cause,
    },
}

impl EncodeError {
    /// The RFC 6901 pointer of the member that it is about.
    pub fn pointer(&self) -> &str {
        match self {
            Self::BlankUrn => "/job",
            Self::DataNotAnObject { .. } => "/data",
            Self::Blank { pointer, .. } => pointer,
            Self::ForbiddenKey { pointer }
            | Self::CoreKey { pointer }
            | Self::RepeatedKey { pointer }
            | Self::Serialize { pointer, .. }
            | Self::Invalid { pointer, .. } => pointer,
        }
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Self::message(&error).with_source(error)
    }
}

/// Refuses an envelope that carries what none may carry.
pub(super) fn refuse_forbidden(members: &Members) -> Result<(), EncodeError> {
    let urn = (!members.urn.is_absent()).then_some("/urn");
    match urn.into_iter().chain(members.forbidden.pointers()).next() {
        None => Ok(()),
        Some(pointer) => Err(EncodeError::ForbiddenKey {
            pointer: pointer.to_owned(),
        }),
    }
}
