use std::collections::HashMap;

use super::fingerprint::{Fingerprint, Fingerprints};
use crate::transport::Delivery;

/// Tells what has been looked at before, on a queue that gives out again at its head what was put
/// back at its tail.
///
/// Of each scope (a partition; the whole queue where it has no lanes) the first messages that are put
/// back are remembered by their content, and how many copies there are of each. When all copies have
/// been met again, the scope has gone round. Nine of ten are enough: another consumer may have taken
/// some. Should they never come again, others are remembered in their place after a while, and after
/// twice that the next time.
///
/// Where everything that was put back is remembered, whatever is not is new; and a second round has
/// to confirm the first, for what was met may have been copies that nobody had looked at. Where there
/// is more than can be remembered, all that a scope gives out once it has gone round is taken for
/// known.
pub(super) struct Rounds {
    fingerprints: Fingerprints,
    most: usize,
    marks: HashMap<Fingerprint, Mark>,
    scopes: HashMap<Scope, Round>,
    /// Whether a scope has more than can be remembered, or there are more scopes.
    is_full: bool,
    /// Known ones in a row.
    row: usize,
    /// Known ones since the first mark.
    known: usize,
    /// Put back since the first mark.
    put_back: usize,
    /// Put back until new marks are made.
    patience: usize,
}

type Scope = Option<u64>;

struct Mark {
    scope: Scope,
    copies: usize,
    met: usize,
}

#[derive(Default)]
struct Round {
    /// Copies that are remembered.
    copies: usize,
    /// Copies that were met again.
    met: usize,
    /// Whether there were more than can be remembered.
    is_full: bool,
}

/// How many rounds confirm that nothing new comes.
const CONFIRMED: usize = 2;

/// After so many rounds something new in each does not keep a run going.
const ENOUGH: usize = 16;

/// Longer than most queues, so that marks are seldom made anew before they can have come round.
const PATIENCE: usize = 1 << 20;

/// Marks are made for so many scopes; a queue can have more lanes than memory.
const SCOPES: usize = 64;

impl Rounds {
    /// Remembers at most so many messages of a scope.
    pub(super) fn new(most: usize) -> Self {
        Self::with_patience(most, PATIENCE)
    }

    fn with_patience(most: usize, patience: usize) -> Self {
        Self {
            fingerprints: Fingerprints::new(),
            most,
            marks: HashMap::new(),
            scopes: HashMap::new(),
            is_full: false,
            row: 0,
            known: 0,
            put_back: 0,
            patience,
        }
    }

    /// Whether `delivery` has been looked at before.
    pub(super) fn know(&mut self, delivery: &Delivery) -> bool {
        let known = self.recognise(delivery);
        if known {
            self.row += 1;
            self.known += 1;
        }
        known
    }

    /// Notes that something came which had been in the queue all the time, and is new.
    pub(super) fn meet_new(&mut self) {
        self.row = 0;
    }

    /// Whether the queue has gone round. Where it has lanes, each that put something back has to, and
    /// then for a good while nothing new may come: others may never have put anything back.
    pub(super) fn are_complete(&self) -> bool {
        if self.scopes.is_empty() || !self.scopes.values().all(Round::is_complete) {
            return false;
        }
        let copies: usize = self.scopes.values().map(|round| round.copies).sum();
        if self.is_full {
            let without_lanes = self.scopes.len() == 1 && self.scopes.contains_key(&None);
            return without_lanes || self.row >= copies;
        }
        self.row >= CONFIRMED * copies || self.known >= ENOUGH * copies
    }

    fn recognise(&mut self, delivery: &Delivery) -> bool {
        let Some(mark) = self.marks.get_mut(&self.fingerprints.of(delivery)) else {
            let scope = self.scopes.get(&scope(delivery));
            return scope.is_some_and(|round| round.is_full && round.is_complete());
        };
        if mark.met < mark.copies {
            mark.met += 1;
            if let Some(round) = self.scopes.get_mut(&mark.scope) {
                round.met += 1;
            }
        }
        true
    }

    /// Notes that `delivery` went to the tail, `again` where it was known.
    pub(super) fn put_back(&mut self, delivery: &Delivery, again: bool) {
        self.put_back += 1;
        if self.put_back > self.patience {
            self.marks.clear();
            self.scopes.clear();
            self.is_full = false;
            self.known = 0;
            self.put_back = 1;
            self.patience = self.patience.saturating_mul(2);
        }
        let scope = scope(delivery);
        let fingerprint = self.fingerprints.of(delivery);
        if let Some(mark) = self.marks.get_mut(&fingerprint) {
            if !again {
                mark.copies += 1;
                let round = self.scopes.entry(mark.scope).or_default();
                round.copies += 1;
            }
            return;
        }
        if !self.scopes.contains_key(&scope) && self.scopes.len() >= SCOPES {
            self.is_full = true;
            return;
        }
        let round = self.scopes.entry(scope).or_default();
        if round.copies >= self.most {
            round.is_full = true;
            self.is_full = true;
            return;
        }
        round.copies += 1;
        let mark = Mark {
            scope,
            copies: 1,
            met: 0,
        };
        self.marks.insert(fingerprint, mark);
    }
}

