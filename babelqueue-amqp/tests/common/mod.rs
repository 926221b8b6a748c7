//! The servers that the tests talk to.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::future::Future;
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use babelqueue_amqp::{Amqp, Config};
use babelqueue_core::Error;
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Outgoing, Transport as _};
use bytes::Bytes;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
use libtest_mimic::{Arguments, Completion, Trial};
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

/// Anything that a test can fail with.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One RabbitMQ server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// What its tests' names begin with, and what the xtask calls it.
    pub(crate) name: &'static str,
    url_variable: &'static str,
    run_variable: &'static str,
    default_url: &'static str,
}

/// The versions that the tests run against.
pub(crate) const SERVERS: [Server; 2] = [
    Server {
        name: "rabbitmq",
        url_variable: "BQ_RABBITMQ_URL",
        run_variable: "BQ_RABBITMQ_RUN",
        default_url: "amqp://guest:guest@127.0.0.1:25672",
    },
    Server {
        name: "rabbitmq4",
        url_variable: "BQ_RABBITMQ4_URL",
        run_variable: "BQ_RABBITMQ4_RUN",
        default_url: "amqp://guest:guest@127.0.0.1:25682",
    },
];

impl Server {
    pub(crate) fn url(&self) -> String {
        std::env::var(self.url_variable).unwrap_or_else(|_| self.default_url.to_owned())
    }

    /// The URL with another user, password or vhost.
    pub(crate) fn url_with(&self, credentials: &str, vhost: &str) -> String {
        let url = self.url();
        let address = url.rsplit('@').next().unwrap_or_default();
        let address = address.split('/').next().unwrap_or_default();
        format!("amqp://{credentials}@{address}/{vhost}")
    }

    pub(crate) fn config(&self) -> Result<Config, Error> {
        Ok(Config::from_url(&self.url())?.connect_timeout(Duration::from_mins(1)))
    }

    /// Why it cannot be used now, in words.
    pub(crate) async fn unreachable(&self) -> Option<String> {
        let amqp = match self.config().and_then(Amqp::open) {
            Ok(amqp) => amqp,
            Err(error) => return Some(error.to_string()),
        };
        let mut reached = amqp.ping().await;
        let deadline = Instant::now() + Duration::from_mins(1);
        // One that has to be there is only slow.
        while std::env::var_os("BQ_REQUIRE_BROKERS").is_some()
            && reached.as_ref().is_err_and(Error::is_transient)
            && Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(500)).await;
            reached = amqp.ping().await;
        }
        let error = reached.err()?;
        Some(format!("no RabbitMQ ({}): {error}", self.url_variable))
    }

    /// Whether [`ctl`](Self::ctl) can be called.
    pub(crate) fn has_ctl(&self) -> bool {
        std::env::var_os(self.run_variable).is_some()
    }

    /// Runs `rabbitmqctl` on the server.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Result<String, Failed> {
        let run = std::env::var(self.run_variable).map_err(|_| self.run_variable)?;
        let output = Command::new("sh")
            .arg(run)
            .args(["rabbitmqctl", "-q"])
            .args(arguments)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("rabbitmqctl {}: {text} {said}", arguments.join(" ")).into())
    }

    /// Has the server write down which queues there are. It does that with a delay of seconds, and a
    /// quorum queue whose name it had not yet written is empty after a SIGKILL.
    pub(crate) async fn write_down_its_queues(&self) -> Result<(), Failed> {
        let server = self.clone();
        let write = "mnesia:sync_log(), dets:sync(ra_directory_reverse).";
        let written = tokio::task::spawn_blocking(move || server.ctl(&["eval", write])).await??;
        ensure!(written.trim() == "ok", "it said {written}");
        Ok(())
    }

    /// Ends the server with SIGKILL.
    pub(crate) async fn kill(&self) -> Result<(), Failed> {
        self.xtask("kill").await
    }

    /// Starts the server again, with its data.
    pub(crate) async fn start(&self) -> Result<(), Failed> {
        self.xtask("up").await
    }

    async fn xtask(&self, step: &'static str) -> Result<(), Failed> {
        let xtask = std::env::var("BQ_XTASK").map_err(|_| "no BQ_XTASK")?;
        let name = self.name;
        let run = move || Command::new(xtask).args(["brokers", step, name]).output();
        let output = tokio::task::spawn_blocking(run).await??;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }

    /// A connection of the bare client's, to look behind the transport.
    pub(crate) async fn bare(&self) -> Result<Bare, Failed> {
        let connection = Connection::connect(&self.url(), ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok(Bare {
            connection,
            channel,
        })
    }
}

/// The bare client.
pub(crate) struct Bare {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
}

