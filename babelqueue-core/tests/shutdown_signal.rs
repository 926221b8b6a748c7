//! The stop on a signal (contract §7.9). One test in a process of its own: signals are the whole
//! process's.
#![cfg(unix)]

use std::process::Command;
use std::time::Duration;

use babelqueue_core::memory::Memory;
use babelqueue_core::prelude::*;
use babelqueue_core::worker::StopReason;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

#[derive(Serialize, Deserialize)]
struct Endless {}

impl Message for Endless {
    const URN: &'static str = "urn:test:endless";
}

#[tokio::test]
async fn the_first_signal_stops_it_and_the_second_does_not_wait() {
    let memory = Memory::new();
    let producer = Producer::new(memory.clone());
    producer.publish(&Endless {}).await.expect("published");
    let (started, mut starts) = mpsc::unbounded_channel();
    let worker = Worker::new(memory.clone())
        .shutdown_timeout(Duration::from_mins(10))
        .handle(move |message: Incoming<Endless>| {
            let started = started.clone();
            async move {
                started.send("handling")?;
                message.context().stopping().await;
                started.send("stopping")?;
                std::future::pending::<Result<(), Failure>>().await
            }
        });
    let begun = Instant::now();
    let running = tokio::spawn(worker.run_until(shutdown_signal()));
    assert_eq!(starts.recv().await, Some("handling"));
    signal("TERM");
    assert_eq!(starts.recv().await, Some("stopping"));
    assert!(!running.is_finished(), "the handler may go on");
    signal("INT");
    let stopped = timeout(Duration::from_mins(1), running).await;
    let stopped = stopped.expect("ended").expect("no panic").expect("a stop");
    assert_eq!(stopped.reason, StopReason::Forced);
    assert_eq!((stopped.counts.released, stopped.in_flight), (1, 0));
    assert_eq!(memory.depth("default").ready, 1, "given back");
    assert!(begun.elapsed() < Duration::from_mins(5));
}

/// Sends this process a signal.
fn signal(name: &str) {
    let own = std::process::id().to_string();
    let status = Command::new("kill").args(["-s", name, &own]).status();
    assert!(status.expect("`kill` runs").success());
}
