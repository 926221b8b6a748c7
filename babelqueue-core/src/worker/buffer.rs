use std::collections::{BTreeMap, VecDeque};

use super::held::Key;
use crate::transport::Lane;

/// Deliveries that wait for a handler, in the order in which they may start.
///
/// Of each lane at most one is ready or running at a time; the others wait behind it.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    ready: VecDeque<Key>,
    /// What waits behind the one that holds the lane. In order, so that nothing here depends on how
    /// a hash falls.
    lanes: BTreeMap<Lane, VecDeque<Key>>,
    waiting: usize,
}

impl Buffer {
    /// Takes in a delivery. It is ready at once unless its lane is held.
    pub(super) fn admit(&mut self, key: Key, lane: Option<&Lane>) {
        if let Some(lane) = lane {
            if let Some(behind) = self.lanes.get_mut(lane) {
                behind.push_back(key);
                self.waiting += 1;
                return;
            }
            self.lanes.insert(lane.clone(), VecDeque::new());
        }
        self.ready.push_back(key);
    }

    /// The next that may start. It holds its lane until [`leave`](Self::leave).
    pub(super) fn next(&mut self) -> Option<Key> {
        self.ready.pop_front()
    }

    /// Takes at most so many of those that wait for this lane, which is held, in their order.
    pub(super) fn follow(&mut self, lane: &Lane, most: usize) -> VecDeque<Key> {
        let Some(behind) = self.lanes.get_mut(lane) else {
            return VecDeque::new();
        };
        let taken: VecDeque<Key> = behind.drain(..most.min(behind.len())).collect();
        self.waiting -= taken.len();
        taken
    }

    /// Takes them back: they are the next in their lane, which is held.
    pub(super) fn put_back(&mut self, lane: &Lane, keys: VecDeque<Key>) {
        let behind = self.lanes.entry(lane.clone()).or_default();
        self.waiting += keys.len();
        for key in keys.into_iter().rev() {
            behind.push_front(key);
        }
    }

    /// Lets go of a lane: the next in it is ready.
    pub(super) fn leave(&mut self, lane: &Lane) {
        let Some(behind) = self.lanes.get_mut(lane) else {
            return;
        };
        if let Some(key) = behind.pop_front() {
            self.waiting -= 1;
            self.ready.push_back(key);
        } else {
            self.lanes.remove(lane);
        }
    }

