use std::fmt;
use std::time::Duration;

use crate::random::Random;

/// A call over the seam that a fault can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Opening a subscription; one draw a call.
    Subscribe,
    /// Publishing; one draw a message.
    Publish,
    /// Receiving; one draw a call.
    Receive,
    /// Settling; one draw a delivery that is still ours.
    Settle,
    /// Renewing a lease; one draw a delivery that is still ours.
    Extend,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing was done; the caller gets a transient error.
    Before,
    /// Everything was done and the answer was lost; the caller gets a transient error.
    After,
    /// Of a copy and an acknowledgement only the copy was done. Where there are no two steps it is
    /// [`Before`](Self::Before).
    Half,
    /// The connection breaks before anything is done, and the rest of the batch is lost with it.
    /// Where deliveries are bound to the connection they all go back.
    Disconnect,
    /// Nothing was done, and no retry would help; the caller gets a refusal.
    Refuse,
}

/// Decides over each call what goes wrong with it and how long it takes; see
/// [`Memory::fail_by`](super::Memory::fail_by).
pub trait FaultSource: Send + 'static {
    /// The fault of the next call of this verb, if any.
    fn fault(&mut self, verb: Verb) -> Option<Fault>;

    /// How long the next call of this verb travels to the broker, and its answer back.
    fn latency(&mut self, verb: Verb) -> Latency {
        let _ = verb;
        Latency::default()
    }
}

/// The time that a call spends on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// Until the broker does the work.
    pub there: Duration,
    /// From then until the caller has the answer.
    pub back: Duration,
}

/// Faults drawn from a seed: each call fails with the same probability, in any way but
/// [`Fault::Refuse`].
#[derive(Debug)]
pub struct SeededFaults {
    random: Random,
    rate: f64,
}

impl SeededFaults {
    /// Faults that follow from `seed`; each call is hit with probability `rate` (0 to 1).
    pub fn new(seed: u64, rate: f64) -> Self {
        Self {
            random: Random::seeded(seed),
            rate,
        }
    }
}

impl FaultSource for SeededFaults {
    fn fault(&mut self, _verb: Verb) -> Option<Fault> {
        const KINDS: [Fault; 4] = [Fault::Before, Fault::After, Fault::Half, Fault::Disconnect];
        let hit = self.random.unit() < self.rate;
        // Drawn either way, so that a rate moves no later draw.
        let kind = KINDS[usize::from(self.random.next_u64().to_le_bytes()[0] & 3)];
        hit.then_some(kind)
    }
}

/// The faults planned by number, and the source that is asked after them.
#[derive(Default)]
pub(super) struct Faults {
    planned: Vec<Planned>,
    source: Option<Box<dyn FaultSource>>,
}

struct Planned {
    verb: Verb,
    /// How many calls of the verb it lets pass.
    passes: u64,
    fault: Fault,
}

impl Faults {
    /// Plans `fault` for the `nth` call of `verb` from now, the next being the first.
    pub(super) fn plan(&mut self, verb: Verb, nth: u64, fault: Fault) {
        self.planned.push(Planned {
            verb,
            passes: nth.saturating_sub(1),
            fault,
        });
    }

    pub(super) fn set_source(&mut self, source: Option<Box<dyn FaultSource>>) {
        self.source = source;
    }

    pub(super) fn draw(&mut self, verb: Verb) -> Option<Fault> {
        let mut hit = None;
        self.planned.retain_mut(|planned| {
            if planned.verb != verb {
                return true;
            }
            if planned.passes == 0 && hit.is_none() {
                hit = Some(planned.fault);
                return false;
            }
            planned.passes = planned.passes.saturating_sub(1);
            true
        });
        hit.or_else(|| self.source.as_mut()?.fault(verb))
    }

    pub(super) fn latency(&mut self, verb: Verb) -> Latency {
        self.source
            .as_mut()
            .map_or_else(Latency::default, |source| source.latency(verb))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("planned", &self.planned.len())
            .field("source", &self.source.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_verb_fails_and_no_other() {
        let mut faults = Faults::default();
        faults.plan(Verb::Settle, 2, Fault::After);
        faults.plan(Verb::Settle, 3, Fault::Before);
        assert_eq!(faults.draw(Verb::Publish), None);
        let drawn: Vec<_> = (0..4).map(|_| faults.draw(Verb::Settle)).collect();
        assert_eq!(drawn, [None, Some(Fault::After), Some(Fault::Before), None]);
    }

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let draw = |seed| {
            let mut faults = SeededFaults::new(seed, 0.5);
            (0..64)
                .map(|_| faults.fault(Verb::Settle))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).contains(&None));
    }
}
