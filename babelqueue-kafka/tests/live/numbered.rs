//! The messages of the tests that count.

use std::sync::Arc;

use babelqueue_core::envelope::Envelope;
use babelqueue_core::prelude::*;
use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_kafka::Kafka;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// One of many.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Numbered {
    pub(crate) key: String,
    pub(crate) sequence: u64,
    /// How long its handler takes.
    pub(crate) millis: u64,
}

impl Message for Numbered {
    const URN: &'static str = "urn:babel:test:numbered";
}

/// Publishes them in one batch, each with its key.
pub(crate) async fn publish(
    kafka: &Kafka,
    topic: &str,
    messages: impl Iterator<Item = Numbered>,
) -> Result<(), Fault> {
    let topic: Arc<str> = topic.into();
    let mut batch = Vec::new();
    for message in messages {
        let envelope = Envelope::of(&message)
            .build()
            .map_err(|error| Fault::from(error.to_string()))?;
        let mut outgoing = Outgoing::new(Arc::clone(&topic), envelope.into_bytes());
        outgoing.options.key = Some(message.key.into());
        batch.push(outgoing);
    }
    for answer in kafka.publish(batch).await {
        answer?;
    }
    Ok(())
}
