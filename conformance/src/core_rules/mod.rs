//! The sections of scope `core`, which every package runs.

mod retry_backoff;

use crate::{Case, Met};

type Run = fn(&Case) -> Met;

/// Each section of the core with what runs it.
pub(crate) fn core_sections() -> &'static [(&'static str, Run)] {
    &[("retry_backoff", retry_backoff::run)]
}
