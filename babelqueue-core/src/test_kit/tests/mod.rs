//! The suite on the in-memory broker: it passes on the whole one, and each test fails on one that is
//! broken in the way that the test is about.

mod broken;

use std::time::Duration;

use self::broken::{Break, Broken};
use super::{Failed, Test, tests};
use crate::memory::Kind;

const LEASED: Kind = Kind::Leased {
    lease: Duration::from_secs(2),
};
const BOUND: Kind = Kind::Bound;
const REWINDING: Kind = Kind::Rewinding { lanes: 3 };

/// Which break each test finds, and on which kind of broker.
const FINDS: &[(&str, Kind, Break)] = &[
    (
        "publish/bodies_come_out_byte_for_byte",
        LEASED,
        Break::ReadsBodiesAsText,
    ),
    ("publish/many_at_once_all_arrive", LEASED, Break::DropsSome),
    (
        "publish/one_answer_for_each_message",
        LEASED,
        Break::AnswersTooFew,
    ),
    (
        "publish/options_it_lacks_are_refused",
        LEASED,
        Break::IgnoresOptions,
    ),
    ("publish/headers_travel", LEASED, Break::DropsHeaders),
    ("publish/keys_travel", LEASED, Break::TakesEmptyKeysForNone),
    ("publish/a_delay_is_kept", LEASED, Break::IgnoresDelays),
    (
        "publish/a_delay_past_the_limit_is_refused",
        LEASED,
        Break::ClaimsALimit,
    ),
    (
        "receive/a_waiting_receive_wakes_at_a_publish",
        LEASED,
        Break::SleepsThroughAPublish,
    ),
    (
        "receive/it_gives_at_most_what_was_asked_for",
        LEASED,
        Break::GivesTooMany,
    ),
    (
        "receive/a_dropped_receive_loses_nothing",
        LEASED,
        Break::LosesWhatADroppedCallTook,
    ),
    (
        "receive/a_dropped_receive_loses_nothing",
        BOUND,
        Break::LosesWhatADroppedCallTook,
    ),
    (
        "receive/two_consumers_share_a_queue",
        LEASED,
        Break::DropsSome,
    ),
    (
        "settle/an_acked_message_is_gone",
        LEASED,
        Break::ForgetsAcks,
    ),
    ("settle/an_acked_message_is_gone", BOUND, Break::ForgetsAcks),
    (
        "settle/many_at_once_have_an_answer_each",
        LEASED,
        Break::AnswersTooFew,
    ),
    (
        "settle/a_retry_comes_again_counted",
        LEASED,
        Break::RetriesUncounted,
    ),
    (
        "settle/a_retry_comes_again_counted",
        REWINDING,
        Break::RetriesUncounted,
    ),
    (
        "settle/a_retry_keeps_headers_and_key",
        BOUND,
        Break::CopiesBodiesOnly,
    ),
    ("settle/a_retry_is_delayed", LEASED, Break::IgnoresDelays),
    (
        "settle/a_released_message_comes_again_uncounted",
        BOUND,
        Break::CountsReleases,
    ),
    (
        "settle/a_dead_letter_moves_and_keeps_headers",
        LEASED,
        Break::CopiesBodiesOnly,
    ),
    (
        "settle/a_verbatim_dead_letter_is_the_received_body",
        LEASED,
        Break::TidiesRecords,
    ),
    (
        "settle/a_failed_dead_letter_loses_nothing",
        LEASED,
        Break::AcksBeforeItCopies,
    ),
    (
        "settle/an_abandoned_message_comes_again",
        LEASED,
        Break::AcksWhatIsAbandoned,
    ),
    (
        "settle/a_second_settlement_does_nothing",
        LEASED,
        Break::SettlesByMessage,
    ),
    (
        "redrive/a_dead_letter_goes_back_as_if_never_tried",
        LEASED,
        Break::CopiesBodiesOnly,
    ),
    (
        "redrive/what_is_not_moved_stays",
        LEASED,
        Break::TidiesRecords,
    ),
    (
        "redrive/what_is_not_moved_stays",
        BOUND,
        Break::AcksWhatIsReleased,
    ),
    (
        "redrive/a_dry_run_takes_nothing_away",
        REWINDING,
        Break::AcksWhatIsReleased,
    ),
    (
        "lease/a_renewed_lease_holds",
        LEASED,
        Break::ForgetsRenewals,
    ),
    (
        "lease/an_ended_lease_brings_the_message_back",
        LEASED,
        Break::BeginsAnything,
    ),
    (
        "lease/a_late_settlement_is_fenced",
        LEASED,
        Break::SettlesByMessage,
    ),
    (
        "lease/an_ended_lease_is_not_renewed",
        LEASED,
        Break::ForgetsRenewals,
    ),
    (
        "lanes/order_is_kept_in_each",
        LEASED,
        Break::ReversesBatches,
    ),
    (
        "lanes/order_is_kept_in_each",
        REWINDING,
        Break::ReversesBatches,
    ),
    (
        "lanes/a_release_takes_back_the_rest",
        LEASED,
        Break::HidesLosses,
    ),
    (
        "lanes/a_release_takes_back_the_rest",
        REWINDING,
        Break::HidesLosses,
    ),
    (
        "lanes/an_abandoned_head_takes_back_the_rest",
        BOUND,
        Break::HidesLosses,
    ),
    (
        "lifecycle/a_killed_consumer_loses_nothing",
        LEASED,
        Break::AcksAtReceipt,
    ),
    (
        "lifecycle/close_gives_back_what_was_not_given_out",
        LEASED,
        Break::KeepsItsBuffer,
    ),
    (
        "lifecycle/close_waits_for_what_is_out",
        LEASED,
        Break::ClosesAtOnce,
    ),
    (
        "lifecycle/a_settlement_after_a_close_is_fenced",
        BOUND,
        Break::SettlesByMessage,
    ),
    ("lifecycle/a_restart_loses_nothing", BOUND, Break::StaysDown),
    (
        "worker/it_handles_everything_once",
        LEASED,
        Break::DropsSome,
    ),
    (
        "worker/a_failing_message_is_retried_then_dead_lettered",
        LEASED,
        Break::CopiesBodiesOnly,
    ),
    (
        "worker/order_is_kept_in_each_lane",
        LEASED,
        Break::ReversesBatches,
    ),
    (
        "worker/a_slow_handler_keeps_its_lease",
        LEASED,
        Break::ForgetsRenewals,
    ),
    (
        "worker/a_delayed_message_reaches_one_that_never_retries",
        LEASED,
        Break::DropsDelayed,
    ),
    (
        "worker/a_stop_gives_back_what_is_not_done",
        LEASED,
        Break::KeepsItsBuffer,
    ),
    (
        "worker/a_killed_worker_loses_nothing",
        LEASED,
        Break::AcksAtReceipt,
    ),
    ("worker/it_outlives_two_restarts", BOUND, Break::StaysDown),
    (
        "poison/with_dead_lettering_at_the_first_delivery",
        LEASED,
        Break::DropsDeadLetters,
    ),
    (
        "poison/with_dead_lettering_at_the_second",
        BOUND,
        Break::DropsDeadLetters,
    ),
    (
        "poison/with_dead_lettering_at_the_last",
        REWINDING,
        Break::DropsDeadLetters,
    ),
    (
        "poison/without_at_the_first_delivery",
        LEASED,
        Break::DropsRetries,
    ),
    ("poison/without_at_the_second", BOUND, Break::DropsRetries),
    ("poison/without_at_the_last", LEASED, Break::AnswersTooFew),
];

