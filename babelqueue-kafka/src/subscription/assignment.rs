use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use babelqueue_core::transport::{Delivery, Fence};

use super::intake;
use crate::book::{Book, Commit, Read};
use crate::config::Order;
use crate::record::Record;

/// One partition of one topic, and its number in this subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The scope of its lanes.
    pub(crate) scope: u64,
}

/// The partitions that this member has, and the deliveries of them that are not settled. No I/O and
/// no waiting: it lives under one lock, which the polling thread, the receiver and the settler take
/// in turn.
#[derive(Debug)]
pub(crate) struct Assignment {
    partitions: BTreeMap<u64, Held>,
    /// The most that is given out of one partition.
    share: usize,
    /// A partition of which more than this is out is given nothing more of.
    ample: usize,
    /// The scope that the last receive ended with: the next one goes on behind it.
    last_given: u64,
    generation: u64,
    /// Whether nothing is given out any more, and what comes back stays back.
    closing: bool,
    /// Settled, and of use for their memory.
    spent: Vec<Arc<Delivery>>,
}

/// A partition that this member has.
#[derive(Debug)]
struct Held {
    source: Source,
    book: Book<Entry>,
    /// The offsets of what was read and not given out.
    inbox: VecDeque<i64>,
    /// Given out, and neither settled nor taken back.
    out: usize,
    /// Whether it goes to another member.
    leaving: bool,
    generation: u64,
    /// Rises with whatever changes the commit; `committed` is what it was at the last one.
    changes: u64,
    committed: u64,
}

#[derive(Debug)]
struct Entry {
    delivery: Arc<Delivery>,
    given: bool,
}

/// A commit that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) source: Source,
    pub(crate) commit: Commit,
}

impl Assignment {
    /// No partitions yet; of each, `share` may be given out at a time.
    pub(crate) fn new(share: usize, order: Order) -> Self {
        let ample = match order {
            // What is out waits for one another, so there is no hurry to add to it; and many at a
            // time cost little more than one.
            Order::Partition => share / 2,
            // What is out may all wait for one slow key: the others go on with every place.
            Order::Key => share.saturating_sub(1),
        };
        Self {
            partitions: BTreeMap::new(),
            share,
            ample,
            last_given: 0,
            generation: 0,
            closing: false,
            spent: Vec::new(),
        }
    }

    /// Takes a partition on, at what is committed of it.
    pub(crate) fn add(&mut self, source: Source, commit: Option<&Commit>) {
        self.generation += 1;
        let held = Held {
            book: commit.map_or_else(Book::new, Book::resumed),
            inbox: VecDeque::new(),
            out: 0,
            leaving: false,
            generation: self.generation,
            changes: 0,
            committed: 0,
            source,
        };
        self.forget(held.source.scope);
        self.partitions.insert(held.source.scope, held);
    }

    /// How many more records of this partition can be read, and the generation that their
    /// deliveries get; `None` until there is room for a whole share, as there is at the latest when
    /// nothing is left to give out: to wake for each record would cost more than the record.
    pub(crate) fn room(&self, scope: u64) -> Option<(usize, u64)> {
        let held = self.partitions.get(&scope)?;
        let room = self.room_of(held);
        (room > 0).then_some((room, held.generation))
    }

    /// Whether the polling thread has something to do.
    pub(crate) fn wants_polling(&self) -> bool {
        let wants = |held: &Held| held.leaving || self.room_of(held) > 0;
        self.closing || self.partitions.values().any(wants)
    }

    fn room_of(&self, held: &Held) -> usize {
        let most = 2 * self.share;
        let room = most.saturating_sub(held.book.len());
        let open = !self.closing && !held.leaving && room >= self.share;
        if open { room } else { 0 }
    }

