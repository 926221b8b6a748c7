//! The test kit on the broker in memory, as any transport's crate runs it: in real time, a trial for
//! each test.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::BoxError;
use babelqueue_core::memory::{Kind, Memory};
use babelqueue_core::test_kit::{Fixture, tests};
use babelqueue_core::transport::{Capabilities, Transport};
use libtest_mimic::{Arguments, Trial};

struct InMemory(Memory);

#[async_trait]
impl Fixture for InMemory {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().clone()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        Ok(Arc::new(self.0.clone()))
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn can_restart(&self) -> bool {
        true
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.0.disconnect();
        Ok(())
    }

    fn can_fill(&self) -> bool {
        true
    }

    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        self.0.set_full(queue, full);
        Ok(())
    }
}

fn main() -> ExitCode {
    let lease = Duration::from_secs(1);
    let kinds = [
        ("leased", Kind::Leased { lease }),
        ("bound", Kind::Bound),
        ("rewinding", Kind::Rewinding { lanes: 3 }),
    ];
    let mut trials = Vec::new();
    for (kind_name, kind) in kinds {
        let fixture = || InMemory(Memory::builder().kind(kind).build());
        // A broker for each: a restart breaks every connection that its broker has.
        for at in 0..tests(fixture()).len() {
            let test = tests(fixture()).swap_remove(at);
            let name = format!("{kind_name}/{}", test.name());
            trials.push(Trial::test(name, move || {
                test.run_blocking().map_err(libtest_mimic::Failed::from)
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
