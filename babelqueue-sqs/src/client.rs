use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{
    BehaviorVersion, Builder, Region, SharedCredentialsProvider, StalledStreamProtectionConfig,
};
use babelqueue_core::Error;
use babelqueue_core::random::Random;
use babelqueue_core::transport::Background;
use tokio::sync::OnceCell;

use crate::Config;

const CONNECT: Duration = Duration::from_secs(5);
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// The SDK's client, made when it is used first: the chain that finds region and credentials is
/// asynchronous.
pub(crate) struct Link {
    pub(crate) config: Arc<Config>,
    client: OnceCell<Client>,
    /// Requests that go on where their receiver is dropped.
    pub(crate) background: Background,
    pub(crate) random: Random,
}

impl Link {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let client = OnceCell::new_with(config.client.clone());
        Self {
            config,
            client,
            background: Background::default(),
            random: Random::from_entropy(),
        }
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where nothing says the region.
    pub(crate) async fn client(&self) -> Result<&Client, Error> {
        self.client.get_or_try_init(|| make(&self.config)).await
    }

    /// The time-out of a receive that waits as long as it may.
    pub(crate) fn of_a_receive(&self) -> Builder {
        Builder::new().timeout_config(timeouts(
            self.config.request_timeout + self.config.wait_time,
        ))
    }
}

async fn make(config: &Config) -> Result<Client, Error> {
    let mut builder = from_chain(config).await;
    if let Some(region) = &config.region {
        builder = builder.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.endpoint_url(endpoint);
    }
    if let Some(credentials) = &config.credentials {
        let provider = SharedCredentialsProvider::new(credentials.clone());
        builder = builder.credentials_provider(provider);
    }
    let retries = RetryConfig::standard()
        .with_max_attempts(TRIES)
        .with_initial_backoff(FIRST_PAUSE)
        .with_max_backoff(LONGEST_PAUSE);
    let built = builder
        .retry_config(retries)
        .timeout_config(timeouts(config.request_timeout))
        // A receive that waits is no stalled stream; our own time-outs see to the others.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build();
    if built.region().is_none() {
        let problem = "is not set: neither in the URL (`sqs://eu-west-1`) nor by `Config::region`, \
                       nor where the SDK looks for it";
        return Err(Error::config("region", problem));
    }
    Ok(Client::from_conf(built))
}

#[cfg(feature = "credentials-chain")]
async fn from_chain(config: &Config) -> Builder {
    let mut loader = aws_config::defaults(behavior());
    if let Some(region) = &config.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(credentials) = &config.credentials {
        // Else it would go and look for others.
        loader = loader.credentials_provider(credentials.clone());
    }
    Builder::from(&loader.load().await)
}

#[cfg(not(feature = "credentials-chain"))]
#[expect(clippy::unused_async, reason = "as with the chain")]
async fn from_chain(_: &Config) -> Builder {
    Builder::new().behavior_version(behavior())
}

fn behavior() -> BehaviorVersion {
    BehaviorVersion::v2026_01_12()
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(attempt)
        .build()
}
