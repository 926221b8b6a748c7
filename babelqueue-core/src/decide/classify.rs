use std::borrow::Cow;

use super::{Case, Event, poison_count, reconcile};
use crate::envelope::{Envelope, Projection, Warning};
use crate::headers::trim_blanks;
use crate::transport::{Delivery, Facts, Rules};
use crate::version_gate;

/// Sorts a delivery out: a handler's, or none's. The body is scanned once, and only behind the gate
/// (contract §7.2).
///
/// # Errors
///
/// What no handler may see: a schema version that is not ours, or a body that is no envelope.
pub fn classify(delivery: &Delivery, rules: Rules) -> Result<Dispatch, Refused> {
    let facts = &delivery.facts;
    if let Err(rejected) = version_gate::check(&facts.version) {
        return Err(Refused::gated(facts, &rejected));
    }
    if let Some(cause) = facts.poison {
        return Err(Refused::poison(delivery, rules, cause.to_owned()));
    }
    let decoded = match Envelope::decode(delivery.body.clone()) {
        Ok(decoded) => decoded,
        Err(error) => return Err(Refused::poison(delivery, rules, error.to_string())),
    };
    if let Err(rejected) = version_gate::check_body(decoded.envelope.schema_version()) {
        return Err(Refused::gated(facts, &rejected));
    }
    Ok(Dispatch {
        attempts: reconcile(facts, decoded.envelope.attempts(), rules.attempts),
        envelope: decoded.envelope,
        warnings: decoded.warnings,
        rewritten: decoded.rewritten,
    })
}

/// A delivery that goes to a handler, if one takes its [`route`](Self::route).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Dispatch {
    /// The envelope.
    pub envelope: Envelope,
    /// How often it was delivered before, all counts reconciled.
    pub attempts: i64,
    /// What the decode had to say.
    pub warnings: Vec<Warning>,
    /// Whether the envelope's bytes differ from the received ones, because a forbidden key was
    /// dropped.
    pub rewritten: bool,
}

impl Dispatch {
    /// The URN to find the handler by: the binding's own route where there is one that is not blank
    /// (Pulsar's `bq-job`, contract §15.3), else the envelope's.
    pub fn route<'a>(&'a self, facts: &'a Facts) -> Cow<'a, str> {
        match facts.route.as_deref().map(trim_blanks) {
            Some(route) if !route.is_empty() => Cow::Borrowed(route),
            _ => self.envelope.urn(),
        }
    }

    /// The envelope as its handler sees it: with the reconciled count, where the broker's is another
    /// than the body's (contract §7.2). Copies are made from the one that was received.
    pub fn into_reconciled(self) -> Envelope {
        if self.attempts == self.envelope.attempts().unwrap_or_default().max(0) {
            return self.envelope;
        }
        self.envelope.with_attempts(self.attempts)
    }
}

/// A delivery that goes to no handler.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// What to [`decide`](super::decide) on: [`Event::Gated`] or [`Event::Poison`], with the count.
    pub case: Case,
    /// Why, in words: for the log and for `dead_letter.error`.
    pub error: String,
    /// The name of our error type, for `dead_letter.exception`.
    pub exception: &'static str,
}

impl Refused {
    fn gated(facts: &Facts, rejected: &version_gate::Rejected) -> Self {
        Self {
            case: Case {
                event: Event::Gated,
                // Nothing is counted on this path, and the body is not looked at.
                attempts: facts.attempts.map_or(0, i64::from),
            },
            error: rejected.to_string(),
            exception: "Rejected",
        }
    }

