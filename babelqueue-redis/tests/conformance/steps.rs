//! The steps of a `redis_layout` case (contract §17B.6), each by the crate's own calls, with the
//! decisions that the core makes of a delivery.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_conformance::{Case, Json, Met, Unmet, Unreadable, same, unknown};
use babelqueue_core::clock::ManualClock;
use babelqueue_core::dead_letter::Reason;
use babelqueue_core::decide::{Decision, Material, classify};
use babelqueue_core::transport::{Delivery, Outgoing, Settlement, Transport as _};
use babelqueue_redis::{Layout, Queue, Redis};

use crate::keys::Keyspace;
use crate::{common, server};

pub(crate) async fn run(case: &Case) -> Met {
    let mut run = Run::begin(case).await?;
    let mut met = run.keys.set(case.need("state")?).await;
    for step in case.items("steps")? {
        if met.is_ok() {
            met = run.step(step).await;
        }
    }
    met.and(run.keys.clean().await)
}

/// A case on its way.
struct Run {
    redis: Redis,
    queue: Queue,
    name: String,
    clock: Arc<ManualClock>,
    keys: Keyspace,
    /// The reservations by the names that the case gives them.
    reservations: HashMap<String, Arc<Delivery>>,
}

impl Run {
    async fn begin(case: &Case) -> Result<Self, Unmet> {
        let clock = Arc::new(ManualClock::default());
        let layout = match case.text("layout")? {
            "zset" => Layout::Laravel,
            "legacy" => Layout::Sdk,
            word => return Err(unknown("layout", word).into()),
        };
        let mut config = common::config()?.with_layout(layout).clock(clock.clone());
        if let Some(retry_after) = case.get("retry_after") {
            let seconds = retry_after.as_f64().map(Duration::from_secs_f64);
            config = config.retry_after(seconds)?;
        }
        if let Some(size) = case.get("migration_batch_size") {
            let size = size.as_i64().and_then(|size| u32::try_from(size).ok());
            config = config.migration_batch_size(size.and_then(NonZeroU32::new));
        }
        let redis = server(config).await?;
        let name = common::unique(case.text("queue")?);
        let queue = redis.queue(&name)?;
        Ok(Self {
            keys: Keyspace::of(&queue).await?,
            reservations: HashMap::new(),
            redis,
            queue,
            name,
            clock,
        })
    }

    async fn step(&mut self, step: &Json) -> Met {
        let nothing = Json::Object(Vec::new());
        let expected = step.get("expect").unwrap_or(&nothing);
        self.clock.set(seconds(step, "now")?);
        match word(step, "op")? {
            "push_delayed" => {
                let mut message = Outgoing::new(&*self.name, word(step, "body")?.to_owned());
                message.options.delay = Some(seconds(step, "delay")?);
                for result in self.redis.publish(vec![message]).await {
                    result?;
                }
            }
            "migrate" | "sweep" => {
                self.queue.recover().await?;
            }
            "reserve" => self.reserve(step, expected).await?,
            "ack" => self.settle(step, |_| Ok(Settlement::Ack)).await?,
            "release" => {
                let delay = seconds(step, "delay")?;
                self.settle(step, |run| run.retry(step, delay)).await?;
            }
            "dead_letter" => self.settle(step, |run| run.record(step)).await?,
            op => return Err(unknown("op", op).into()),
        }
        self.keys.check(expected).await
    }

    async fn reserve(&mut self, step: &Json, expected: &Json) -> Met {
        let delivery = self.queue.reserve(1).await?.deliveries.into_iter().next();
        let sorted = delivery
            .as_ref()
            .map(|delivery| classify(delivery, self.rules()));
        if let Some(outcome) = expected.get("outcome") {
            let found = match &sorted {
                None => "empty",
                Some(Ok(_)) => "delivered",
                Some(Err(_)) => "poison",
            };
            same("outcome", &Some(found), &outcome.as_str())?;
        }
        if let Some(body) = expected.get("handler_body") {
            let found = delivery.as_ref().map(|delivery| &delivery.body[..]);
            same("handler_body", &found, &body.as_str().map(str::as_bytes))?;
        }
        if let Some(attempts) = expected.get("reported_attempts") {
            // Laravel's number counts this delivery in; ours says how many came before it.
            let found = sorted
                .and_then(Result::ok)
                .map(|dispatch| dispatch.attempts + 1);
            same("reported_attempts", &found, &attempts.as_i64())?;
        }
        if let (Some(name), Some(delivery)) = (step.get("as").and_then(Json::as_str), delivery) {
            self.reservations.insert(name.to_owned(), delivery);
        }
        Ok(())
    }

    async fn settle(
        &self,
        step: &Json,
        settlement: impl FnOnce(&Self) -> Result<Settlement, Unmet>,
    ) -> Met {
        let settlement = settlement(self)?;
        let batch = [(self.reservation(step)?, settlement)];
        for answer in self.queue.settle(&batch).await {
            // Done or fenced: the keys tell.
            answer?;
        }
        Ok(())
    }

    /// What a worker makes of a handler that failed once.
    fn retry(&self, step: &Json, delay: Duration) -> Result<Settlement, Unmet> {
        let delivery = self.reservation(step)?;
        let dispatch =
            classify(&delivery, self.rules()).map_err(|refused| Unmet::Failed(refused.error))?;
        let decision = Decision::Retry {
            attempts: dispatch.attempts + 1,
            delay,
        };
        Ok(self.carry_out(decision, &delivery, Some(&dispatch.envelope)))
    }

    fn record(&self, step: &Json) -> Result<Settlement, Unmet> {
        let delivery = self.reservation(step)?;
        let decision = Decision::DeadLetter {
            reason: Reason::Failed,
            attempts: 3,
            with_error: true,
        };
        Ok(self.carry_out(decision, &delivery, None))
    }

    fn carry_out(
        &self,
        decision: Decision,
        delivery: &Delivery,
        envelope: Option<&babelqueue_core::envelope::Envelope>,
    ) -> Settlement {
        decision.settlement(&Material {
            delivery,
            envelope,
            rewritten: false,
            dead_letter_queue: &Arc::from(format!("{}.dlq", self.name)),
            error: Some("as the case asks"),
            exception: None,
            now_ms: 0,
        })
    }

    /// One by its name, or one that is made elsewhere: a token and the raw element.
    fn reservation(&self, step: &Json) -> Result<Arc<Delivery>, Unreadable> {
        let reservation = step.get("reservation").unwrap_or(&Json::Null);
        let delivery = match reservation {
            Json::String(name) => self.reservations.get(name).cloned(),
            explicit => {
                let raw = word(explicit, "raw")?.to_owned();
                self.queue.adopt(word(explicit, "token")?, raw.into())
            }
        };
        delivery.ok_or_else(|| unknown("reservation", reservation))
    }

    fn rules(&self) -> babelqueue_core::transport::Rules {
        self.redis.capabilities().rules
    }
}

fn word<'j>(json: &'j Json, name: &str) -> Result<&'j str, Unreadable> {
    json.get(name)
        .and_then(Json::as_str)
        .ok_or_else(|| unknown(name, json))
}

fn seconds(step: &Json, name: &str) -> Result<Duration, Unreadable> {
    step.get(name)
        .and_then(Json::as_f64)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| unknown(name, step))
}
