//! Reads the history of a run: the broker's journal, which tells what was really done, in step with
//! what the workers did. Each rule is one of the promises of [the seam](crate::transport) or of the
//! contract.

mod books;
mod ends;
mod handling;
mod settling;

use books::Books;

use super::log::Seen;
use super::scenario::Scenario;
use super::world::History;
use crate::memory::Event;

/// What the run broke, in words; `Ok` gives the figures of a run that broke nothing.
pub(super) fn check(scenario: &Scenario, history: &History) -> Result<Figures, String> {
    let mut books = Books::new(scenario, history);
    let mut events = history.events.iter();
    let mut read = 0;
    for seen in &history.seen {
        for event in events.by_ref().take(seen.after - read) {
            read_event(&mut books, event)?;
        }
        read = seen.after;
        read_seen(&mut books, seen)?;
    }
    for event in events {
        read_event(&mut books, event)?;
    }
    ends::of_run(&books, history)?;
    Ok(books.figures)
}

/// How much happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Messages published, copies left out.
    pub messages: u64,
    /// Deliveries handed out.
    pub deliveries: u64,
    /// Handlers started.
    pub handlers: u64,
    /// Faults injected.
    pub faults: u64,
    /// Messages whose handler was done more than once.
    pub duplicates: u64,
}

fn read_event(books: &mut Books<'_>, event: &Event) -> Result<(), String> {
    settling::event(books, event).map_err(|broken| {
        let at = event.at - books.began;
        format!("{broken}\n  at {at:?}, when {event:?}")
    })
}

fn read_seen(books: &mut Books<'_>, seen: &Seen) -> Result<(), String> {
    handling::seen(books, seen).map_err(|broken| {
        let at = seen.at - books.began;
        format!("{broken}\n  at {at:?}, when {:?}", seen.note)
    })
}
