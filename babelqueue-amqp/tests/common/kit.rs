//! The core's test kit: what every transport must do, on classic and on quorum queues.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_amqp::{Amqp, QueueArguments};
use babelqueue_core::BoxError;
use babelqueue_core::test_kit::{Fixture, tests};
use babelqueue_core::transport::{Capabilities, Transport};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::common::{Server, Test};

/// The kit's tests, if `wanted` by their name. Those that restart the server are among them only if it
/// is theirs alone.
pub(crate) fn of_the_kit(alone: bool, wanted: fn(&str) -> bool) -> Vec<Test> {
    let mut all = Vec::new();
    for quorum in [false, true] {
        let kind = if quorum { "kit-quorum" } else { "kit" };
        let fixture = move |server| Rabbit {
            server,
            quorum,
            alone,
        };
        let server = crate::common::SERVERS[0].clone();
        for test in tests(fixture(server)) {
            let name = test.name();
            if !wanted(name) {
                continue;
            }
            all.push(Test {
                name: format!("{kind}/{name}"),
                needs_ctl: alone,
                needs_python: false,
                run: Arc::new(move |server| {
                    let tests = tests(fixture(server));
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

struct Rabbit {
    server: Server,
    quorum: bool,
    alone: bool,
}

impl Rabbit {
    fn open(&self) -> Result<Amqp, BoxError> {
        let config = self.server.config()?;
        let config = if self.quorum {
            config.queue_arguments(QueueArguments::quorum())
        } else {
            config
        };
        Ok(Amqp::open(config)?)
    }
}

#[async_trait]
impl Fixture for Rabbit {
    fn capabilities(&self) -> Capabilities {
        self.open()
            .expect("a good configuration")
            .capabilities()
            .clone()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        let amqp = self.open()?;
        amqp.ping().await?;
        Ok(Arc::new(amqp))
    }

    async fn remove(&self, queue: &str) -> Result<(), BoxError> {
        self.server.bare().await?.delete(queue).await
    }

    fn patience(&self) -> Duration {
        crate::common::PATIENCE
    }

    fn can_restart(&self) -> bool {
        self.alone
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.server.write_down_its_queues().await?;
        self.server.kill().await?;
        self.server.start().await
    }

    fn can_fill(&self) -> bool {
        true
    }

    /// A queue that takes nothing stands in its place.
    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        let bare = self.server.bare().await?;
        bare.delete(queue).await?;
        if full {
            let options = QueueDeclareOptions {
                durable: true,
                ..QueueDeclareOptions::default()
            };
            let mut nothing = FieldTable::default();
            let overflow = AMQPValue::LongString("reject-publish".into());
            nothing.insert("x-max-length".into(), AMQPValue::LongInt(0));
            nothing.insert("x-overflow".into(), overflow);
            let declared = bare.channel.queue_declare(queue.into(), options, nothing);
            declared.await?;
        }
        Ok(())
    }
}