#[test]
fn it_passes_on_a_whole_broker_of_each_kind() {
    for kind in [LEASED, BOUND, REWINDING] {
        for test in tests(Broken::new(kind, Break::Nothing)) {
            let outcome = run(&test);
            assert!(outcome.is_ok(), "{} on {kind:?}: {outcome:?}", test.name());
        }
    }
}

#[test]
fn each_test_finds_what_it_is_about() {
    for &(name, kind, how) in FINDS {
        let suite = tests(Broken::new(kind, how));
        let test = suite.iter().find(|test| test.name() == name);
        let test = test.unwrap_or_else(|| panic!("no test {name} for {kind:?}"));
        let outcome = run(test);
        assert!(outcome.is_err(), "{name} does not find {how:?} on {kind:?}");
    }
}

#[test]
fn no_test_is_without_its_proof() {
    let mut names: Vec<_> = super::all().iter().map(|entry| entry.name).collect();
    names.retain(|name| !FINDS.iter().any(|(proven, ..)| proven == name));
    assert!(names.is_empty(), "{names:?}");
    for (name, ..) in FINDS {
        assert!(
            super::all().iter().any(|entry| entry.name == *name),
            "{name}"
        );
    }
}

#[test]
fn a_test_is_there_only_where_its_capability_is_claimed() {
    let names = |kind, how| -> Vec<_> {
        tests(Broken::new(kind, how))
            .iter()
            .map(Test::name)
            .collect()
    };
    let leased = names(LEASED, Break::Nothing);
    assert!(leased.contains(&"lease/a_renewed_lease_holds"));
    assert!(!leased.contains(&"publish/a_delay_past_the_limit_is_refused"));
    let bound = names(BOUND, Break::Nothing);
    assert!(!bound.iter().any(|name| name.starts_with("lease/")));
    let limited = names(LEASED, Break::ClaimsALimit);
    assert!(limited.contains(&"publish/a_delay_past_the_limit_is_refused"));
}

/// In a runtime whose time jumps to the next thing that is due.
fn run(test: &Test) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test.run())
}
