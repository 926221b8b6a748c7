//! What every transport must do, with order by partition and by key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::BoxError;
use babelqueue_core::test_kit::{Fixture, tests};
use babelqueue_core::transport::{Capabilities, Transport};
use babelqueue_kafka::{Config, Order, RetryTiers};
use libtest_mimic::Trial;

use crate::{Fault, Outcome, broker, trial};

/// Longer than two groups take to form, or what was delayed is there as soon as what was not.
const TIERS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (order, name) in [(Order::Partition, "partition"), (Order::Key, "key")] {
        for test in tests(Broker::new(order)) {
            let test = test.name();
            trials.push(trial(&format!("kit-{name}/{test}"), move || {
                run(order, test)
            }));
        }
    }
    trials
}

async fn run(order: Order, name: &str) -> Outcome {
    let fixture = Broker::new(order);
    broker::connect(fixture.config.clone()).await?;
    let test = tests(fixture).into_iter().find(|test| test.name() == name);
    let test = test.ok_or("the kit has no such test any more")?;
    test.run()
        .await
        .map_err(|failed| Fault::from(failed.to_string()))
}

struct Broker {
    config: Config,
    order: Order,
}

impl Broker {
    fn new(order: Order) -> Self {
        let tiers = RetryTiers::new(TIERS).expect("tiers that ascend");
        Self {
            config: broker::config(&broker::unique())
                .order(order)
                .retry_tiers(tiers),
            order,
        }
    }
}

#[async_trait]
impl Fixture for Broker {
    fn capabilities(&self) -> Capabilities {
        self.config.capabilities()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        let kafka = broker::connect(self.config.clone()).await.map_err(words)?;
        Ok(Arc::new(kafka))
    }

    async fn create(&self, queue: &str) -> Result<(), BoxError> {
        let partitions = match self.order {
            Order::Key => 2,
            _ => 3,
        };
        broker::create(queue, partitions).await.map_err(words)?;
        for index in 1..=TIERS.len() {
            let tier = format!("{queue}.retry.{index}");
            broker::create(&tier, 1).await.map_err(words)?;
        }
        Ok(())
    }

    async fn remove(&self, queue: &str) -> Result<(), BoxError> {
        let tiers: Vec<String> = (1..=TIERS.len())
            .map(|index| format!("{queue}.retry.{index}"))
            .collect();
        let topics: Vec<&str> = std::iter::once(queue)
            .chain(tiers.iter().map(String::as_str))
            .collect();
        broker::remove(&topics).await.map_err(words)
    }
}

fn words(fault: Fault) -> BoxError {
    match fault {
        Fault::NoBroker(why) | Fault::Absent(why) => why.into(),
        Fault::Failed(failed) => failed.message().unwrap_or("failed").into(),
    }
}
