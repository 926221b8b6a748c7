//! The dead-letter record that the worker writes.

use std::sync::Arc;

use babelqueue_core::dead_letter::Reason;
use babelqueue_core::decide::{Decision, Material};
use babelqueue_core::envelope::Decoded;
use babelqueue_core::transport::{Delivery, Settlement};
use bytes::Bytes;

use crate::{Unmet, Unreadable};

/// The record of `body`, consumed from `queue`; through the decoded envelope where it has one.
pub(super) fn record(
    body: Vec<u8>,
    queue: &str,
    reason: Reason,
    attempts: i64,
    decoded: Option<&Decoded>,
) -> Result<Bytes, Unmet> {
    let decision = Decision::DeadLetter {
        reason,
        attempts,
        with_error: true,
    };
    let delivery = Delivery::new(Arc::from(queue), Bytes::from(body));
    let settlement = decision.settlement(&Material {
        delivery: &delivery,
        envelope: decoded.map(|decoded| &decoded.envelope),
        rewritten: decoded.is_some_and(|decoded| decoded.rewritten),
        dead_letter_queue: &Arc::from(format!("{queue}.dlq")),
        error: Some("it failed"),
        exception: Some("Error"),
        now_ms: 1_749_132_727_000,
    });
    match settlement {
        Settlement::DeadLetter { record, .. } => Ok(record),
        other => Err(Unreadable(format!("{other:?} instead of a dead letter")).into()),
    }
}