    /// Takes in what was read of a partition, in order.
    pub(crate) fn take_in(
        &mut self,
        scope: u64,
        read: impl IntoIterator<Item = (i64, Arc<Delivery>)>,
    ) {
        let Some(held) = self.partitions.get_mut(&scope) else {
            return;
        };
        for (offset, delivery) in read {
            held.changes += 1;
            match held.book.read(offset) {
                Read::Done => continue,
                Read::New => {}
                Read::Anew(gone) => {
                    let source = &held.source;
                    tracing::warn!(topic = %source.topic, partition = source.partition, offset,
                        "the log has begun anew below what was read of it");
                    held.lose(gone);
                    held.inbox.retain(|waiting| *waiting < offset);
                }
            }
            held.inbox.push_back(offset);
            let given = false;
            held.book.push(offset, Entry { delivery, given });
        }
    }

    /// Gives out at most `max` deliveries, from each partition in turn.
    pub(crate) fn give(&mut self, max: usize) -> Vec<Arc<Delivery>> {
        if self.closing {
            return Vec::new();
        }
        let (share, ample, last) = (self.share, self.ample, self.last_given);
        let mut given = Vec::new();
        let (before, after): (Vec<_>, Vec<_>) = self
            .partitions
            .values_mut()
            .filter(|held| held.can_give(ample))
            .partition(|held| held.source.scope <= last);
        for held in after.into_iter().chain(before) {
            let room = share.saturating_sub(held.out).min(max - given.len());
            held.give(room, &mut given);
            if given.len() == max {
                self.last_given = held.source.scope;
                break;
            }
        }
        given
    }

    /// Whether [`give`](Self::give) would give anything.
    pub(crate) fn can_give(&self) -> bool {
        let open = |held: &Held| held.can_give(self.ample);
        !self.closing && self.partitions.values().any(open)
    }

    /// Settles a delivery; whether it was out.
    pub(crate) fn settle(&mut self, delivery: &Arc<Delivery>) -> bool {
        let Some((record, held)) = self.held_of(delivery) else {
            return false;
        };
        let settled = held.book.settle(record.offset);
        held.out = held.out.saturating_sub(1);
        held.changes += 1;
        let spent = settled.map(|entry| entry.delivery);
        self.spent.extend(spent.filter(intake::is_worth_keeping));
        true
    }

    /// The deliveries that were settled since the last time, oldest first, for what their memory is
    /// worth. Whoever settled them may hold them yet.
    pub(crate) fn take_spent(&mut self) -> impl Iterator<Item = Arc<Delivery>> {
        self.spent.drain(..)
    }

    /// Takes a delivery back, and with it what was given out behind it in its lane; they are given
    /// out again, in order. Whether it was out.
    pub(crate) fn rewind(&mut self, delivery: &Arc<Delivery>) -> bool {
        let give_again = !self.closing;
        let Some((record, held)) = self.held_of(delivery) else {
            return false;
        };
        let from = record.offset;
        let same_lane = |at: i64, other: &Delivery| {
            at == from || (delivery.lane.is_some() && other.lane == delivery.lane)
        };
        let back: Vec<i64> = held
            .book
            .from(from)
            .filter(|(at, entry)| entry.given && same_lane(*at, &entry.delivery))
            .map(|(at, _)| at)
            .collect();
        for &offset in back.iter().rev() {
            held.take_back(offset, give_again);
        }
        true
    }

    /// Begins to give partitions away: what waits is taken back at once, what runs may finish.
    pub(crate) fn leave(&mut self, scopes: &[u64]) {
        for scope in scopes {
            if let Some(held) = self.partitions.get_mut(scope) {
                held.leaving = true;
                held.take_back_waiting();
            }
        }
    }

