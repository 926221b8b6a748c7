//! Connections: one that all calls share, and one for each wait that blocks.
//!
//! A connection that fails is left, and the next call makes a new one; calls that come meanwhile wait
//! for that one attempt and share its outcome. Nothing is tried again here: only the caller knows
//! what is safe to run twice.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use babelqueue_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushKind, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::Config;
use crate::error::{Failure, needs_a_new_connection};
use crate::scripts::{By, Script, Size};

/// How many calls may wait to be written, before a caller waits too.
const WRITE_QUEUE: usize = 1024;

/// Where a server is, and the shared connection to it.
pub(crate) struct Link {
    servers: Servers,
    address: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    shared: RwLock<Option<Arc<Established>>>,
    /// When the last attempt failed, and of what.
    attempt: Mutex<Option<(Instant, RedisError)>>,
}

struct Established {
    connection: Connection,
    up: Arc<AtomicBool>,
}

/// A connection to a server, or the set of them to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Connection {
    async fn query(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

impl Link {
    /// A link that connects when it is first used.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            servers: Servers::new(config)?,
            address: config.address(),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            shared: RwLock::new(None),
            attempt: Mutex::new(None),
        })
    }

    /// Where the server is, without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Sends a command over the shared connection, and waits for the answer.
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, Failure> {
        let established = self.connect().await.map_err(Failure::not_sent)?;
        let mut connection = established.connection.clone();
        let answer = connection.query(command).await;
        if let Err(error) = &answer
            && needs_a_new_connection(error)
        {
            established.up.store(false, Ordering::Release);
        }
        answer.map_err(Failure::of_call)
    }

    /// Runs a script. `write` adds the number of keys, the keys and the arguments; it is called again
    /// where the server does not know the script.
    pub(crate) async fn run(
        &self,
        script: &Script,
        size: Size,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        match self.query(&script.call(By::Digest, size, &write)).await {
            Err(failure) if failure.error.code() == Some("NOSCRIPT") => {
                self.query(&script.call(By::Text, size, &write)).await
            }
            answer => answer,
        }
    }

    /// A connection for a wait that blocks. It has no timeout of its own.
    pub(crate) async fn dedicated(&self) -> Result<Connection, RedisError> {
        self.servers.connect(None, self.connect_timeout, None).await
    }

    /// The shared connection; made anew where it is gone.
    async fn connect(&self) -> Result<Arc<Established>, RedisError> {
        if let Some(established) = self.established() {
            return Ok(established);
        }
        let arrived = Instant::now();
        let mut last_failure = self.attempt.lock().await;
        if let Some(established) = self.established() {
            return Ok(established);
        }
        // Whoever waited here while an attempt failed shares its outcome: many callers at a dead
        // server would otherwise try one after another.
        if let Some((at, error)) = &*last_failure
            && *at >= arrived
        {
            return Err(error.clone());
        }
        match self.attempt().await {
            Ok(established) => {
                *last_failure = None;
                Ok(established)
            }
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn attempt(&self) -> Result<Arc<Established>, RedisError> {
        let up = Arc::new(AtomicBool::new(true));
        let response_timeout = Some(self.response_timeout);
        let connection = self
            .servers
            .connect(response_timeout, self.connect_timeout, Some(&up))
            .await?;
        let established = Arc::new(Established { connection, up });
        *self.shared.write().unwrap_or_else(PoisonError::into_inner) = Some(established.clone());
        Ok(established)
    }

    fn established(&self) -> Option<Arc<Established>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        shared
            .as_ref()
            .filter(|established| established.up.load(Ordering::Acquire))
            .cloned()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("address", &self.address)
            .field("connected", &self.established().is_some())
            .finish_non_exhaustive()
    }
}

/// Sends a command over a connection of its own, and gives up after `limit`. The connection is only
/// given back where it can be used again.
pub(crate) async fn query_dedicated(
    mut connection: Connection,
    command: Cmd,
    limit: Duration,
) -> (Option<Connection>, Result<Value, RedisError>) {
    match timeout(limit, connection.query(&command)).await {
        Ok(answer) => {
            let usable = !answer.as_ref().is_err_and(needs_a_new_connection);
            (usable.then_some(connection), answer)
        }
        Err(_) => (None, Err(out_of_time("the server did not answer in time"))),
    }
}

/// How connections are made.
enum Servers {
    Single(Box<SingleServer>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Config>),
}

