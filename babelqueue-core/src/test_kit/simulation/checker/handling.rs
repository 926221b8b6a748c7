//! What the workers did.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::books::{Books, LifeBook, State};
use super::{ends, settling};
use crate::Headers;
use crate::envelope::Envelope;
use crate::test_kit::simulation::log::{Answer, Ending, LifeId, Note, Seen};
use crate::test_kit::simulation::scenario::Class;
use crate::transport::{Delivery, Fence};

pub(super) fn seen(books: &mut Books<'_>, seen: &Seen) -> Result<(), String> {
    match &seen.note {
        Note::Publishing { number } => books.published[*number].asked = true,
        Note::Confirmed { number } => confirmed(books, *number)?,
        Note::Fault { .. } => books.figures.faults += 1,
        Note::Cut | Note::ReceiveFailed => {}
        Note::Received { life, delivery } => received(books, *life, delivery, seen.at)?,
        Note::Refused { life, fence } => refused(books, *life, *fence)?,
        Note::Started {
            life,
            fence,
            attempts,
            lost,
            body,
            headers,
        } => {
            if *lost {
                return Err("a handler started on a delivery that is marked lost".to_owned());
            }
            started(books, *life, *fence, *attempts)?;
            unchanged(books, *fence, body, headers)?;
        }
        Note::Ended { fence, ending } => ended(books, *fence, *ending, seen.at)?,
        Note::Settling {
            life,
            fence,
            settlement,
        } => settling::asked(books, *life, *fence, settlement)?,
        Note::Settled {
            life,
            fence,
            answer,
        } => {
            books.lives[*life].stirred = Some(seen.at);
            answered(books, *life, *fence, *answer)?;
        }
        Note::Extending { life, fence } => {
            let handed = books.handed(*fence)?;
            if handed.to.as_ref().is_none_or(|(to, _)| to != life) {
                return Err("a lease was renewed that is not this worker's".to_owned());
            }
            handed.renewal_open = Some(seen.at);
        }
        Note::Extended { fence, answer } => {
            if *answer != Answer::Failed {
                books.handed(*fence)?.renewal_open = None;
            }
        }
        Note::Closing { life } => ends::closing(books, *life, seen.at)?,
        Note::StopTold { life } => ends::stop_told(books, *life, seen.at)?,
        Note::Killed { life } => books.lives[*life].killed = true,
        Note::LifeEnded { life, outcome } => ends::of_life(books, *life, outcome, seen.at)?,
        Note::Spun { verb } => return Err(format!("something spins: too many calls of {verb:?}")),
    }
    Ok(())
}

fn confirmed(books: &mut Books<'_>, number: usize) -> Result<(), String> {
    let published = &mut books.published[number];
    published.confirmed = true;
    if published.entered == 0 {
        return Err(format!("message {number} was confirmed, and never came in"));
    }
    Ok(())
}

fn received(
    books: &mut Books<'_>,
    life: LifeId,
    delivery: &Arc<Delivery>,
    at: Instant,
) -> Result<(), String> {
    let handed = books.handed(delivery.fence)?;
    if handed.to.is_some() {
        return Err("a delivery was received twice".to_owned());
    }
    handed.to = Some((life, Arc::clone(delivery)));
    handed.received = Some(at);
    let concurrency = books.concurrency(life);
    let planned = books.scenario.lives.get(life);
    let prefetch = planned
        .and_then(|life| life.prefetch)
        .unwrap_or(match books.scenario.kind {
            crate::memory::Kind::Rewinding { .. } => 1024,
            _ if concurrency == 1 => 1,
            _ => 2 * concurrency,
        });
    let book = &mut books.lives[life];
    book.received += 1;
    let held = book.held.entry(Arc::clone(&delivery.queue)).or_default();
    *held += 1;
    if *held > 2 * prefetch {
        return Err(format!(
            "{held} deliveries are unsettled with a prefetch of {prefetch}"
        ));
    }
    Ok(())
}

fn refused(books: &mut Books<'_>, life: LifeId, fence: Fence) -> Result<(), String> {
    let handed = books.handed(fence)?;
    if handed.started || handed.settling.is_some() {
        return Err("a delivery was started or settled before it was refused".to_owned());
    }
    if !handed.lost && !handed.forsaken {
        return Err("a delivery was refused that is still ours".to_owned());
    }
    let first = !std::mem::replace(&mut handed.refused, true);
    if first {
        books.lives[life].refused += 1;
        let_go(books, life, fence);
    }
    Ok(())
}

