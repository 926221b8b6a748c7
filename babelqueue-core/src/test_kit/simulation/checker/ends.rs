//! How workers and runs end.

use std::time::Duration;

use tokio::time::Instant;

use super::books::{Books, State};
use crate::test_kit::simulation::log::{LifeId, LifeOutcome};
use crate::test_kit::simulation::scenario::End;
use crate::test_kit::simulation::world::History;

/// What a worker has for its last settlements after the deadline.
const FLUSH: Duration = Duration::from_secs(5);

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
