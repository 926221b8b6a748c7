use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::transport::{Delivery, Fence};

/// A message that was handed out. Its body, headers, key and lane are in the delivery.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) delivery: Arc<Delivery>,
    /// The broker's number for the message.
    pub(super) message: u64,
    /// How often it was handed out before this, as far as the kind counts.
    pub(super) deliveries: u32,
    /// The count that the last retry wrote.
    pub(super) attempts: Option<u32>,
    pub(super) subscription: u64,
    /// Rises with each delivery of the queue.
    pub(super) order: u64,
    /// Its place in its lane.
    pub(super) place: u64,
    /// The end of its lease by the broker's book; the delivery's own may lag behind when the answer
    /// to a renewal was lost.
    pub(super) deadline: Option<Instant>,
    /// Nobody settles it any more; only its deadline brings it back.
    pub(super) forsaken: bool,
}

/// The messages that are out, by fence. A slot is used again; its turn tells the uses apart, so that
/// a late settlement finds nothing.
#[derive(Debug, Default)]
pub(super) struct HeldBook {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// When leases end, in order, for they all have the same length; entries whose delivery is
    /// settled or renewed are skipped.
    deadlines: VecDeque<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Slot {
    turn: u32,
    held: Option<Held>,
}

impl HeldBook {
    /// The fence id that the next [`insert`](Self::insert) takes.
    pub(super) fn next_id(&mut self) -> u64 {
        let index = if let Some(&index) = self.free.last() {
            index
        } else {
            let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.slots.push(Slot::default());
            self.free.push(index);
            index
        };
        let turn = self.slots[index as usize].turn;
        u64::from(turn) << 32 | u64::from(index)
    }

    /// Books `held` under the id that [`next_id`](Self::next_id) gave, which its delivery carries.
    pub(super) fn insert(&mut self, held: Held) {
        let id = held.delivery.fence.id;
        let deadline = held.deadline;
        self.free.pop();
        self.slots[index(id)].held = Some(held);
        if let Some(at) = deadline {
            self.note_deadline(at, id);
        }
    }

    pub(super) fn get_mut(&mut self, fence: Fence) -> Option<&mut Held> {
        self.by_id(fence.id)
            .filter(|held| held.delivery.fence == fence)
    }

    pub(super) fn remove(&mut self, fence: Fence) -> Option<Held> {
        self.get_mut(fence)?;
        let slot = &mut self.slots[index(fence.id)];
        slot.turn = slot.turn.wrapping_add(1);
        self.free.push(low_half(fence.id));
        slot.held.take()
    }

    /// Moves the end of a lease.
    pub(super) fn extend(&mut self, fence: Fence, until: Instant) {
        if let Some(held) = self.get_mut(fence) {
            held.deadline = Some(until);
            self.note_deadline(until, fence.id);
        }
    }

    /// The next lease that has ended at `now`.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Fence> {
        while let Some(at) = self.next_deadline() {
            if at > now {
                return None;
            }
            let (_, id) = self.deadlines.pop_front()?;
            if let Some(held) = self.by_id(id) {
                return Some(held.delivery.fence);
            }
        }
        None
    }

    /// When the next lease ends.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(&(at, id)) = self.deadlines.front() {
            if self.by_id(id).is_some_and(|held| held.deadline == Some(at)) {
                return Some(at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// What is out, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.slots.iter().filter_map(|slot| slot.held.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn by_id(&mut self, id: u64) -> Option<&mut Held> {
        let slot = self.slots.get_mut(index(id))?;
        if u64::from(slot.turn) != id >> 32 {
            return None;
        }
        slot.held.as_mut()
    }

    fn note_deadline(&mut self, at: Instant, id: u64) {
        self.deadlines.push_back((at, id));
        // One slow delivery at the front must not keep the entries of all the quick ones.
        if self.deadlines.len() > 2 * self.len() + 64 {
            let mut entries = std::mem::take(&mut self.deadlines);
            entries
                .retain(|&(at, id)| self.by_id(id).is_some_and(|held| held.deadline == Some(at)));
            self.deadlines = entries;
        }
    }
}

fn index(id: u64) -> usize {
    low_half(id) as usize
}

fn low_half(id: u64) -> u32 {
    u32::try_from(id & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
