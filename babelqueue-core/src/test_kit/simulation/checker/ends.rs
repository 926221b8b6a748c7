//! How workers and runs end.

use std::time::Duration;

use tokio::time::Instant;

use super::books::{Books, Handed, State};
use crate::test_kit::simulation::log::{LifeId, LifeOutcome};
use crate::test_kit::simulation::scenario::End;
use crate::test_kit::simulation::world::History;
use crate::transport::Delivery;

/// What a worker has for its last settlements after the deadline.
const FLUSH: Duration = Duration::from_secs(5);

/// A worker is told to stop. Until now no handler was idle while a message waited for one.
pub(super) fn stop_told(books: &mut Books<'_>, life: LifeId, at: Instant) -> Result<(), String> {
    let book = &books.lives[life];
    let still = book.stopping.is_none() && book.stirred != Some(at);
    if still && book.running < books.concurrency(life) {
        let held: Vec<_> = held_by(books, life).collect();
        let waiting = held.iter().find(|(handed, delivery)| {
            let waits = !handed.started && handed.settling.is_none() && !handed.lost;
            // What needs no handler is done, and waits for the settlement before it.
            waits
                && books.decision(delivery.fence).is_none()
                && handed.received.is_some_and(|received| received < at)
                && !has_to_wait(books, &held, handed, delivery)
        });
        if let Some((_, delivery)) = waiting {
            return Err(format!("a handler is idle, and {delivery:?} waits"));
        }
    }
    books.lives[life].stopping.get_or_insert(at);
    Ok(())
}

/// What a worker has received and not let go.
fn held_by<'b>(
    books: &'b Books<'_>,
    life: LifeId,
) -> impl Iterator<Item = (&'b Handed, &'b Delivery)> {
    books.handed.values().filter_map(move |handed| {
        let (to, delivery) = handed.to.as_ref()?;
        let held = *to == life && !handed.refused && handed.answer.is_none();
        held.then_some((handed, &**delivery))
    })
}

/// Whether another of its lane is before it: in the lane's order, or because it runs or is being
/// settled, lost as it may be.
fn has_to_wait(
    books: &Books<'_>,
    held: &[(&Handed, &Delivery)],
    handed: &Handed,
    delivery: &Delivery,
) -> bool {
    let place = |handed: &Handed| {
        books
            .messages
            .get(&handed.message)
            .map(|message| message.place)
    };
    delivery.lane.is_some()
        && held.iter().any(|(other, before)| {
            before.fence != delivery.fence
                && before.lane == delivery.lane
                && before.queue == delivery.queue
                && (other.started
                    || other.settling.is_some()
                    || other.received < handed.received
                    || place(other) < place(handed))
        })
}

/// At the stop the receiver is closed at once, beside the running handlers.
pub(super) fn closing(books: &mut Books<'_>, life: LifeId, at: Instant) -> Result<(), String> {
    let count = books.lives[life].closed.len();
    let book = &mut books.lives[life];
    book.closed.insert(count, at);
    match book.stopping {
        None => Err("a receiver was closed before the stop".to_owned()),
        Some(told) if at > told => Err(format!("a receiver was closed {:?} late", at - told)),
        Some(_) => Ok(()),
    }
}

/// A worker that ended by itself has settled all that it received, in time, and its counts tell so.
pub(super) fn of_life(
    books: &mut Books<'_>,
    life: LifeId,
    outcome: &LifeOutcome,
    at: Instant,
) -> Result<(), String> {
    let planned = books.scenario.lives.get(life);
    let within = planned.map_or(Duration::from_secs(30), |life| match life.end {
        End::Stop(within) => within,
        End::Kill => Duration::from_secs(30),
    });
    let book = &mut books.lives[life];
    book.ended = true;
    let Some(told) = book.stopping else {
        return Err("a worker ended before it was told to".to_owned());
    };
    if at - told > within + FLUSH {
        return Err(format!("it took {:?} to stop", at - told));
    }
    if book.received > 0 && book.closed.is_empty() {
        return Err("a worker left without closing its receiver".to_owned());
    }
    let settled = book.done + book.fenced + book.failed;
    let unsettled = book.received - book.refused - settled;
    if unsettled > 0 {
        return Err(format!("{unsettled} deliveries were never settled"));
    }
    let LifeOutcome::Stopped { in_flight, counts } = outcome else {
        return Ok(());
    };
    if *in_flight != 0 {
        return Err(format!("{in_flight} deliveries are said to be in flight"));
    }
    let told = (
        counts.received,
        counts.lost,
        counts.unsettled,
        counts.ended(),
    );
    let true_ones = (
        book.received as u64,
        (book.refused + book.fenced) as u64,
        book.failed as u64,
        book.received as u64,
    );
    if told != true_ones {
        return Err(format!(
            "the counts are {counts:?}, and the truth is {book:?}"
        ));
    }
    Ok(())
}

/// At the end nothing is left, and nothing was lost on the way in.
pub(super) fn of_run(books: &Books<'_>, history: &History) -> Result<(), String> {
    if history.left > 0 {
        let open: Vec<_> = books
            .messages
            .iter()
            .filter(|(_, message)| !matches!(message.state, State::Gone | State::Dead))
            .take(3)
            .collect();
        return Err(format!("{} messages are left: {open:?} …", history.left));
    }
    let open = books
        .messages
        .iter()
        .find(|(_, message)| !matches!(message.state, State::Gone | State::Dead));
    if let Some((number, message)) = open {
        return Err(format!("message {number} is lost: {message:?}"));
    }
    match books
        .published
        .iter()
        .position(|published| !published.confirmed)
    {
        Some(number) => Err(format!("message {number} was never published")),
        None => Ok(()),
    }
}
