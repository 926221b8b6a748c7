//! A worker in a process of its own, so that a test can kill it: this test binary, run once more.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::prelude::*;
use babelqueue_kafka::{Config, Kafka, Order};

use crate::Fault;
use crate::log::{Line, Writer, now};
use crate::numbered::Numbered;

const VARIABLE: &str = "BQ_TEST_WORKER";

/// What a child is to do, as it goes through the environment.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) servers: String,
    pub(crate) topic: String,
    pub(crate) worker: u32,
    pub(crate) log: PathBuf,
    /// The longest that a handler takes, whatever its message says, in milliseconds.
    pub(crate) longest: u64,
}

impl Job {
    /// The job of this process, where it is a child.
    pub(crate) fn given() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut fields = text.split('|');
        Some(Self {
            servers: fields.next()?.to_owned(),
            topic: fields.next()?.to_owned(),
            worker: fields.next()?.parse().ok()?,
            log: fields.next()?.into(),
            longest: fields.next()?.parse().ok()?,
        })
    }

    /// Starts the child. It ends well when its standard input does.
    pub(crate) fn start(&self) -> Result<Running, Fault> {
        let log = self.log.display();
        let Self {
            servers,
            topic,
            worker,
            longest,
            ..
        } = self;
        let text = format!("{servers}|{topic}|{worker}|{log}|{longest}");
        let child = Command::new(std::env::current_exe()?)
            .env(VARIABLE, text)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Running(child))
    }
}

/// A child that runs; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), Fault> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Has it stop, and waits for that.
    pub(crate) fn stop(mut self) -> Result<(), Fault> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("a worker ended with {status}").into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does the job of a child.
pub(crate) fn work(job: &Job) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(job)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "worker {}: {error}", job.worker);
            ExitCode::FAILURE
        }
    }
}

/// The worker's own configuration: order by key.
fn config(job: &Job) -> Config {
    Config::new(job.servers.clone())
        .group(format!("g-{}", job.topic))
        .order(Order::Key)
        .property("session.timeout.ms", "6000")
}

async fn run(job: &Job) -> Result<(), babelqueue_core::BoxError> {
    let writer = writer(&job.log)?;
    let (worker, longest) = (job.worker, job.longest);
    let kafka = Kafka::open(config(job)).await?;
    Worker::new(kafka)
        .queue(job.topic.clone())
        .concurrency(64)
        .handle(move |message: Incoming<Numbered>| {
            let writer = Arc::clone(&writer);
            let takes = Duration::from_millis(message.millis.min(longest));
            async move {
                if !takes.is_zero() {
                    tokio::time::sleep(takes).await;
                }
                note(&message, worker, &writer)
            }
        })
        .run_until(end_of_input())
        .await?;
    Ok(())
}

fn note(message: &Incoming<Numbered>, worker: u32, writer: &Writer) -> Result<(), Failure> {
    let delivery = message.context().delivery();
    let partition = delivery.lane.as_ref().map_or(0, |lane| lane.scope);
    writer.write(&Line {
        worker,
        key: message.key.clone(),
        sequence: message.sequence,
        partition: i32::try_from(partition)?,
        offset: i64::try_from(delivery.fence.id)?,
        at: now(),
    })?;
    Ok(())
}

fn writer(path: &Path) -> std::io::Result<Arc<Writer>> {
    Ok(Arc::new(Writer::open(path)?))
}

async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let _ = end.await;
}
