use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use babelqueue_core::Error;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection, ConnectionProperties};

use crate::{Config, failure};

/// One connection to the broker, made when it is first needed and anew after it was lost.
///
/// Publishing and consuming have a link each: a broker that runs out of memory or disk stops reading
/// from those who publish, and acknowledgements must not wait behind that.
pub(crate) struct Link {
    config: Arc<Config>,
    purpose: &'static str,
    /// The last attempt, of which there is at most one at a time, whoever waits for it.
    attempt: Mutex<Option<Attempt>>,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<Connection>, LinkFailure>>>;

/// Why there is no connection or channel. Many can wait for one, so it can be cloned.
#[derive(Debug, Clone)]
pub(crate) enum LinkFailure {
    /// The client's error.
    Client(lapin::Error),
    /// The broker did not answer within this.
    Silent(Duration),
}

impl Link {
    pub(crate) fn new(config: Arc<Config>, purpose: &'static str) -> Self {
        Self {
            config,
            purpose,
            attempt: Mutex::new(None),
        }
    }

    /// The connection, which is up as far as anybody knows.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, LinkFailure> {
        let attempt = {
            let mut last = self.lock();
            match last.as_ref().map(|attempt| (attempt, attempt.peek())) {
                Some((_, Some(Ok(connection)))) if connection.status().connected() => {
                    return Ok(connection.clone());
                }
                Some((attempt, None)) => attempt.clone(),
                _ => last
                    .insert(connect(self.config.clone(), self.purpose).boxed().shared())
                    .clone(),
            }
        };
        attempt.await
    }

    /// A new channel.
    pub(crate) async fn channel(&self) -> Result<Channel, LinkFailure> {
        let connection = self.connection().await?;
        self.within(connection.create_channel()).await
    }

    /// A new channel on which the broker confirms what is published.
    pub(crate) async fn confirming_channel(&self) -> Result<Channel, LinkFailure> {
        let channel = self.channel().await?;
        self.within(channel.confirm_select(ConfirmSelectOptions::default()))
            .await?;
        Ok(channel)
    }

    /// An answer of the broker's, if it comes in time.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, LinkFailure> {
        within(self.config.connect_timeout, answer).await
    }

    /// Whether the broker holds back what is published.
    pub(crate) fn is_blocked(&self) -> bool {
        let last = self.lock();
        let connection = last.as_ref().and_then(|attempt| attempt.peek());
        matches!(connection, Some(Ok(connection)) if connection.status().blocked())
    }

    /// Closes the connection, if there is one, as the protocol has it.
    pub(crate) async fn close(&self) {
        let last = self.lock().take();
        let connection = last.and_then(|attempt| attempt.peek().cloned());
        if let Some(Ok(connection)) = connection
            && connection.status().connected()
        {
            let closed = self.within(connection.close(200, "OK".into())).await;
            if let Err(error) = closed {
                tracing::debug!(?error, purpose = self.purpose, "the connection broke off");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkFailure {
    /// As the core knows it.
    pub(crate) fn into_error(self, operation: &'static str, context: &str) -> Error {
        match self {
            Self::Client(error) => failure::setup(operation, context, error),
            Self::Silent(limit) => Error::transient(
                operation,
                format!("{context}: no answer within {} ms", limit.as_millis()),
            ),
        }
    }
}

async fn connect(
    config: Arc<Config>,
    purpose: &'static str,
) -> Result<Arc<Connection>, LinkFailure> {
    let name = format!("{} {purpose}", config.name);
    // Without the client's own recovery: what is lost has to be known to be lost at once.
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connection = open(&config, properties);
    let connection = within(config.connect_timeout, connection).await?;
    tracing::debug!(address = config.address(), purpose, "connected");
    Ok(Arc::new(connection))
}

#[cfg(feature = "tls")]
async fn open(config: &Config, properties: ConnectionProperties) -> lapin::Result<Connection> {
    let runtime = lapin::runtime::default_runtime()?;
    let (uri, tls) = (config.uri.clone(), config.tls.to_config());
    Connection::connect_uri_with_config(uri, properties, tls, runtime).await
}

#[cfg(not(feature = "tls"))]
async fn open(config: &Config, properties: ConnectionProperties) -> lapin::Result<Connection> {
    Connection::connect_uri(config.uri.clone(), properties).await
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = lapin::Result<T>>,
) -> Result<T, LinkFailure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(LinkFailure::Client),
        Err(_) => Err(LinkFailure::Silent(limit)),
    }
}
