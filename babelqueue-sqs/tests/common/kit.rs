//! The core's test kit: what every transport must do, on standard and on FIFO queues.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::test_kit::{Fixture, tests};
use babelqueue_core::transport::{
    Capabilities, Delay, Outgoing, SubscribeOptions, Subscription, Transport,
};
use babelqueue_core::{BoxError, Error};
use babelqueue_sqs::{Config, Sqs};

use super::{LEASE, SHARED, Server, Test, unique};

/// The kit's tests, if `wanted` by their name. Those that restart the server are among them only if it
/// is theirs alone.
pub(crate) fn of_the_kit(alone: bool, wanted: fn(&str) -> bool) -> Vec<Test> {
    let mut all = Vec::new();
    for fifo in [false, true] {
        let kind = if fifo { "kit-fifo" } else { "kit" };
        let fixture = move |server, name: &str| Queues {
            server,
            fifo,
            // A redrive tells that it has gone round by what it meets again, and a queue of many
            // groups gives them out in any order.
            grouped: fifo && !name.starts_with("redrive/"),
            lease: if waits_for_no_lease(name) {
                LONG
            } else {
                LEASE
            },
            alone,
        };
        for test in tests(fixture(SHARED, "")) {
            let name = test.name();
            if !wanted(name) {
                continue;
            }
            all.push(Test {
                name: format!("{kind}/{name}"),
                run: Arc::new(move |server| {
                    let tests = tests(fixture(server, name));
                    Box::pin(async move {
                        let test = tests.into_iter().find(|test| test.name() == name);
                        let test = test.ok_or("the kit has no such test any more")?;
                        test.run().await.map_err(|failed| failed.to_string().into())
                    })
                }),
            });
        }
    }
    all
}

/// Gives each message that has no group one of its own: of one group SQS gives out no more until the
/// last is settled, and the kit wants many out at a time.
struct Grouped(Sqs);

#[async_trait]
impl Transport for Grouped {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    async fn publish(&self, mut batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        for outgoing in &mut batch {
            if outgoing.queue.ends_with(".fifo") && outgoing.options.group.is_none() {
                outgoing.options.group = Some(unique("group"));
            }
        }
        self.0.publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        self.0.subscribe(queue, options).await
    }
}

struct Queues {
    server: Server,
    /// Whether all queues are FIFO, and not only those whose messages have lanes.
    fifo: bool,
    /// Whether each message has a group of its own, unless it is told one.
    grouped: bool,
    /// Short only where a test waits for its end: others settle one by one, on a busy machine.
    lease: Duration,
    alone: bool,
}

const LONG: Duration = Duration::from_mins(1);

fn waits_for_no_lease(test: &str) -> bool {
    let sections = [
        "publish/",
        "receive/",
        "redrive/",
        "lanes/order",
        "worker/it_handles",
    ];
    sections.iter().any(|section| test.starts_with(section))
}

#[async_trait]
impl Fixture for Queues {
    fn capabilities(&self) -> Capabilities {
        let mut all = Sqs::open(Config::new()).capabilities().clone();
        if self.fifo {
            // Not of a single message.
            all.delay = Delay::Unsupported;
        }
        all
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        let sqs = Sqs::open(self.server.config()?.visibility_timeout(self.lease)?);
        if self.grouped {
            return Ok(Arc::new(Grouped(sqs)));
        }
        Ok(Arc::new(sqs))
    }

    fn queue_name(&self, unique: &str, lanes: bool) -> String {
        let suffix = if lanes || self.fifo { ".fifo" } else { "" };
        format!("bq-kit-{unique}{suffix}")
    }

    async fn create(&self, queue: &str) -> Result<(), BoxError> {
        self.server.create(queue).await
    }

    async fn remove(&self, queue: &str) -> Result<(), BoxError> {
        self.server.delete(queue).await
    }

    /// What SQS itself would change or refuse is no message of it.
    fn carries(&self, body: &[u8]) -> bool {
        let holds = |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..);
        std::str::from_utf8(body).is_ok_and(|text| !text.is_empty() && text.chars().all(holds))
    }

    fn patience(&self) -> Duration {
        Duration::from_mins(1)
    }

    fn can_restart(&self) -> bool {
        self.alone
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.server.kill_and_start().await
    }

    fn can_fill(&self) -> bool {
        true
    }

    /// A queue that is not there takes nothing.
    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        if full {
            self.server.delete(queue).await
        } else {
            self.server.create(queue).await
        }
    }
}
