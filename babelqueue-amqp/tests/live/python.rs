//! Beside the Python SDK, both ways. `BQ_PYTHON` names an interpreter that has `babelqueue[amqp]`.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use babelqueue_amqp::Amqp;
use babelqueue_amqp::prelude::*;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::common::{Failed, Server, Test, ensure, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(python_handles_ours, python),
        test!(we_handle_pythons, python),
        test!(a_retry_that_we_began_python_ends, python),
        test!(a_retry_that_python_began_we_end, python),
        test!(python_reads_our_dead_letter, python),
    ]
}

const URN: &str = "urn:babel:peer:test";

/// Nothing that JSON does not say the same way everywhere, but numbers and text that tell.
const DATA: &str =
    r#"{"n":1,"text":"héllo 🎈 \"q\" / <b>","list":[1,2.5,null,true,{}],"empty":{}}"#;

async fn python_handles_ours(server: Server) -> Result<(), Failed> {
    let (queue, data) = (unique("to-python"), data()?);
    let producer = Producer::new(Amqp::open(server.config()?)?).queue(&*queue);
    let message = producer.message_urn(URN, &data).trace_id("trace-1");
    let id = message.header("traceparent", "00-1").send().await?;
    let lines = python(&server, &queue, "consume", &[]).await?;
    same("lines", &lines.len(), &1)?;
    same("id", &lines[0]["id"], &json!(id.to_string()))?;
    same("trace", &lines[0]["trace_id"], &json!("trace-1"))?;
    same("attempts", &lines[0]["attempts"], &json!(0))?;
    same("data", &lines[0]["data"], &data)?;
    same(
        "header",
        &lines[0]["headers"]["traceparent"],
        &json!("00-1"),
    )?;
    server.bare().await?.delete(&queue).await
}

async fn we_handle_pythons(server: Server) -> Result<(), Failed> {
    let (queue, data) = (unique("from-python"), data()?);
    let arguments = [
        "--data",
        DATA,
        "--trace",
        "trace-1",
        "--header",
        "traceparent=00-1",
    ];
    let lines = python(&server, &queue, "produce", &arguments).await?;
    let handled = handle(&server, &queue, 0, 1).await?;
    same("id", &json!(handled[0].id), &lines[0]["published"])?;
    same("trace", &*handled[0].trace_id, "trace-1")?;
    same("attempts", &handled[0].attempts, &0)?;
    same("data", &handled[0].data, &data)?;
    same("header", &handled[0].traceparent.as_deref(), &Some("00-1"))?;
    server.bare().await?.delete(&queue).await
}

async fn a_retry_that_we_began_python_ends(server: Server) -> Result<(), Failed> {
    let queue = unique("ours-retried");
    python(
        &server,
        &queue,
        "produce",
        &["--header", "traceparent=00-1"],
    )
    .await?;
    // One delivery, which fails; the retry stays in the queue.
    let ours = handle(&server, &queue, 1, 1).await?;
    same("attempts", &ours[0].attempts, &0)?;
    let lines = python(&server, &queue, "consume", &[]).await?;
    same("lines", &lines.len(), &1)?;
    same("id", &lines[0]["id"], &json!(ours[0].id))?;
    same("attempts", &lines[0]["attempts"], &json!(1))?;
    same(
        "header",
        &lines[0]["headers"]["traceparent"],
        &json!("00-1"),
    )?;
    server.bare().await?.delete(&queue).await
}

async fn a_retry_that_python_began_we_end(server: Server) -> Result<(), Failed> {
    let queue = unique("pythons-retried");
    let producer = Producer::new(Amqp::open(server.config()?)?).queue(&*queue);
    producer.message_urn(URN, &data()?).send().await?;
    let arguments = ["--fail-first", "1", "--deliveries", "1"];
    let lines = python(&server, &queue, "consume", &arguments).await?;
    same("attempts", &lines[0]["attempts"], &json!(0))?;
    let handled = handle(&server, &queue, 0, 1).await?;
    same("attempts", &handled[0].attempts, &1)?;
    same("data", &handled[0].data, &data()?)?;
    server.bare().await?.delete(&queue).await
}

