use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::BoxError;
use crate::transport::{Capabilities, PublishOptions, Transport};

/// A broker as the suite uses it: how to reach it, and what can be done to it.
///
/// Set it up for speed: leases of two or three seconds, retry tiers of a few hundred milliseconds.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// What the transports of [`connect`](Self::connect) claim. Asked without a broker, to list the
    /// tests.
    fn capabilities(&self) -> Capabilities;

    /// A transport over connections of its own.
    ///
    /// # Errors
    ///
    /// The broker cannot be reached.
    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError>;

    /// A queue's name made of `unique`, which is letters, digits and hyphens. `lanes` asks for a
    /// queue whose messages can have lanes, where that shows in the name.
    fn queue_name(&self, unique: &str, lanes: bool) -> String {
        let _ = lanes;
        format!("bq-kit-{unique}")
    }

    /// Makes a queue, where the transport expects to find it. A dead-letter queue is made by the
    /// same call, before its source.
    ///
    /// # Errors
    ///
    /// It could not be made.
    async fn create(&self, queue: &str) -> Result<(), BoxError> {
        let _ = queue;
        Ok(())
    }

    /// Removes what [`create`](Self::create) or the transport made.
    ///
    /// # Errors
    ///
    /// It could not be removed.
    async fn remove(&self, queue: &str) -> Result<(), BoxError> {
        let _ = queue;
        Ok(())
    }

    /// Whether the broker can carry this body at all. What it cannot is left out of the tests.
    fn carries(&self, body: &[u8]) -> bool {
        let _ = body;
        true
    }

    /// The options that put a message into this lane; asked only where
    /// [`lanes`](Capabilities::lanes) is claimed. By default the message group, or the key where
    /// there are no groups.
    fn lane(&self, name: &str) -> PublishOptions {
        let options = PublishOptions::new();
        if self.capabilities().options.group {
            options.group(name)
        } else {
            options.key(name.as_bytes().to_vec())
        }
    }

    /// How long a test waits for what it expects before it fails.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Whether [`restart`](Self::restart) does anything.
    fn can_restart(&self) -> bool {
        false
    }

    /// Breaks every connection: kills and starts the broker, or cuts them off. Returns when the
    /// broker can be reached again, or soon before.
    ///
    /// # Errors
    ///
    /// The broker did not come back.
    async fn restart(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Whether [`set_full`](Self::set_full) does anything.
    fn can_fill(&self) -> bool {
        false
    }

    /// Has every write to this queue fail, or no longer.
    ///
    /// # Errors
    ///
    /// The broker would not.
    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        let _ = (queue, full);
        Ok(())
    }
}
