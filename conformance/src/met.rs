use std::fmt::{self, Debug, Display};

use crate::Unreadable;

/// What running a case gives.
pub type Met = Result<(), Unmet>;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    /// It failed.
    Failed(String),
    /// It does not apply. The reason has to name the decision that says so, as `ADR-NNNN`
    /// (contract §17B.4), or the case counts as failed.
    Skipped(String),
    /// Its broker can't be reached. Where the environment requires it (`BQ_REQUIRE_BROKERS`, or
    /// `BQ_REQUIRE_` and the binding's name) that is a failure; elsewhere the trial is ignored, and
    /// no results file is written.
    NoBroker(String),
}

impl Unmet {
    /// A failure, with what was seen and what was expected in words.
    pub fn failed(what: impl Display) -> Self {
        Self::Failed(what.to_string())
    }
}

impl Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => f.write_str(what),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::NoBroker(reason) => write!(f, "no broker: {reason}"),
        }
    }
}

/// Any error on the way is a failure, with its causes.
impl<E: std::error::Error> From<E> for Unmet {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self::Failed(text)
    }
}

/// Fails unless `found` equals `expected`; `what` says of what.
///
/// # Errors
///
/// They differ.
pub fn same<F, E>(what: impl Display, found: &F, expected: &E) -> Met
where
    F: PartialEq<E> + Debug + ?Sized,
    E: Debug + ?Sized,
{
    if found == expected {
        return Ok(());
    }
    Err(Unmet::Failed(format!(
        "{what}: found {found:?}, expected {expected:?}"
    )))
}

/// Fails with `what` unless `condition` holds.
///
/// # Errors
///
/// It does not hold.
pub fn holds(condition: bool, what: impl Display) -> Met {
    if condition {
        Ok(())
    } else {
        Err(Unmet::failed(what))
    }
}

/// The error for a case with a word that this harness does not know: a newer suite's.
pub fn unknown(what: &str, word: impl Debug) -> Unreadable {
    Unreadable(format!("unknown {what} {word:?}"))
}
