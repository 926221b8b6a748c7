//! BabelQueue over Redis.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod error;
mod idempotency;
mod layout;
mod project;
mod queue;
mod reply;
mod reservation;
mod scripts;
mod slot;
mod subscription;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub use config::Config;
pub use idempotency::RedisStore;
pub use layout::{Keys, Layout};
pub use project::available_at;
pub use transport::{CountsSnapshot, Redis};

#[doc(hidden)]
pub use queue::{Queue, Reserved};
