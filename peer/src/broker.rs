//! A transport for a URL.

use std::sync::Arc;

use babelqueue_amqp::Amqp;
use babelqueue_core::transport::Transport;
use babelqueue_kafka::Kafka;
use babelqueue_redis::Redis;
use babelqueue_sqs::Sqs;

use crate::Error;

/// Connects to what the URL's scheme names.
pub(crate) async fn connect(url: &str) -> Result<Arc<dyn Transport>, Error> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "redis" | "rediss" | "redis+unix" | "unix" => Ok(Arc::new(Redis::connect(url).await?)),
        "amqp" | "amqps" => Ok(Arc::new(Amqp::connect(url).await?)),
        "sqs" => Ok(Arc::new(Sqs::connect(url).await?)),
        "kafka" => Ok(Arc::new(Kafka::connect(url).await?)),
        other => Err(format!("no broker for the scheme `{other}`").into()),
    }
}
