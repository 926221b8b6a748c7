//! What every transport must do, as a suite (unstable).
//!
//! A rule that holds for all brokers is tested here once. A crate that implements a
//! [`Transport`] writes one [`Fixture`] and runs [`tests`] against a live broker; a test is there
//! only where the fixture's [`Capabilities`] claim what it is about.
//!
//! ```no_run
//! use babelqueue_core::test_kit::{Fixture, tests};
//!
//! # fn run(my_fixture: impl Fixture) {
//! // One trial per test, for instance under `libtest_mimic`:
//! for test in tests(my_fixture) {
//!     println!("{}", test.name());            // `settle/retry_keeps_headers`
//!     test.run_blocking().unwrap();
//! }
//! # }
//! ```
//!
//! The tests never sleep for a fixed time in the hope that something has happened by then: they
//! wait for what they expect, for as long as [`Fixture::patience`] allows. Each makes queues with
//! random names, so that runs don't meet.

mod consumer;
mod fixture;
mod lanes;
mod leases;
mod lifecycle;
mod poison;
mod publish;
mod receive;
mod redrive;
mod settle;
pub mod simulation;
mod stage;
#[cfg(test)]
mod tests;
mod workers;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use self::stage::Stage;
use crate::transport::{Capabilities, Transport};

pub use consumer::Consumer;
pub use fixture::Fixture;

/// Why a test failed, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

/// What a test gives.
type Outcome = Result<(), Failed>;
type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// The tests for this fixture: those whose capability it claims, in a fixed order.
pub fn tests(fixture: impl Fixture) -> Vec<Test> {
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    let capabilities = fixture.capabilities();
    all()
        .into_iter()
        .filter(|entry| (entry.applies)(&capabilities, &*fixture))
        .map(|entry| Test {
            entry,
            fixture: Arc::clone(&fixture),
        })
        .collect()
}

/// One test of the suite, ready to run.
pub struct Test {
    entry: Entry,
    fixture: Arc<dyn Fixture>,
}

impl Test {
    /// `section/name`, the same in every run.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Runs it within the caller's runtime.
    ///
    /// # Errors
    ///
    /// What the transport did instead of what it should have done; or that the broker could not be
    /// reached.
    pub async fn run(&self) -> Result<(), Failed> {
        let stage = Stage::set(Arc::clone(&self.fixture)).await?;
        let outcome = (self.entry.run)(&stage).await;
        let cleared = stage.clear().await;
        outcome.and(cleared)
    }

    /// The same in a runtime of its own.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_blocking(&self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failed(format!("no runtime: {error}")))?;
        runtime.block_on(self.run())
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Test").field(&self.entry.name).finish()
    }
}

/// A test and when it applies.
struct Entry {
    name: &'static str,
    applies: fn(&Capabilities, &dyn Fixture) -> bool,
    run: for<'a> fn(&'a Stage) -> Running<'a>,
}

fn all() -> Vec<Entry> {
    [
        publish::entries(),
        receive::entries(),
        settle::entries(),
        leases::entries(),
        lanes::entries(),
        lifecycle::entries(),
        workers::entries(),
        poison::entries(),
        redrive::entries(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `entry!("section/name", function, |capabilities, fixture| condition)`.
macro_rules! entry {
    ($name:literal, $run:path) => {
        entry!($name, $run, |_capabilities, _fixture| true)
    };
    ($name:literal, $run:path, $applies:expr) => {
        crate::test_kit::Entry {
            name: $name,
            applies: $applies,
            run: |stage| Box::pin($run(stage)),
        }
    };
}

/// Fails the test unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(crate::test_kit::Failed(format!($($message)+)));
        }
    };
}

use {ensure, entry};

impl From<crate::Error> for Failed {
    fn from(error: crate::Error) -> Self {
        Self(report(&error))
    }
}

impl From<crate::redrive::Interrupted> for Failed {
    fn from(interrupted: crate::redrive::Interrupted) -> Self {
        Self(report(&interrupted))
    }
}

impl From<crate::BoxError> for Failed {
    fn from(error: crate::BoxError) -> Self {
        Self(report(&*error))
    }
}

/// An error and what it came from, in one line.
fn report(error: &dyn std::error::Error) -> String {
    let mut report = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        report.push_str(": ");
        report.push_str(&error.to_string());
        cause = error.source();
    }
    report
}

// A fixture hands transports out with their type erased.
const _: Option<(&dyn Fixture, &dyn Transport)> = None;
