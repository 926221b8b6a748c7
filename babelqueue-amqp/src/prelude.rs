//! What most programs use: `use babelqueue_amqp::prelude::*`.

pub use babelqueue_core::prelude::*;

pub use crate::{Amqp, Config};
