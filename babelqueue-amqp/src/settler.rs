use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Settled, Settlement, Settler, Unready};
use bytes::Bytes;
use lapin::BasicProperties;
use tokio::time::{Instant, timeout};

use crate::delay::Step;
use crate::generation::{Generation, Origin};
use crate::publisher::Letter;
use crate::transport::Shared;
use crate::{Declare, project};

/// A message that a quorum queue has counted this often is given back by a copy, which is counted
/// anew: being given back at every deployment must not bring it to its cap, nor to the limit of 20 at
/// which RabbitMQ 4 throws it away.
const GIVEN_BACK_AT_MOST: u32 = 2;

/// Settles what one subscription has given out, each delivery over the channel that it came by.
pub(crate) struct AmqpSettler {
    shared: Arc<Shared>,
    queue: Arc<str>,
}

/// What is done about one delivery.
enum Plan {
    Ack,
    /// Given back; the worker is answered this.
    GiveBack(Result<Settled, Error>),
    /// Acknowledged when its copy is confirmed.
    Copy(Box<Copy>),
}

impl Plan {
    fn copy(copy: Copy) -> Self {
        Self::Copy(Box::new(copy))
    }
}

struct Copy {
    queue: Arc<str>,
    body: Bytes,
    properties: BasicProperties,
    delay: Option<Step>,
}

type Answer = Result<Settled, Error>;

#[async_trait]
impl Settler for AmqpSettler {
    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Answer> {
        let mut answers: Vec<_> = batch.iter().map(|_| Ok(Settled::Fenced)).collect();
        let mut at_once = Frames::default();
        let mut copies = Vec::new();
        for (index, (delivery, settlement)) in batch.iter().enumerate() {
            let origin = delivery.native::<Origin>().filter(|origin| origin.is_out());
            let Some(origin) = origin else {
                continue;
            };
            match self.plan(delivery, origin, settlement) {
                Plan::Ack => at_once.ack(index, origin),
                Plan::GiveBack(answer) => at_once.give_back(index, origin, answer),
                Plan::Copy(copy) => copies.push((index, origin, copy)),
            }
        }
        at_once.send(&mut answers, || Ok(Settled::Fenced)).await;
        if copies.is_empty() {
            return answers;
        }
        let mut after = Frames::default();
        for (index, origin, sent) in self.send(copies).await {
            match sent {
                Ok(()) => after.ack(index, origin),
                Err(error) => after.give_back(index, origin, Err(error)),
            }
        }
        after.send(&mut answers, came_too_late).await;
        answers
    }

    async fn extend(&self, batch: &[Arc<Delivery>]) -> Vec<Result<Instant, Error>> {
        let none = |_| Err(Error::lost("RabbitMQ has no lease to renew"));
        batch.iter().map(none).collect()
    }
}

fn came_too_late() -> Answer {
    Err(Error::lost(
        "the channel broke after the copy was confirmed; the original comes again",
    ))
}

