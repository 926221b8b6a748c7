use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Kind;
use super::faults::{Fault, Faults, Verb};
use super::held::Held;
use super::journal::{Journal, What};
use super::queue::{Message, Queue, Subscriber, later, message_of};
use crate::transport::{Delivery, Fence, Lane, Outgoing, PublishOptions, Settled, Settlement};
use crate::{Error, replay};

/// All queues, under one lock.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) faults: Faults,
    pub(super) journal: Journal,
    kind: Kind,
    native_dead_letter: bool,
    queues: Vec<Queue>,
    names: HashMap<Arc<str>, usize>,
    /// The last message's number; a Rewinding queue deals out its lanes by it.
    messages: u64,
    /// The last subscription's number, and the last connection's: both only rise.
    subscriptions: u64,
    generations: u64,
}

/// One half-made copy: where it goes, and what it is.
struct Copy {
    queue: Arc<str>,
    message: Message,
    delay: Duration,
}

impl Broker {
    pub(super) fn new(kind: Kind, native_dead_letter: bool, journal: Journal) -> Self {
        Self {
            faults: Faults::default(),
            journal,
            kind,
            native_dead_letter,
            queues: Vec::new(),
            names: HashMap::new(),
            messages: 0,
            subscriptions: 0,
            generations: 0,
        }
    }

    /// The queue of this name, made where it is not there yet.
    pub(super) fn queue_index(&mut self, name: &Arc<str>) -> usize {
        if let Some(&index) = self.names.get(name) {
            return index;
        }
        let index = self.queues.len();
        let queue = Queue::new(Arc::clone(name), self.kind, self.journal.clone());
        self.queues.push(queue);
        self.names.insert(Arc::clone(name), index);
        index
    }

