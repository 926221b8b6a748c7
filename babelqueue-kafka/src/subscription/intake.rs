//! From the client's record to a delivery.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use babelqueue_core::transport::{Delivery, Fence, Lane};
use bytes::Bytes;
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers as _};

use crate::config::Order;
use crate::project;
use crate::record::{Record, RecordHeaders};

/// The delivery of a record of the partition that has this scope. A record without a value (a
/// tombstone) has an empty body.
pub(crate) fn delivery(
    message: &BorrowedMessage<'_>,
    queue: &Arc<str>,
    scope: u64,
    generation: u64,
    order: Order,
) -> Delivery {
    let headers = headers(message);
    let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
    let mut delivery = Delivery::new(Arc::clone(queue), body);
    delivery.key = message.key().map(Bytes::copy_from_slice);
    delivery.facts = project::facts(&headers);
    delivery.headers = project::surfaced(&headers);
    delivery.lane = match order {
        Order::Partition => Some(Bytes::new()),
        Order::Key => delivery.key.clone(),
    }
    .map(|key| Lane { scope, key });
    delivery.fence = Fence {
        generation,
        id: message.offset().unsigned_abs(),
    };
    let timestamp = message.timestamp().to_millis();
    delivery.with_native(Record::new(scope, message.offset(), timestamp, headers))
}

fn headers(message: &BorrowedMessage<'_>) -> RecordHeaders {
    let Some(native) = message.headers() else {
        return RecordHeaders::default();
    };
    let read = |mut headers: RecordHeaders, at| {
        let header = native.get(at);
        headers.push(header.key, header.value);
        headers
    };
    let count = native.count();
    let all = || (0..count).fold(RecordHeaders::with_capacity(192), read);
    // The client panics on a name that is not UTF-8, and anybody may write one.
    catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|_| {
        tracing::warn!(
            topic = message.topic(),
            partition = message.partition(),
            offset = message.offset(),
            "left out a header whose name is not UTF-8"
        );
        (0..count)
            .filter_map(|at| {
                let read = AssertUnwindSafe(|| native.get(at));
                let header = catch_unwind(read).ok()?;
                Some((header.key, header.value))
            })
            .collect()
    })
}
