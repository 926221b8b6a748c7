//! The tables of contract §7, §8 and §9.5, cell by cell.

use super::*;
use crate::retry::Retry;

const EVERY_ROW: [(&str, Rules); 10] = [
    ("redis", Rules::REDIS),
    ("redis-laravel", Rules::REDIS_LARAVEL),
    ("amqp", Rules::AMQP),
    ("sqs", Rules::SQS),
    ("service-bus", Rules::SERVICE_BUS),
    ("pulsar", Rules::PULSAR),
    ("kafka", Rules::KAFKA),
    ("kafka-tiers", Rules::KAFKA_WITH_TIERS),
    ("artemis", Rules::ARTEMIS),
    ("memory", Rules::MEMORY),
];

const EVERY_STRATEGY: [UnknownUrn; 4] = [
    UnknownUrn::Fail,
    UnknownUrn::Delete,
    UnknownUrn::Release,
    UnknownUrn::DeadLetter,
];

fn outcome(event: Event, attempts: i64, policy: &Policy, rules: Rules) -> Decision {
    decide(Case { event, attempts }, policy, rules, 0.5)
}

fn retry(attempts: i64) -> Decision {
    Decision::Retry {
        attempts,
        delay: Duration::ZERO,
    }
}

fn dead_letter(reason: Reason, attempts: i64) -> Decision {
    Decision::DeadLetter {
        reason,
        attempts,
        with_error: true,
    }
}

#[test]
fn what_needs_no_policy_gets_none() {
    for (name, rules) in EVERY_ROW {
        for on_unknown_urn in EVERY_STRATEGY {
            let policy = Policy::default().on_unknown_urn(on_unknown_urn);
            let of = |event| outcome(event, 99, &policy, rules);
            assert_eq!(of(Event::Succeeded), Decision::Ack, "{name}");
            assert_eq!(of(Event::Dropped), Decision::Drop, "{name}");
            assert_eq!(of(Event::Interrupted), Decision::GiveBack, "{name}");
        }
    }
}

#[test]
fn a_failure_is_counted_up_to_the_cap_and_past_it() {
    let off = Policy::default();
    let on = Policy::default().dead_letter(true);
    for (name, rules) in EVERY_ROW {
        for (attempts, with_dead_letter, without) in [
            (-7, retry(1), retry(1)),
            (0, retry(1), retry(1)),
            (1, retry(2), retry(2)),
            (2, dead_letter(Reason::Failed, 3), Decision::Drop),
            (7, dead_letter(Reason::Failed, 8), Decision::Drop),
            (
                i64::MAX,
                dead_letter(Reason::Failed, i64::MAX),
                Decision::Drop,
            ),
        ] {
            let of = |policy| outcome(Event::Failed, attempts, policy, rules);
            assert_eq!(of(&on), with_dead_letter, "{name}, {attempts}");
            assert_eq!(of(&off), without, "{name}, {attempts}");
        }
    }
}

#[test]
fn a_cap_of_one_never_retries_and_the_largest_cap_always_does() {
    let once = Policy::default().retry(Retry::attempts(1));
    assert_eq!(
        outcome(Event::Failed, 0, &once, Rules::MEMORY),
        Decision::Drop
    );
    let ever = Policy::default().retry(Retry::attempts(u32::MAX));
    let below = i64::from(u32::MAX) - 2;
    assert_eq!(
        outcome(Event::Failed, below, &ever, Rules::MEMORY),
        retry(below + 1)
    );
    assert_eq!(
        outcome(Event::Failed, below + 1, &ever, Rules::MEMORY),
        Decision::Drop
    );
}

#[test]
fn a_retry_waits_for_the_back_off_where_the_binding_has_one() {
    let policy = Policy::default().retry(Retry::attempts(9).backoff(Duration::from_secs(1), 2.0));
    for (name, rules) in EVERY_ROW {
        let waits = !matches!(name, "redis" | "kafka" | "kafka-tiers");
        for (event, seconds) in [
            (Event::Failed, 4),
            (Event::UnknownUrn, 4),
            (Event::FailedRetryAfter(Duration::from_secs(77)), 77),
        ] {
            let delay = Duration::from_secs(if waits { seconds } else { 0 });
            let expected = Decision::Retry { attempts: 3, delay };
            assert_eq!(outcome(event, 2, &policy, rules), expected, "{name}");
        }
    }
}

#[test]
fn retry_after_counts_like_any_failure() {
    let event = Event::FailedRetryAfter(Duration::from_secs(1));
    let on = Policy::default().dead_letter(true);
    assert_eq!(
        outcome(event, 2, &on, Rules::MEMORY),
        dead_letter(Reason::Failed, 3)
    );
}

