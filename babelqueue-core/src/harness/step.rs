use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Headers;
use crate::envelope::Envelope;
use crate::transport::{Delivery, Settled, Settlement};
use crate::watched::Ended;
use crate::worker::Counts;

/// One message's way through the worker.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// What became of the message.
    pub became: Became,
    delivery: Option<Arc<Delivery>>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Became {
    /// Its handler was done with it.
    Handled,
    /// It was acknowledged without being handled: the handler did not want it, or its attempts were
    /// used up and dead-lettering is off.
    Dropped,
    /// It goes back to be tried again.
    Retried {
        /// How often it has been delivered.
        attempts: u32,
        /// How long it waits.
        delay: Duration,
    },
    /// It goes back as it came.
    Released {
        /// How long it waits.
        delay: Duration,
    },
    /// It went to a dead-letter queue.
    DeadLettered {
        /// Which.
        queue: Arc<str>,
        /// What was written there.
        record: Bytes,
    },
    /// It was moved to be handled again: no worker does that, but a redrive over the same transport.
    Redriven {
        /// Where to.
        queue: Arc<str>,
    },
    /// It was left to the broker's own dead-lettering.
    Native,
    /// Its settlement failed, or came too late; it comes again.
    Unsettled,
}

impl Step {
    /// What the books say that happened between `before` and `after`.
    pub(super) fn of(ended: Option<Ended>, before: Counts, after: Counts) -> Self {
        let Some(Ended {
            delivery,
            settlement,
            answer,
        }) = ended
        else {
            return Self {
                became: Became::Unsettled,
                delivery: None,
            };
        };
        let unsettled = matches!(answer, None | Some(Settled::Fenced));
        let became = match settlement {
            _ if unsettled => Became::Unsettled,
            Settlement::Ack if after.handled > before.handled => Became::Handled,
            Settlement::Ack => Became::Dropped,
            Settlement::Retry {
                attempts, delay, ..
            } => Became::Retried { attempts, delay },
            Settlement::Release { delay, .. } => Became::Released { delay },
            Settlement::DeadLetter { queue, record, .. } => Became::DeadLettered { queue, record },
            Settlement::Redrive { queue, .. } => Became::Redriven { queue },
            Settlement::Native { .. } => Became::Native,
            Settlement::Abandon => Became::Unsettled,
        };
        Self {
            became,
            delivery: Some(delivery),
        }
    }

    /// Whether the handler was done with it.
    pub fn is_handled(&self) -> bool {
        self.became == Became::Handled
    }

    /// Whether it goes back to be tried again.
    pub fn is_retried(&self) -> bool {
        matches!(self.became, Became::Retried { .. })
    }

    /// Whether it went to a dead-letter queue.
    pub fn is_dead_lettered(&self) -> bool {
        matches!(self.became, Became::DeadLettered { .. })
    }

    /// Whether it was acknowledged without being handled.
    pub fn is_dropped(&self) -> bool {
        self.became == Became::Dropped
    }

    /// The queue that it came from; empty where the delivery was lost before its handler started.
    pub fn queue(&self) -> &str {
        self.delivery
            .as_ref()
            .map_or("", |delivery| &*delivery.queue)
    }

    /// The message as it was delivered; `None` for a body that is no envelope.
    pub fn envelope(&self) -> Option<Envelope> {
        let delivery = self.delivery.as_ref()?;
        let decoded = Envelope::decode(delivery.body.clone()).ok()?;
        Some(decoded.envelope)
    }

    /// The headers that it came with.
    pub fn headers(&self) -> Headers {
        self.delivery
            .as_ref()
            .map(|delivery| delivery.headers.clone())
            .unwrap_or_default()
    }

    /// What was written to the dead-letter queue; `None` where nothing was, or where it is no
    /// envelope: the record of a body that was none itself.
    pub fn record(&self) -> Option<Envelope> {
        match &self.became {
            Became::DeadLettered { record, .. } => {
                Some(Envelope::decode(record.clone()).ok()?.envelope)
            }
            _ => None,
        }
    }
}
