use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::Figures;
use crate::decide::{Case, Decision, Event, classify, decide};
use crate::memory::{Fault, Kind};
use crate::test_kit::simulation::log::{Answer, Ending, LifeId, Note, Seen};
use crate::test_kit::simulation::scenario::{Class, Scenario};
use crate::test_kit::simulation::world::History;
use crate::transport::{Delivery, Fence, Lane, Rules, Settlement};

/// What is known of the run up to the point that is read.
pub(super) struct Books<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) began: Instant,
    pub(super) figures: Figures,
    /// The planned messages, by their bodies.
    pub(super) numbers: HashMap<&'a Bytes, usize>,
    pub(super) published: Vec<Published>,
    pub(super) messages: HashMap<u64, Message>,
    pub(super) handed: HashMap<Fence, Handed>,
    /// What is not done, by queue and lane, in the lane's order.
    pub(super) lanes: BTreeMap<(Arc<str>, Lane), LaneBook>,
    pub(super) lives: Vec<LifeBook>,
    /// When connections broke, or went with their worker.
    pub(super) breaks: BTreeSet<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) asked: bool,
    pub(super) entered: u32,
    pub(super) confirmed: bool,
    pub(super) done: u32,
}

/// A message of the broker's.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) number: usize,
    pub(super) lane: Option<(Arc<str>, Lane)>,
    pub(super) place: u64,
    pub(super) state: State,
    /// The highest count that a handler has seen.
    pub(super) attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Out(Fence),
    Gone,
    /// In a dead-letter queue, where nobody looks.
    Dead,
}

/// A delivery.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) message: u64,
    pub(super) to: Option<(LifeId, Arc<Delivery>)>,
    pub(super) refused: bool,
    pub(super) started: bool,
    pub(super) ending: Option<Ending>,
    pub(super) settling: Option<Settlement>,
    pub(super) answer: Option<Answer>,
    /// When it came to its worker.
    pub(super) received: Option<Instant>,
    /// When the renewal was asked for that failed, or whose answer is still out.
    pub(super) renewal_open: Option<Instant>,
    /// The broker has left it to its lease.
    pub(super) forsaken: bool,
    /// The broker has taken it back.
    pub(super) lost: bool,
    /// Its copy was written.
    pub(super) copied: bool,
}

#[derive(Debug, Default)]
pub(super) struct LaneBook {
    /// By place.
    pub(super) open: BTreeMap<u64, u64>,
    /// The place of the last that was done.
    pub(super) last_done: u64,
    /// The delivery whose handler runs, of each life.
    pub(super) running: BTreeMap<LifeId, Fence>,
}

#[derive(Debug, Default)]
pub(super) struct LifeBook {
    pub(super) received: usize,
    pub(super) refused: usize,
    pub(super) done: usize,
    pub(super) fenced: usize,
    pub(super) failed: usize,
    pub(super) running: usize,
    /// When something last came home to it, which may have set going what has not begun yet.
    pub(super) stirred: Option<Instant>,
    pub(super) held: BTreeMap<Arc<str>, usize>,
    pub(super) stopping: Option<Instant>,
    pub(super) closed: BTreeMap<usize, Instant>,
    pub(super) killed: bool,
    pub(super) ended: bool,
}

impl<'a> Books<'a> {
    pub(super) fn new(scenario: &'a Scenario, history: &History) -> Self {
        let numbers = scenario
            .messages
            .iter()
            .enumerate()
            .map(|(number, planned)| (&planned.outgoing.body, number))
            .collect();
        let mut published = Vec::new();
        published.resize_with(scenario.messages.len(), Published::default);
        let mut lives = Vec::new();
        lives.resize_with(scenario.lives.len() + 1, LifeBook::default);
        Self {
            scenario,
            began: history.began,
            figures: Figures::default(),
            numbers,
            published,
            messages: HashMap::new(),
            handed: HashMap::new(),
            lanes: BTreeMap::new(),
            lives,
            breaks: history.seen.iter().filter_map(break_of).collect(),
        }
    }

    pub(super) fn leased(&self) -> bool {
        matches!(self.scenario.kind, Kind::Leased { .. })
    }

    pub(super) fn is_last_life(&self, life: LifeId) -> bool {
        life == self.scenario.lives.len()
    }

    pub(super) fn concurrency(&self, life: LifeId) -> usize {
        self.scenario
            .lives
            .get(life)
            .map_or(4, |life| life.concurrency)
    }

    pub(super) fn message(&mut self, number: u64) -> Result<&mut Message, String> {
        self.messages
            .get_mut(&number)
            .ok_or_else(|| format!("message {number} is not known"))
    }

    pub(super) fn handed(&mut self, fence: Fence) -> Result<&mut Handed, String> {
        self.handed
            .get_mut(&fence)
            .ok_or_else(|| format!("{fence:?} was never handed out"))
    }

    /// What the rules make of a delivery, as far as it has come; `None` while its handler runs.
    pub(super) fn decision(&self, fence: Fence) -> Option<Decision> {
        let handed = self.handed.get(&fence)?;
        let (life, delivery) = handed.to.as_ref()?;
        let number = self.messages.get(&handed.message)?.number;
        let class = self.scenario.messages[number].class;
        let case = match classify(delivery, Rules::MEMORY) {
            Err(refused) => refused.case,
            Ok(dispatch) => Case {
                event: match class {
                    Class::Unknown if !self.is_last_life(*life) => Event::UnknownUrn,
                    _ => event_of(handed.ending?),
                },
                attempts: dispatch.attempts,
            },
        };
        Some(decide(case, &self.scenario.policy, Rules::MEMORY, 0.0))
    }
}

/// When this means that a connection is gone.
fn break_of(seen: &Seen) -> Option<Instant> {
    matches!(
        seen.note,
        Note::Cut
            | Note::ReceiveFailed
            | Note::Killed { .. }
            | Note::LifeEnded { .. }
            | Note::Fault {
                fault: Fault::Disconnect
            }
    )
    .then_some(seen.at)
}

fn event_of(ending: Ending) -> Event {
    match ending {
        Ending::Done => Event::Succeeded,
        Ending::Drop => Event::Dropped,
        Ending::Failed => Event::Failed,
        Ending::RetryAfter => Event::FailedRetryAfter(std::time::Duration::from_secs(3)),
        Ending::Reject => Event::Rejected,
        Ending::Aborted => Event::Interrupted,
    }
}
