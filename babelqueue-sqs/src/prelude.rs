//! What most programs need.

pub use babelqueue_core::prelude::*;

pub use crate::{Config, Sqs};
