use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::queue::{Due, Message, Queue, later};
use crate::transport::Lane;

/// What comes next in the queue: a message, or the next one of a lane.
#[derive(Debug)]
pub(super) enum Next {
    Message(Message),
    Lane(Lane),
}

/// The messages of a lane that are not out.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) messages: VecDeque<Message>,
    /// Whether the lane is among what is ready. One that nobody may have is taken out when it comes
    /// up, and offered again when that changes.
    pub(super) offered: bool,
    /// The subscription that has messages of this lane out; no other gets any.
    pub(super) holder: Option<u64>,
    /// Messages that are out and forsaken: the lane stands until they come back.
    pub(super) forsaken: usize,
    blocked_until: Option<Instant>,
}

/// The order of messages, and who may have the next of a lane.
impl Queue {
    pub(super) fn push_back(&mut self, mut message: Message) {
        self.sequence += 1;
        message.place = self.sequence;
        let Some(lane) = message.lane.clone() else {
            self.ready.push_back(Next::Message(message));
            return;
        };
        self.lane_of(&lane).messages.push_back(message);
        self.offer(&lane);
    }

    /// To the head; in a lane to where it was among those that wait.
    pub(super) fn push_front(&mut self, message: Message) {
        let Some(lane) = message.lane.clone() else {
            self.ready.push_front(Next::Message(message));
            return;
        };
        let messages = &mut self.lane_of(&lane).messages;
        let at = messages
            .iter()
            .position(|waiting| waiting.place > message.place)
            .unwrap_or(messages.len());
        messages.insert(at, message);
        self.offer(&lane);
    }

    pub(super) fn lane_of(&mut self, lane: &Lane) -> &mut Waiting {
        self.lanes.entry(lane.clone()).or_default()
    }

    pub(super) fn hold_back(&mut self, until: Instant, due: Due) {
        self.sequence += 1;
        self.delayed.insert((until, self.sequence), due);
    }

    /// The next message that this subscription may have.
    pub(super) fn next_for(&mut self, now: Instant, subscription: u64) -> Option<Message> {
        loop {
            match self.ready.pop_front()? {
                Next::Message(message) => return Some(message),
                Next::Lane(lane) => {
                    if let Some(message) = self.next_of(now, &lane, subscription) {
                        return Some(message);
                    }
                }
            }
        }
    }

    /// The next message of a lane that came up, if this subscription may have it.
    fn next_of(&mut self, now: Instant, lane: &Lane, subscription: u64) -> Option<Message> {
        let waiting = self.lanes.get_mut(lane)?;
        waiting.offered = false;
        if waiting.stands(now) {
            return None;
        }
        match waiting.holder {
            Some(holder) if holder != subscription => {
                if let Some(holder) = self.subscriptions.get_mut(&holder) {
                    holder.withheld.push(lane.clone());
                    self.wake();
                }
                return None;
            }
            _ => {}
        }
        let known = self.subscriptions.get(&subscription)?;
        let out = known.by_scope.get(&lane.scope).copied().unwrap_or_default();
        if out >= known.scope_share {
            return None;
        }
        let message = waiting.messages.pop_front()?;
        self.offer(lane);
        Some(message)
    }

    pub(super) fn block(&mut self, now: Instant, lane: &Lane, delay: Duration) {
        if !delay.is_zero() {
            let until = later(now, delay);
            self.lane_of(lane).blocked_until = Some(until);
            self.hold_back(until, Due::Unblock(lane.clone()));
        }
    }

    pub(super) fn unblock(&mut self, now: Instant, lane: &Lane) {
        if let Some(waiting) = self.lanes.get_mut(lane)
            && waiting.blocked_until.is_some_and(|until| until <= now)
        {
            waiting.blocked_until = None;
        }
        self.lane_changed(now, lane);
    }

    /// Something of a lane came home, or the lane may go on: frees it where nothing is out, and
    /// offers what its scope has room for again.
    pub(super) fn lane_changed(&mut self, now: Instant, lane: &Lane) {
        let all_in = self.book.out(lane) == 0;
        if let Some(waiting) = self.lanes.get_mut(lane)
            && all_in
            && waiting.forsaken == 0
        {
            waiting.holder = None;
            if waiting.messages.is_empty() && !waiting.stands(now) {
                self.lanes.remove(lane);
            }
        }
        let first = Lane {
            scope: lane.scope,
            key: Bytes::new(),
        };
        let in_scope: Vec<_> = self
            .lanes
            .range(first..)
            .take_while(|(other, _)| other.scope == lane.scope)
            .filter(|(_, waiting)| !waiting.offered && !waiting.messages.is_empty())
            .map(|(other, _)| other.clone())
            .collect();
        if !in_scope.is_empty() {
            for lane in &in_scope {
                self.offer(lane);
            }
            self.wake();
        }
    }

    pub(super) fn offer(&mut self, lane: &Lane) {
        if let Some(waiting) = self.lanes.get_mut(lane)
            && !waiting.offered
            && !waiting.messages.is_empty()
        {
            waiting.offered = true;
            self.ready.push_back(Next::Lane(lane.clone()));
        }
    }
}

impl Waiting {
    /// Whether nobody may have any of it now.
    fn stands(&self, now: Instant) -> bool {
        self.forsaken > 0 || self.blocked_until.is_some_and(|until| until > now)
    }
}
