//! What tests do to a server that would disturb others: one test after the other. They need a hand on
//! the server, and are ignored without it, with the reason.

#![expect(clippy::print_stdout, reason = "they tell what they counted")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/kit.rs"]
mod kit;

mod kills;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use babelqueue_amqp::prelude::*;
use babelqueue_core::test_kit::Consumer;
use babelqueue_core::transport::{Outgoing, Settled, Settlement, Transport as _};
use babelqueue_core::worker::Status;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};

use common::{
    CLOSING, Failed, PATIENCE, SERVERS, Server, Stand, body, ensure, publish, test, unique,
};

fn main() -> ExitCode {
    let mut tests = vec![
        test!(a_late_ack_after_a_reconnect_is_fenced, ctl),
        test!(a_memory_alarm_holds_publishers_back_and_not_acks, ctl),
        test!(copies_that_wait_hold_no_acknowledgement_back, ctl),
        test!(a_handler_of_four_heartbeats_runs_once),
    ];
    tests.extend(kills::tests());
    tests.extend(kit::of_the_kit(true, |name| name.contains("restart")));
    Stand::of(SERVERS.to_vec()).one_by_one().run(&tests)
}

/// How long a confirm may take where the broker will not give it.
const CONFIRM: Duration = Duration::from_secs(10);

/// A busy machine is silent for longer than the shortest that there is.
const HEARTBEAT: Duration = Duration::from_secs(4);

async fn a_late_ack_after_a_reconnect_is_fenced(server: Server) -> Result<(), Failed> {
    let (amqp, queue) = (Amqp::open(server.config()?)?, unique("late"));
    publish(&amqp, &queue, [body(0), body(1)]).await?;
    let mut reader = Consumer::open(&amqp, &queue, 2).await?;
    let (first, second) = (reader.one().await?, reader.one().await?);
    server.ctl(&["close_all_connections", "a test"])?;
    // Nobody receives, and still it shows at once.
    tokio::time::timeout(PATIENCE, first.lost()).await?;
    ensure!(second.is_lost(), "one is lost and the other is not");
    ensure!(!reader.settler.begin(&second), "a lost delivery may begin");

    let (again, other) = (reader.one().await?, reader.one().await?);
    ensure!(
        again.body == body(0) && other.body == body(1),
        "others came again"
    );
    ensure!(
        again.fence.generation > first.fence.generation,
        "the generation did not rise"
    );
    // The same tags as on the new channel: sent, they would acknowledge what is out there now.
    ensure!(
        again.fence.id == first.fence.id,
        "other tags: {again:?} {first:?}"
    );
    let retry = Settlement::Retry {
        body: body(9),
        attempts: 1,
        delay: Duration::ZERO,
    };
    for (late, settlement) in [(&first, Settlement::Ack), (&second, retry)] {
        let answer = reader.settle(late, settlement).await??;
        ensure!(answer == Settled::Fenced, "answered {answer:?}");
    }
    reader.settle(&again, Settlement::release()).await??;
    let again = reader.one().await?;
    reader.ack(&again).await?;
    reader.ack(&other).await?;
    reader.receiver.close(CLOSING).await?;
    let bare = server.bare().await?;
    let left = bare.ready(&queue).await?;
    ensure!(left == Some(0), "{left:?} are left");
    bare.delete(&queue).await
}

async fn a_memory_alarm_holds_publishers_back_and_not_acks(server: Server) -> Result<(), Failed> {
    let queue = unique("alarm");
    // Shorter than the alarm: the time must stand still in it.
    let config = server.config()?.confirm_timeout(CONFIRM)?;
    let amqp = Amqp::open(config)?;
    publish(&amqp, &queue, (0..10).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(reader.one().await?);
    }
    let waiting = in_alarm(&server, blocked(&amqp, &queue, &mut reader, &held)).await?;
    let published = tokio::time::timeout(PATIENCE, waiting).await??;
    ensure!(published.iter().all(Result::is_ok), "{published:?}");
    // The retry that got no confirm was given back.
    let mut left = Vec::new();
    for _ in 0..4 {
        let delivery = reader.one().await?;
        reader.ack(&delivery).await?;
        left.push(delivery.body.clone());
    }
    left.sort();
    let expected = [body(100), body(101), body(102), body(9)];
    ensure!(left == expected, "left: {left:?}");
    reader.receiver.close(CLOSING).await?;
    server.bare().await?.delete(&queue).await
}

/// Has the server in a memory alarm until this is done.
async fn in_alarm<T>(
    server: &Server,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let before = server.ctl(&["eval", "vm_memory_monitor:get_vm_memory_high_watermark()."])?;
    server.ctl(&["set_vm_memory_high_watermark", "0.000001"])?;
    let outcome = work.await;
    server.ctl(&["set_vm_memory_high_watermark", before.trim()])?;
    outcome
}

/// How many messages the server has of a queue, those that are out included.
fn held_for(server: &Server, queue: &str) -> Result<u64, Failed> {
    let listed = server.ctl(&[
        "list_queues",
        "--quiet",
        "--no-table-headers",
        "name",
        "messages",
    ])?;
    let of = listed.lines().find_map(|line| line.strip_prefix(queue));
    Ok(of.ok_or("no such queue")?.trim().parse()?)
}

type Published = Vec<Result<(), babelqueue_core::Error>>;

