use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use babelqueue_core::Error;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use tokio::time::Instant;

use crate::delay::{self, Step};
use crate::link::{Link, LinkFailure};
use crate::{Config, Declare, QueueArguments};

/// Which queues there are, as far as this program has declared them.
pub(crate) struct Topology {
    config: Arc<Config>,
    link: Arc<Link>,
    declared: Mutex<Declared>,
}

/// What was declared over which connection: a server that we had to connect to again may be another
/// one, or an empty one.
#[derive(Default)]
struct Declared {
    over: Option<Arc<Connection>>,
    queues: HashMap<String, Instant>,
}

impl Topology {
    pub(crate) fn new(config: Arc<Config>, link: Arc<Link>) -> Self {
        Self {
            config,
            link,
            declared: Mutex::default(),
        }
    }

    /// Sees to it that `queue` is there before something is published to it; where we do not declare,
    /// the publish itself shows it.
    pub(crate) async fn ensure(&self, queue: &str) -> Result<(), Error> {
        if self.config.declare == Declare::Passive {
            return Ok(());
        }
        if self.declared_at(queue).await?.is_some() {
            return Ok(());
        }
        let arguments = self.config.arguments_of(queue).to_table()?;
        self.declare(queue, arguments).await.map(|_| ())
    }

    /// Sees to it that `queue` and its queue for delays of `step` are there; gives the latter's name,
    /// and when it was declared last.
    pub(crate) async fn ensure_delay(
        &self,
        queue: &str,
        step: Step,
    ) -> Result<(Arc<str>, Instant), Error> {
        self.ensure(queue).await?;
        let name = step.queue_name(queue);
        let at = match self.declared_at(&name).await? {
            Some(at) if delay::is_fresh(at.elapsed()) => at,
            _ => {
                let arguments = delay_arguments(self.config.arguments_of(queue), queue, step);
                self.declare(&name, arguments.to_table()?).await?
            }
        };
        Ok((name.into(), at))
    }

    /// Forgets that `queue` is there: the broker says that it is not.
    pub(crate) fn forget(&self, queue: &str) {
        self.lock().queues.remove(queue);
    }

    /// Declares `queue` on `channel`, or checks that it is there, before it is consumed from.
    pub(crate) async fn declare_on(&self, channel: &Channel, queue: &str) -> Result<(), Error> {
        let passive = self.config.declare == Declare::Passive;
        let arguments = if passive {
            FieldTable::default()
        } else {
            self.config.arguments_of(queue).to_table()?
        };
        let declared = declare(&self.link, channel, queue, passive, arguments).await;
        declared.map_err(|failure| failure.into_error("subscribe", &format!("queue `{queue}`")))
    }

    async fn declared_at(&self, queue: &str) -> Result<Option<Instant>, Error> {
        let connection = self.link.connection().await;
        let connection =
            connection.map_err(|failure| failure.into_error("connect", &self.config.address()))?;
        let mut declared = self.lock();
        if !declared
            .over
            .as_ref()
            .is_some_and(|over| Arc::ptr_eq(over, &connection))
        {
            declared.over = Some(connection);
            declared.queues.clear();
        }
        Ok(declared.queues.get(queue).copied())
    }

    async fn declare(&self, queue: &str, arguments: FieldTable) -> Result<Instant, Error> {
        // Before, not after: the time that its expiry runs from is the broker's.
        let at = Instant::now();
        let declared = async {
            // A channel of its own, because the broker closes it where it refuses.
            let channel = self.link.channel().await?;
            declare(&self.link, &channel, queue, false, arguments).await?;
            self.link.within(channel.close(200, "OK".into())).await
        };
        let context = format!("queue `{queue}`");
        declared
            .await
            .map_err(|failure| failure.into_error("declare", &context))?;
        self.lock().queues.insert(queue.to_owned(), at);
        Ok(at)
    }

    fn lock(&self) -> MutexGuard<'_, Declared> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn declare(
    link: &Link,
    channel: &Channel,
    queue: &str,
    passive: bool,
    arguments: FieldTable,
) -> Result<(), LinkFailure> {
    let options = QueueDeclareOptions {
        passive,
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(queue.into(), options, arguments);
    link.within(declared).await.map(|_| ())
}

/// The arguments of the queue whose messages expire into `target` after `step`. It is of the target's
/// kind; a quorum queue keeps what expires until the target has confirmed it.
fn delay_arguments(target: &QueueArguments, queue: &str, step: Step) -> QueueArguments {
    let wait = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let arguments = QueueArguments::new()
        .dead_letter_exchange("", Some(queue))
        .argument("x-message-ttl", wait(step.ttl_ms()))
        .argument("x-expires", wait(step.expires_ms()));
    if target.is_quorum() {
        arguments
            .argument("x-queue-type", "quorum")
            .argument("x-dead-letter-strategy", "at-least-once")
            .argument("x-overflow", "reject-publish")
    } else {
        arguments
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lapin::types::AMQPValue;

    use super::*;

    #[test]
    fn a_delay_queue_expires_into_its_target() {
        let step = Step::at_least(Duration::from_secs(5)).unwrap();
        let table = delay_arguments(&QueueArguments::new(), "orders", step)
            .to_table()
            .unwrap();
        let get = |name: &str| table.inner().get(name).cloned();
        assert_eq!(get("x-message-ttl"), Some(AMQPValue::LongLongInt(5_000)));
        assert_eq!(get("x-expires"), Some(AMQPValue::LongLongInt(605_000)));
        assert_eq!(
            get("x-dead-letter-exchange"),
            Some(AMQPValue::LongString("".into()))
        );
        assert_eq!(
            get("x-dead-letter-routing-key"),
            Some(AMQPValue::LongString("orders".into()))
        );
        assert_eq!(table.inner().len(), 4);
    }

    #[test]
    fn a_quorum_queues_delays_are_kept_until_they_are_confirmed() {
        let step = Step::at_least(Duration::from_secs(5)).unwrap();
        let target = QueueArguments::quorum().delivery_limit(-1);
        let table = delay_arguments(&target, "orders", step).to_table().unwrap();
        let get = |name: &str| table.inner().get(name).cloned();
        assert_eq!(
            get("x-queue-type"),
            Some(AMQPValue::LongString("quorum".into()))
        );
        assert_eq!(
            get("x-dead-letter-strategy"),
            Some(AMQPValue::LongString("at-least-once".into()))
        );
        assert_eq!(
            get("x-overflow"),
            Some(AMQPValue::LongString("reject-publish".into()))
        );
        assert_eq!(get("x-delivery-limit"), None);
    }
}
