//! What does not pass ends a worker, and what passes does not lose a message. Answers that the server
//! does not give come from a listener of ours in front of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Region};
use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, SubscribeOptions, Transport as _};
use babelqueue_sqs::aws_sdk_sqs;
use babelqueue_sqs::prelude::*;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::common::front::{Front, Request, Verdict};
use crate::common::{Failed, Server, Test, body, ensure, publish, quick, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_queue_that_is_not_there_is_refused),
        test!(a_batch_asks_once_for_a_queue_that_is_not_there),
        test!(a_dead_letter_queue_is_looked_for_at_the_start),
        test!(a_queue_that_is_away_for_a_moment_ends_no_worker),
        test!(a_queue_that_is_deleted_ends_the_worker),
        test!(a_right_that_is_missing_ends_the_worker),
        test!(wrong_credentials_end_the_worker),
        test!(throttling_and_failures_lose_nothing),
        test!(an_endpoint_that_is_away_passes),
        test!(no_region_is_said_clearly),
        test!(without_credentials_it_does_not_go_on),
    ]
}

#[derive(Deserialize)]
struct Made {
    n: u64,
}

impl Message for Made {
    const URN: &'static str = "urn:babel:test:made";
}

async fn a_queue_that_is_not_there_is_refused(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("none"));
    let published = sqs.publish(vec![Outgoing::new(&*queue, body(1))]).await;
    let subscribed = sqs
        .subscribe(&queue, SubscribeOptions::with_prefetch(1))
        .await;
    let run = worker(&sqs, &queue, |_| {}).run_until(std::future::pending::<()>());
    let ran = tokio::time::timeout(Duration::from_mins(1), run).await?;
    for error in [
        published.into_iter().next(),
        Some(subscribed.map(|_| ())),
        Some(ran.map(|_| ())),
    ] {
        let error = error.ok_or("no answer")?.err().ok_or("it is there")?;
        let text = error.to_string();
        ensure!(matches!(error, Error::Refused { .. }), "{error:?}");
        ensure!(text.contains(&format!("no queue `{queue}`")), "{text}");
    }
    Ok(())
}

async fn a_batch_asks_once_for_a_queue_that_is_not_there(server: Server) -> Result<(), Failed> {
    let front = Front::start(Some(server.address()?), |_| Verdict::Forward).await?;
    let (sqs, none, queue) = (
        Sqs::open(quick(&front.url())?),
        unique("none"),
        unique("there"),
    );
    server.create(&queue).await?;
    let batch = (0..40).map(|number| {
        let to = if number % 2 == 0 { &none } else { &queue };
        Outgoing::new(&**to, body(number))
    });
    let published = sqs.publish(batch.collect()).await;
    for (at, result) in published.into_iter().enumerate() {
        let refused = matches!(result, Err(Error::Refused { .. }));
        ensure!(refused == (at % 2 == 0), "{at}: {result:?}");
    }
    let asked = front.count("GetQueueUrl");
    ensure!(asked == 2, "it asked {asked} times for two queues");
    server.delete(&queue).await
}

async fn a_dead_letter_queue_is_looked_for_at_the_start(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("without"));
    server.create(&queue).await?;
    let worker = worker(&sqs, &queue, |_| {}).dead_letter(true);
    let run = worker.run_until(std::future::pending::<()>());
    let error = tokio::time::timeout(Duration::from_mins(1), run)
        .await?
        .err();
    let text = error.ok_or("it ran")?.to_string();
    ensure!(text.contains(&format!("no queue `{queue}-dlq`")), "{text}");
    server.delete(&queue).await
}

