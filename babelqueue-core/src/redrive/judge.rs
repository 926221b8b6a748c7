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
    /// What the run has moved. One that fails again can come back without a mark of time (a gate
    /// sends it back as it is), or with one of a clock that is behind.
    moved: HashSet<Fingerprint>,
}

/// What is to become of a message: its report, and how it is moved where it is.
pub(super) struct Judgement {
    pub(super) item: Item,
    pub(super) moved: Option<(Settlement, Mark)>,
}

/// What a message that is moved is known by, should it come back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(Fingerprint);

/// How many moves are remembered: as many as a table of 2^20 places takes, which is 17 MiB.
const REMEMBERED: usize = 7 << 17;

impl<'r> Judge<'r> {
    pub(super) fn new(redrive: &'r Redrive) -> Self {
        Self {
            redrive,
            began: redrive.clock.unix_millis(),
            fingerprints: Fingerprints::new(),
            moved: HashSet::new(),
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
        if self.is_too_new(&envelope) {
            return stays(item, Fate::TooNew);
        }
        let Some(target) = self.redrive.target(&envelope) else {
            return stays(item, Fate::NoTarget);
        };
        let to = Some(Arc::clone(&target));
        let (settlement, mark) = self.moved(delivery, &envelope, target);
        if self.moved.contains(&mark.0) {
            return stays(item, Fate::MovedBefore);
        }
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
            moved: Some((settlement, mark)),
        }
    }

    /// Notes that a message was moved: from now on it is not moved again.
    pub(super) fn has_moved(&mut self, Mark(fingerprint): Mark) {
        if self.moved.len() < REMEMBERED {
            self.moved.insert(fingerprint);
        }
    }

    /// Whether it came into the queue after the run began: most likely it was moved, and has failed
    /// again. Without this a run would go on for as long as it does.
    fn is_too_new(&self, envelope: &Envelope) -> bool {
        let block = envelope.dead_letter().unwrap_or_default();
        block.failed_at.is_some_and(|at| at > self.began)
    }

    fn moved(
        &self,
        delivery: &Delivery,
        envelope: &Envelope,
        queue: Arc<str>,
    ) -> (Settlement, Mark) {
        let gated = version_gate::check(&delivery.facts.version)
            .and_then(|()| version_gate::check_body(envelope.schema_version()))
            .is_err();
        let body = if gated {
            delivery.body.clone()
        } else {
            envelope.without_dead_letter().with_attempts(0).into_bytes()
        };
        let mark = match envelope.id().filter(|id| !id.is_empty()) {
            Some(id) => self.fingerprints.of_id(&id),
            None => (self.fingerprints).of_content(&body, delivery.key.as_ref()),
        };
        let settlement = Settlement::Redrive {
            queue,
            body,
            bypass: self.redrive.bypass,
            verbatim: gated,
        };
        (settlement, Mark(mark))
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