    fn poison(delivery: &Delivery, rules: Rules, error: String) -> Self {
        // Read leniently: the body may be poison for another reason than its count.
        let body = Projection::of(&delivery.body).attempts;
        Self {
            case: Case {
                event: Event::Poison,
                attempts: poison_count(&delivery.facts, body, rules.attempts),
            },
            error,
            exception: "DecodeError",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::VersionProperty;

    const ENVELOPE: &str = r#"{"job":"urn:a","data":{},"attempts":2}"#;

    fn delivery(body: &str, facts: Facts) -> Delivery {
        let mut delivery = Delivery::new("orders".into(), body.to_owned().into());
        delivery.facts = facts;
        delivery
    }

    fn facts(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = Facts::default();
        change(&mut facts);
        facts
    }

    fn dispatched(body: &str, facts: Facts, rules: Rules) -> Dispatch {
        classify(&delivery(body, facts), rules).expect("goes to a handler")
    }

    fn refused(body: &str, facts: Facts, rules: Rules) -> Refused {
        classify(&delivery(body, facts), rules).expect_err("goes to no handler")
    }

    fn case(event: Event, attempts: i64) -> Case {
        Case { event, attempts }
    }

    #[test]
    fn an_envelope_is_dispatched_with_its_counts_reconciled() {
        let of = |facts, rules| dispatched(ENVELOPE, facts, rules).attempts;
        assert_eq!(of(Facts::default(), Rules::REDIS), 2);
        assert_eq!(of(facts(|facts| facts.deliveries = Some(4)), Rules::SQS), 4);
        assert_eq!(of(facts(|facts| facts.attempts = Some(1)), Rules::KAFKA), 1);
    }

    #[test]
    fn a_handler_sees_the_reconciled_count() {
        let of = |body, facts, rules| {
            let envelope = dispatched(body, facts, rules).into_reconciled();
            String::from_utf8(envelope.into_bytes().to_vec()).unwrap()
        };
        let counted = |attempts| facts(|facts| facts.attempts = Some(attempts));
        assert_eq!(of(ENVELOPE, counted(2), Rules::KAFKA), ENVELOPE);
        assert_eq!(
            of(ENVELOPE, counted(4), Rules::KAFKA),
            ENVELOPE.replace('2', "4")
        );
        for none in [
            r#"{"job":"urn:a"}"#,
            r#"{"job":"urn:a","attempts":null}"#,
            r#"{"job":"urn:a","attempts":-3}"#,
        ] {
            assert_eq!(of(none, Facts::default(), Rules::KAFKA), none);
        }
    }

    #[test]
    fn a_forbidden_key_is_told() {
        let body = r#"{"job":"urn:a","timestamp":1}"#;
        let dispatch = dispatched(body, Facts::default(), Rules::MEMORY);
        assert!(dispatch.rewritten);
        assert_eq!(dispatch.warnings.len(), 1);
        assert_eq!(dispatch.envelope.bytes(), r#"{"job":"urn:a"}"#.as_bytes());
    }

    #[test]
    fn the_gate_comes_before_everything() {
        let gated = facts(|facts| {
            facts.version = VersionProperty::Text("2".into());
            facts.poison = Some("attempts is no number");
        });
        for body in [ENVELOPE, "not JSON"] {
            let refused = refused(body, gated.clone(), Rules::PULSAR);
            assert_eq!(refused.case.event, Event::Gated);
            assert!(refused.error.contains("\"2\""), "{}", refused.error);
        }
    }

    #[test]
    fn what_the_transport_calls_poison_is_poison() {
        let poison = facts(|facts| facts.poison = Some("attempts is no number"));
        let refused = refused(ENVELOPE, poison, Rules::REDIS_LARAVEL);
        assert_eq!(refused.case.event, Event::Poison);
        assert_eq!(refused.error, "attempts is no number");
    }

    #[test]
    fn bodies_without_identity_and_undecodable_ones_are_poison_with_their_cause() {
        for body in [
            "",
            "text",
            r#"{"data":{}}"#,
            r#"{"job":"urn:a","attempts":1.5}"#,
        ] {
            let refused = refused(body, Facts::default(), Rules::MEMORY);
            assert_eq!(refused.case, case(Event::Poison, 0), "{body}");
            assert!(!refused.error.is_empty());
        }
    }

    #[test]
    fn poison_counts_by_the_largest_number_that_is_there() {
        let body = r#"{"job":5,"attempts":4}"#;
        let counts = facts(|facts| {
            facts.attempts = Some(1);
            facts.deliveries = Some(3);
        });
        let of = |rules| refused(body, counts.clone(), rules).case.attempts;
        assert_eq!(of(Rules::PULSAR), 4);
        assert_eq!(of(Rules::ARTEMIS), 4);
        assert_eq!(of(Rules::KAFKA), 1);
    }

    #[test]
    fn the_bodys_own_version_is_checked_last() {
        let of = |body| classify(&delivery(body, Facts::default()), Rules::REDIS);
        let event = |body| of(body).err().map(|refused| refused.case.event);
        let foreign = r#"{"job":"urn:a","meta":{"schema_version":2}}"#;
        assert_eq!(event(foreign), Some(Event::Gated));
        // Without an identity it stays poison (contract §18.5).
        assert_eq!(
            event(r#"{"meta":{"schema_version":2}}"#),
            Some(Event::Poison)
        );
        for body in [
            r#"{"job":"urn:a","meta":{"schema_version":1}}"#,
            r#"{"job":"urn:a","meta":{"schema_version":null}}"#,
            r#"{"job":"urn:a","meta":null}"#,
            r#"{"job":"urn:a"}"#,
        ] {
            assert_eq!(event(body), None, "{body}");
        }
    }

    #[test]
    fn a_route_of_the_bindings_own_wins_where_it_is_not_blank() {
        let route = |route: Option<&str>| {
            let facts = facts(|facts| facts.route = route.map(Into::into));
            let dispatch = dispatched(ENVELOPE, facts.clone(), Rules::PULSAR);
            dispatch.route(&facts).into_owned()
        };
        assert_eq!(route(None), "urn:a");
        assert_eq!(route(Some(" \t")), "urn:a");
        assert_eq!(route(Some(" urn:b\n")), "urn:b");
        assert_eq!(route(Some("\u{A0}")), "\u{A0}");
    }

    #[test]
    fn a_route_does_not_rescue_a_body_without_identity() {
        let routed = facts(|facts| facts.route = Some("urn:b".into()));
        let refused = refused(r#"{"data":{}}"#, routed, Rules::PULSAR);
        assert_eq!(refused.case.event, Event::Poison);
    }
}