    /// How many wait, ready or behind their lane.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.waiting
    }

    /// Takes out those that `is_wanted`, oldest first; and says of each whether it holds its lane,
    /// which then is to be [left](Self::leave).
    pub(super) fn take(&mut self, mut is_wanted: impl FnMut(Key) -> bool) -> Vec<(Key, bool)> {
        let mut taken = Vec::new();
        let mut keep = |key: Key, holds_lane| {
            let wanted = is_wanted(key);
            if wanted {
                taken.push((key, holds_lane));
            }
            !wanted
        };
        self.ready.retain(|&key| keep(key, true));
        for behind in self.lanes.values_mut() {
            let before = behind.len();
            behind.retain(|&key| keep(key, false));
            self.waiting -= before - behind.len();
        }
        taken.sort_unstable_by_key(|(key, _)| key.number());
        taken
    }

    /// Takes out all, and forgets the lanes.
    pub(super) fn drain(&mut self) -> Vec<Key> {
        let mut keys = Vec::with_capacity(self.len());
        keys.extend(self.ready.drain(..));
        keys.extend(std::mem::take(&mut self.lanes).into_values().flatten());
        self.waiting = 0;
        keys
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::held::Key;
    use super::*;

    fn lane(scope: u64) -> Lane {
        Lane {
            scope,
            key: Bytes::new(),
        }
    }

    fn keys(buffer: &mut Buffer) -> Vec<Key> {
        std::iter::from_fn(|| buffer.next()).collect()
    }

    #[test]
    fn without_lanes_the_first_in_is_the_first_out() {
        let mut buffer = Buffer::default();
        for index in 0..3 {
            buffer.admit(Key::test(index), None);
        }
        assert_eq!(buffer.len(), 3);
        assert_eq!(keys(&mut buffer), [0, 1, 2].map(Key::test));
        assert_eq!(buffer.len(), 0);
    }

    #[test]
    fn one_of_a_lane_at_a_time_and_in_order() {
        let mut buffer = Buffer::default();
        for index in 0..3 {
            buffer.admit(Key::test(index), Some(&lane(1)));
        }
        buffer.admit(Key::test(3), Some(&lane(2)));
        buffer.admit(Key::test(4), None);
        assert_eq!(buffer.len(), 5);
        assert_eq!(keys(&mut buffer), [0, 3, 4].map(Key::test));
        assert_eq!(buffer.len(), 2);
        buffer.leave(&lane(1));
        assert_eq!(keys(&mut buffer), [Key::test(1)]);
        buffer.leave(&lane(1));
        assert_eq!(keys(&mut buffer), [Key::test(2)]);
        buffer.leave(&lane(1));
        assert_eq!(buffer.len(), 0);
        // Nobody holds the lane now.
        buffer.admit(Key::test(5), Some(&lane(1)));
        assert_eq!(keys(&mut buffer), [Key::test(5)]);
    }

    #[test]
    fn what_follows_is_taken_in_order_and_put_back_at_the_front() {
        let mut buffer = Buffer::default();
        for index in 0..5 {
            buffer.admit(Key::test(index), Some(&lane(1)));
        }
        assert_eq!(keys(&mut buffer), [Key::test(0)]);
        let taken = buffer.follow(&lane(1), 3);
        assert_eq!(taken, [1, 2, 3].map(Key::test));
        assert_eq!(buffer.len(), 1);
        buffer.put_back(&lane(1), taken.into_iter().skip(1).collect());
        assert_eq!(buffer.len(), 3);
        for index in 2..5 {
            buffer.leave(&lane(1));
            assert_eq!(keys(&mut buffer), [Key::test(index)]);
        }
        assert!(buffer.follow(&lane(2), 3).is_empty());
    }

    #[test]
    fn what_comes_in_while_the_lane_is_held_waits() {
        let mut buffer = Buffer::default();
        buffer.admit(Key::test(0), Some(&lane(1)));
        assert_eq!(keys(&mut buffer), [Key::test(0)]);
        buffer.admit(Key::test(1), Some(&lane(1)));
        assert_eq!(buffer.next(), None);
        buffer.leave(&lane(1));
        assert_eq!(buffer.next(), Some(Key::test(1)));
    }

    #[test]
    fn taking_some_out_leaves_the_others_in_their_order() {
        let mut buffer = Buffer::default();
        buffer.admit(Key::test(0), None);
        for index in 1..5 {
            buffer.admit(Key::test(index), Some(&lane(1)));
        }
        let taken = buffer.take(|key| [1, 3].map(Key::test).contains(&key));
        assert_eq!(taken, [(Key::test(1), true), (Key::test(3), false)]);
        assert_eq!(buffer.len(), 3);
        buffer.leave(&lane(1));
        assert_eq!(keys(&mut buffer), [0, 2].map(Key::test));
        buffer.leave(&lane(1));
        assert_eq!(keys(&mut buffer), [Key::test(4)]);
    }

    #[test]
    fn draining_takes_what_waits_behind_too() {
        let mut buffer = Buffer::default();
        for index in 0..3 {
            buffer.admit(Key::test(index), Some(&lane(7)));
        }
        assert_eq!(buffer.drain(), [0, 1, 2].map(Key::test));
        assert_eq!(buffer.len(), 0);
        // The lane is forgotten: letting go of it again does nothing.
        buffer.leave(&lane(7));
        assert_eq!(buffer.next(), None);
    }
}