impl Servers {
    fn new(config: &Config) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        if config.address().starts_with("rediss:") {
            crate::tls::install_provider();
        }
        #[cfg(feature = "cluster")]
        if config.cluster {
            // Built once here for its errors, and again for each connection.
            cluster::client(config, config.response_timeout).map_err(bad_config)?;
            return Ok(Self::Cluster(Box::new(config.clone())));
        }
        SingleServer::new(config).map(|server| Self::Single(Box::new(server)))
    }

    /// Connects. `up` is set to false when the connection is seen to break.
    async fn connect(
        &self,
        response_timeout: Option<Duration>,
        connect_timeout: Duration,
        up: Option<&Arc<AtomicBool>>,
    ) -> Result<Connection, RedisError> {
        let attempt = async {
            match self {
                Self::Single(server) => server.connect(response_timeout, up).await,
                #[cfg(feature = "cluster")]
                Self::Cluster(config) => cluster::connect(config, response_timeout).await,
            }
        };
        timeout(connect_timeout, attempt).await.unwrap_or_else(|_| {
            Err(out_of_time(
                "the server did not take the connection in time",
            ))
        })
    }
}

/// One server, and the protocol that it speaks.
struct SingleServer {
    preferred: redis::Client,
    /// For a server that does not know RESP3; none where the user named a protocol.
    fallback: Option<redis::Client>,
    use_fallback: AtomicBool,
}

impl SingleServer {
    fn new(config: &Config) -> Result<Self, Error> {
        let with = |protocol| client(&config.clone().with_protocol(protocol));
        let (preferred, fallback) = if config.protocol_is_fixed {
            (client(config)?, None)
        } else {
            // RESP3 first: with it the client says at once that an idle connection was closed.
            let fallback = with(ProtocolVersion::RESP2)?;
            (with(ProtocolVersion::RESP3)?, Some(fallback))
        };
        Ok(Self {
            preferred,
            fallback,
            use_fallback: AtomicBool::new(false),
        })
    }

    async fn connect(
        &self,
        response_timeout: Option<Duration>,
        up: Option<&Arc<AtomicBool>>,
    ) -> Result<Connection, RedisError> {
        let Some(fallback) = &self.fallback else {
            return connect_to(&self.preferred, response_timeout, up).await;
        };
        if !self.use_fallback.load(Ordering::Relaxed) {
            match connect_to(&self.preferred, response_timeout, up).await {
                Err(error) if does_not_know_resp3(&error) => {
                    self.use_fallback.store(true, Ordering::Relaxed);
                }
                connected => return connected,
            }
        }
        connect_to(fallback, response_timeout, up).await
    }
}

async fn connect_to(
    client: &redis::Client,
    response_timeout: Option<Duration>,
    up: Option<&Arc<AtomicBool>>,
) -> Result<Connection, RedisError> {
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(response_timeout)
        .set_pipeline_buffer_size(WRITE_QUEUE);
    let protocol = client.get_connection_info().redis_settings().protocol();
    if let Some(up) = up.filter(|_| protocol == ProtocolVersion::RESP3) {
        let up = Arc::clone(up);
        config = config.set_push_sender(move |push: redis::PushInfo| {
            if push.kind == PushKind::Disconnection {
                up.store(false, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        });
    }
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map(Connection::Single)
}

fn client(config: &Config) -> Result<redis::Client, Error> {
    let info = config.nodes[0].clone();
    #[cfg(feature = "tls")]
    if let Some(certificates) = config.certificates.to_client() {
        return redis::Client::build_with_tls(info, certificates).map_err(bad_config);
    }
    redis::Client::open(info).map_err(bad_config)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn bad_config(error: RedisError) -> Error {
    Error::config("url", format_args!("cannot be used: {error}"))
}

fn does_not_know_resp3(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported || error.code() == Some("NOPROTO")
}

fn out_of_time(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}

#[cfg(feature = "cluster")]
mod cluster {
    use std::time::Duration;

    use redis::cluster::{ClusterClient, ClusterClientBuilder};
    use redis::{ProtocolVersion, RedisError};

    use super::Connection;
    use crate::Config;

    /// Longer than any wait of ours, where the connection is to have no timeout of its own.
    const NEVER: Duration = Duration::from_hours(24);

    pub(super) fn client(
        config: &Config,
        response_timeout: Duration,
    ) -> Result<ClusterClient, RedisError> {
        let builder = ClusterClientBuilder::new(config.nodes.clone())
            .connection_timeout(config.connect_timeout)
            .response_timeout(response_timeout)
            .overall_response_timeout(Some(response_timeout))
            .use_protocol(if config.protocol_is_fixed {
                config.nodes[0].redis_settings().protocol()
            } else {
                ProtocolVersion::RESP3
            });
        #[cfg(feature = "tls")]
        let builder = match config.certificates.to_client() {
            Some(certificates) => builder.certs(certificates),
            None => builder,
        };
        builder.build()
    }

    pub(super) async fn connect(
        config: &Config,
        response_timeout: Option<Duration>,
    ) -> Result<Connection, RedisError> {
        client(config, response_timeout.unwrap_or(NEVER))?
            .get_async_connection()
            .await
            .map(Connection::Cluster)
    }
}
