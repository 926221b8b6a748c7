use babelqueue_core::transport::Lane;
use bytes::Bytes;

use super::*;
use crate::headers::RecordHeaders;

const SCOPE: u64 = 7;

fn source(scope: u64) -> Source {
    Source {
        topic: "orders".into(),
        partition: 0,
        scope,
    }
}

/// A record with this key, in the lane of its key; without one, in none.
fn record(scope: u64, offset: i64, key: &str) -> (i64, Arc<Delivery>) {
    let mut delivery = Delivery::new("orders".into(), Bytes::new());
    delivery.lane = (!key.is_empty()).then(|| Lane {
        scope,
        key: Bytes::copy_from_slice(key.as_bytes()),
    });
    let native = Record::new(scope, offset, None, RecordHeaders::default());
    (offset, Arc::new(delivery.with_native(native)))
}

/// An assignment of one partition with these records read, all of them out.
fn out(keys: &[&str]) -> (Assignment, Vec<Arc<Delivery>>) {
    let mut assignment = Assignment::new(100, Order::Key);
    assignment.add(source(SCOPE), None);
    let records = (0..)
        .zip(keys)
        .map(|(offset, key)| record(SCOPE, offset, key));
    assignment.take_in(SCOPE, records);
    let given = assignment.give(100);
    assert_eq!(given.len(), keys.len());
    (assignment, given)
}

fn offsets(deliveries: &[Arc<Delivery>]) -> Vec<i64> {
    deliveries
        .iter()
        .map(|delivery| Record::of(delivery).unwrap().offset)
        .collect()
}

fn committed(assignment: &mut Assignment) -> Option<i64> {
    assignment.due(None).first().map(|due| due.commit.offset)
}

#[test]
fn a_settled_delivery_is_committed_once() {
    let (mut assignment, given) = out(&["a", "a"]);
    assert_eq!(committed(&mut assignment), Some(0));
    assert!(assignment.settle(&given[0]));
    assert!(!assignment.settle(&given[0]), "it is settled once");
    assert_eq!(committed(&mut assignment), Some(1));
    assert_eq!(committed(&mut assignment), None, "nothing has changed");
    assignment.commit_again(SCOPE);
    assert_eq!(committed(&mut assignment), Some(1));
}

#[test]
fn a_rewind_takes_back_its_lane_from_there_on_and_no_other() {
    let (mut assignment, given) = out(&["a", "b", "a", "b", "a", ""]);
    assert!(assignment.settle(&given[0]));
    assert!(assignment.rewind(&given[2]));
    let lost: Vec<bool> = given.iter().map(|delivery| delivery.is_lost()).collect();
    assert_eq!(lost, [false, false, true, false, true, false]);
    assert!(
        !assignment.settle(&given[4]),
        "a late settle is without effect"
    );

    let again = assignment.give(100);
    assert_eq!(offsets(&again), [2, 4]);
    assert_eq!(again[0].fence.generation, given[2].fence.generation + 1);
    for delivery in [&given[1], &given[3], &given[5], &again[0], &again[1]] {
        assert!(assignment.settle(delivery));
    }
    assert_eq!(committed(&mut assignment), Some(6));
    assert!(assignment.is_home(&[SCOPE]));
}

#[test]
fn a_record_without_a_lane_comes_back_alone() {
    let (mut assignment, given) = out(&["", "", ""]);
    assert!(assignment.rewind(&given[1]));
    assert_eq!(offsets(&assignment.give(100)), [1]);
}

#[test]
fn what_was_read_and_not_given_stays_behind_what_comes_back() {
    let mut assignment = Assignment::new(2, Order::Key);
    assignment.add(source(SCOPE), None);
    assignment.take_in(SCOPE, (0..4).map(|offset| record(SCOPE, offset, "a")));
    let given = assignment.give(100);
    assert_eq!(offsets(&given), [0, 1], "no more than the share");
    assert!(!assignment.can_give());
    assert!(assignment.rewind(&given[0]));
    assert_eq!(offsets(&assignment.give(1)), [0]);
    assert_eq!(offsets(&assignment.give(100)), [1]);
}

#[test]
fn partitions_give_in_turn() {
    let mut assignment = Assignment::new(2, Order::Key);
    for scope in 0..3 {
        assignment.add(source(scope), None);
        assignment.take_in(scope, (0..4).map(|offset| record(scope, offset, "")));
    }
    let scopes = |given: Vec<Arc<Delivery>>| -> Vec<u64> {
        given
            .iter()
            .map(|delivery| Record::of(delivery).unwrap().scope)
            .collect()
    };
    assert_eq!(scopes(assignment.give(1)), [1]);
    assert_eq!(scopes(assignment.give(3)), [2, 2, 0]);
    assert_eq!(scopes(assignment.give(100)), [1, 0]);
}

