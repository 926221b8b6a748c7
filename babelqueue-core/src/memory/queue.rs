use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Kind;
use super::held::{Held, HeldBook};
use super::journal::{Journal, What};
use super::order::{Next, Waiting};
use crate::Headers;
use crate::transport::{Delivery, Fence, Lane, LaneBook};

/// A message that is in the queue and not handed out.
#[derive(Debug)]
pub(super) struct Message {
    /// The broker's number for it.
    pub(super) number: u64,
    pub(super) body: Bytes,
    pub(super) headers: Headers,
    pub(super) key: Option<Bytes>,
    pub(super) lane: Option<Lane>,
    /// Its place in its lane: what goes back goes before all later ones. Given by the queue.
    pub(super) place: u64,
    /// How often it was handed out before, as far as the kind counts.
    pub(super) deliveries: u32,
    /// The count that the last retry wrote.
    pub(super) attempts: Option<u32>,
}

/// One queue: what is ready, what waits for its time, what is out.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    pub(super) journal: Journal,
    /// Whom a change of what is ready, or of when the next thing is due, wakes.
    pub(super) wakeup: Arc<Notify>,
    pub(super) ready: VecDeque<Next>,
    pub(super) delayed: BTreeMap<(Instant, u64), Due>,
    pub(super) lanes: BTreeMap<Lane, Waiting>,
    pub(super) held: HeldBook,
    pub(super) subscriptions: BTreeMap<u64, Subscriber>,
    pub(super) book: LaneBook,
    /// Whether it takes no more.
    pub(super) full: bool,
    /// Counts what comes in, is handed out, is held back: the order among each.
    pub(super) sequence: u64,
}

/// What happens when a time is reached.
#[derive(Debug)]
pub(super) enum Due {
    Enter(Message),
    Unblock(Lane),
}

/// A subscription as the queue knows it.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// Rises when its connection is lost.
    pub(super) generation: u64,
    pub(super) connected: bool,
    /// Given out and neither settled nor taken back.
    pub(super) outstanding: usize,
    /// The same by the scope of its lane, and the most that a scope may have.
    pub(super) by_scope: BTreeMap<u64, usize>,
    pub(super) scope_share: usize,
    /// Lanes of its own that came up when somebody else asked.
    pub(super) withheld: Vec<Lane>,
    /// Woken when the last one has come home.
    pub(super) home: Arc<Notify>,
}

impl Queue {
    pub(super) fn new(name: Arc<str>, kind: Kind, journal: Journal) -> Self {
        Self {
            name,
            kind,
            journal,
            wakeup: Arc::default(),
            ready: VecDeque::new(),
            delayed: BTreeMap::new(),
            lanes: BTreeMap::new(),
            held: HeldBook::default(),
            subscriptions: BTreeMap::new(),
            book: LaneBook::new(),
            full: false,
            sequence: 0,
        }
    }

    /// Takes a message in, after `delay`.
    pub(super) fn admit(&mut self, now: Instant, message: Message, delay: Duration) {
        if delay.is_zero() {
            self.push_back(message);
        } else {
            self.hold_back(later(now, delay), Due::Enter(message));
        }
        self.wake();
    }

    /// Hands out up to `max` messages; fewer, or none, where there are no more for this subscription.
    pub(super) fn take(
        &mut self,
        now: Instant,
        subscription: u64,
        max: usize,
    ) -> Vec<Arc<Delivery>> {
        self.tick(now);
        let Some(known) = self.subscriptions.get_mut(&subscription) else {
            return Vec::new();
        };
        let generation = known.generation;
        for lane in std::mem::take(&mut known.withheld) {
            self.offer(&lane);
        }
        let mut out = Vec::with_capacity(max.min(self.ready.len()));
        while out.len() < max {
            let Some(message) = self.next_for(now, subscription) else {
                break;
            };
            out.push(self.hand_out(now, message, subscription, generation));
        }
        out
    }

