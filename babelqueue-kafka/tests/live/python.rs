//! Beside the Python SDK: both ways, by way of a tier, and in one group. `BQ_PYTHON` names an
//! interpreter that has `babelqueue[kafka]`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use babelqueue_core::prelude::*;
use babelqueue_kafka::{Config, Kafka, Reinjector, RetryTiers};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use crate::{Fault, Outcome, broker};

crate::trials!(
    python_handles_ours,
    we_handle_pythons,
    our_reinjector_brings_pythons_retry_back,
    pythons_reinjector_brings_ours_back,
    both_work_in_one_group,
);

const URN: &str = "urn:babel:peer:test";
/// Nothing that JSON does not say the same way everywhere, but numbers and text that tell.
const DATA: &str =
    r#"{"n":1,"text":"héllo 🎈 \"q\" / <b>","list":[1,2.5,null,true,{}],"big":9007199254740991}"#;

async fn python_handles_ours() -> Outcome {
    let case = Case::new(1).await?;
    let producer = Producer::new(case.kafka.clone()).queue(case.topic.as_str());
    let data: serde_json::Value = serde_json::from_str(DATA).map_err(|e| e.to_string())?;
    let id = producer.message_urn(URN, &data).key("k").send().await?;
    let lines = case
        .python("consume", &["--timeout", "120"])?
        .lines()
        .await?;
    let [line] = lines.as_slice() else {
        return Err(format!("{lines:?}").into());
    };
    same(&line["id"], &id.to_string().into())?;
    same(&line["data"], &data)?;
    same(&line["attempts"], &0.into())?;
    case.end().await
}

async fn we_handle_pythons() -> Outcome {
    let case = Case::new(1).await?;
    let arguments = ["--count", "3", "--data", DATA, "--trace", "trace-1"];
    let published = case.python("produce", &arguments)?.lines().await?;
    let mut worker = case.worker(0);
    for line in published {
        let handled = worker.next().await?;
        same(&line["published"], &handled.id.into())?;
        if (handled.attempts, &*handled.trace, &*handled.lang) != (0, "trace-1", "python") {
            return Err("the meta data differ".into());
        }
        same(
            &handled.data,
            &serde_json::from_str(DATA).map_err(|e| e.to_string())?,
        )?;
    }
    worker.stop().await?;
    case.end().await
}

async fn our_reinjector_brings_pythons_retry_back() -> Outcome {
    let case = Case::new(1).await?;
    let producer = Producer::new(case.kafka.clone()).queue(case.topic.as_str());
    producer
        .message_urn(URN, &serde_json::json!({"n": 1}))
        .send()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let reinjector = Reinjector::new(case.kafka.clone()).queue(case.topic.as_str());
    let reinjector = tokio::spawn(reinjector.run_until(async {
        let _ = stopped.await;
    }));
    let arguments = ["--timeout", "120", "--fail-first", "1"];
    let lines = case.python("consume", &arguments)?.lines().await?;
    let attempts: Vec<_> = lines.iter().map(|line| line["attempts"].as_i64()).collect();
    if attempts != [Some(0), Some(1)] {
        return Err(format!("attempts {attempts:?}").into());
    }
    let _ = stop.send(());
    reinjector.await.map_err(|e| e.to_string())??;
    case.end().await
}

async fn pythons_reinjector_brings_ours_back() -> Outcome {
    let case = Case::new(1).await?;
    case.python("produce", &[])?.lines().await?;
    let reinjector = case.python("reinject", &["--timeout", "120"])?;
    let mut worker = case.worker(1);
    let attempts = [worker.next().await?.attempts, worker.next().await?.attempts];
    if attempts != [0, 1] {
        return Err(format!("attempts {attempts:?}").into());
    }
    reinjector.lines().await?;
    worker.stop().await?;
    case.end().await
}

/// With the client's default assignors on both sides: three partitions, shared out between the two.
async fn both_work_in_one_group() -> Outcome {
    let case = Case::new(3).await?;
    let mut worker = case.worker(0);
    let python = case.python("consume", &["--count", "1", "--timeout", "120"])?;
    let producer = Producer::new(case.kafka.clone()).queue(case.topic.as_str());
    // Until Python's worker has joined, and had its one.
    let mut theirs = std::pin::pin!(python.lines());
    let mut count = 0;
    let theirs = loop {
        let key = format!("{count}");
        let message = producer.message_urn(URN, &serde_json::json!({ "n": count }));
        message.key(key).send().await?;
        count += 1;
        let pause = Duration::from_millis(150);
        if let Ok(theirs) = tokio::time::timeout(pause, &mut theirs).await {
            break theirs?.len();
        }
    };
    let ours = count - theirs;
    for _ in 0..ours {
        worker.next().await?;
    }
    worker.stop().await?;
    if theirs == 0 || ours == 0 {
        return Err(format!("{ours} were ours, {theirs} were Python's").into());
    }
    case.end().await
}