/// While the alarm is on: acknowledgements pass, a publish waits, a copy does not hold up for ever.
async fn blocked(
    amqp: &Amqp,
    queue: &str,
    reader: &mut Consumer,
    held: &[Arc<babelqueue_core::transport::Delivery>],
) -> Result<tokio::task::JoinHandle<Published>, Failed> {
    // The broker blocks who publishes, when he does.
    let batch = (100..103)
        .map(|number| Outgoing::new(queue, body(number)))
        .collect();
    let publisher = amqp.clone();
    let waiting = tokio::spawn(async move { publisher.publish(batch).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    for delivery in &held[..9] {
        reader.ack(delivery).await?;
    }
    let retry = Settlement::Retry {
        body: body(9),
        attempts: 1,
        delay: Duration::ZERO,
    };
    let settled = tokio::time::timeout(PATIENCE, reader.settle(&held[9], retry));
    let answer = settled.await.map_err(|_| "a copy holds up for ever")??;
    ensure!(
        answer.is_err(),
        "a copy was confirmed in an alarm: {answer:?}"
    );
    let again = reader.one().await?;
    ensure!(again.body == body(9), "it was not given back");
    reader.settle(&again, Settlement::release()).await??;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(!waiting.is_finished(), "a publish did not wait");
    Ok(waiting)
}

/// In the alarm the broker takes no copies, and it is the worker's acknowledgements that end it. There
/// are more copies than settle calls, each in a call of its own.
async fn copies_that_wait_hold_no_acknowledgement_back(server: Server) -> Result<(), Failed> {
    const COPIES: u32 = 70;
    const OTHERS: u32 = 20;
    let (queue, elsewhere) = (unique("waiting"), unique("elsewhere"));
    let config = server.config()?.confirm_timeout(2 * PATIENCE)?;
    let amqp = Amqp::open(config)?;
    let producer = Producer::new(amqp.clone()).queue(&*queue);
    for n in 0..COPIES + OTHERS {
        producer.publish(&Numbered { n: n.into() }).await?;
    }
    let failed = Arc::new(Semaphore::new(0));
    let all_failed = Arc::clone(&failed);
    let worker = Worker::new(amqp.clone())
        .queue(&*queue)
        .concurrency(64)
        .retry(Retry::attempts(2).backoff(Duration::ZERO, 1.0));
    let mut state = worker.watch();
    let settling = state.clone();
    let worker = worker.handle(move |message: Incoming<Numbered>| {
        let failed = Arc::clone(&failed);
        let mut settling = settling.clone();
        async move {
            if message.n < COPIES.into() && message.attempt() == 1 {
                // When those before it are being settled, so that each has its own call.
                let before = |now: &Status| now.settling as u64 >= message.n;
                settling.wait_for(before).await?;
                failed.add_permits(1);
                return Err(Failure::msg("once more"));
            }
            // Its settlement comes after the copies'.
            let _all = failed.acquire_many(COPIES).await?;
            Ok(())
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let seen = in_alarm(&server, async {
        // The broker blocks who publishes, when he does.
        let publisher = amqp.clone();
        let batch = vec![Outgoing::new(&*elsewhere, body(0))];
        let blocked = tokio::spawn(async move { publisher.publish(batch).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let running = tokio::spawn(worker.run_until(stopped));
        // To ask the server blocks the thread.
        drop(tokio::time::timeout(PATIENCE, all_failed.acquire_many(COPIES)).await??);
        let waits = tokio::time::timeout(Duration::from_secs(30), async {
            while held_for(&server, &queue)? > COPIES.into() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok::<_, Failed>(())
        });
        waits.await.map_err(|_| "the copies hold others back")??;
        ensure!(
            state.borrow().counts.retried == 0,
            "a copy was confirmed in an alarm"
        );
        Ok((blocked, running))
    });
    let (blocked, running) = seen.await?;
    ensure!(blocked.await?.iter().all(Result::is_ok), "a publish failed");
    let all = state.wait_for(|now| now.counts.handled == u64::from(COPIES + OTHERS));
    tokio::time::timeout(PATIENCE, all).await??;
    drop(stop);
    let counts = running.await??.counts;
    ensure!(counts.retried == u64::from(COPIES), "{counts:?}");
    let bare = server.bare().await?;
    bare.delete(&elsewhere).await?;
    bare.delete(&queue).await
}

#[derive(Serialize, Deserialize)]
struct Numbered {
    n: u64,
}

impl Message for Numbered {
    const URN: &'static str = "urn:babel:test:numbered";
}

async fn a_handler_of_four_heartbeats_runs_once(server: Server) -> Result<(), Failed> {
    let queue = unique("heartbeats");
    let config = server.config()?.heartbeat(HEARTBEAT)?;
    let amqp = Amqp::open(config)?;
    Producer::new(amqp.clone())
        .queue(&*queue)
        .publish(&Numbered { n: 1 })
        .await?;
    let (runs, done) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counted, finished) = (runs.clone(), done.clone());
    let worker = Worker::new(amqp)
        .queue(&*queue)
        .handle(move |message: Incoming<Numbered>| {
            let (counted, finished) = (counted.clone(), finished.clone());
            async move {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(4 * HEARTBEAT + HEARTBEAT / 4).await;
                let kept = message.n == 1 && !message.context().is_lost();
                finished.notify_one();
                if kept {
                    Ok(())
                } else {
                    Err(Failure::msg("the connection was lost"))
                }
            }
        });
    worker
        .run_until(async move { done.notified().await })
        .await?;
    let runs = runs.load(Ordering::SeqCst);
    ensure!(runs == 1, "it ran {runs} times");
    let bare = server.bare().await?;
    let left = bare.ready(&queue).await?;
    ensure!(left == Some(0), "{left:?} are left");
    bare.delete(&queue).await
}
