//! What became of the messages: what a worker asked for, and what the broker did.

use std::time::Duration;

use tokio::time::Instant;

use super::books::{Books, Handed, Message, State};
use super::handling::uncounted;
use crate::decide::Decision;
use crate::envelope::Envelope;
use crate::memory::{Event, What};
use crate::test_kit::simulation::log::{Ending, LifeId};
use crate::test_kit::simulation::scenario::{Class, Scenario};
use crate::transport::{Fence, Settlement};

/// How long after a failed renewal, and the way of its call, the next one is asked for at the latest.
const SOON: Duration = Duration::from_secs(3);

/// A worker settles a delivery once, after its handler, and as the rules say.
pub(super) fn asked(
    books: &mut Books<'_>,
    life: LifeId,
    fence: Fence,
    settlement: &Settlement,
) -> Result<(), String> {
    let decision = books.decision(fence);
    let stopping = books.lives[life].stopping.is_some();
    let scenario = books.scenario;
    let handed = books.handed(fence)?;
    if handed.to.as_ref().is_none_or(|(to, _)| *to != life) {
        return Err("a worker settled what it never received".to_owned());
    }
    if handed.refused {
        return Err("a delivery was settled after it was refused".to_owned());
    }
    if handed.settling.is_some() {
        return Err("a delivery was settled twice".to_owned());
    }
    if handed.started && handed.ending.is_none() {
        return Err("a delivery was settled while its handler runs".to_owned());
    }
    let interrupted = matches!(handed.ending, None | Some(Ending::Aborted));
    let given_back = stopping && interrupted && *settlement == Settlement::release();
    handed.settling = Some(settlement.clone());
    let number = handed.message;
    let planned = books.message(number)?.number;
    if given_back || decision.is_some_and(|it| carries_out(scenario, planned, it, settlement)) {
        return Ok(());
    }
    Err(format!(
        "message {planned} is settled with {settlement:?}, where the rules say {decision:?}"
    ))
}

fn carries_out(
    scenario: &Scenario,
    planned: usize,
    decision: Decision,
    settlement: &Settlement,
) -> bool {
    let sent = &scenario.messages[planned];
    match (decision, settlement) {
        (Decision::Ack | Decision::Drop, Settlement::Ack) => true,
        (Decision::GiveBack, release) => *release == Settlement::release(),
        (Decision::Release { delay }, Settlement::Release { delay: asked, .. }) => delay == *asked,
        (
            Decision::Retry { attempts, .. },
            Settlement::Retry {
                body,
                attempts: counted,
                delay,
            },
        ) => {
            let intact = match sent.class {
                Class::Poison => *body == sent.outgoing.body,
                _ => {
                    uncounted(body) == uncounted(&sent.outgoing.body)
                        && attempts_of(body) == Some(attempts)
                }
            };
            // No back-off of the scenarios is longer.
            intact && i64::from(*counted) == attempts && *delay <= Duration::from_secs(8)
        }
        (
            Decision::DeadLetter { attempts, .. },
            Settlement::DeadLetter {
                queue,
                record,
                verbatim,
                ..
            },
        ) => {
            let source = &sent.outgoing.queue;
            let kept = match sent.class {
                // The record of a poison body holds it, as text or spliced.
                Class::Poison => record.len() > sent.outgoing.body.len(),
                _ => Envelope::decode(record.clone()).is_ok_and(|decoded| {
                    let bare = decoded.envelope.without_dead_letter();
                    bare.attempts() == Some(attempts)
                        && Some(bare.with_attempts(0).into_bytes())
                            == uncounted(&sent.outgoing.body)
                }),
            };
            kept && !verbatim && **queue == format!("{source}.dlq")
        }
        _ => false,
    }
}

fn attempts_of(body: &bytes::Bytes) -> Option<i64> {
    Envelope::decode(body.clone()).ok()?.envelope.attempts()
}

/// The broker did something.
pub(super) fn event(books: &mut Books<'_>, event: &Event) -> Result<(), String> {
    match &event.what {
        What::Entered {
            body,
            headers,
            lane,
            copy_of,
            ..
        } => {
            let planned = match copy_of {
                None => first_hand(books, body)?,
                Some(original) => books.message(*original)?.number,
            };
            if *headers != books.scenario.messages[planned].outgoing.headers {
                return Err(format!(
                    "message {planned} was written with the headers {headers:?}"
                ));
            }
            let watched = books.scenario.queues.contains(&event.queue);
            let lane = lane.clone().map(|lane| (event.queue.clone(), lane));
            books.messages.insert(
                event.message,
                Message {
                    number: planned,
                    lane,
                    place: 0,
                    state: if watched { State::Ready } else { State::Dead },
                    attempts: 0,
                },
            );
            Ok(())
        }
        What::Delivered { fence, place } => delivered(books, event.message, *fence, *place),
        What::Acked => acked(books, event.message),
        What::Retried { .. } => {
            let handed = out(books, event.message)?;
            match handed.settling {
                Some(Settlement::Retry { .. }) => handed.copied = true,
                _ => return Err("a retry that nobody asked for".to_owned()),
            }
            if books.leased() {
                back(books, event.message, false)?;
            }
            Ok(())
        }
        What::DeadLettered { .. } => {
            let handed = out(books, event.message)?;
            match handed.settling {
                Some(Settlement::DeadLetter { .. }) => handed.copied = true,
                _ => return Err("a dead letter that nobody asked for".to_owned()),
            }
            Ok(())
        }
        What::Released => {
            let handed = out(books, event.message)?;
            let asked = matches!(handed.settling, Some(Settlement::Release { .. }));
            if !asked && handed.to.is_some() {
                return Err("given back, and nobody asked for it".to_owned());
            }
            back(books, event.message, false)
        }
        What::Forsaken => {
            let leased = books.leased();
            let handed = out(books, event.message)?;
            let explained =
                handed.to.is_none() || handed.settling.is_some() || handed.renewal_open.is_some();
            handed.forsaken = true;
            if !explained {
                return Err("forsaken without a failed settlement".to_owned());
            }
            if leased {
                Ok(())
            } else {
                back(books, event.message, true)
            }
        }
        What::Expired => {
            expired(books, event.message, event.at)?;
            back(books, event.message, true)
        }
        What::Disconnected => {
            if !books.breaks.contains(&event.at) && !broken_by_leaving(books, event.message)? {
                return Err("taken back, and no connection was lost".to_owned());
            }
            back(books, event.message, true)
        }
        What::Rewound => back(books, event.message, true),
        What::Extended { .. } => out(books, event.message).map(drop),
    }
}