    /// Begins the end: as [`leave`](Self::leave) for all, but what was given out is left to come
    /// home by itself.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        for held in self.partitions.values_mut() {
            held.inbox.clear();
        }
    }

    /// Whether nothing of these partitions is out.
    pub(crate) fn is_home(&self, scopes: &[u64]) -> bool {
        let out = |scope| self.partitions.get(scope).map_or(0, |held| held.out);
        scopes.iter().all(|scope| out(scope) == 0)
    }

    /// Gives a partition up: what is out of it is lost.
    pub(crate) fn forget(&mut self, scope: u64) {
        if let Some(mut held) = self.partitions.remove(&scope) {
            let gone = held.book.clear();
            held.lose(gone);
            // Where nothing is left to read, nobody would come for them.
            self.spent.clear();
        }
    }

    /// All of them.
    pub(crate) fn scopes(&self) -> Vec<u64> {
        self.partitions.keys().copied().collect()
    }

    /// The commits of what has changed since the last time; with `scopes`, of these alone.
    pub(crate) fn due(&mut self, scopes: Option<&[u64]>) -> Vec<Due> {
        let wanted = |held: &Held| {
            held.changes != held.committed
                && scopes.is_none_or(|scopes| scopes.contains(&held.source.scope))
        };
        self.partitions
            .values_mut()
            .filter(|held| wanted(held))
            .filter_map(Held::due)
            .collect()
    }

    /// Says that a commit has not arrived, so that it falls due again.
    pub(crate) fn commit_again(&mut self, scope: u64) {
        if let Some(held) = self.partitions.get_mut(&scope) {
            held.changes += 1;
        }
    }

    /// The partition that this very delivery is still out of (not settled, taken back or lost
    /// since), and its record.
    fn held_of<'d>(&mut self, delivery: &'d Arc<Delivery>) -> Option<(&'d Record, &mut Held)> {
        let record = Record::of(delivery)?;
        let held = self.partitions.get_mut(&record.scope)?;
        let entry = held.book.get(record.offset)?;
        Arc::ptr_eq(&entry.delivery, delivery).then_some((record, held))
    }
}

impl Held {
    /// Whether something waits to be given out, and no more than `ample` is out already.
    fn can_give(&self, ample: usize) -> bool {
        !self.leaving && !self.inbox.is_empty() && self.out <= ample
    }

    /// Gives out at most `most` of what waits.
    fn give(&mut self, most: usize, given: &mut Vec<Arc<Delivery>>) {
        let offsets = self.inbox.drain(..most.min(self.inbox.len()));
        given.reserve(offsets.len());
        for offset in offsets {
            if let Some(entry) = self.book.get_mut(offset) {
                entry.given = true;
                self.out += 1;
                given.push(Arc::clone(&entry.delivery));
            }
        }
    }

    /// Loses the delivery of the unsettled record at `offset`, and puts another in its place.
    fn take_back(&mut self, offset: i64, give_again: bool) {
        let Some(entry) = self.book.get(offset) else {
            return;
        };
        let old = Arc::clone(&entry.delivery);
        old.mark_lost();
        self.out = self.out.saturating_sub(1);
        let delivery = Arc::new(another(&old));
        if give_again && !self.leaving {
            self.inbox.push_front(offset);
        }
        let given = false;
        self.book.replace(offset, Entry { delivery, given });
    }

    fn take_back_waiting(&mut self) {
        self.inbox.clear();
        let waiting: Vec<i64> = self
            .book
            .from(i64::MIN)
            .filter(|(_, entry)| entry.given)
            .filter(|(_, entry)| Record::of(&entry.delivery).is_some_and(Record::take_back))
            .map(|(at, _)| at)
            .collect();
        for offset in waiting {
            self.take_back(offset, false);
        }
    }

    fn lose(&mut self, gone: Vec<Entry>) {
        for entry in gone {
            entry.delivery.mark_lost();
            if entry.given {
                self.out = self.out.saturating_sub(1);
            }
        }
    }

    fn due(&mut self) -> Option<Due> {
        self.committed = self.changes;
        let commit = self.book.commit()?;
        let source = self.source.clone();
        Some(Due { source, commit })
    }
}

/// Another delivery of the same record, one generation on.
fn another(old: &Delivery) -> Delivery {
    let mut again = Delivery::new(Arc::clone(&old.queue), old.body.clone());
    again.headers = old.headers.clone();
    again.key.clone_from(&old.key);
    again.facts = old.facts.clone();
    again.lane.clone_from(&old.lane);
    again.fence = Fence {
        generation: old.fence.generation + 1,
        ..old.fence
    };
    match Record::of(old) {
        Some(record) => again.with_native(record.again()),
        None => again,
    }
}

#[cfg(test)]
mod tests;
