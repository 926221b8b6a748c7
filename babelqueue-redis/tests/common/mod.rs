//! The server that the tests talk to.

use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_redis::{Config, Redis};

/// Where the server is, if not at the default.
pub(crate) const VARIABLE: &str = "BQ_REDIS_URL";

/// The server's URL.
pub(crate) fn url() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned())
}

/// A configuration for the server, with short patience: it is on this machine.
pub(crate) fn config() -> Result<Config, Error> {
    Config::from_url(&url())?.connect_timeout(Duration::from_secs(2))
}

/// A handle to the server, or in words why there is none.
pub(crate) async fn reachable(config: Config) -> Result<Redis, String> {
    let at = config.address();
    let redis = Redis::open(config).map_err(|error| error.to_string())?;
    match redis.ping().await {
        Ok(()) => Ok(redis),
        Err(error) => Err(format!("no Redis at {at} ({VARIABLE}): {error}")),
    }
}

/// A name that no other run uses.
pub(crate) fn unique(name: &str) -> String {
    format!("bq-test:{}:{name}", uuid::Uuid::new_v4().simple())
}