    pub(super) fn queue(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[index]
    }

    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.queues.iter_mut()
    }

    pub(super) fn find(&mut self, name: &str) -> Option<&mut Queue> {
        let index = *self.names.get(name)?;
        self.queues.get_mut(index)
    }

    pub(super) fn publish(&mut self, now: Instant, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        let mut cut_off = false;
        let mut last: Option<(Arc<str>, usize)> = None;
        batch
            .into_iter()
            .map(|outgoing| {
                refuse_unsupported(&outgoing.options)?;
                let fault = self.draw(Verb::Publish, cut_off);
                cut_off |= fault == Some(Fault::Disconnect);
                match fault {
                    None | Some(Fault::After) => {}
                    Some(fault) => return Err(failure("publish", fault)),
                }
                let index = match &last {
                    Some((name, index)) if Arc::ptr_eq(name, &outgoing.queue) => *index,
                    _ => self.queue_index(&outgoing.queue),
                };
                last = Some((Arc::clone(&outgoing.queue), index));
                if self.queues[index].full {
                    return Err(full("publish", &outgoing.queue));
                }
                self.enter(now, index, outgoing);
                fault.map_or(Ok(()), |fault| Err(failure("publish", fault)))
            })
            .collect()
    }

    /// Opens a subscription; gives its number.
    pub(super) fn subscribe(&mut self, queue: usize, scope_share: usize) -> Result<u64, Error> {
        if let Some(fault) = self.faults.draw(Verb::Subscribe) {
            return Err(failure("subscribe", fault));
        }
        self.subscriptions += 1;
        self.generations += 1;
        let subscriber = Subscriber {
            generation: self.generations,
            connected: true,
            outstanding: 0,
            by_scope: BTreeMap::new(),
            scope_share: scope_share.max(1),
            withheld: Vec::new(),
            home: Arc::default(),
        };
        let number = self.subscriptions;
        self.queues[queue].subscriptions.insert(number, subscriber);
        Ok(number)
    }

    /// Reports a lost connection once, and has the next call connect again.
    pub(super) fn reconnect(&mut self, queue: usize, subscription: u64) -> Result<(), Error> {
        let known = self.queues[queue]
            .subscriptions
            .get_mut(&subscription)
            .ok_or_else(|| Error::refused("receive", "the subscription is closed"))?;
        if known.connected {
            return Ok(());
        }
        self.generations += 1;
        known.generation = self.generations;
        known.connected = true;
        Err(Error::transient("receive", "the connection was lost"))
    }

    /// The fault of the next call of this verb; what follows a broken connection breaks with it.
    pub(super) fn draw(&mut self, verb: Verb, cut_off: bool) -> Option<Fault> {
        if cut_off {
            return Some(Fault::Disconnect);
        }
        self.faults.draw(verb)
    }

    /// Settles one delivery, and lets `fault` happen to the call.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        queue: usize,
        delivery: &Delivery,
        settlement: Settlement,
        fault: Option<Fault>,
    ) -> Result<Settled, Error> {
        let fence = delivery.fence;
        match fault {
            None => self.carry_out(now, queue, fence, settlement),
            Some(Fault::After) => {
                // What came after in the lane goes back with the lost answer (law 4); first, for a
                // settlement that is done leaves the book.
                self.queues[queue].take_back_after(now, delivery);
                let _lost_answer = self.carry_out(now, queue, fence, settlement);
                Err(failure("settle", Fault::After))
            }
            Some(Fault::Half) => {
                if let Some(copy) = self.copy_for(queue, fence, &settlement) {
                    self.write(now, queue, fence, copy);
                }
                self.queues[queue].forsake(now, fence);
                Err(failure("settle", Fault::Half))
            }
            Some(Fault::Disconnect) => {
                let subscription = self.subscription_of(queue, fence);
                self.queues[queue].forsake(now, fence);
                if let Some(subscription) = subscription {
                    self.queues[queue].disconnect(now, subscription);
                }
                Err(failure("settle", Fault::Disconnect))
            }
            Some(fault @ (Fault::Before | Fault::Refuse)) => {
                self.queues[queue].forsake(now, fence);
                Err(failure("settle", fault))
            }
        }
    }

    /// Renews one lease by its whole length.
    pub(super) fn extend(
        &mut self,
        now: Instant,
        queue: usize,
        delivery: &Delivery,
        fault: Option<Fault>,
    ) -> Result<Instant, Error> {
        let queue = &mut self.queues[queue];
        let Kind::Leased { lease } = self.kind else {
            return Err(Error::Unsupported {
                broker: "memory",
                feature: "lease",
                context: "deliveries are bound to their connection".to_owned(),
            });
        };
        match fault {
            None | Some(Fault::After) => {}
            Some(fault) => return Err(failure("extend", fault)),
        }
        let until = later(now, lease);
        queue.held.extend(delivery.fence, until);
        if let Some(held) = queue.held.get_mut(delivery.fence) {
            let number = held.message;
            self.journal
                .note(now, &queue.name, number, || What::Extended { until });
        }
        if let Some(fault) = fault {
            return Err(failure("extend", fault));
        }
        delivery.set_lease_end(until);
        Ok(until)
    }

    fn enter(&mut self, now: Instant, index: usize, outgoing: Outgoing) {
        let PublishOptions {
            delay, key, group, ..
        } = outgoing.options;
        let number = self.next_number();
        let message = Message {
            number,
            body: outgoing.body,
            headers: outgoing.headers,
            lane: self.lane(key.as_ref(), group, number),
            key,
            place: 0,
            deliveries: 0,
            attempts: None,
        };
        self.admit(now, index, message, None, delay.unwrap_or_default());
    }

    fn admit(
        &mut self,
        now: Instant,
        index: usize,
        message: Message,
        copy_of: Option<u64>,
        delay: Duration,
    ) {
        let queue = &mut self.queues[index];
        self.journal
            .note(now, &queue.name, message.number, || What::Entered {
                body: message.body.clone(),
                headers: message.headers.clone(),
                lane: message.lane.clone(),
                copy_of,
                delay,
            });
        queue.admit(now, message, delay);
    }

    fn carry_out(
        &mut self,
        now: Instant,
        queue: usize,
        fence: Fence,
        settlement: Settlement,
    ) -> Result<Settled, Error> {
        let laned = self
            .held(queue, fence)
            .is_some_and(|held| held.delivery.lane.is_some());
        let put_back = if laned {
            Settled::LaneRewound
        } else {
            Settled::Done
        };
        match settlement {
            Settlement::Ack => self.acknowledge(now, queue, fence),
            Settlement::Retry {
                body,
                attempts,
                delay,
            } if matches!(self.kind, Kind::Leased { .. }) => {
                self.retry_in_place(now, queue, fence, body, attempts, delay);
                return Ok(put_back);
            }
            Settlement::Release { body, delay } => {
                self.queues[queue].release(now, fence, body, delay);
                return Ok(put_back);
            }
            Settlement::Native { .. } if !self.native_dead_letter => {
                self.queues[queue].forsake(now, fence);
                return Err(Error::Unsupported {
                    broker: "memory",
                    feature: "native dead-lettering",
                    context: "it is off; see MemoryBuilder::native_dead_letter".to_owned(),
                });
            }
            Settlement::Abandon => {
                self.queues[queue].forsake(now, fence);
                return Ok(put_back);
            }
            copied @ (Settlement::Retry { .. }
            | Settlement::DeadLetter { .. }
            | Settlement::Redrive { .. }
            | Settlement::Native { .. }) => {
                if let Some(copy) = self.copy_for(queue, fence, &copied) {
                    let target = self.queue_index(&copy.queue);
                    if self.queues[target].full {
                        self.queues[queue].forsake(now, fence);
                        return Err(full("settle", &copy.queue));
                    }
                    self.write(now, queue, fence, copy);
                }
                self.acknowledge(now, queue, fence);
            }
        }
        Ok(Settled::Done)
    }

    fn acknowledge(&mut self, now: Instant, queue: usize, fence: Fence) {
        let queue = &mut self.queues[queue];
        if let Some(held) = queue.finish(now, fence) {
            self.journal
                .note(now, &queue.name, held.message, || What::Acked);
        }
    }

    fn retry_in_place(
        &mut self,
        now: Instant,
        queue: usize,
        fence: Fence,
        body: Bytes,
        attempts: u32,
        delay: Duration,
    ) {
        let queue = &mut self.queues[queue];
        let Some(held) = queue.held.get_mut(fence) else {
            return;
        };
        let (number, laned) = (held.message, held.delivery.lane.is_some());
        self.journal
            .note(now, &queue.name, number, || What::Retried {
                attempts,
                body: body.clone(),
            });
        if laned {
            queue.put_back(now, fence, delay, |message| renew(message, body, attempts));
        } else if let Some(held) = queue.finish(now, fence) {
            let mut message = message_of(&held);
            renew(&mut message, body, attempts);
            queue.admit(now, message, delay);
        }
    }

    /// The copy that a settlement writes before it acknowledges, if it writes one.
    fn copy_for(&mut self, queue: usize, fence: Fence, settlement: &Settlement) -> Option<Copy> {
        let leased = matches!(self.kind, Kind::Leased { .. });
        let number = self.next_number();
        let source = &mut self.queues[queue];
        let name = Arc::clone(&source.name);
        let mut message = message_of(source.held.get_mut(fence)?);
        message.number = number;
        match settlement {
            Settlement::Retry {
                body,
                attempts,
                delay,
            } if !leased => {
                renew(&mut message, body.clone(), *attempts);
                Some(Copy {
                    queue: name,
                    message,
                    delay: *delay,
                })
            }
            Settlement::DeadLetter {
                queue,
                record,
                attempts,
                ..
            } => {
                message.body = record.clone();
                message.attempts = Some(*attempts);
                message.deliveries = 0;
                Some(Copy {
                    queue: Arc::clone(queue),
                    message,
                    delay: Duration::ZERO,
                })
            }
            Settlement::Redrive {
                queue,
                body,
                bypass,
                ..
            } => {
                message.body = body.clone();
                message.headers = replay::marked(&message.headers, *bypass);
                message.attempts = Some(0);
                message.deliveries = 0;
                Some(Copy {
                    queue: Arc::clone(queue),
                    message,
                    delay: Duration::ZERO,
                })
            }
            Settlement::Native { .. } if self.native_dead_letter => Some(Copy {
                queue: super::Memory::native_dead_letter_queue(&name).into(),
                message,
                delay: Duration::ZERO,
            }),
            _ => None,
        }
    }

    fn write(&mut self, now: Instant, source: usize, fence: Fence, copy: Copy) {
        let Some(held) = self.held(source, fence) else {
            return;
        };
        let original = held.message;
        let number = copy.message.number;
        let name = Arc::clone(&self.queues[source].name);
        self.journal.note(now, &name, original, || {
            if copy.queue == name {
                What::Retried {
                    attempts: copy.message.attempts.unwrap_or_default(),
                    body: copy.message.body.clone(),
                }
            } else {
                What::DeadLettered {
                    queue: Arc::clone(&copy.queue),
                    copy: number,
                }
            }
        });
        let target = self.queue_index(&copy.queue);
        self.admit(now, target, copy.message, Some(original), copy.delay);
    }

    /// Whether a consumer only notes what it acknowledges, so that nothing travels (Kafka).
    pub(super) fn notes_acks(&self) -> bool {
        matches!(self.kind, Kind::Rewinding { .. })
    }

    fn held(&mut self, queue: usize, fence: Fence) -> Option<&mut Held> {
        self.queues[queue].held.get_mut(fence)
    }

    fn subscription_of(&mut self, queue: usize, fence: Fence) -> Option<u64> {
        self.held(queue, fence).map(|held| held.subscription)
    }

    fn next_number(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    fn lane(&self, key: Option<&Bytes>, group: Option<String>, number: u64) -> Option<Lane> {
        let Kind::Rewinding { lanes } = self.kind else {
            let key = Bytes::from(group?);
            let scope = hash(&key);
            return Some(Lane { scope, key });
        };
        let pick = match (key, group) {
            (Some(key), _) => hash(key),
            (None, Some(group)) => hash(group.as_bytes()),
            (None, None) => number,
        };
        Some(Lane {
            scope: pick % u64::from(lanes.max(1)),
            key: Bytes::new(),
        })
    }
}