fn same(found: &serde_json::Value, expected: &serde_json::Value) -> Result<(), Fault> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found} in the place of {expected}").into())
}

/// A topic with one tier, and a group.
struct Case {
    python: PathBuf,
    topic: String,
    group: String,
    kafka: Kafka,
}

impl Case {
    async fn new(partitions: i32) -> Result<Self, Fault> {
        let python = std::env::var_os("BQ_PYTHON")
            .ok_or_else(|| Fault::Absent("no Python SDK: BQ_PYTHON is not set".to_owned()))?;
        let unique = broker::unique();
        let group = format!("g-{unique}");
        let config = Config::new(broker::servers())
            .group(group.clone())
            .reinject_group(format!("r-{unique}"))
            .reinjector(false)
            .retry_tiers(RetryTiers::new([Duration::from_millis(300)])?);
        let kafka = broker::connect(config).await?;
        let topic = format!("python-{unique}");
        broker::create(&topic, partitions).await?;
        broker::create(&format!("{topic}.retry.1"), 1).await?;
        Ok(Self {
            python: python.into(),
            topic,
            group,
            kafka,
        })
    }

    async fn end(self) -> Outcome {
        broker::remove(&[&self.topic, &format!("{}.retry.1", self.topic)]).await
    }

    /// Runs a verb of the Python side.
    fn python(&self, verb: &str, arguments: &[&str]) -> Result<Python, Fault> {
        let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/kafka/peer.py");
        let url = format!(
            "kafka://{}/?group={}&retry_tiers=300",
            broker::servers(),
            self.group
        );
        let child = Command::new(&self.python)
            .arg(driver)
            .args([verb, "--broker", &url, "--queue", &self.topic])
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Python(child))
    }

    /// A worker of ours that fails so many times first.
    fn worker(&self, fail_first: u32) -> Ours {
        let (tell, handles) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let failures = Arc::new(AtomicU32::new(fail_first));
        let worker = Worker::new(self.kafka.clone())
            .queue(self.topic.as_str())
            .handle_urn(URN, move |message: Incoming<serde_json::Value>| {
                let context = message.context();
                let text =
                    |text: Option<std::borrow::Cow<'_, str>>| text.unwrap_or_default().into();
                let _ = tell.send(Handled {
                    id: text(context.id()),
                    trace: text(context.trace_id()),
                    lang: text(context.envelope().lang()),
                    attempts: context.attempts(),
                    data: (*message).clone(),
                });
                let fails = failures.fetch_update(AcqRel, Acquire, |left| left.checked_sub(1));
                async move {
                    match fails {
                        Ok(_) => Err(Failure::msg("failed as it was told to")),
                        Err(_) => Ok(()),
                    }
                }
            });
        Ours {
            handles,
            stop,
            task: tokio::spawn(worker.run_until(stopped)),
        }
    }
}

#[derive(Debug)]
struct Handled {
    id: String,
    trace: String,
    lang: String,
    attempts: u32,
    data: serde_json::Value,
}

struct Ours {
    handles: mpsc::UnboundedReceiver<Handled>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<babelqueue_core::worker::Stopped, babelqueue_core::Error>>,
}

impl Ours {
    async fn next(&mut self) -> Result<Handled, Fault> {
        match tokio::time::timeout(Duration::from_mins(2), self.handles.recv()).await {
            Ok(Some(handled)) => Ok(handled),
            Ok(None) => Err("the worker has ended".into()),
            Err(_) => Err("nothing came for two minutes".into()),
        }
    }

    async fn stop(self) -> Result<(), Fault> {
        let _ = self.stop.send(());
        self.task.await.map_err(|error| error.to_string())??;
        Ok(())
    }
}

struct Python(Child);

impl Python {
    /// What it printed, when it has ended well.
    async fn lines(mut self) -> Result<Vec<serde_json::Value>, Fault> {
        let mut text = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut text).await?;
        }
        let status = self.0.wait().await?;
        if !status.success() {
            return Err(format!("Python ended with {status}: {text}").into());
        }
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|error| error.to_string().into()))
            .collect()
    }
}
