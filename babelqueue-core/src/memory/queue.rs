use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Kind;
use super::held::{Held, HeldBook};
use super::journal::{Journal, What};
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
    book: LaneBook,
    /// Turns that found their lane held by another subscription, or blocked.
    parked: usize,
    /// Counts what comes in, is handed out, is held back: the order among each.
    sequence: u64,
}

/// What comes next in the queue: a message, or a turn of the lane that holds it.
#[derive(Debug)]
pub(super) enum Next {
    Message(Message),
    Turn(Lane),
}

/// What happens when a time is reached.
#[derive(Debug)]
pub(super) enum Due {
    Enter(Message),
    Unblock(Lane),
}

/// The messages of a lane that are not out. There is one turn, ready or parked, for each.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) messages: VecDeque<Message>,
    parked: usize,
    /// The subscription that has messages of this lane out; no other gets any.
    holder: Option<u64>,
    /// Messages that are out and forsaken: the lane stands until they come back.
    forsaken: usize,
    blocked_until: Option<Instant>,
}

/// A subscription as the queue knows it.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// Rises when its connection is lost.
    pub(super) generation: u64,
    pub(super) connected: bool,
    /// Given out and neither settled nor taken back.
    pub(super) outstanding: usize,
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
            parked: 0,
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
        let Some(generation) = self
            .subscriptions
            .get(&subscription)
            .map(|known| known.generation)
        else {
            return Vec::new();
        };
        self.unpark_held_by(subscription);
        let mut out = Vec::with_capacity(max.min(self.ready.len()));
        while out.len() < max {
            let Some(message) = self.next_for(now, subscription) else {
                break;
            };
            out.push(self.hand_out(now, message, subscription, generation));
        }
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            known.outstanding += out.len();
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
        self.came_home(held.subscription);
        if let Some(lane) = &held.delivery.lane {
            self.book.strike(&held.delivery);
            self.settle_lane(now, lane);
        }
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
            self.settle_lane(now, &lane);
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
                self.came_home(subscription);
                self.take_back_rest(now, &delivery);
                if let Some(lane) = &delivery.lane {
                    self.lanes.entry(lane.clone()).or_default().forsaken += 1;
                }
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
            if let Some(waiting) = self.lanes.get_mut(lane) {
                waiting.holder = Some(subscription);
            }
        }
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
                    if let Some(waiting) = self.lanes.get_mut(lane) {
                        waiting.forsaken = waiting.forsaken.saturating_sub(1);
                    }
                    self.settle_lane(now, lane);
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
        self.came_home(held.subscription);
        Some((delivery.lane.clone(), message_of(&held)))
    }

    /// What was given out after `delivery` in its lane goes back to the lane's head, in order.
    fn take_back_rest(&mut self, now: Instant, delivery: &Delivery) {
        for after in self.book.take_back(delivery).into_iter().rev() {
            if let Some(held) = self.held.remove(after.fence) {
                self.came_home(held.subscription);
                self.journal
                    .note(now, &self.name, held.message, || What::Rewound);
                self.push_front(message_of(&held));
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
            self.came_home(subscription);
            self.journal
                .note(now, &self.name, held.message, || What::Disconnected);
            let message = message_of(&held);
            self.push_front(match self.kind {
                Kind::Rewinding { .. } => message,
                Kind::Leased { .. } | Kind::Bound => counted(message),
            });
        }
        for waiting in self.lanes.values_mut() {
            if waiting.holder == Some(subscription) {
                waiting.holder = None;
            }
        }
        self.unpark_all();
    }

    fn came_home(&mut self, subscription: u64) {
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            known.outstanding = known.outstanding.saturating_sub(1);
            if known.outstanding == 0 {
                known.home.notify_waiters();
            }
        }
    }
}

/// The order of messages: one turn in `ready` for each message that waits in a lane.
impl Queue {
    fn push_back(&mut self, mut message: Message) {
        self.sequence += 1;
        message.place = self.sequence;
        match &message.lane {
            None => self.ready.push_back(Next::Message(message)),
            Some(lane) => {
                let turn = Next::Turn(lane.clone());
                self.lane_of(lane.clone()).messages.push_back(message);
                self.ready.push_back(turn);
            }
        }
    }