/// The number of a message that comes from the publisher, which must be at it.
fn first_hand(books: &mut Books<'_>, body: &bytes::Bytes) -> Result<usize, String> {
    let Some(&planned) = books.numbers.get(body) else {
        let body = String::from_utf8_lossy(body);
        return Err(format!("a message came in that nobody published: {body}"));
    };
    let published = &mut books.published[planned];
    if !published.asked || published.confirmed {
        return Err(format!(
            "message {planned} came in, and nobody was publishing it"
        ));
    }
    books.figures.messages += u64::from(published.entered == 0);
    published.entered += 1;
    Ok(planned)
}

fn delivered(books: &mut Books<'_>, number: u64, fence: Fence, place: u64) -> Result<(), String> {
    books.figures.deliveries += 1;
    let message = books.message(number)?;
    if message.state != State::Ready {
        return Err(format!(
            "a message was handed out that is {:?}",
            message.state
        ));
    }
    message.state = State::Out(fence);
    message.place = place;
    if let Some(lane) = message.lane.clone() {
        let book = books.lanes.entry(lane).or_default();
        book.open.insert(place, number);
    }
    let handed = Handed {
        message: number,
        to: None,
        refused: false,
        started: false,
        ending: None,
        settling: None,
        answer: None,
        received: None,
        renewal_open: None,
        forsaken: false,
        lost: false,
        copied: false,
    };
    books.handed.insert(fence, handed);
    Ok(())
}

/// A message is gone for good: only after what it was settled with, and in its lane's order.
fn acked(books: &mut Books<'_>, number: u64) -> Result<(), String> {
    let handed = out(books, number)?;
    match handed.settling {
        Some(Settlement::Ack) => {}
        Some(Settlement::Retry { .. } | Settlement::DeadLetter { .. }) if handed.copied => {}
        Some(_) => return Err("acknowledged before its copy was written".to_owned()),
        None => return Err("acknowledged, and nobody asked for it".to_owned()),
    }
    let message = books.message(number)?;
    message.state = State::Gone;
    let (lane, place) = (message.lane.clone(), message.place);
    if let Some(book) = lane.and_then(|lane| books.lanes.get_mut(&lane)) {
        book.open.remove(&place);
        if place <= book.last_done {
            return Err("done after a later message of its lane".to_owned());
        }
        book.last_done = place;
    }
    Ok(())
}

/// A lease that ends: nobody was there to renew it, or the renewal failed.
fn expired(books: &mut Books<'_>, number: u64, at: Instant) -> Result<(), String> {
    let handed = out(books, number)?;
    // A renewal that fails is asked for again soon, to the end.
    if handed.forsaken || handed.renewal_open.is_some_and(|asked| at - asked < SOON) {
        return Ok(());
    }
    let Some((life, _)) = &handed.to else {
        // It never came to a worker: its receiver was killed, or its renewal is nobody's.
        return if books.lives.iter().any(|life| life.killed) {
            Ok(())
        } else {
            Err("a lease ended that a receiver should have given back".to_owned())
        };
    };
    let life = *life;
    let answered = handed.answer.is_some();
    let book = &books.lives[life];
    if answered || !book.killed {
        return Err("a lease ended that its worker should have renewed".to_owned());
    }
    Ok(())
}

/// Whether its subscription ended with its worker.
fn broken_by_leaving(books: &mut Books<'_>, number: u64) -> Result<bool, String> {
    let handed = out(books, number)?;
    let life = handed.to.as_ref().map(|(life, _)| *life);
    Ok(match life {
        Some(life) => books.lives[life].killed || books.lives[life].ended,
        None => books.lives.iter().any(|life| life.killed),
    })
}

/// A message is in the queue again.
fn back(books: &mut Books<'_>, number: u64, lost: bool) -> Result<(), String> {
    let handed = out(books, number)?;
    handed.lost |= lost;
    books.message(number)?.state = State::Ready;
    Ok(())
}

/// The delivery that a message is out with.
fn out<'b>(books: &'b mut Books<'_>, number: u64) -> Result<&'b mut Handed, String> {
    match books.message(number)?.state {
        State::Out(fence) => books.handed(fence),
        state => Err(format!("message {number} is not out, but {state:?}")),
    }
}
