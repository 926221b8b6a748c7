//! Servers: the shared one, and private ones that a test may kill.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{
    Delivery, Outgoing, SubscribeOptions, Subscription, Transport as _,
};
use babelqueue_redis::{Config, Layout, Redis};
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

use crate::{Fault, common};

/// Arguments of a server that has lost nothing when it is killed.
pub(crate) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Whether a missing server is a failure.
pub(crate) fn is_required() -> bool {
    env::vars_os().any(|(name, value)| {
        name.to_string_lossy().starts_with("BQ_REQUIRE_") && !value.is_empty() && value != "0"
    })
}

/// A handle to the shared server in `layout`.
pub(crate) async fn shared(layout: Layout) -> Result<Redis, Fault> {
    handle(common::config()?.with_layout(layout)).await
}

/// A handle, if the server answers.
pub(crate) async fn handle(config: Config) -> Result<Redis, Fault> {
    common::reachable(config).await.map_err(Fault::NoServer)
}

/// The bare client at `url`, for what the crate is not asked to do.
pub(crate) async fn bare(url: &str) -> Result<MultiplexedConnection, Fault> {
    let client = redis::Client::open(url)?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// A subscription with room for 16.
pub(crate) async fn subscribe(redis: &Redis, queue: &str) -> Result<Subscription, Error> {
    redis
        .subscribe(queue, SubscribeOptions::with_prefetch(16))
        .await
}

/// Publishes bodies, and fails if one is not taken.
pub(crate) async fn publish(redis: &Redis, queue: &str, bodies: &[&str]) -> Result<(), Error> {
    let batch = bodies
        .iter()
        .map(|body| Outgoing::new(queue, (*body).to_owned()))
        .collect();
    redis.publish(batch).await.into_iter().collect()
}

/// How long a test waits for what has to come. Long: the machine may be busy with others.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Receives until there are `count`, as long as patience lasts; errors that pass are passed over.
pub(crate) async fn receive(
    subscription: &mut Subscription,
    count: usize,
) -> Result<Vec<Arc<Delivery>>, Fault> {
    let mut deliveries = Vec::new();
    let all = async {
        while deliveries.len() < count {
            match subscription
                .receiver
                .receive(count - deliveries.len())
                .await
            {
                Ok(more) => deliveries.extend(more),
                Err(error) if error.is_transient() => sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(Fault::from(error)),
            }
        }
        Ok(())
    };
    timeout(PATIENCE, all)
        .await
        .unwrap_or_else(|_| Err("nothing came for a minute".into()))?;
    Ok(deliveries)
}

/// Whether nothing comes for `time`.
pub(crate) async fn stays_empty(subscription: &mut Subscription, time: Duration) -> bool {
    timeout(time, subscription.receiver.receive(1))
        .await
        .is_err()
}

/// The bodies as text.
pub(crate) fn texts(deliveries: &[Arc<Delivery>]) -> Vec<String> {
    let text = |delivery: &Arc<Delivery>| String::from_utf8_lossy(&delivery.body).into_owned();
    deliveries.iter().map(text).collect()
}

/// Waits until `met`, as long as patience lasts.
pub(crate) async fn eventually<F: Future<Output = bool>>(met: impl Fn() -> F) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if met().await {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
    false
}

/// Whether `attempt` is done within `limit` in one of three tries. A wait that a limit can tell from
/// another is short, and a busy machine is late now and then: not three times.
pub(crate) async fn within<F: Future<Output = Result<Duration, Fault>>>(
    limit: Duration,
    mut attempt: impl FnMut() -> F,
) -> Result<(), Fault> {
    let mut waits = Vec::new();
    for _ in 0..3 {
        let wait = attempt().await?;
        if wait < limit {
            return Ok(());
        }
        waits.push(wait);
    }
    Err(Fault::Failed(
        format!("not within {limit:?}: {waits:?}").into(),
    ))
}

/// A `redis-server` of the test's own, on a loopback port; killed when it is dropped.
pub(crate) struct Private {
    child: Option<Child>,
    address: SocketAddr,
    folder: PathBuf,
    arguments: Vec<String>,
}

impl Private {
    /// Starts one, with more arguments for it.
    pub(crate) async fn start(arguments: &[&str]) -> Result<Self, Fault> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Self::start_at(address, arguments).await
    }

    /// Starts one at `address`.
    pub(crate) async fn start_at(address: SocketAddr, arguments: &[&str]) -> Result<Self, Fault> {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(common::unique("server").replace(':', "-"));
        fs::create_dir_all(&folder)?;
        let mut server = Self {
            child: None,
            address,
            folder,
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
        };
        server.run().await?;
        Ok(server)
    }

    /// Its URL, with `query` behind it.
    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://{}?{query}", self.address)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it keeps its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), Fault> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it (again), and waits until it answers.
    pub(crate) async fn run(&mut self) -> Result<(), Fault> {
        let log = fs::File::create(self.folder.join("log"))?;
        let started = Command::new("redis-server")
            .args(["--bind", &self.address.ip().to_string()])
            .args(["--port", &self.address.port().to_string()])
            .args(["--save", "", "--daemonize", "no", "--dir"])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        match started {
            Ok(child) => self.child = Some(child),
            Err(error) => return Err(Fault::NoServer(format!("no redis-server: {error}"))),
        }
        let url = self.url("");
        let answers = || async {
            let Ok(client) = redis::Client::open(&*url) else {
                return false;
            };
            let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
                return false;
            };
            let answer = redis::cmd("PING").query_async::<()>(&mut connection).await;
            answer.map_or_else(|error| error.code() == Some("NOAUTH"), |()| true)
        };
        if eventually(answers).await {
            return Ok(());
        }
        Err("the private server does not answer".into())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.kill().is_ok() {
            // What is left behind lies in the target folder.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
