//! Leases, groups that wait, and queues that take poison away by themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_sqs::types::QueueAttributeName;
use babelqueue_core::redrive::Redrive;
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Outgoing, PublishOptions, Settled, Settlement, Transport as _};
use babelqueue_core::worker::Stopped;
use babelqueue_sqs::aws_sdk_sqs;
use babelqueue_sqs::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::common::front::{Front, Verdict};
use crate::common::{
    CLOSING, Failed, LEASE, Server, Test, body, ensure, publish, quick, test, unique,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_handler_of_three_visibility_timeouts_runs_once),
        test!(a_group_waits_for_its_head_and_is_not_counted_for_it),
        test!(a_redriven_message_whose_id_is_known_arrives),
        test!(a_redrive_policy_takes_poison_away),
        test!(a_delete_that_was_lost_sight_of_is_made_again),
        test!(a_message_takes_a_third_of_a_request),
    ]
}

#[derive(Serialize, Deserialize)]
struct Made {
    n: u64,
}

impl Message for Made {
    const URN: &'static str = "urn:babel:test:made";
}

/// A worker under way, and how it is told to stop.
struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<Stopped, babelqueue_core::Error>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run_until(stopped));
        Self { stop, task }
    }

    async fn stop(self) -> Result<Stopped, Failed> {
        drop(self.stop);
        Ok(self.task.await??)
    }
}

async fn a_handler_of_three_visibility_timeouts_runs_once(server: Server) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("slow"));
    server.create(&queue).await?;
    publish(&sqs, &queue, [body(1), body(2)]).await?;
    let (calls, mut called) = mpsc::unbounded_channel();
    let worker = || {
        let calls = calls.clone();
        Worker::new(sqs.clone())
            .queue(&*queue)
            .concurrency(1)
            .handle(move |made: Incoming<Made>| {
                let calls = calls.clone();
                async move {
                    tokio::time::sleep(LEASE * 3).await;
                    _ = calls.send((made.n, made.attempt()));
                    Ok(())
                }
            })
    };
    // A second worker would take what the first lost.
    let (one, two) = (Running::start(worker()), Running::start(worker()));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let call = tokio::time::timeout(Duration::from_mins(1), called.recv()).await?;
        seen.extend(call);
    }
    let (one, two) = (one.stop().await?, two.stop().await?);
    while let Ok(call) = called.try_recv() {
        seen.push(call);
    }
    seen.sort_unstable();
    ensure!(seen == [(1, 1), (2, 1)], "{seen:?}");
    let handled = one.counts.handled + two.counts.handled;
    ensure!(handled == 2, "{one:?} {two:?}");
    server.delete(&queue).await
}

/// The head fails seven times; what is behind it comes after it, in order, and has gone back with it
/// only as often as more had been asked for before it failed.
async fn a_group_waits_for_its_head_and_is_not_counted_for_it(
    server: Server,
) -> Result<(), Failed> {
    let (sqs, queue) = (Sqs::open(server.config()?), unique("waits.fifo"));
    server.create(&queue).await?;
    publish(&sqs, &queue, (0..6).map(body)).await?;
    let calls: Arc<Mutex<Vec<(u64, u32)>>> = Arc::default();
    let (done, mut finished) = mpsc::unbounded_channel();
    let seen = calls.clone();
    let worker = Worker::new(sqs.clone())
        .queue(&*queue)
        .concurrency(8)
        .retry(Retry::attempts(9))
        .handle(move |made: Incoming<Made>| {
            let (n, attempt) = (made.n, made.attempt());
            seen.lock().expect("no panic").push((n, attempt));
            let done = done.clone();
            async move {
                if n == 0 && attempt < 8 {
                    return Err(Failure::msg("not yet"));
                }
                _ = done.send(n);
                Ok(())
            }
        });
    let running = Running::start(worker);
    let mut order = Vec::new();
    for _ in 0..6 {
        order.extend(tokio::time::timeout(Duration::from_mins(1), finished.recv()).await?);
    }
    running.stop().await?;
    let calls = calls.lock().map_err(|_| "poisoned")?.clone();
    ensure!(order == [0, 1, 2, 3, 4, 5], "{order:?}: {calls:?}");
    let behind = calls.iter().filter(|(n, _)| *n > 0);
    let attempts: BTreeMap<_, _> = behind.copied().collect();
    ensure!(
        attempts.values().all(|attempt| *attempt <= 3),
        "what waited was counted: {calls:?}"
    );
    server.delete(&queue).await
}

/// Its own deduplication id is known in the queue that it goes back to (contract §13.4).
async fn a_redriven_message_whose_id_is_known_arrives(server: Server) -> Result<(), Failed> {
    let sqs = Sqs::open(server.config()?);
    let stem = unique("again");
    let (queue, dead) = (format!("{stem}.fifo"), format!("{stem}-dlq.fifo"));
    for queue in [&dead, &queue] {
        server.create(queue).await?;
    }
    let mut outgoing = Outgoing::new(&*queue, body(1));
    outgoing.options = PublishOptions::new().group("north");
    sqs.publish(vec![outgoing]).await.remove(0)?;
    for round in 0..2 {
        let mut reader = Consumer::open(&sqs, &queue, 1).await?;
        let delivery = reader.one().await?;
        let settlement = Settlement::DeadLetter {
            queue: dead.as_str().into(),
            record: delivery.body.clone(),
            verbatim: false,
            attempts: 3,
        };
        let answer = reader.settle(&delivery, settlement).await??;
        ensure!(answer == Settled::Done, "round {round}: {answer:?}");
        reader.receiver.close(CLOSING).await?;
        let redrive = Redrive::new(sqs.clone(), dead.as_str()).to_queue(queue.as_str());
        let report = redrive
            .first_idle(Duration::from_secs(30))
            .idle(Duration::from_secs(2))
            .run()
            .await?;
        ensure!(report.summary.redriven == 1, "round {round}: {report:?}");
    }
    let mut reader = Consumer::open(&sqs, &queue, 1).await?;
    let delivery = reader.one().await?;
    ensure!(delivery.body == body(1), "{delivery:?}");
    let lane = delivery.lane.as_ref().map(|lane| lane.key.clone());
    ensure!(lane.as_deref() == Some(b"north"), "{lane:?}");
    reader.ack(&delivery).await?;
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await?;
    server.delete(&dead).await
}

