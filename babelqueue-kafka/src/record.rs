//! What the transport keeps of a record beside what the core sees of it.

use std::sync::atomic::{AtomicU8, Ordering};

use babelqueue_core::transport::Delivery;

use crate::headers::RecordHeaders;
use crate::project::Received;

/// Where a record came from, what it carried, and how far its delivery has got.
#[derive(Debug)]
pub(crate) struct Record {
    /// The partition's number in this subscription, which is also the lane's scope.
    pub(crate) scope: u64,
    pub(crate) offset: i64,
    /// Milliseconds since the Unix epoch, where the record has a time.
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: RecordHeaders,
    stage: AtomicU8,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const TAKEN_BACK: u8 = 2;

impl Record {
    pub(crate) fn new(
        scope: u64,
        offset: i64,
        timestamp: Option<i64>,
        headers: RecordHeaders,
    ) -> Self {
        Self {
            scope,
            offset,
            timestamp,
            headers,
            stage: AtomicU8::new(WAITING),
        }
    }

    /// The record of a delivery of this transport; `None` for a delivery of another one.
    pub(crate) fn of(delivery: &Delivery) -> Option<&Self> {
        delivery.native()
    }

    /// What a copy of the record is made from; `delivery` is this record's.
    pub(crate) fn received<'r>(&'r self, delivery: &'r Delivery) -> Received<'r> {
        Received {
            topic: &delivery.queue,
            key: delivery.key.as_ref(),
            headers: &self.headers,
        }
    }

    /// The same record for another delivery of it.
    pub(crate) fn again(&self) -> Self {
        Self::new(
            self.scope,
            self.offset,
            self.timestamp,
            self.headers.clone(),
        )
    }

    /// Whether its handler may start; from then on it cannot be taken back.
    pub(crate) fn begin(&self) -> bool {
        self.leave_waiting(BEGUN)
    }

    /// Whether its handler has not started, and now will not.
    pub(crate) fn take_back(&self) -> bool {
        self.leave_waiting(TAKEN_BACK)
    }

    fn leave_waiting(&self, stage: u8) -> bool {
        self.stage
            .compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_or_is_taken_back_but_not_both() {
        let record = Record::new(0, 1, None, RecordHeaders::default());
        assert!(record.begin());
        assert!(!record.take_back());
        let again = record.again();
        assert!(again.take_back());
        assert!(!again.begin());
    }
}
