//! Apache Kafka for `BabelQueue`.

mod book;
mod config;
mod error;
mod log;
mod producer;
mod progress;
pub mod project;
mod record;
mod reinject;
mod subscription;
mod tiers;
mod topology;
mod transport;

pub use config::{Config, DEFAULT_GROUP, NewTopics, Order, REINJECT_GROUP};
pub use reinject::Reinjector;
pub use tiers::{DEFAULT_RETRY_TIERS_MS, RetryTiers, Tier};
pub use transport::Kafka;

/// The broker's name in errors, logs and tables.
const BROKER: &str = "kafka";
