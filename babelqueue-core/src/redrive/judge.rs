use std::collections::HashSet;
use std::sync::Arc;

use super::fingerprint::{Fingerprint, Fingerprints};
use super::{Fate, Item, Redrive};
use crate::envelope::Envelope;
use crate::transport::{Delivery, Settlement};
use crate::version_gate;

/// Decides over each message of a run.
pub(super) struct Judge<'r> {
    redrive: &'r Redrive,
    /// When the run began, in Unix milliseconds.
    began: i64,
    fingerprints: Fingerprints,
    /// What was moved as it was: a gate that rejects it again sends it back without a mark of time.
    verbatim: HashSet<Fingerprint>,
}

/// What is to become of a message: its report, and how it is moved where it is.
pub(super) struct Judgement {
    pub(super) item: Item,
    pub(super) moved: Option<Settlement>,
}

/// How many verbatim moves are remembered.
const REMEMBERED: usize = 100_000;

impl<'r> Judge<'r> {
    pub(super) fn new(redrive: &'r Redrive) -> Self {
        Self {
            redrive,
            began: redrive.clock.unix_millis(),
            fingerprints: Fingerprints::new(),
            verbatim: HashSet::new(),
        }
    }

    pub(super) fn judge(&mut self, delivery: &Delivery) -> Judgement {
        let from = &self.redrive.queue;
        let stays = |item, fate| Judgement {
            item: Item { fate, ..item },
            moved: None,
        };
        let decoded = match &delivery.facts.poison {
            Some(_) => None,
            None => Envelope::decode(delivery.body.clone()).ok(),
        };
        let Some(envelope) = decoded.map(|decoded| decoded.envelope) else {
            return stays(Item::unread(from), Fate::Poison);
        };
        let item = Item::of(from, &envelope);
        if !self.redrive.selects(&envelope, &item) {
            return stays(item, Fate::NotSelected);
        }
        if self.is_too_new(delivery, &envelope) {
            return stays(item, Fate::TooNew);
        }
        let Some(target) = self.redrive.target(&envelope) else {
            return stays(item, Fate::NoTarget);
        };
        let to = Some(Arc::clone(&target));
        let item = Item { to, ..item };
        if self.redrive.dry_run {
            return stays(item, Fate::Planned);
        }
        let carries = self.redrive.transport.capabilities().headers;
        Judgement {
            item: Item {
                fate: Fate::Redriven,
                bypassed: self.redrive.bypass && carries,
                ..item
            },
            moved: Some(self.moved(delivery, &envelope, target)),
        }
    }

    /// Whether it came into the queue after the run began: most likely it was moved, and has failed
    /// again. Without this a run would go on for as long as it does.
    fn is_too_new(&self, delivery: &Delivery, envelope: &Envelope) -> bool {
        let block = envelope.dead_letter().unwrap_or_default();
        block.failed_at.is_some_and(|at| at > self.began)
            || self.verbatim.contains(&self.fingerprints.of(delivery))
    }

    fn moved(&mut self, delivery: &Delivery, envelope: &Envelope, queue: Arc<str>) -> Settlement {
        let gated = version_gate::check(&delivery.facts.version)
            .and_then(|()| version_gate::check_body(envelope.schema_version()))
            .is_err();
        let body = if gated {
            if self.verbatim.len() < REMEMBERED {
                self.verbatim.insert(self.fingerprints.of(delivery));
            }
            delivery.body.clone()
        } else {
            envelope.without_dead_letter().with_attempts(0).into_bytes()
        };
        Settlement::Redrive {
            queue,
            body,
            bypass: self.redrive.bypass,
            verbatim: gated,
        }
    }
}

impl Redrive {
    fn selects(&self, envelope: &Envelope, item: &Item) -> bool {
        let urn = item.urn.as_deref();
        let reason = item.reason.as_deref();
        (self.urns.is_empty() || self.urns.iter().any(|wanted| urn == Some(wanted)))
            && (self.reasons.is_empty()
                || (self.reasons.iter()).any(|wanted| reason == Some(wanted.as_str())))
            && self.select.as_ref().is_none_or(|select| select(envelope))
    }

    fn target(&self, envelope: &Envelope) -> Option<Arc<str>> {
        let block = envelope.dead_letter().unwrap_or_default();
        let original = block.original_queue.filter(|queue| !queue.is_empty());
        let target = self.to_queue.clone().or_else(|| {
            let queue = original.or_else(|| envelope.queue())?;
            Some(Arc::from(&*queue))
        });
        target.filter(|target| !target.is_empty() && *target != self.queue)
    }
}