#[test]
fn a_rejection_is_dead_lettered_at_once_and_counted() {
    let on = Policy::default().dead_letter(true);
    assert_eq!(
        outcome(Event::Rejected, 0, &on, Rules::MEMORY),
        dead_letter(Reason::Failed, 1)
    );
    let off = Policy::default();
    assert_eq!(
        outcome(Event::Rejected, 0, &off, Rules::MEMORY),
        Decision::Drop
    );
}

#[test]
fn an_unknown_urn_goes_by_its_strategy() {
    let direct = Decision::DeadLetter {
        reason: Reason::UnknownUrn,
        attempts: 2,
        with_error: false,
    };
    for (name, rules) in EVERY_ROW {
        for on in [false, true] {
            let of = |strategy| {
                let policy = Policy::default().dead_letter(on).on_unknown_urn(strategy);
                outcome(Event::UnknownUrn, 2, &policy, rules)
            };
            let failed = if on {
                dead_letter(Reason::UnknownUrn, 3)
            } else {
                Decision::Drop
            };
            assert_eq!(of(UnknownUrn::Fail), failed, "{name}");
            assert_eq!(of(UnknownUrn::Delete), Decision::Drop, "{name}");
            assert_eq!(of(UnknownUrn::DeadLetter), direct, "{name}");
            let delay = Duration::ZERO;
            let released = if rules.counted_release {
                Decision::Retry { attempts: 3, delay }
            } else {
                Decision::Release { delay }
            };
            assert_eq!(of(UnknownUrn::Release), released, "{name}");
        }
    }
}

#[test]
fn an_unknown_urn_is_released_after_its_delay_without_end() {
    let policy = Policy::default()
        .on_unknown_urn(UnknownUrn::Release)
        .unknown_urn_release_delay(Duration::from_secs(9));
    for (rules, seconds) in [(Rules::SQS, 9), (Rules::REDIS, 0)] {
        let delay = Duration::from_secs(seconds);
        let decision = outcome(Event::UnknownUrn, 1_000, &policy, rules);
        assert_eq!(decision, Decision::Release { delay });
    }
    let hop = Decision::Retry {
        attempts: 1_001,
        delay: Duration::ZERO,
    };
    assert_eq!(
        outcome(Event::UnknownUrn, 1_000, &policy, Rules::KAFKA),
        hop
    );
}

/// The table of contract §8. `attempts` is 1 below the last delivery, then at it.
#[test]
fn poison_takes_its_column() {
    let record = |attempts| dead_letter(Reason::Poison, attempts);
    let native = Decision::Native { reason: "poison" };
    for (name, rules) in EVERY_ROW {
        let always = name.starts_with("redis");
        for on in [false, true] {
            for strategy in EVERY_STRATEGY {
                let policy = Policy::default().dead_letter(on).on_unknown_urn(strategy);
                for attempts in [0, 1, 2, 7] {
                    let expected = match (strategy, name) {
                        _ if always => record(attempts),
                        (UnknownUrn::Delete, _) => Decision::Drop,
                        (UnknownUrn::DeadLetter, _) => record(attempts),
                        _ if on => record(attempts),
                        (_, "sqs" | "service-bus") => native,
                        (_, "kafka") => Decision::Drop,
                        _ if attempts < 2 => retry(attempts + 1),
                        _ => Decision::Drop,
                    };
                    assert_eq!(
                        outcome(Event::Poison, attempts, &policy, rules),
                        expected,
                        "{name}, on: {on}, {strategy:?}, {attempts}"
                    );
                }
            }
        }
    }
}

/// The matrix of contract §9.5, and §18.5 for the bindings without a gate of their own.
#[test]
fn a_gated_delivery_is_settled_whatever_its_attempts() {
    let verbatim = Decision::DeadLetterVerbatim;
    let native = Decision::Native {
        reason: "unsupported schema version",
    };
    for (name, rules) in EVERY_ROW {
        for on in [false, true] {
            for strategy in EVERY_STRATEGY {
                let policy = Policy::default().dead_letter(on).on_unknown_urn(strategy);
                for attempts in [0, 7] {
                    let expected = match (strategy, name) {
                        _ if name.starts_with("redis") => verbatim,
                        (UnknownUrn::Delete, _) => Decision::Drop,
                        (UnknownUrn::DeadLetter, _) => verbatim,
                        _ if on => verbatim,
                        (_, "sqs" | "service-bus") => native,
                        _ => Decision::Drop,
                    };
                    assert_eq!(
                        outcome(Event::Gated, attempts, &policy, rules),
                        expected,
                        "{name}, on: {on}, {strategy:?}, {attempts}"
                    );
                }
            }
        }
    }
}