impl Bare {
    /// How many messages are ready in `queue`; `None` where there is none.
    pub(crate) async fn ready(&self, queue: &str) -> Result<Option<u32>, Failed> {
        let channel = self.connection.create_channel().await?;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        match channel
            .queue_declare(queue.into(), passive, FieldTable::default())
            .await
        {
            Ok(queue) => Ok(Some(queue.message_count())),
            Err(error) if error.is_amqp_soft_error() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until so many messages are ready in `queue`: what a closed channel held goes back in the
    /// broker's own time.
    pub(crate) async fn wait_for(&self, queue: &str, ready: u32) -> Result<(), Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.ready(queue).await?;
            if seen == Some(ready) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{seen:?} are ready, not {ready}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn delete(&self, queue: &str) -> Result<(), Failed> {
        self.channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await?;
        Ok(())
    }
}

/// A name that no other run uses.
pub(crate) fn unique(name: &str) -> String {
    format!("bq-test-{}-{name}", uuid::Uuid::new_v4().simple())
}

/// One test: its name, whether it needs a hand on the server, and what it does.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) needs_ctl: bool,
    /// Whether it needs the Python SDK, at `BQ_PYTHON`.
    pub(crate) needs_python: bool,
    pub(crate) run: Arc<dyn Fn(Server) -> Running + Send + Sync>,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

/// `test!(function)`, or `test!(function, ctl)` for one that needs `rabbitmqctl`, or
/// `test!(function, python)` for one that needs the Python SDK.
macro_rules! test {
    ($function:ident) => {
        test!($function, needs_ctl: false, needs_python: false)
    };
    ($function:ident, ctl) => {
        test!($function, needs_ctl: true, needs_python: false)
    };
    ($function:ident, python) => {
        test!($function, needs_ctl: false, needs_python: true)
    };
    ($function:ident, needs_ctl: $needs_ctl:literal, needs_python: $needs_python:literal) => {
        crate::common::Test {
            name: stringify!($function).to_owned(),
            needs_ctl: $needs_ctl,
            needs_python: $needs_python,
            run: std::sync::Arc::new(|server| Box::pin($function(server))),
        }
    };
}
pub(crate) use test;

/// Fails the test unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}
pub(crate) use ensure;

/// The servers, and which of them cannot be used now.
pub(crate) struct Stand {
    servers: Vec<(Server, Option<String>)>,
    runtime: Arc<Runtime>,
    arguments: Arguments,
}

impl Stand {
    pub(crate) fn of(servers: Vec<Server>) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let reached = servers.into_iter().map(|server| {
            let missing = runtime.block_on(server.unreachable());
            (server, missing)
        });
        Self {
            servers: reached.collect(),
            runtime: Arc::new(runtime),
            arguments: Arguments::from_args(),
        }
    }

    /// One test after the other: they do to the server what would disturb others.
    pub(crate) fn one_by_one(mut self) -> Self {
        self.arguments.test_threads = Some(1);
        self
    }

    pub(crate) fn run(self, tests: &[Test]) -> ExitCode {
        let trials = self.servers.iter().flat_map(|(server, missing)| {
            let trial = |test: &Test| self.trial(server, missing.clone(), test.clone());
            tests.iter().map(trial)
        });
        libtest_mimic::run(&self.arguments, trials.collect()).exit_code()
    }

    fn trial(&self, server: &Server, missing: Option<String>, test: Test) -> Trial {
        let name = format!("{}/{}", server.name, test.name);
        let (server, runtime) = (server.clone(), self.runtime.clone());
        Trial::ignorable_test(name, move || {
            if test.needs_python && std::env::var_os("BQ_PYTHON").is_none() {
                return Ok(Completion::ignored_with("no Python SDK: no BQ_PYTHON"));
            }
            let no_ctl = test.needs_ctl && !server.has_ctl();
            let no_ctl = no_ctl.then(|| format!("no {}", server.run_variable));
            if let Some(reason) = missing.or(no_ctl) {
                return match std::env::var_os("BQ_REQUIRE_BROKERS") {
                    Some(_) => Err(reason.into()),
                    None => Ok(Completion::ignored_with(reason)),
                };
            }
            let run = (test.run)(server);
            let outcome = runtime.block_on(async { timeout(LIMIT, tokio::spawn(run)).await });
            match outcome {
                Ok(Ok(Ok(()))) => Ok(Completion::Completed),
                Ok(Ok(Err(failed))) => Err(failed.to_string().into()),
                Ok(Err(panicked)) => Err(panicked.to_string().into()),
                Err(_) => Err(format!("not done after {} s", LIMIT.as_secs()).into()),
            }
        })
    }
}

const LIMIT: Duration = Duration::from_mins(20);

/// How long a test waits for what has to come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// An envelope with this number in it.
pub(crate) fn body(number: u64) -> Bytes {
    let text = format!(
        r#"{{"job":"urn:babel:test:made","trace_id":"t-{number}","data":{{"n":{number}}},"meta":{{"id":"m-{number}","queue":"q","lang":"rust","schema_version":1,"created_at":1}},"attempts":0}}"#
    );
    text.into()
}

/// Publishes, and expects all of it to be confirmed.
pub(crate) async fn publish(
    amqp: &Amqp,
    queue: &str,
    bodies: impl IntoIterator<Item = Bytes>,
) -> Result<(), Failed> {
    let batch = bodies.into_iter().map(|body| Outgoing::new(queue, body));
    let published = amqp.publish(batch.collect()).await;
    published
        .into_iter()
        .collect::<Result<(), _>>()
        .map_err(Into::into)
}

/// How long a subscription may take to close: some tests hold deliveries until then.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// Whether nothing comes for this long.
pub(crate) async fn is_quiet(reader: &mut Consumer, within: Duration) -> bool {
    timeout(within, reader.receiver.receive(1)).await.is_err()
}