#[test]
fn with_order_by_partition_one_that_has_plenty_out_waits_for_more() {
    let given = |order| {
        let mut assignment = Assignment::new(4, order);
        assignment.add(source(SCOPE), None);
        assignment.take_in(SCOPE, (0..8).map(|offset| record(SCOPE, offset, "a")));
        let first = assignment.give(100);
        assert_eq!(offsets(&first), [0, 1, 2, 3]);
        let next = first.iter().map(|delivery| {
            assert!(assignment.settle(delivery));
            let can_give = assignment.can_give();
            let given = assignment.give(100);
            assert_eq!(can_give, !given.is_empty());
            offsets(&given)
        });
        next.collect::<Vec<_>>()
    };
    assert_eq!(
        given(Order::Partition),
        [vec![], vec![4, 5], vec![], vec![6, 7]]
    );
    assert_eq!(given(Order::Key), [[4], [5], [6], [7]]);
}

#[test]
fn a_full_partition_is_not_read_on() {
    let mut assignment = Assignment::new(2, Order::Key);
    assignment.add(source(SCOPE), None);
    assert_eq!(assignment.room(SCOPE).map(|(room, _)| room), Some(4));
    assignment.take_in(SCOPE, (0..4).map(|offset| record(SCOPE, offset, "")));
    assert_eq!(assignment.room(SCOPE), None);
    let given = assignment.give(1);
    assignment.settle(&given[0]);
    assert_eq!(assignment.room(SCOPE), None, "not for one alone");
    let given = assignment.give(2);
    assignment.settle(&given[0]);
    assert_eq!(assignment.room(SCOPE).map(|(room, _)| room), Some(2));
}

#[test]
fn a_partition_that_leaves_waits_for_what_runs_alone() {
    let (mut assignment, given) = out(&["a", "b", "c"]);
    assert!(Record::of(&given[1]).unwrap().begin());
    assignment.leave(&[SCOPE]);
    let lost: Vec<bool> = given.iter().map(|delivery| delivery.is_lost()).collect();
    assert_eq!(lost, [true, false, true]);
    assert!(!Record::of(&given[0]).unwrap().begin());
    assert!(!assignment.is_home(&[SCOPE]));
    assert!(assignment.give(100).is_empty() && assignment.room(SCOPE).is_none());

    assert!(assignment.settle(&given[1]));
    assert!(assignment.is_home(&[SCOPE]));
    let due = assignment.due(Some(&[SCOPE]));
    assert_eq!(due[0].commit.offset, 0);
    assert!(
        !due[0].commit.metadata.is_empty(),
        "the one that ran is done"
    );
    assignment.forget(SCOPE);
    assert!(assignment.scopes().is_empty());
}

#[test]
fn a_rewind_of_a_leaving_partition_gives_nothing_again() {
    let (mut assignment, given) = out(&["a"]);
    assert!(Record::of(&given[0]).unwrap().begin());
    assignment.leave(&[SCOPE]);
    assert!(assignment.rewind(&given[0]));
    assert!(assignment.is_home(&[SCOPE]) && !assignment.can_give());
    assert_eq!(committed(&mut assignment), Some(0));
}

#[test]
fn a_forgotten_partition_loses_what_is_out() {
    let (mut assignment, given) = out(&["a", "b"]);
    assignment.forget(SCOPE);
    assert!(given.iter().all(|delivery| delivery.is_lost()));
    assert!(!assignment.settle(&given[0]) && !assignment.rewind(&given[1]));
    assignment.add(source(SCOPE), None);
    assert!(
        !assignment.settle(&given[0]),
        "nor does it count for the next run"
    );
}

#[test]
fn the_end_gives_nothing_and_waits_for_what_is_out() {
    let (mut assignment, given) = out(&["a", "b"]);
    assignment.take_in(SCOPE, [record(SCOPE, 2, "a")]);
    assignment.close();
    assert!(assignment.give(100).is_empty());
    assert!(assignment.settle(&given[0]));
    assert!(assignment.rewind(&given[1]));
    assert!(assignment.is_home(&assignment.scopes()));
    assert_eq!(committed(&mut assignment), Some(1));
}

#[test]
fn a_log_that_begins_anew_loses_what_is_out_of_the_old_one() {
    let (mut assignment, given) = out(&["a", "a"]);
    assignment.take_in(SCOPE, [record(SCOPE, 0, "a")]);
    assert!(given.iter().all(|delivery| delivery.is_lost()));
    assert_eq!(offsets(&assignment.give(100)), [0]);
}

#[test]
fn what_is_settled_leaves_its_place_unless_it_holds_much() {
    let (mut assignment, given) = out(&["a", "b", "a"]);
    let mut large = Delivery::new("orders".into(), Bytes::from(vec![0; 100_000]));
    large.lane.clone_from(&given[0].lane);
    let record = Record::new(SCOPE, 3, None, RecordHeaders::default());
    assignment.take_in(SCOPE, [(3, Arc::new(large.with_native(record)))]);
    let large = assignment.give(1);
    assert_eq!(assignment.take_spent().count(), 0);
    for delivery in [&given[2], &large[0], &given[0]] {
        assert!(assignment.settle(delivery));
    }
    assert!(assignment.rewind(&given[1]));
    let spent: Vec<_> = assignment.take_spent().collect();
    assert_eq!(offsets(&spent), [2, 0]);
    assert_eq!(assignment.take_spent().count(), 0);

    let again = assignment.give(1);
    assert!(assignment.settle(&again[0]));
    assignment.forget(SCOPE);
    assert_eq!(assignment.take_spent().count(), 0, "nobody reads any more");
}
