//! From the client's record to a delivery.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use babelqueue_core::transport::{Delivery, Fence, Lane};
use bytes::{BufMut as _, Bytes, BytesMut};
use rdkafka::Message;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _};
use tokio::time::Instant;

use crate::config::Order;
use crate::headers::RecordHeaders;
use crate::project;
use crate::record::Record;

/// Makes deliveries of records.
///
/// What it keeps of small records it copies into memory that they share: a piece of its own for
/// each part of a record, taken by this thread and given back by the runtime's, cost more than the
/// rest of the work.
#[derive(Debug)]
pub(crate) struct Intake {
    order: Order,
    /// What is left of the shared memory; nothing is in it.
    memory: BytesMut,
    /// Deliveries that are settled: the next ones take their places.
    spent: VecDeque<Arc<Delivery>>,
}

/// What records that are read together have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'o> {
    pub(crate) queue: &'o Arc<str>,
    pub(crate) scope: u64,
    pub(crate) generation: u64,
    pub(crate) received: Instant,
}

/// How much memory is shared. It lives until the last of its records is settled, so this is also
/// what one slow record may hold on to.
const SHARED: usize = 16 * 1024;
/// What is larger gets memory of its own.
const SMALL: usize = 2 * 1024;
/// Room for the headers of an ordinary record.
const HEADERS: usize = 256;

/// Whether the place of a settled delivery is kept for another one: not where it holds on to much.
pub(crate) fn is_worth_keeping(spent: &Arc<Delivery>) -> bool {
    spent.body.len() <= SMALL
}

impl Intake {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            memory: BytesMut::new(),
            spent: VecDeque::new(),
        }
    }

    /// Takes in deliveries whose places may be used again.
    pub(crate) fn reuse(&mut self, spent: impl Iterator<Item = Arc<Delivery>>) {
        self.spent.extend(spent);
    }

    /// Lets go of the places that were not used.
    pub(crate) fn forget_spent(&mut self) {
        self.spent.clear();
    }

    /// The delivery of a record. A record without a value (a tombstone) has an empty body.
    pub(crate) fn delivery(
        &mut self,
        message: &BorrowedMessage<'_>,
        from: Origin<'_>,
    ) -> Arc<Delivery> {
        let body = self.keep(message.payload().unwrap_or_default());
        let key = message.key().map(|key| self.keep(key));
        let (headers, surfaced) = match message.headers() {
            None => (RecordHeaders::default(), false),
            Some(native) => self.keep_headers(message, native),
        };
        let mut delivery = Delivery::received_at(Arc::clone(from.queue), body, from.received);
        delivery.facts = project::facts(&headers);
        if surfaced {
            delivery.headers = project::surfaced(&headers);
        }
        let lane = match self.order {
            Order::Partition => Some(Bytes::new()),
            Order::Key => key.clone(),
        };
        let scope = from.scope;
        delivery.lane = lane.map(|key| Lane { scope, key });
        delivery.key = key;
        delivery.fence = Fence {
            generation: from.generation,
            id: message.offset().unsigned_abs(),
        };
        let timestamp = message.timestamp().to_millis();
        let record = Record::new(scope, message.offset(), timestamp, headers);
        self.place(delivery, record)
    }

    /// The delivery in the place of one that is settled, if one is free: memory that is taken by
    /// this thread and given back by the runtime's has the two wait for each other in the allocator.
    fn place(&mut self, delivery: Delivery, record: Record) -> Arc<Delivery> {
        if let Some(mut spent) = self.spent.pop_front()
            && let Some(place) = Arc::get_mut(&mut spent)
        {
            place.become_next(delivery, record);
            return spent;
        }
        Arc::new(delivery.with_native(record))
    }

    /// A copy of these bytes.
    fn keep(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > SMALL {
            return Bytes::copy_from_slice(bytes);
        }
        let mut memory = self.room_for(bytes.len());
        memory.put_slice(bytes);
        self.keep_rest(memory).freeze()
    }

    /// The headers, and whether a handler sees any of them.
    fn keep_headers(
        &mut self,
        message: &BorrowedMessage<'_>,
        native: &BorrowedHeaders,
    ) -> (RecordHeaders, bool) {
        let memory = self.room_for(HEADERS);
        let read = || {
            let mut headers = RecordHeaders::packed_into(memory);
            let mut surfaced = false;
            for at in 0..native.count() {
                let header = native.get(at);
                surfaced |= project::is_surfaced(header.key);
                headers.push(header.key, header.value);
            }
            (headers, surfaced)
        };
        // The client panics on a name that is not UTF-8, and anybody may write one.
        if let Ok((headers, surfaced)) = catch_unwind(AssertUnwindSafe(read)) {
            let packed = self.keep_rest(headers.into_packed());
            return (RecordHeaders::packed_into(packed), surfaced);
        }
        tracing::warn!(
            topic = message.topic(),
            partition = message.partition(),
            offset = message.offset(),
            "left out a header whose name is not UTF-8"
        );
        (readable(native), true)
    }

    /// The shared memory, with room for so much: other memory where too little is left.
    fn room_for(&mut self, bytes: usize) -> BytesMut {
        let memory = std::mem::take(&mut self.memory);
        if memory.capacity() < bytes {
            return BytesMut::with_capacity(SHARED);
        }
        memory
    }

    /// What was filled of the memory; what was not is kept for the next.
    fn keep_rest(&mut self, mut memory: BytesMut) -> BytesMut {
        let filled = memory.split();
        self.memory = memory;
        filled
    }
}

