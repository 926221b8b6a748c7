//! The message that every broker's bench sends.
//!
//! Included by path, as `pairs.rs` is.

use babelqueue_core::prelude::Message;
use serde::Deserialize;

/// 256 bytes, an ordinary envelope.
pub(crate) const BODY: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":1042,"x":1},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"rust","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) order_id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}
