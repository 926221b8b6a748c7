//! The sections of scope `core`, which every package runs: what each field of a case means stands in
//! contract §17B.10.

mod cases;
mod data_shape;
mod dead_letter;
mod document;
mod forbidden_keys;
mod idempotency;
mod identity_verdict;
mod job_type;
mod payload_schema;
mod poison_dlq;
mod producer;
mod retry_backoff;
mod roundtrip;
mod trim;

use crate::{Case, Met};

type Run = fn(&Case) -> Met;

/// Each section of the core with what runs it.
pub(crate) fn core_sections() -> &'static [(&'static str, Run)] {
    &[
        ("cases", cases::run),
        ("idempotency", idempotency::run),
        ("payload_schema", payload_schema::run),
        ("roundtrip", roundtrip::run),
        ("data_shape", data_shape::run),
        ("forbidden_keys", forbidden_keys::run),
        ("extension_write", producer::extension_write),
        ("encode_reject", producer::encode_reject),
        ("payload_schema_unicode", payload_schema::run),
        ("trim", trim::run),
        ("job_type", job_type::run),
        ("retry_backoff", retry_backoff::run),
        ("poison_dlq", poison_dlq::run),
        ("identity_verdict", identity_verdict::run),
    ]
}