/// The headers whose name is text.
fn readable(native: &BorrowedHeaders) -> RecordHeaders {
    (0..native.count())
        .filter_map(|at| {
            let header = catch_unwind(AssertUnwindSafe(|| native.get(at))).ok()?;
            Some((header.key, header.value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_share_memory_and_large_ones_do_not() {
        let mut intake = Intake::new(Order::Key);
        let first = intake.keep(b"key");
        let second = intake.keep(&[7; SMALL]);
        assert_eq!((&first[..], &second[..]), (&b"key"[..], &[7; SMALL][..]));
        assert_eq!(first.as_ptr_range().end, second.as_ptr());
        let large = intake.keep(&[8; SMALL + 1]);
        assert_eq!(large, [8; SMALL + 1][..]);
        let third = intake.keep(b"third");
        assert_eq!(second.as_ptr_range().end, third.as_ptr());
    }

    fn place(intake: &mut Intake, offset: i64) -> Arc<Delivery> {
        let delivery = Delivery::new(Arc::from("q"), Bytes::new());
        let record = Record::new(0, offset, None, RecordHeaders::default());
        intake.place(delivery, record)
    }

    #[test]
    fn a_delivery_takes_the_place_of_a_settled_one_that_nobody_holds() {
        let mut intake = Intake::new(Order::Key);
        let of = |delivery: &Arc<Delivery>| Record::of(delivery).unwrap().offset;
        let at = |delivery: &Arc<Delivery>| {
            let record: *const Record = Record::of(delivery).unwrap();
            (Arc::as_ptr(delivery), record)
        };
        let (free, held) = (place(&mut intake, 0), place(&mut intake, 1));
        free.mark_lost();
        let place_of_free = at(&free);
        intake.reuse([Arc::clone(&held), free].into_iter());
        let first = place(&mut intake, 2);
        assert!(at(&first) != at(&held) && at(&first) != place_of_free);
        let second = place(&mut intake, 3);
        assert_eq!(at(&second), place_of_free);
        assert!(!second.is_lost());
        assert_eq!([&held, &first, &second].map(of), [1, 2, 3]);
    }

    #[test]
    fn memory_that_is_full_is_left_for_other() {
        let mut intake = Intake::new(Order::Key);
        let parts: Vec<Bytes> = (0..100_u8).map(|at| intake.keep(&[at; 1_000])).collect();
        for (at, part) in (0..).zip(&parts) {
            assert_eq!(*part, [at; 1_000][..]);
        }
        let neighbours = parts
            .windows(2)
            .filter(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr());
        assert!(neighbours.count() >= 90);
        assert_eq!(intake.keep(b""), Bytes::new());
    }
}
