use std::sync::Arc;
use std::time::Duration;

use super::dice::Dice;
use super::log::{Log, Note};
use super::scenario::Rates;
use crate::memory::{Fault, FaultSource, Latency, Verb};

/// Draws the faults of a run.
pub(super) struct Weather {
    dice: Dice,
    rates: Rates,
    log: Arc<Log>,
}

impl Weather {
    pub(super) fn new(seed: u64, rates: Rates, log: Arc<Log>) -> Self {
        Self {
            dice: Dice::new(seed),
            rates,
            log,
        }
    }

    fn kind(&mut self, verb: Verb) -> Fault {
        if matches!(verb, Verb::Receive | Verb::Settle | Verb::Subscribe)
            && self.dice.chance(self.rates.refuse)
        {
            return Fault::Refuse;
        }
        match self.dice.below(7) {
            0 | 1 => Fault::Before,
            2 | 3 => Fault::After,
            4 | 5 => Fault::Half,
            _ => Fault::Disconnect,
        }
    }
}

impl FaultSource for Weather {
    fn fault(&mut self, verb: Verb) -> Option<Fault> {
        let rate = match verb {
            Verb::Subscribe => self.rates.subscribe,
            Verb::Publish => self.rates.publish,
            Verb::Receive => self.rates.receive,
            Verb::Settle => self.rates.settle,
            Verb::Extend => self.rates.extend,
        };
        if self.dice.below(1000) >= rate {
            return None;
        }
        let fault = self.kind(verb);
        self.log.note(Note::Fault { fault });
        Some(fault)
    }

    fn latency(&mut self, _verb: Verb) -> Latency {
        if self.rates.latency.is_zero() {
            return Latency::default();
        }
        let most = self.rates.latency + Duration::from_millis(1);
        Latency {
            there: self.dice.duration(most),
            back: self.dice.duration(most),
        }
    }
}
