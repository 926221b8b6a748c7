//! The server that the tests talk to.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "SQS compares so"
)]

pub(crate) mod front;
pub(crate) mod kit;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_sqs::{Config, Sqs, aws_sdk_sqs};
use bytes::Bytes;
use libtest_mimic::{Arguments, Completion, Trial};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Anything that a test can fail with.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// What the xtask calls it.
    name: &'static str,
    variable: &'static str,
    default_port: u16,
}

/// For tests that leave it running.
pub(crate) const SHARED: Server = Server {
    name: "sqs",
    variable: "BQ_SQS_URL",
    default_port: 19_324,
};

/// For tests that kill it.
pub(crate) const MORTAL: Server = Server {
    name: "sqs-mortal",
    variable: "BQ_SQS_MORTAL_URL",
    default_port: 19_334,
};

impl Server {
    pub(crate) fn url(&self) -> String {
        std::env::var(self.variable).unwrap_or_else(|_| {
            format!(
                "sqs://us-east-1?endpoint=http://127.0.0.1:{}",
                self.default_port
            )
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Failed> {
        let url = self.url();
        let endpoint = url.split("endpoint=http://").nth(1).unwrap_or_default();
        Ok(endpoint.split('&').next().unwrap_or_default().parse()?)
    }

    /// With short leases and short waits.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        quick(&self.url())
    }

    /// Why it cannot be used now, in words.
    async fn unreachable(&self) -> Option<String> {
        let reached = match self.address() {
            Ok(address) => tokio::net::TcpStream::connect(address).await,
            Err(error) => return Some(error.to_string()),
        };
        let error = reached.err()?;
        Some(format!("no SQS ({}): {error}", self.variable))
    }

    /// A client of the SDK's own, to look behind the transport.
    pub(crate) fn bare(&self) -> Result<aws_sdk_sqs::Client, Failed> {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials())
            .endpoint_url(format!("http://{}", self.address()?));
        Ok(aws_sdk_sqs::Client::from_conf(config.build()))
    }

    /// Makes a queue, FIFO if it is named so.
    pub(crate) async fn create(&self, queue: &str) -> Result<(), Failed> {
        self.create_with(queue, &[]).await
    }

    pub(crate) async fn create_with(
        &self,
        queue: &str,
        attributes: &[(QueueAttributeName, &str)],
    ) -> Result<(), Failed> {
        let mut create = self.bare()?.create_queue().queue_name(queue);
        if queue.ends_with(".fifo") {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        for (name, value) in attributes {
            create = create.attributes(name.clone(), *value);
        }
        create.send().await?;
        Ok(())
    }

    pub(crate) async fn queue_url(&self, queue: &str) -> Result<String, Failed> {
        let found = self
            .bare()?
            .get_queue_url()
            .queue_name(queue)
            .send()
            .await?;
        found.queue_url.ok_or_else(|| "no URL".into())
    }

    pub(crate) async fn delete(&self, queue: &str) -> Result<(), Failed> {
        let url = self.queue_url(queue).await?;
        self.bare()?.delete_queue().queue_url(url).send().await?;
        Ok(())
    }

    /// Ends it with SIGKILL, and starts it again with its data.
    pub(crate) async fn kill_and_start(&self) -> Result<(), Failed> {
        self.xtask("kill").await?;
        self.xtask("up").await
    }

    pub(crate) async fn xtask(&self, step: &'static str) -> Result<(), Failed> {
        let xtask = std::env::var("BQ_XTASK").map_err(|_| "no BQ_XTASK")?;
        let name = self.name;
        let run = move || Command::new(xtask).args(["brokers", step, name]).output();
        let output = tokio::task::spawn_blocking(run).await??;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}

/// A configuration with short leases and short waits, for the endpoint of `url`.
pub(crate) fn quick(url: &str) -> Result<Config, Error> {
    Config::from_url(url)?
        .credentials(credentials())
        .wait_time(Duration::from_secs(1))?
        .visibility_timeout(LEASE)
}

/// Long enough for a machine that is busy, short enough for a test that waits for its end.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// The servers take any.
pub(crate) fn credentials() -> Credentials {
    Credentials::new("test", "test", None, None, "test")
}

/// A name that no other run uses.
pub(crate) fn unique(name: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("bq-{}-{name}", &id[..12])
}

/// One test: its name, and what it does.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) run: Arc<dyn Fn(Server) -> Running + Send + Sync>,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

/// `test!(function)`.
#[allow(unused_macros, reason = "each test binary uses its own part")]
macro_rules! test {
    ($function:ident) => {
        crate::common::Test {
            name: stringify!($function).to_owned(),
            run: std::sync::Arc::new(|server| Box::pin($function(server))),
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use test;

/// Fails the test unless the condition holds.
#[allow(unused_macros, reason = "each test binary uses its own part")]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use ensure;

/// How long a test may take.
const LIMIT: Duration = Duration::from_mins(10);

/// Runs the tests against `server`, as many at a time as `threads` says. Without a server they are
/// ignored, with the reason; where `BQ_REQUIRE_BROKERS` is set they fail.
pub(crate) fn run(server: &Server, threads: usize, tests: Vec<Test>) -> ExitCode {
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let missing = runtime.block_on(server.unreachable());
    let trial = |test: Test| {
        let (server, runtime, missing) = (server.clone(), runtime.clone(), missing.clone());
        Trial::ignorable_test(test.name, move || {
            if let Some(reason) = missing {
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
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect()).exit_code()
}

/// An envelope with this number in it.
pub(crate) fn body(number: u64) -> Bytes {
    let text = format!(
        r#"{{"job":"urn:babel:test:made","trace_id":"t-{number}","data":{{"n":{number}}},"meta":{{"id":"m-{number}","queue":"q","lang":"rust","schema_version":1,"created_at":1}},"attempts":0}}"#
    );
    text.into()
}

/// Publishes, and expects all of it to be confirmed.
pub(crate) async fn publish(
    sqs: &Sqs,
    queue: &str,
    bodies: impl IntoIterator<Item = Bytes>,
) -> Result<(), Failed> {
    let batch = bodies.into_iter().map(|body| Outgoing::new(queue, body));
    let published = sqs.publish(batch.collect()).await;
    published
        .into_iter()
        .collect::<Result<(), _>>()
        .map_err(Into::into)
}

/// How long a subscription may take to close: some tests hold deliveries until then.
pub(crate) const CLOSING: Duration = Duration::from_secs(10);