/// As the emulator answers in the moment between its start and its queues.
async fn a_queue_that_is_away_for_a_moment_ends_no_worker(server: Server) -> Result<(), Failed> {
    const AWAY: usize = 4;
    let queue = unique("away");
    server.create(&queue).await?;
    let asked = AtomicUsize::new(0);
    let front = Front::start(Some(server.address()?), move |request| {
        let is_receive = request.action == "ReceiveMessage";
        if is_receive && asked.fetch_add(1, Ordering::Relaxed) < AWAY {
            return refusal("QueueDoesNotExist", 400);
        }
        Verdict::Forward
    })
    .await?;
    let sqs = Sqs::open(quick(&front.url())?);
    let (seen, mut called) = mpsc::unbounded_channel();
    let worker = worker(&sqs, &queue, move |n| _ = seen.send(n));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(stopped));
    publish(&sqs, &queue, [body(7)]).await?;
    let call = tokio::time::timeout(Duration::from_mins(1), called.recv()).await?;
    ensure!(call == Some(7), "the worker ended: {call:?}");
    let asked = front.count("ReceiveMessage");
    ensure!(asked > AWAY, "it was asked {asked} times");
    drop(stop);
    running.await??;
    server.delete(&queue).await
}

async fn a_queue_that_is_deleted_ends_the_worker(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("deleted"));
    server.create(&queue).await?;
    let (seen, mut called) = mpsc::unbounded_channel();
    let worker = worker(&sqs, &queue, move |n| _ = seen.send(n));
    let running = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    publish(&sqs, &queue, [body(7)]).await?;
    let call = tokio::time::timeout(Duration::from_mins(1), called.recv()).await?;
    ensure!(call == Some(7), "the worker ended: {call:?}");
    server.delete(&queue).await?;
    let ended = tokio::time::timeout(Duration::from_mins(1), running).await??;
    let error = ended.err().ok_or("it ended well")?;
    ensure!(matches!(error, Error::Refused { .. }), "{error:?}");
    let text = error.to_string();
    ensure!(text.contains(&format!("no queue `{queue}`")), "{text}");
    Ok(())
}

async fn a_right_that_is_missing_ends_the_worker(server: Server) -> Result<(), Failed> {
    ends_with(server, "AccessDeniedException", 400).await
}

async fn wrong_credentials_end_the_worker(server: Server) -> Result<(), Failed> {
    ends_with(server, "InvalidClientTokenId", 403).await
}

/// Receives are answered with this error; attributes may not be read, which does no harm.
async fn ends_with(server: Server, code: &'static str, status: u16) -> Result<(), Failed> {
    let queue = unique("denied");
    server.create(&queue).await?;
    let front = Front::start(Some(server.address()?), move |request| {
        match request.action.as_str() {
            "GetQueueAttributes" => refusal("AccessDeniedException", 400),
            "ReceiveMessage" => refusal(code, status),
            _ => Verdict::Forward,
        }
    })
    .await?;
    let sqs = Sqs::open(quick(&front.url())?);
    let run = worker(&sqs, &queue, |_| {}).run_until(std::future::pending::<()>());
    let error = tokio::time::timeout(Duration::from_mins(1), run)
        .await?
        .err();
    let error = error.ok_or("it ran")?;
    ensure!(matches!(error, Error::Refused { .. }), "{error:?}");
    ensure!(error.to_string().contains(code), "{error}");
    let asked = front.count("ReceiveMessage");
    ensure!(asked == 1, "it was asked {asked} times");
    server.delete(&queue).await
}

fn refusal(code: &str, status: u16) -> Verdict {
    let json =
        serde_json::json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "no" });
    Verdict::Answer(status, json.to_string())
}