impl Round {
    fn is_complete(&self) -> bool {
        self.copies > 0 && self.met >= self.copies - self.copies / 10
    }
}

fn scope(delivery: &Delivery) -> Scope {
    delivery.lane.as_ref().map(|lane| lane.scope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Lane;

    fn message(number: usize) -> Delivery {
        Delivery::new("q.dlq".into(), number.to_string().into())
    }

    fn in_lane(scope: u64, number: usize) -> Delivery {
        let mut delivery = message(number);
        let key = bytes::Bytes::new();
        delivery.lane = Some(Lane { scope, key });
        delivery
    }

    fn put_back(rounds: &mut Rounds, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            rounds.put_back(&message(number), false);
        }
    }

    #[test]
    fn nothing_put_back_never_comes_round() {
        let mut rounds = Rounds::new(3);
        assert!(!rounds.know(&message(1)));
        assert!(!rounds.are_complete());
    }

    #[test]
    fn it_has_gone_round_when_the_first_ones_have_been_met() {
        let mut rounds = Rounds::new(3);
        put_back(&mut rounds, 0..5);
        assert!(!rounds.know(&message(5)));
        for number in 0..3 {
            assert!(!rounds.are_complete(), "{number}");
            assert!(rounds.know(&message(number)));
            assert!(rounds.know(&message(number)), "the same again");
        }
        assert!(rounds.are_complete());
        assert!(rounds.know(&message(3)), "all that comes now is known");
    }

    #[test]
    fn some_that_somebody_else_took_do_not_keep_it_going() {
        let mut rounds = Rounds::new(20);
        put_back(&mut rounds, 0..21);
        for number in 0..17 {
            rounds.know(&message(number));
        }
        assert!(!rounds.are_complete());
        rounds.know(&message(19));
        assert!(rounds.are_complete());
    }

    #[test]
    fn marks_that_never_come_again_are_made_anew() {
        let mut rounds = Rounds::with_patience(2, 10);
        put_back(&mut rounds, 0..13);
        assert!(!rounds.know(&message(0)));
        assert!(rounds.know(&message(10)) && rounds.know(&message(11)));
        assert!(rounds.are_complete());
        // The next ones are waited for twice as long.
        put_back(&mut rounds, 13..30);
        assert!(rounds.are_complete());
        put_back(&mut rounds, [30]);
        assert!(!rounds.are_complete());
    }

    #[test]
    fn each_scope_goes_round_by_itself() {
        let mut rounds = Rounds::new(2);
        for number in 0..3 {
            rounds.put_back(&in_lane(1, number), false);
            rounds.put_back(&in_lane(2, 10 + number), false);
        }
        // A copy may land in another scope than its own.
        assert!(rounds.know(&in_lane(2, 0)) && rounds.know(&in_lane(1, 1)));
        assert!(rounds.know(&in_lane(1, 2)), "scope 1 has gone round");
        assert!(!rounds.know(&in_lane(2, 12)), "scope 2 has not");
        assert!(rounds.know(&in_lane(2, 10)) && rounds.know(&in_lane(2, 11)));
        assert!(!rounds.know(&in_lane(3, 20)), "scope 3 put nothing back");
        rounds.meet_new();
        for number in 0..4 {
            assert!(!rounds.are_complete(), "{number}");
            assert!(rounds.know(&in_lane(1, number)));
        }
        assert!(rounds.are_complete());
    }

    #[test]
    fn where_all_is_remembered_a_second_round_confirms_the_first() {
        let mut rounds = Rounds::new(20);
        put_back(&mut rounds, 0..10);
        let round = |rounds: &mut Rounds| (0..10).all(|number| rounds.know(&message(number)));
        assert!(round(&mut rounds) && !rounds.are_complete());
        assert!(!rounds.know(&message(10)), "nor is all known now");
        rounds.meet_new();
        put_back(&mut rounds, [10]);
        assert!(round(&mut rounds) && rounds.know(&message(10)));
        assert!(round(&mut rounds) && !rounds.are_complete());
        assert!(rounds.know(&message(10)) && rounds.are_complete());
    }

    #[test]
    fn each_copy_counts() {
        let mut rounds = Rounds::new(20);
        put_back(&mut rounds, [1, 1, 1, 1]);
        for met in 0..8 {
            assert!(!rounds.are_complete(), "{met}");
            assert!(rounds.know(&message(1)));
            // Known ones that go to the tail again are no further copies.
            rounds.put_back(&message(1), true);
        }
        assert!(rounds.are_complete());
    }

    #[test]
    fn something_new_in_each_round_does_not_keep_it_going_for_ever() {
        let mut rounds = Rounds::new(20);
        put_back(&mut rounds, 0..10);
        for turn in 0..16 {
            assert!(!rounds.are_complete(), "{turn}");
            assert!((0..10).all(|number| rounds.know(&message(number))));
            assert!(!rounds.know(&message(100 + turn)));
            rounds.meet_new();
        }
        assert!(rounds.are_complete());
    }

    #[test]
    fn the_key_is_part_of_the_content() {
        let mut rounds = Rounds::new(3);
        put_back(&mut rounds, [0]);
        let mut other = message(0);
        other.key = Some("k".into());
        assert!(!rounds.know(&other));
    }
}
