//! What each case came to.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Case, Met, Unmet};

/// A section and the id of a case in it.
type Key = (Arc<str>, String);

/// The outcomes so far, shared by the trials' threads.
#[derive(Clone, Default)]
pub(super) struct Outcomes {
    cases: Arc<Mutex<BTreeMap<Key, Met>>>,
}

impl Outcomes {
    pub(super) fn note(&self, case: &Case, met: &Met) {
        let key = (Arc::clone(&case.section), case.id.clone());
        let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.insert(key, met.clone());
    }

    /// What `case` came to, if it was run.
    pub(super) fn of(&self, case: &Case) -> Option<Met> {
        let key = (Arc::clone(&case.section), case.id.clone());
        let cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.get(&key).cloned()
    }
}

/// A skip without a decision behind it, and a broker that is missing though it is required, are
/// failures.
pub(super) fn judged(met: Met, brokers_are_required: bool) -> Met {
    match met {
        Err(Unmet::Skipped(reason)) if !names_a_decision(&reason) => Err(Unmet::Failed(format!(
            "skipped without an ADR-NNNN in the reason: {reason}"
        ))),
        Err(Unmet::NoBroker(reason)) if brokers_are_required => Err(Unmet::Failed(reason)),
        other => other,
    }
}

/// Whether the reason cites a decision as `ADR-` and four digits.
fn names_a_decision(reason: &str) -> bool {
    reason.match_indices("ADR-").any(|(at, tag)| {
        let digits = reason[at + tag.len()..].bytes();
        digits.take_while(u8::is_ascii_digit).count() >= 4
    })
}

/// `BQ_REQUIRE_BROKERS`, or `BQ_REQUIRE_REDIS` and the like (contract §17B.6). A package's tests
/// talk to its own broker alone, so any of them means it.
pub(super) fn brokers_are_required() -> bool {
    env::vars_os().any(|(name, value)| {
        let name = name.to_string_lossy();
        name.starts_with("BQ_REQUIRE_") && !value.is_empty() && value != "0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_needs_a_decision() {
        let skip = |reason: &str| judged(Err(Unmet::Skipped(reason.to_owned())), false);
        assert!(matches!(
            skip("ADR-0037 decision 4"),
            Err(Unmet::Skipped(_))
        ));
        for reason in ["", "no time", "ADR-12", "adr-0037"] {
            assert!(matches!(skip(reason), Err(Unmet::Failed(_))), "{reason}");
        }
    }

    #[test]
    fn a_missing_broker_is_a_failure_where_it_is_required() {
        let away = || Err(Unmet::NoBroker("away".to_owned()));
        assert_eq!(judged(away(), false), away());
        assert!(matches!(judged(away(), true), Err(Unmet::Failed(_))));
    }
}