/// With dead-lettering off poison is left to the queue's own policy, on a FIFO queue too.
async fn a_redrive_policy_takes_poison_away(server: Server) -> Result<(), Failed> {
    for suffix in ["", ".fifo"] {
        let stem = unique("policy");
        let (queue, native) = (format!("{stem}{suffix}"), format!("{stem}-native{suffix}"));
        server.create(&native).await?;
        let policy = format!(
            r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{native}","maxReceiveCount":"2"}}"#
        );
        let policy = [(QueueAttributeName::RedrivePolicy, policy.as_str())];
        server.create_with(&queue, &policy).await?;
        let sqs = Sqs::open(server.config()?);
        publish(&sqs, &queue, ["poison".into(), body(1)]).await?;
        let (calls, mut called) = mpsc::unbounded_channel();
        let worker = Worker::new(sqs.clone()).queue(&*queue).concurrency(1);
        let worker = worker.handle(move |made: Incoming<Made>| {
            _ = calls.send(made.n);
            std::future::ready(Ok(()))
        });
        let running = Running::start(worker);
        let call = tokio::time::timeout(Duration::from_mins(1), called.recv()).await?;
        ensure!(call == Some(1), "{call:?}");
        let mut reader = Consumer::open(&sqs, &native, 1).await?;
        let taken = reader.one().await?;
        ensure!(taken.body == "poison", "{taken:?}");
        reader.ack(&taken).await?;
        reader.receiver.close(CLOSING).await?;
        running.stop().await?;
        server.delete(&queue).await?;
        server.delete(&native).await?;
    }
    Ok(())
}

/// A listener of ours lets the first delete through and its answer not.
async fn a_delete_that_was_lost_sight_of_is_made_again(server: Server) -> Result<(), Failed> {
    let queue = unique("unseen");
    server.create(&queue).await?;
    let lost = std::sync::atomic::AtomicBool::new(false);
    let front = Front::start(Some(server.address()?), move |request| {
        let is_delete = request.action == "DeleteMessageBatch";
        if is_delete && !lost.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Verdict::Lose;
        }
        Verdict::Forward
    })
    .await?;
    let sqs = Sqs::open(quick(&front.url())?);
    publish(&sqs, &queue, [body(1)]).await?;
    let mut reader = Consumer::open(&sqs, &queue, 1).await?;
    let delivery = reader.one().await?;
    let answer = reader.settle(&delivery, Settlement::Ack).await??;
    // AWS deletes what is deleted already; this server says that the handle is good no more.
    ensure!(
        matches!(answer, Settled::Done | Settled::Fenced),
        "{answer:?}"
    );
    ensure!(
        front.count("DeleteMessageBatch") == 2,
        "it was not made again"
    );
    let quiet = tokio::time::timeout(LEASE + Duration::from_secs(2), reader.receiver.receive(1));
    ensure!(quiet.await.is_err(), "it came again");
    reader.receiver.close(CLOSING).await?;
    server.delete(&queue).await
}

/// Counted by a listener of ours: send, receive and delete at full batches.
async fn a_message_takes_a_third_of_a_request(server: Server) -> Result<(), Failed> {
    const MESSAGES: u64 = 2_000;
    let queue = unique("requests");
    server.create(&queue).await?;
    let front = Front::start(Some(server.address()?), |_| Verdict::Forward).await?;
    // Leases long enough to need no renewal.
    let config = quick(&front.url())?.visibility_timeout(Duration::from_mins(10))?;
    let sqs = Sqs::open(config);
    publish(&sqs, &queue, (0..MESSAGES).map(body)).await?;

    let (done, mut finished) = mpsc::unbounded_channel();
    let worker = Worker::new(sqs).queue(&*queue).concurrency(100);
    let worker = worker.handle(move |made: Incoming<Made>| {
        _ = done.send(made.n);
        std::future::ready(Ok(()))
    });
    let begun = Instant::now();
    let running = Running::start(worker);
    for _ in 0..MESSAGES {
        tokio::time::timeout(Duration::from_mins(2), finished.recv()).await?;
    }
    let took = begun.elapsed();
    running.stop().await?;
    let counts = ["SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"]
        .map(|action| front.count(action));
    let sum = u32::try_from(counts.iter().sum::<usize>())?;
    let each = f64::from(sum) / f64::from(u32::try_from(MESSAGES)?);
    println!("{each:.3} requests a message: {counts:?} for {MESSAGES}, consumed in {took:?}");
    let is_cheap = each <= 0.35;
    ensure!(is_cheap, "{each:.3} requests a message: {counts:?}");
    server.delete(&queue).await
}
