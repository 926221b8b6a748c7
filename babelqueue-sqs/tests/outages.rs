//! What tests do to a server that would disturb others: one test after the other, against a server of
//! their own. Without one they are ignored, with the reason; where `BQ_REQUIRE_BROKERS` is set they
//! fail.

#![expect(clippy::print_stdout, reason = "they tell what they counted")]

mod common;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_sqs::prelude::*;
use common::{Failed, MORTAL, Server, body, ensure, kit, test, unique};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

fn main() -> ExitCode {
    let mut tests = vec![test!(two_kills_under_load_lose_nothing)];
    tests.extend(kit::of_the_kit(true, |name| name.contains("restart")));
    common::run(&MORTAL, 1, tests)
}

#[derive(Deserialize)]
struct Made {
    n: u64,
}

impl Message for Made {
    const URN: &'static str = "urn:babel:test:made";
}

/// The server is killed when a third of the messages has been published, and again when a third has
/// been handled; a worker consumes all the while.
async fn two_kills_under_load_lose_nothing(server: Server) -> Result<(), Failed> {
    const MESSAGES: u64 = 1_500;
    for suffix in ["", ".fifo"] {
        let (sqs, queue) = (
            Sqs::open(server.config()?),
            unique(&format!("kills{suffix}")),
        );
        server.create(&queue).await?;
        let (seen, mut called) = mpsc::unbounded_channel();
        let worker = Worker::new(sqs.clone()).queue(&*queue).concurrency(20);
        let worker = worker.handle(move |made: Incoming<Made>| {
            _ = seen.send(made.n);
            std::future::ready(Ok(()))
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(worker.run_until(stopped));
        let publishing = tokio::spawn(publish_all(
            server.clone(),
            sqs.clone(),
            queue.clone(),
            MESSAGES,
        ));

        let (mut missing, mut calls) = ((0..MESSAGES).collect::<BTreeSet<_>>(), 0);
        let mut killed_again = false;
        while !missing.is_empty() {
            let call = tokio::time::timeout(Duration::from_mins(3), called.recv()).await;
            let call = call.map_err(|_| format!("lost: {missing:?}"))?;
            missing.remove(&call.ok_or("the worker ended")?);
            calls += 1;
            if !killed_again && missing.len() as u64 <= MESSAGES / 2 {
                killed_again = true;
                server.kill_and_start().await?;
            }
        }
        publishing.await??;
        drop(stop);
        let stopped = running.await??;
        ensure!(killed_again, "it was killed once only");
        println!(
            "{queue}: {MESSAGES} messages, {calls} calls, two kills: {:?}",
            stopped.counts
        );
        server.delete(&queue).await?;
    }
    Ok(())
}

/// Publishes each until it is confirmed, with a kill after the first third.
async fn publish_all(server: Server, sqs: Sqs, queue: String, count: u64) -> Result<(), Failed> {
    let numbers: Vec<u64> = (0..count).collect();
    for (round, chunk) in numbers.chunks(100).enumerate() {
        if u64::try_from(round)? * 100 == count / 3 {
            server.kill_and_start().await?;
        }
        let mut open: Vec<u64> = chunk.to_vec();
        while !open.is_empty() {
            let batch = open
                .iter()
                .map(|number| Outgoing::new(&*queue, body(*number)));
            let answers = sqs.publish(batch.collect()).await;
            let mut failed = Vec::new();
            for (number, answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(()) => {}
                    Err(error) if error.is_transient() || is_starting(&error) => {
                        failed.push(number);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            open = failed;
            if !open.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    Ok(())
}

/// Whether the server has just started, and does not have its queues again.
fn is_starting(error: &babelqueue_core::Error) -> bool {
    let text = error.to_string();
    text.contains("no queue") || text.contains("QueueDoesNotExist")
}