    /// To the head; in a lane to where it was among those that wait.
    fn push_front(&mut self, message: Message) {
        match &message.lane {
            None => self.ready.push_front(Next::Message(message)),
            Some(lane) => {
                let turn = Next::Turn(lane.clone());
                let messages = &mut self.lane_of(lane.clone()).messages;
                let at = messages
                    .iter()
                    .position(|waiting| waiting.place > message.place)
                    .unwrap_or(messages.len());
                messages.insert(at, message);
                self.ready.push_front(turn);
            }
        }
    }

    fn lane_of(&mut self, lane: Lane) -> &mut Waiting {
        self.lanes.entry(lane).or_default()
    }

    fn hold_back(&mut self, until: Instant, due: Due) {
        self.sequence += 1;
        self.delayed.insert((until, self.sequence), due);
    }

    /// The next message that this subscription may have. Turns of lanes that are closed to it are
    /// parked on the way.
    fn next_for(&mut self, now: Instant, subscription: u64) -> Option<Message> {
        loop {
            match self.ready.pop_front()? {
                Next::Message(message) => return Some(message),
                Next::Turn(lane) => {
                    let Some(waiting) = self.lanes.get_mut(&lane) else {
                        continue;
                    };
                    if waiting.is_open_to(subscription, now) {
                        return waiting.messages.pop_front();
                    }
                    waiting.parked += 1;
                    self.parked += 1;
                    if waiting.holder.is_some_and(|holder| holder != subscription) {
                        self.wake();
                    }
                }
            }
        }
    }

    fn block(&mut self, now: Instant, lane: &Lane, delay: Duration) {
        if !delay.is_zero() {
            let until = later(now, delay);
            self.lane_of(lane.clone()).blocked_until = Some(until);
            self.hold_back(until, Due::Unblock(lane.clone()));
        }
    }

    fn unblock(&mut self, now: Instant, lane: &Lane) {
        if let Some(waiting) = self.lanes.get_mut(lane) {
            if waiting.blocked_until.is_some_and(|until| until <= now) {
                waiting.blocked_until = None;
            }
            self.unpark(lane);
            self.settle_lane(now, lane);
        }
    }

    /// After a change to what is out of a lane: frees it, or forgets it, where nothing is.
    fn settle_lane(&mut self, now: Instant, lane: &Lane) {
        if self.book.out(lane) > 0 {
            return;
        }
        let Some(waiting) = self.lanes.get_mut(lane) else {
            return;
        };
        if waiting.forsaken > 0 {
            return;
        }
        waiting.holder = None;
        if waiting.messages.is_empty() && waiting.blocked_until.is_none_or(|until| until <= now) {
            self.lanes.remove(lane);
        } else if waiting.parked > 0 {
            self.unpark(lane);
            self.wake();
        }
    }

    fn unpark(&mut self, lane: &Lane) {
        if let Some(waiting) = self.lanes.get_mut(lane) {
            self.parked -= waiting.parked;
            for _ in 0..std::mem::take(&mut waiting.parked) {
                self.ready.push_front(Next::Turn(lane.clone()));
            }
        }
    }

    fn unpark_all(&mut self) {
        if self.parked > 0 {
            let parked: Vec<_> = self.lanes_with_parked(|_| true);
            for lane in parked {
                self.unpark(&lane);
            }
        }
    }

    /// Turns that another subscription parked because this one holds their lane.
    fn unpark_held_by(&mut self, subscription: u64) {
        if self.parked > 0 {
            let parked = self.lanes_with_parked(|waiting| waiting.holder == Some(subscription));
            for lane in parked {
                self.unpark(&lane);
            }
        }
    }

    fn lanes_with_parked(&self, wanted: impl Fn(&Waiting) -> bool) -> Vec<Lane> {
        self.lanes
            .iter()
            .filter(|(_, waiting)| waiting.parked > 0 && wanted(waiting))
            .map(|(lane, _)| lane.clone())
            .collect()
    }
}

impl Waiting {
    fn is_open_to(&self, subscription: u64, now: Instant) -> bool {
        self.forsaken == 0
            && self.holder.is_none_or(|holder| holder == subscription)
            && self.blocked_until.is_none_or(|until| until <= now)
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