    /// Does what time alone brings about: ended leases, ended delays.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some(fence) = self.held.pop_expired(now) {
            self.expire(now, fence);
        }
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Due::Enter(message) => self.push_back(message),
                Due::Unblock(lane) => self.unblock(now, &lane),
            }
            self.wake();
        }
    }

    /// When the next lease or delay ends.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        let delayed = self.delayed.keys().next().map(|&(at, _)| at);
        match (delayed, self.held.next_deadline()) {
            (Some(delayed), Some(lease)) => Some(delayed.min(lease)),
            (delayed, lease) => delayed.or(lease),
        }
    }

    /// Whether this delivery is still out, and somebody is to settle it.
    pub(super) fn is_out(&mut self, fence: Fence) -> bool {
        self.held.get_mut(fence).is_some_and(|held| !held.forsaken)
    }

    /// Takes a delivery out of the books, for good; its lane goes on.
    pub(super) fn finish(&mut self, now: Instant, fence: Fence) -> Option<Held> {
        let held = self.held.remove(fence)?;
        self.book.strike(&held.delivery);
        self.came_home(now, held.subscription, &held.delivery);
        Some(held)
    }

    /// Takes a delivery out of the books and puts it back at the head, the rest of its lane behind it;
    /// the lane stands still for `delay`.
    pub(super) fn put_back(
        &mut self,
        now: Instant,
        fence: Fence,
        delay: Duration,
        change: impl FnOnce(&mut Message),
    ) {
        let Some((lane, mut message)) = self.recall(now, fence) else {
            return;
        };
        change(&mut message);
        self.push_front(message);
        if let Some(lane) = lane {
            self.block(now, &lane, delay);
        }
        self.wake();
    }

    /// A delivery that nobody settles any more, and that was not done: it comes back by itself, and
    /// the rest of its lane is taken back at once.
    pub(super) fn forsake(&mut self, now: Instant, fence: Fence) {
        let Some(held) = self.held.get_mut(fence) else {
            return;
        };
        let delivery = Arc::clone(&held.delivery);
        let number = held.message;
        let subscription = held.subscription;
        self.journal
            .note(now, &self.name, number, || What::Forsaken);
        delivery.mark_lost();
        match self.kind {
            Kind::Leased { .. } => {
                held.forsaken = true;
                if let Some(lane) = &delivery.lane {
                    self.lane_of(lane).forsaken += 1;
                }
                self.take_back_rest(now, &delivery);
                self.came_home(now, subscription, &delivery);
            }
            Kind::Bound => self.put_back(now, fence, Duration::ZERO, count_delivery),
            Kind::Rewinding { .. } => self.put_back(now, fence, Duration::ZERO, |_| ()),
        }
    }

    /// What was given out after `delivery` in its lane goes back; `delivery` itself stays in the books
    /// as the last of its run.
    pub(super) fn take_back_after(&mut self, now: Instant, delivery: &Delivery) {
        let Some(held) = self.held.get_mut(delivery.fence) else {
            return;
        };
        let delivery = Arc::clone(&held.delivery);
        self.take_back_rest(now, &delivery);
        self.book.enter(&delivery);
    }

    /// The connection of a subscription breaks: the next receive reports it, and where deliveries
    /// are bound to it, all of them go back.
    pub(super) fn disconnect(&mut self, now: Instant, subscription: u64) {
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            known.connected = false;
        }
        if !matches!(self.kind, Kind::Leased { .. }) {
            self.return_all(now, subscription);
        }
        self.wake();
    }

    /// A subscription ends. What it left unsettled goes back, or waits for its lease to end.
    pub(super) fn leave(&mut self, now: Instant, subscription: u64) {
        if self.subscriptions.contains_key(&subscription) {
            if !matches!(self.kind, Kind::Leased { .. }) {
                self.return_all(now, subscription);
            }
            self.subscriptions.remove(&subscription);
            self.wake();
        }
    }

    /// Puts a delivery that nobody has seen back in its place, uncounted.
    pub(super) fn hand_back(&mut self, now: Instant, fence: Fence) {
        if let Some(held) = self.held.get_mut(fence) {
            let number = held.message;
            self.journal
                .note(now, &self.name, number, || What::Released);
            self.put_back(now, fence, Duration::ZERO, |_| ());
        }
    }

    /// Gives a delivery back uncounted, with `body` in place of its own where there is one.
    pub(super) fn release(
        &mut self,
        now: Instant,
        fence: Fence,
        body: Option<Bytes>,
        delay: Duration,
    ) {
        if let Some(held) = self.held.get_mut(fence) {
            let (number, laned) = (held.message, held.delivery.lane.is_some());
            self.journal
                .note(now, &self.name, number, || What::Released);
            let renew = |message: &mut Message| {
                if let Some(body) = body {
                    message.body = body;
                }
            };
            if laned {
                self.put_back(now, fence, delay, renew);
            } else if let Some(held) = self.finish(now, fence) {
                let mut message = message_of(&held);
                renew(&mut message);
                self.admit(now, message, delay);
            }
        }
    }

    pub(super) fn wake(&self) {
        self.wakeup.notify_waiters();
    }

    fn hand_out(
        &mut self,
        now: Instant,
        message: Message,
        subscription: u64,
        generation: u64,
    ) -> Arc<Delivery> {
        let fence = Fence {
            generation,
            id: self.held.next_id(),
        };
        let mut delivery = Delivery::received_at(Arc::clone(&self.name), message.body, now);
        delivery.headers = message.headers;
        delivery.key = message.key;
        delivery.lane = message.lane;
        delivery.fence = fence;
        delivery.facts.attempts = message.attempts;
        let place = message.place;
        let mut deadline = None;
        match self.kind {
            Kind::Leased { lease } => {
                let end = later(now, lease);
                delivery.set_lease_end(end);
                delivery.facts.deliveries = Some(message.deliveries);
                deadline = Some(end);
            }
            Kind::Bound => delivery.facts.deliveries = Some(message.deliveries),
            Kind::Rewinding { .. } => {}
        }
        let delivery = Arc::new(delivery);
        if let Some(lane) = &delivery.lane {
            self.book.enter(&delivery);
            self.lane_of(lane).holder = Some(subscription);
        }
        self.went_out(subscription, &delivery);
        self.sequence += 1;
        self.held.insert(Held {
            delivery: Arc::clone(&delivery),
            order: self.sequence,
            place: message.place,
            message: message.number,
            deliveries: message.deliveries,
            attempts: message.attempts,
            subscription,
            deadline,
            forsaken: false,
        });
        self.journal
            .note(now, &self.name, message.number, || What::Delivered {
                fence,
                place,
            });
        delivery
    }

    fn expire(&mut self, now: Instant, fence: Fence) {
        let Some(held) = self.held.get_mut(fence) else {
            return;
        };
        let (number, forsaken) = (held.message, held.forsaken);
        held.delivery.mark_lost();
        self.journal.note(now, &self.name, number, || What::Expired);
        if forsaken {
            // Its lane was taken back when it was forsaken.
            if let Some(held) = self.held.remove(fence) {
                self.push_front(counted(message_of(&held)));
                if let Some(lane) = &held.delivery.lane {
                    let waiting = self.lane_of(lane);
                    waiting.forsaken = waiting.forsaken.saturating_sub(1);
                    self.lane_changed(now, lane);
                }
            }
            self.wake();
        } else {
            self.put_back(now, fence, Duration::ZERO, count_delivery);
        }
    }

    /// Takes a delivery out of the books; the rest of its lane goes back to the lane's head.
    fn recall(&mut self, now: Instant, fence: Fence) -> Option<(Option<Lane>, Message)> {
        let delivery = Arc::clone(&self.held.get_mut(fence)?.delivery);
        self.take_back_rest(now, &delivery);
        let held = self.held.remove(fence)?;
        self.came_home(now, held.subscription, &delivery);
        Some((delivery.lane.clone(), message_of(&held)))
    }

    /// What was given out after `delivery` in its lane goes back to the lane's head, in order.
    fn take_back_rest(&mut self, now: Instant, delivery: &Delivery) {
        for after in self.book.take_back(delivery).into_iter().rev() {
            if let Some(held) = self.held.remove(after.fence) {
                self.journal
                    .note(now, &self.name, held.message, || What::Rewound);
                self.push_front(message_of(&held));
                self.came_home(now, held.subscription, &after);
            }
        }
    }

    /// Everything that a subscription has out goes back, in the order in which it was handed out.
    fn return_all(&mut self, now: Instant, subscription: u64) {
        let mut out: Vec<_> = self
            .held
            .iter()
            .filter(|held| held.subscription == subscription)
            .map(|held| (held.order, held.delivery.fence))
            .collect();
        // The latest first, for each goes to the front.
        out.sort_unstable_by_key(|&(order, _)| std::cmp::Reverse(order));
        for (_, fence) in out {
            let Some(held) = self.held.remove(fence) else {
                continue;
            };
            held.delivery.mark_lost();
            self.book.strike(&held.delivery);
            self.journal
                .note(now, &self.name, held.message, || What::Disconnected);
            let message = message_of(&held);
            self.push_front(match self.kind {
                Kind::Rewinding { .. } => message,
                Kind::Leased { .. } | Kind::Bound => counted(message),
            });
            self.came_home(now, subscription, &held.delivery);
        }
    }

    fn went_out(&mut self, subscription: u64, delivery: &Delivery) {
        let Some(known) = self.subscriptions.get_mut(&subscription) else {
            return;
        };
        known.outstanding += 1;
        if let Some(lane) = &delivery.lane {
            *known.by_scope.entry(lane.scope).or_default() += 1;
        }
    }

    /// A delivery is nobody's any more; the queue and the lane book have seen to it already.
    fn came_home(&mut self, now: Instant, subscription: u64, delivery: &Delivery) {
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            known.outstanding = known.outstanding.saturating_sub(1);
            if known.outstanding == 0 {
                known.home.notify_waiters();
            }
            if let Some(lane) = &delivery.lane
                && let Some(count) = known.by_scope.get_mut(&lane.scope)
            {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    known.by_scope.remove(&lane.scope);
                }
            }
        }
        if let Some(lane) = &delivery.lane {
            self.lane_changed(now, lane);
        }
    }
}

/// `delay` from now, or the far future where there is no such instant.
pub(super) fn later(now: Instant, delay: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
    now + delay.min(CENTURY)
}

/// The message of a delivery, as it goes back into the queue.
pub(super) fn message_of(held: &Held) -> Message {
    let delivery = &held.delivery;
    Message {
        number: held.message,
        body: delivery.body.clone(),
        headers: delivery.headers.clone(),
        key: delivery.key.clone(),
        lane: delivery.lane.clone(),
        place: held.place,
        deliveries: held.deliveries,
        attempts: held.attempts,
    }
}

fn count_delivery(message: &mut Message) {
    message.deliveries = message.deliveries.saturating_add(1);
}

fn counted(mut message: Message) -> Message {
    count_delivery(&mut message);
    message
}