/// Of four requests one is throttled, one is answered 503, and of those that send, receive or delete
/// every ninth is carried out with its answer lost.
async fn throttling_and_failures_lose_nothing(server: Server) -> Result<(), Failed> {
    const MESSAGES: u64 = 300;
    let queue = unique("throttled");
    server.create(&queue).await?;
    let count = AtomicU32::new(0);
    let judge = move |_: &Request| match count.fetch_add(1, Ordering::Relaxed) {
        n if n % 9 == 8 => Verdict::Lose,
        n if n % 4 == 1 => refusal("ThrottlingException", 400),
        n if n % 4 == 2 => refusal("ServiceUnavailable", 503),
        _ => Verdict::Forward,
    };
    let front = Front::start(Some(server.address()?), judge).await?;
    let sqs = Sqs::open(quick(&front.url())?);
    let mut open: BTreeSet<u64> = (0..MESSAGES).collect();
    while !open.is_empty() {
        let numbers: Vec<_> = open.iter().copied().collect();
        let batch = numbers.iter().map(|n| Outgoing::new(&*queue, body(*n)));
        let answers = sqs.publish(batch.collect()).await;
        for (number, answer) in numbers.into_iter().zip(answers) {
            match answer {
                Ok(()) => _ = open.remove(&number),
                Err(error) => ensure!(error.is_transient(), "{error:?}"),
            }
        }
    }
    let (seen, mut called) = mpsc::unbounded_channel();
    let worker = worker(&sqs, &queue, move |n| _ = seen.send(n)).concurrency(20);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(stopped));
    let mut missing: BTreeSet<u64> = (0..MESSAGES).collect();
    while !missing.is_empty() {
        let call = tokio::time::timeout(Duration::from_mins(2), called.recv()).await;
        let call = call.map_err(|_| format!("lost: {missing:?}"))?;
        missing.remove(&call.ok_or("the worker ended")?);
    }
    drop(stop);
    running.await??;
    server.delete(&queue).await
}

async fn an_endpoint_that_is_away_passes(_: Server) -> Result<(), Failed> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("sqs://us-east-1?endpoint=http://{}", listener.local_addr()?);
    drop(listener);
    let sqs = Sqs::open(quick(&url)?);
    let answer = publish(&sqs, "orders", [body(1)]).await;
    let error = answer.err().ok_or("somebody answers")?;
    let error = error.downcast::<Error>().map_err(|_| "another error")?;
    ensure!(error.is_transient(), "{error:?}");
    Ok(())
}

async fn no_region_is_said_clearly(_: Server) -> Result<(), Failed> {
    let config = Config::from_url("sqs://?endpoint=http://127.0.0.1:9")?;
    let sqs = Sqs::open(config.credentials(crate::common::credentials()));
    let checked = sqs.check("orders").await;
    if std::env::var_os("AWS_REGION").is_some() || std::env::var_os("AWS_DEFAULT_REGION").is_some()
    {
        return Ok(());
    }
    let error = checked.err().ok_or("there is one")?;
    ensure!(error.to_string().contains("`region`"), "{error}");
    Ok(())
}

/// Nobody had any: refused. Somebody could not be asked: that passes.
async fn without_credentials_it_does_not_go_on(_: Server) -> Result<(), Failed> {
    for (says, passes) in [
        (CredentialsError::not_loaded as fn(&'static str) -> _, false),
        (CredentialsError::provider_error, true),
    ] {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Nobody(says))
            .retry_config(RetryConfig::disabled())
            .endpoint_url("http://127.0.0.1:9");
        let client = aws_sdk_sqs::Client::from_conf(config.build());
        let sqs = Sqs::open(Config::new().client(client));
        let error = sqs.check("orders").await.err().ok_or("it went on")?;
        ensure!(error.is_transient() == passes, "{error:?}");
        ensure!(error.to_string().contains("nobody"), "{error}");
    }
    Ok(())
}

/// A provider that has no credentials, and says so in this way.
#[derive(Debug)]
struct Nobody(fn(&'static str) -> CredentialsError);

impl ProvideCredentials for Nobody {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err((self.0)("nobody")))
    }
}

fn worker(sqs: &Sqs, queue: &str, seen: impl Fn(u64) + Send + Sync + 'static) -> Worker {
    let seen = Arc::new(seen);
    Worker::new(sqs.clone())
        .queue(queue)
        .handle(move |made: Incoming<Made>| {
            seen(made.n);
            std::future::ready(Ok(()))
        })
}
