use crate::transport::{AttemptsRule, Facts};

/// How often a message was delivered before this: the body's `attempts` and the broker's counts
/// made one number, by the rule of the binding. An absent, null or negative `attempts` is 0
/// (contract §7.4).
pub fn reconcile(facts: &Facts, body: Option<i64>, rule: AttemptsRule) -> i64 {
    let body = body.unwrap_or(0).max(0);
    let property = facts.attempts.map(i64::from);
    let broker = facts.deliveries.map_or(0, i64::from);
    match rule {
        AttemptsRule::Body => body,
        AttemptsRule::Largest => body.max(property.unwrap_or(0)).max(broker),
        AttemptsRule::BodyOrBroker => body.max(broker),
        AttemptsRule::PropertyThenLargest => property.unwrap_or(body).max(broker),
        AttemptsRule::PropertyFirst => property.unwrap_or(body),
    }
}

/// The same for a body that does not decode; `body` is its `attempts` as far as there is an integer
/// of that name to be found (contract §8.1).
pub fn poison_count(facts: &Facts, body: Option<i64>, rule: AttemptsRule) -> i64 {
    let property = facts.attempts.map_or(0, i64::from);
    if rule == AttemptsRule::PropertyFirst {
        return property;
    }
    let broker = facts.deliveries.map_or(0, i64::from);
    body.unwrap_or(0).max(property).max(broker)
}

/// Reads an attempts property that is text: ASCII digits only, at most 2^31 − 1 (contract §15.4,
/// §16.3). Anything else is no count.
///
/// ```
/// use babelqueue_core::decide::parse_count;
///
/// assert_eq!(parse_count(b"007"), Some(7));
/// assert_eq!(parse_count(b"+7"), None);
/// assert_eq!(parse_count(b"2147483648"), None);
/// ```
pub fn parse_count(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u32, |count, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        let count = count.checked_mul(10)?.checked_add(digit)?;
        (count <= i32::MAX.unsigned_abs()).then_some(count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(attempts: Option<u32>, deliveries: Option<u32>) -> Facts {
        Facts {
            deliveries,
            attempts,
            ..Facts::default()
        }
    }

    #[test]
    fn each_rule_makes_one_number_its_own_way() {
        use AttemptsRule::{Body, BodyOrBroker, Largest, PropertyFirst, PropertyThenLargest};
        for (body, property, broker, rule, expected) in [
            (Some(2), Some(5), Some(7), Body, 2),
            (Some(2), Some(5), Some(1), Largest, 5),
            (Some(2), Some(1), Some(7), Largest, 7),
            (Some(5), None, None, Largest, 5),
            (Some(2), Some(9), Some(7), BodyOrBroker, 7),
            (Some(8), Some(9), Some(7), BodyOrBroker, 8),
            (Some(5), Some(1), Some(0), PropertyThenLargest, 1),
            (Some(5), None, Some(0), PropertyThenLargest, 5),
            (Some(5), Some(1), Some(3), PropertyThenLargest, 3),
            (Some(5), Some(1), Some(9), PropertyFirst, 1),
            (Some(5), None, Some(9), PropertyFirst, 5),
        ] {
            let facts = facts(property, broker);
            assert_eq!(
                reconcile(&facts, body, rule),
                expected,
                "{rule:?} {facts:?}"
            );
        }
    }

    #[test]
    fn no_attempts_is_zero_and_none_is_too_large() {
        for body in [None, Some(-1), Some(i64::MIN)] {
            assert_eq!(reconcile(&Facts::default(), body, AttemptsRule::Body), 0);
        }
        let largest = reconcile(
            &facts(Some(u32::MAX), None),
            Some(i64::MAX),
            AttemptsRule::Largest,
        );
        assert_eq!(largest, i64::MAX);
    }

    #[test]
    fn poison_counts_by_the_largest_but_on_kafka_by_the_property_alone() {
        let count =
            |body, property, broker, rule| poison_count(&facts(property, broker), body, rule);
        for rule in [
            AttemptsRule::Largest,
            AttemptsRule::BodyOrBroker,
            AttemptsRule::PropertyThenLargest,
        ] {
            assert_eq!(count(Some(4), Some(2), Some(3), rule), 4);
            assert_eq!(count(Some(1), Some(5), Some(3), rule), 5);
            assert_eq!(count(None, Some(2), Some(6), rule), 6);
            assert_eq!(count(Some(-3), None, None, rule), 0);
        }
        assert_eq!(
            count(Some(4), Some(2), None, AttemptsRule::PropertyFirst),
            2
        );
        assert_eq!(count(Some(4), None, None, AttemptsRule::PropertyFirst), 0);
    }

    #[test]
    fn only_plain_digits_are_a_count() {
        assert_eq!(parse_count(b"0"), Some(0));
        assert_eq!(parse_count(b"2147483647"), Some(2_147_483_647));
        for bad in [
            "",
            " 1",
            "1 ",
            "-1",
            "+1",
            "1.0",
            "1e1",
            "x",
            "٣",
            "2147483648",
            "4294967296",
            "99999999999999999999",
        ] {
            assert_eq!(parse_count(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
