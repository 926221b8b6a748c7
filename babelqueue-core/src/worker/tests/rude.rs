//! What panics, fails or never waits where nothing of the kind is expected.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::flow::Stage;
use super::script::{Job, Script, settle_down};
use crate::clock::Clock;
use crate::envelope::Envelope;
use crate::handler::Failure;
use crate::idempotency::{Idempotent, MemoryStore};
use crate::memory::Memory;
use crate::prelude::*;
use crate::transport::Settlement;
use crate::worker::{Counts, Worker};

const SECOND: Duration = Duration::from_secs(1);

/// Panics when it is dropped, with a payload that does the same.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

#[derive(Debug, Clone, Copy)]
enum Manner {
    DisplayPanics,
    DisplayFails,
    SourcePanics,
    DropPanics,
    OwnSource,
}

/// An error that behaves like that.
#[derive(Debug)]
struct Rude(Manner);

impl fmt::Display for Rude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rude")?;
        match self.0 {
            Manner::DisplayPanics => panic!("in Display"),
            Manner::DisplayFails => Err(fmt::Error),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Rude {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.0 {
            Manner::SourcePanics => panic!("in source"),
            Manner::OwnSource => Some(self),
            _ => None,
        }
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        if let Manner::DropPanics = self.0 {
            drop(Bomb);
        }
    }
}

/// Ready at once; panics when it is dropped.
struct Left(Option<Failure>, Bomb);

impl Future for Left {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.0.take().map_or(Ok(()), Err))
    }
}

/// Has one message handled for an hour: three times at most, ten seconds between. Gives when it was
/// started, the counts, and what stands in the dead-letter record.
async fn hour<F, R>(
    set_up: impl FnOnce(Worker) -> Worker,
    handler: F,
) -> (Vec<Duration>, Counts, Option<String>)
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let memory = Memory::new();
    let producer = Producer::new(memory.clone());
    producer.publish(&Job { id: 1 }).await.unwrap();
    let start = Instant::now();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&starts);
    let worker = Worker::new(memory.clone())
        .retry(Retry::attempts(3).backoff(10 * SECOND, 1.0))
        .dead_letter(true)
        .handle(move |_: Incoming<Job>| {
            seen.lock().unwrap().push(start.elapsed());
            handler()
        });
    let stopped = set_up(worker)
        .run_until(sleep(3600 * SECOND))
        .await
        .unwrap();
    let dead = memory.snapshot("default.dlq").ready.pop();
    let error = dead.and_then(|dead| {
        let envelope = Envelope::decode(dead.body).unwrap().envelope;
        Some(envelope.dead_letter()?.error?.into_owned())
    });
    let starts = starts.lock().unwrap().clone();
    (starts, stopped.counts, error)
}

/// It failed like any other: counted, after its back-off each time, dead-lettered at the end.
fn assert_failed((starts, counts, error): (Vec<Duration>, Counts, Option<String>), text: &str) {
    let seconds: Vec<u64> = starts.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [0, 10, 20], "{text}");
    assert_eq!((counts.retried, counts.dead_lettered), (2, 1), "{text}");
    assert_eq!(counts.received, 3, "{text}");
    let error = error.expect("a record with an error");
    assert!(error.contains(text), "{error} has {text}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_whose_payload_panics_is_a_failure() {
    let handler = || async { std::panic::panic_any(Bomb) };
    assert_failed(hour(|worker| worker, handler).await, "the handler panicked");
}

#[tokio::test(start_paused = true)]
async fn it_gives_its_claim_up_too() {
    let handler = || async { std::panic::panic_any(Bomb) };
    let once = Idempotent::new(Arc::new(MemoryStore::new())).exclusive(Duration::MAX);
    let ended = hour(|worker| worker.layer(once), handler).await;
    assert_failed(ended, "the handler panicked");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_rude_is_a_failure() {
    for (manner, text) in [
        (
            Manner::DisplayPanics,
            "rude(the rest of the error's text could not be had: it panicked)",
        ),
        (Manner::DisplayFails, "its Display failed"),
        (Manner::SourcePanics, "it panicked"),
        (Manner::DropPanics, "rude"),
        (Manner::OwnSource, "rude"),
    ] {
        let handler = move || async move { Err(Rude(manner).into()) };
        assert_failed(hour(|worker| worker, handler).await, text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_panics_when_it_is_dropped_has_failed() {
    let handler = || Left(None, Bomb);
    assert_failed(hour(|worker| worker, handler).await, "the handler panicked");
    let handler = || Left(Some(Rude(Manner::DropPanics).into()), Bomb);
    assert_failed(hour(|worker| worker, handler).await, "the handler panicked");
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_panics_counts_as_a_failure() {
    let script = Script::new();
    script.break_begin(1);
    let stage = Stage::start(script, |worker| worker);
    stage.script.jobs([1, 2]);
    settle_down().await;
    let settled = stage.script.state().settled();
    assert!(
        matches!(settled[..], [(1, Settlement::Retry { attempts: 1, .. })]),
        "{settled:?}"
    );
    assert_eq!(stage.gates.started(), [2], "the worker goes on");
}

/// Nothing can be decided without it.
#[derive(Debug)]
pub(super) struct BrokenClock;

impl Clock for BrokenClock {
    fn unix_time(&self) -> Duration {
        panic!("no time")
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decided_comes_again_and_not_at_once() {
    let clock = Arc::new(BrokenClock);
    let handler = || async { Err(Failure::msg("no")) };
    let (starts, counts, _) = hour(|worker| worker.clock(clock), handler).await;
    let runs = starts.len();
    assert!((100..1000).contains(&runs), "{runs} in an hour");
    assert_eq!(counts.released, counts.received, "{counts:?}");
    let pause = starts[1].saturating_sub(starts[0]);
    assert!(pause < SECOND, "not for long at first");
}

#[tokio::test(start_paused = true)]
async fn nor_is_it_kept_for_ever_where_its_handler_blocks() {
    let script = Script::new();
    script.jobs([1]);
    let worker = Worker::new(script.clone())
        .clock(Arc::new(BrokenClock))
        .handle_blocking(|_: Incoming<Job>| Err::<(), _>(Failure::msg("no")));
    let stopped = worker.run_until(sleep(SECOND)).await.unwrap();
    assert_eq!((stopped.in_flight, stopped.counts.released), (0, 1));
    assert_eq!(script.state().settled(), [(1, Settlement::release())]);
}

/// On one thread, where nobody else would get a turn.
#[test]
fn a_receiver_that_gives_nothing_and_never_waits_leaves_the_others_their_turn() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let script = Script::new();
        script.never_wait();
        let worker = Worker::new(script).handle(|_: Incoming<Job>| async { Ok(()) });
        let stop = async { sleep(Duration::from_millis(20)).await };
        let stopped = runtime.block_on(worker.run_until(stop));
        ended.send(stopped.is_ok()).unwrap();
    });
    let well = end.recv_timeout(Duration::from_mins(1));
    assert!(well.expect("the stop is never heard"));
}
