use lapin::types::{AMQPValue, FieldTable, ShortString};

use babelqueue_core::Error;

/// The arguments that a queue is declared with.
///
/// The default has none: a durable classic queue, as every other BabelQueue SDK declares it. An
/// argument makes their declarations of the same queue fail (`406 PRECONDITION_FAILED`), and ours
/// where the queue exists with other ones: choose it once, for all who share the queue.
///
/// ```
/// use babelqueue_amqp::QueueArguments;
///
/// let orders = QueueArguments::quorum().dead_letter_exchange("dlx", None);
/// let urgent = QueueArguments::new().max_priority(10);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueueArguments {
    table: Vec<(String, ArgumentValue)>,
}

impl QueueArguments {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// A quorum queue: replicated, and it counts deliveries, so that a message whose handler takes
    /// the process down reaches its cap like any other.
    pub fn quorum() -> Self {
        Self::new().argument("x-queue-type", "quorum")
    }

    /// Where the broker puts what it discards itself (rejected, expired, over a limit). `None` keeps
    /// each message's routing key. Our own dead-lettering needs none of this.
    #[must_use]
    pub fn dead_letter_exchange(self, exchange: &str, routing_key: Option<&str>) -> Self {
        let this = self.argument("x-dead-letter-exchange", exchange);
        match routing_key {
            Some(key) => this.argument("x-dead-letter-routing-key", key),
            None => this,
        }
    }

    /// Priorities from 0 to `max` on a classic queue; more than 10 cost the broker much.
    #[must_use]
    pub fn max_priority(self, max: u8) -> Self {
        self.argument("x-max-priority", i64::from(max))
    }

    /// How often a quorum queue gives a message out again before it discards it. RabbitMQ 4 does so
    /// after 20 unless told otherwise; −1 there means never.
    #[must_use]
    pub fn delivery_limit(self, limit: i64) -> Self {
        self.argument("x-delivery-limit", limit)
    }

    /// Any other argument, by its own name; one that is set already is replaced.
    #[must_use]
    pub fn argument(mut self, name: &str, value: impl Into<ArgumentValue>) -> Self {
        let value = value.into();
        match self.table.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.table.push((name.to_owned(), value)),
        }
        self
    }

    /// Whether the queue is a quorum queue.
    pub(crate) fn is_quorum(&self) -> bool {
        self.table.iter().any(|(name, value)| {
            name == "x-queue-type" && *value == ArgumentValue::Text("quorum".to_owned())
        })
    }

    /// As the client takes them.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name that AMQP cannot hold.
    pub(crate) fn to_table(&self) -> Result<FieldTable, Error> {
        let mut table = FieldTable::default();
        for (name, value) in &self.table {
            let Ok(name) = ShortString::try_new(name.clone()) else {
                let problem = format!("has an argument name of {} bytes, limit 255", name.len());
                return Err(Error::config("queue_arguments", problem));
            };
            table.insert(name, value.to_amqp());
        }
        Ok(table)
    }
}

/// The value of a queue's argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentValue {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
}

impl ArgumentValue {
    fn to_amqp(&self) -> AMQPValue {
        match self {
            Self::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Self::Integer(number) => AMQPValue::LongLongInt(*number),
            Self::Boolean(flag) => AMQPValue::Boolean(*flag),
        }
    }
}

impl From<&str> for ArgumentValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for ArgumentValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for ArgumentValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for ArgumentValue {
    fn from(flag: bool) -> Self {
        Self::Boolean(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_declares_plainly() {
        let table = QueueArguments::new().to_table().unwrap();
        assert!(table.inner().is_empty());
        assert!(!QueueArguments::new().is_quorum());
    }

    #[test]
    fn arguments_are_typed_and_the_last_of_a_name_counts() {
        let arguments = QueueArguments::quorum()
            .delivery_limit(5)
            .delivery_limit(-1)
            .argument("x-single-active-consumer", true)
            .dead_letter_exchange("dlx", Some("orders"));
        assert!(arguments.is_quorum());
        let table = arguments.to_table().unwrap();
        let get = |name: &str| table.inner().get(name).cloned();
        assert_eq!(
            get("x-queue-type"),
            Some(AMQPValue::LongString("quorum".into()))
        );
        assert_eq!(get("x-delivery-limit"), Some(AMQPValue::LongLongInt(-1)));
        assert_eq!(
            get("x-single-active-consumer"),
            Some(AMQPValue::Boolean(true))
        );
        assert_eq!(
            get("x-dead-letter-exchange"),
            Some(AMQPValue::LongString("dlx".into()))
        );
        assert_eq!(
            get("x-dead-letter-routing-key"),
            Some(AMQPValue::LongString("orders".into()))
        );
        assert_eq!(table.inner().len(), 5);
    }

    #[test]
    fn a_name_that_amqp_cannot_hold_is_refused() {
        let arguments = QueueArguments::new().argument(&"x".repeat(256), 1);
        let error = arguments.to_table().unwrap_err();
        assert!(error.to_string().contains("256 bytes"), "{error}");
    }
}