/// A retry's message: its body and its count, which the broker's own count goes on from.
fn renew(message: &mut Message, body: Bytes, attempts: u32) {
    message.body = body;
    message.attempts = Some(attempts);
    message.deliveries = message.deliveries.max(attempts);
}

fn refuse_unsupported(options: &PublishOptions) -> Result<(), Error> {
    let lacking = [
        ("partition", options.partition.is_some()),
        ("deduplication id", options.deduplication_id.is_some()),
        ("priority", options.priority.is_some()),
        ("time to live", options.time_to_live.is_some()),
    ];
    match lacking.into_iter().find(|&(_, asked)| asked) {
        None => Ok(()),
        Some((feature, _)) => Err(Error::Unsupported {
            broker: "memory",
            feature,
            context: "it takes `delay`, `key` and `group`".to_owned(),
        }),
    }
}

fn full(operation: &'static str, queue: &str) -> Error {
    Error::transient(operation, format!("the queue {queue} takes no more"))
}

/// What the caller is told of a fault.
pub(super) fn failure(operation: &'static str, fault: Fault) -> Error {
    match fault {
        Fault::Before => Error::transient(operation, "an injected fault, before the work"),
        Fault::After => Error::transient(operation, "an injected fault, the answer was lost"),
        Fault::Half => Error::transient(operation, "an injected fault, between copy and ack"),
        Fault::Disconnect => Error::transient(operation, "an injected loss of the connection"),
        Fault::Refuse => Error::refused(operation, "an injected refusal"),
    }
}

/// FNV-1a: the same for the same bytes in every run.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