async fn python_reads_our_dead_letter(server: Server) -> Result<(), Failed> {
    let queue = unique("dead");
    python(&server, &queue, "produce", &["--data", DATA]).await?;
    handle(&server, &queue, 3, 3).await?;
    let dead = format!("{queue}.dlq");
    let lines = python(&server, &dead, "consume", &[]).await?;
    same("data", &lines[0]["data"], &data()?)?;
    same("attempts", &lines[0]["attempts"], &json!(3))?;
    let block = &lines[0]["dead_letter"];
    same("reason", &block["reason"], &json!("failed"))?;
    same("queue", &block["original_queue"], &json!(queue))?;
    same("attempts of the block", &block["attempts"], &json!(3))?;
    let bare = server.bare().await?;
    bare.delete(&dead).await?;
    bare.delete(&queue).await
}

fn data() -> Result<Value, Failed> {
    Ok(serde_json::from_str(DATA)?)
}

/// Runs the driver, and gives what it printed.
async fn python(
    server: &Server,
    queue: &str,
    verb: &str,
    arguments: &[&str],
) -> Result<Vec<Value>, Failed> {
    let python = std::env::var("BQ_PYTHON")?;
    let patience = match verb {
        "consume" => &["--timeout", "180"][..],
        _ => &[],
    };
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/rabbitmq/peer.py");
    let output = Command::new(python)
        .args([driver, verb, "--broker", &server.url(), "--queue", queue])
        .args(arguments)
        .args(patience)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "python {verb}: {}: {said}",
        output.status
    );
    let lines = std::str::from_utf8(&output.stdout)?.lines();
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What a handler saw.
#[derive(Debug)]
struct Handled {
    id: String,
    trace_id: String,
    attempts: u32,
    data: Value,
    traceparent: Option<String>,
}

/// Handles `count` deliveries one by one, of which the first `failures` fail.
async fn handle(
    server: &Server,
    queue: &str,
    failures: u32,
    count: usize,
) -> Result<Vec<Handled>, Failed> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let left = Arc::new(AtomicU32::new(failures));
    let worker = Worker::new(Amqp::open(server.config()?)?);
    // Where one delivery is all that is wanted, its retry must not come before the stop.
    let wait = Duration::from_secs(if count == 1 { 2 } else { 0 });
    let worker = worker.queue(queue).dead_letter(true).prefetch(1);
    let worker = worker.retry(Retry::attempts(3).backoff(wait, 1.0));
    let worker = worker.handle_urn(URN, move |message: Incoming<Value>| {
        let fails = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            left.checked_sub(1)
        });
        let told = tell.send(Handled {
            id: message.id().unwrap_or_default().into(),
            trace_id: message.trace_id().unwrap_or_default().into(),
            attempts: message.context().attempts(),
            data: (*message).clone(),
            traceparent: message.headers().get("traceparent").map(str::to_owned),
        });
        async move {
            told.map_err(|_| Failure::msg("nobody listens"))?;
            match fails {
                Ok(_) => Err(Failure::msg("as it was told to")),
                Err(_) => Ok(()),
            }
        }
    });
    let (give, given) = tokio::sync::oneshot::channel();
    let stop = async move {
        let mut handled = Vec::new();
        while handled.len() < count
            && let Some(one) = told.recv().await
        {
            handled.push(one);
        }
        // Whoever has gone does not want it.
        _ = give.send(handled);
    };
    worker.run_until(stop).await?;
    Ok(given.await?)
}

fn same<F, E>(what: &str, found: &F, expected: &E) -> Result<(), Failed>
where
    F: PartialEq<E> + std::fmt::Debug + ?Sized,
    E: std::fmt::Debug + ?Sized,
{
    ensure!(
        found == expected,
        "{what}: {found:?}, expected {expected:?}"
    );
    Ok(())
}