impl AmqpSettler {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<str>) -> Self {
        Self { shared, queue }
    }

    fn plan(&self, delivery: &Delivery, origin: &Origin, settlement: &Settlement) -> Plan {
        let received = &origin.properties;
        match settlement {
            Settlement::Ack => Plan::Ack,
            Settlement::Retry {
                body,
                attempts,
                delay,
            } => Plan::copy(Copy {
                queue: self.queue.clone(),
                properties: project::retried(received, body, *attempts),
                body: body.clone(),
                delay: self.step(*delay),
            }),
            Settlement::Release { body: None, delay } if delay.is_zero() => {
                if delivery.facts.deliveries < Some(GIVEN_BACK_AT_MOST) {
                    return Plan::GiveBack(Ok(Settled::Done));
                }
                Plan::copy(self.release(delivery.body.clone(), received, None))
            }
            Settlement::Release { body, delay } => {
                let body = body.as_ref().unwrap_or(&delivery.body).clone();
                Plan::copy(self.release(body, received, self.step(*delay)))
            }
            Settlement::DeadLetter {
                queue,
                record,
                verbatim,
                attempts,
            } => Plan::copy(Copy {
                queue: queue.clone(),
                properties: if *verbatim {
                    project::dead_lettered_verbatim(received)
                } else {
                    project::dead_lettered(received, record, *attempts)
                },
                body: record.clone(),
                delay: None,
            }),
            Settlement::Redrive {
                queue,
                body,
                bypass,
                verbatim,
            } => Plan::copy(Copy {
                queue: queue.clone(),
                properties: project::redriven(received, body, *verbatim, *bypass),
                body: body.clone(),
                delay: None,
            }),
            Settlement::Native { reason, .. } => Plan::GiveBack(Err(Error::Unsupported {
                broker: crate::BROKER,
                feature: "dead-lettering of its own",
                context: format!("{reason}; the message was given back"),
            })),
            Settlement::Abandon => Plan::GiveBack(Ok(Settled::Done)),
        }
    }

    fn release(&self, body: Bytes, received: &BasicProperties, delay: Option<Step>) -> Copy {
        Copy {
            queue: self.queue.clone(),
            body,
            properties: project::released(received),
            delay,
        }
    }

    /// The delay that we can keep: none where we may not declare its queue.
    fn step(&self, delay: Duration) -> Option<Step> {
        match self.shared.config.declare {
            Declare::Active => Step::at_least(delay),
            Declare::Passive => None,
        }
    }

    /// Sends the copies, and waits no longer for their confirms than a confirm may take: the worker
    /// has others to settle, also where the broker holds its publishers back.
    async fn send<'o>(
        &self,
        copies: Vec<(usize, &'o Origin, Box<Copy>)>,
    ) -> Vec<(usize, &'o Origin, Result<(), Error>)> {
        let limit = self.shared.config.confirm_timeout;
        let mut whose = Vec::with_capacity(copies.len());
        let mut letters = Vec::with_capacity(copies.len());
        let mut unready = Unready::default();
        for (index, origin, copy) in copies {
            whose.push((index, origin));
            let queue = copy.queue.clone();
            let letter = match unready.error(&queue) {
                Some(error) => Err(error),
                None => self.letter(*copy).await,
            };
            unready.note(queue, &letter);
            letters.push(letter);
        }
        let late = || {
            let context = format!("no confirm of the copy within {} ms", limit.as_millis());
            Err(Error::transient("settle", context))
        };
        let sent = async { self.shared.results(self.shared.post(letters).await).await };
        let sent = timeout(limit, sent).await;
        let sent = sent.unwrap_or_else(|_| whose.iter().map(|_| late()).collect());
        let results = whose.into_iter().zip(sent);
        results
            .map(|((index, origin), sent)| (index, origin, sent))
            .collect()
    }

    /// The copy, ready to be sent. Where its delay queue is refused it goes without the delay: a retry
    /// that comes too early is counted and ends, one that is refused each time does not.
    async fn letter(&self, copy: Copy) -> Result<Letter, Error> {
        let Copy {
            queue,
            body,
            properties,
            delay,
        } = copy;
        if let Some(step) = delay {
            let properties = project::without_expiration(&properties);
            let letter = self
                .shared
                .letter(queue.clone(), body.clone(), properties, Some(step));
            match letter.await {
                Err(error) if !error.is_transient() => {
                    tracing::warn!(%error, "a delay is left out, because its queue is refused");
                }
                letter => return letter,
            }
        }
        self.shared.letter(queue, body, properties, None).await
    }
}

/// What is to be sent over the channels that the deliveries came by; there is more than one only just
/// after a connection was lost.
#[derive(Default)]
struct Frames<'o> {
    channels: Vec<OfOneChannel<'o>>,
}

struct OfOneChannel<'o> {
    generation: &'o Generation,
    acks: Vec<u64>,
    nacks: Vec<u64>,
    answers: Vec<(usize, Answer)>,
}

impl<'o> Frames<'o> {
    fn ack(&mut self, index: usize, origin: &'o Origin) {
        let channel = self.channel(origin);
        channel.acks.push(origin.tag);
        channel.answers.push((index, Ok(Settled::Done)));
    }

    fn give_back(&mut self, index: usize, origin: &'o Origin, answer: Answer) {
        let channel = self.channel(origin);
        channel.nacks.push(origin.tag);
        channel.answers.push((index, answer));
    }

    fn channel(&mut self, origin: &'o Origin) -> &mut OfOneChannel<'o> {
        let number = origin.generation.number();
        let known = self
            .channels
            .iter()
            .position(|of| of.generation.number() == number);
        let at = known.unwrap_or(self.channels.len());
        if known.is_none() {
            self.channels.push(OfOneChannel {
                generation: &origin.generation,
                acks: Vec::new(),
                nacks: Vec::new(),
                answers: Vec::new(),
            });
        }
        &mut self.channels[at]
    }

    /// Sends them. What could not be sent is answered `failed`, unless its answer is an error anyway.
    async fn send(self, answers: &mut [Answer], failed: fn() -> Answer) {
        for of in self.channels {
            let written = of.generation.settle(&of.acks, &of.nacks).await;
            for (index, answer) in of.answers {
                answers[index] = match (&written, answer) {
                    (Err(_), Ok(_)) => failed(),
                    (_, answer) => answer,
                };
            }
        }
    }
}