/// A handler starts: on what is ours, in its turn, with a count that was never higher.
fn started(books: &mut Books<'_>, life: LifeId, fence: Fence, attempts: u32) -> Result<(), String> {
    books.figures.handlers += 1;
    let last = books.is_last_life(life);
    let concurrency = books.concurrency(life);
    let handed = books.handed(fence)?;
    if handed.to.as_ref().is_none_or(|(to, _)| *to != life) {
        return Err("a handler started on a delivery that its worker never received".to_owned());
    }
    if handed.refused || handed.started || handed.settling.is_some() {
        return Err(
            "a handler started that must not: refused, started or settled before".to_owned(),
        );
    }
    if handed.lost || handed.forsaken {
        return Err("a handler started on a delivery that the broker has taken back".to_owned());
    }
    handed.started = true;
    let number = handed.message;
    let message = books.message(number)?;
    if attempts < message.attempts {
        return Err(format!(
            "the count fell from {} to {attempts}",
            message.attempts
        ));
    }
    message.attempts = attempts;
    let (lane, place, planned) = (message.lane.clone(), message.place, message.number);
    match books.scenario.messages[planned].class {
        Class::Work => {}
        Class::Unknown if last => {}
        class => return Err(format!("a handler got a message that is {class:?}")),
    }
    let book = &mut books.lives[life];
    book.running += 1;
    if book.running > concurrency {
        return Err(format!(
            "{} handlers run, of at most {concurrency}",
            book.running
        ));
    }
    match lane {
        Some(lane) => in_turn(books, life, fence, &lane, place),
        None => Ok(()),
    }
}

/// Of a lane, one handler at a time, and not before all earlier messages are handled for good.
fn in_turn(
    books: &mut Books<'_>,
    life: LifeId,
    fence: Fence,
    lane: &(Arc<str>, crate::transport::Lane),
    place: u64,
) -> Result<(), String> {
    let Some(book) = books.lanes.get(lane) else {
        return Err("a message's lane is not known".to_owned());
    };
    for (&other, &running) in &book.running {
        let lost = books
            .handed
            .get(&running)
            .is_none_or(|running| running.lost || running.forsaken);
        if other == life || !lost {
            return Err(format!(
                "two handlers run in one lane: {running:?} and {fence:?}"
            ));
        }
    }
    for (_, before) in book.open.range(..place) {
        let Some(message) = books.messages.get(before) else {
            continue;
        };
        let handled = match message.state {
            State::Out(fence) => books.decision(fence).is_some_and(|decision| {
                use crate::decide::Decision;
                matches!(decision, Decision::Ack | Decision::Drop)
            }),
            _ => false,
        };
        if !handled {
            return Err(format!(
                "a handler started before message {before} of its lane was done: {message:?}"
            ));
        }
    }
    if let Some(book) = books.lanes.get_mut(lane) {
        book.running.insert(life, fence);
    }
    Ok(())
}

/// A handler sees what was published: all of it, but for the count and the forbidden keys.
fn unchanged(
    books: &mut Books<'_>,
    fence: Fence,
    body: &Bytes,
    headers: &Headers,
) -> Result<(), String> {
    let number = books.handed(fence)?.message;
    let planned = books.message(number)?.number;
    let sent = &books.scenario.messages[planned].outgoing;
    if uncounted(body) != uncounted(&sent.body) {
        let body = String::from_utf8_lossy(body);
        return Err(format!("message {planned} came to its handler as {body}"));
    }
    if *headers != sent.headers {
        return Err(format!(
            "message {planned} came to its handler with the headers {headers:?}"
        ));
    }
    Ok(())
}

/// A body with its count set to 0; `None` for one that is no envelope.
pub(super) fn uncounted(body: &Bytes) -> Option<Bytes> {
    let decoded = Envelope::decode(body.clone()).ok()?;
    Some(decoded.envelope.with_attempts(0).into_bytes())
}

fn ended(books: &mut Books<'_>, fence: Fence, ending: Ending, at: Instant) -> Result<(), String> {
    let handed = books.handed(fence)?;
    handed.ending = Some(ending);
    let life = handed.to.as_ref().map(|(life, _)| *life);
    let number = handed.message;
    let message = books.message(number)?;
    let (lane, planned) = (message.lane.clone(), message.number);
    if ending == Ending::Done {
        let published = &mut books.published[planned];
        published.done += 1;
        books.figures.duplicates += u64::from(published.done == 2);
    }
    if let Some(life) = life {
        books.lives[life].running -= 1;
        books.lives[life].stirred = Some(at);
        if let Some(book) = lane.and_then(|lane| books.lanes.get_mut(&lane)) {
            book.running.retain(|_, running| *running != fence);
        }
    }
    Ok(())
}

fn answered(
    books: &mut Books<'_>,
    life: LifeId,
    fence: Fence,
    answer: Answer,
) -> Result<(), String> {
    let handed = books.handed(fence)?;
    handed.answer = Some(answer);
    if answer == Answer::Fenced && !handed.lost && !handed.forsaken {
        return Err("a settlement of what is ours was fenced".to_owned());
    }
    let book: &mut LifeBook = &mut books.lives[life];
    match answer {
        Answer::Done | Answer::LaneRewound => book.done += 1,
        Answer::Fenced => book.fenced += 1,
        _ => book.failed += 1,
    }
    let_go(books, life, fence);
    Ok(())
}

/// A delivery is no longer the worker's.
fn let_go(books: &mut Books<'_>, life: LifeId, fence: Fence) {
    let delivery = books
        .handed
        .get(&fence)
        .and_then(|handed| handed.to.as_ref());
    if let Some((_, delivery)) = delivery
        && let Some(held) = books.lives[life].held.get_mut(&delivery.queue)
    {
        *held = held.saturating_sub(1);
    }
}
