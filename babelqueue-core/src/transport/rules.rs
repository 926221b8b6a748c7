/// Where the contract differs from broker to broker, as data for [`decide`](crate::decide): one
/// row of the tables of §8 and §9.5, and how attempts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// How the body's `attempts` and the broker's counts become one number.
    pub attempts: AttemptsRule,
    /// What becomes of a poison body where dead-lettering is off (contract §8).
    pub poison: PoisonRule,
    /// What becomes of a version-gated delivery where dead-lettering is off (§9.5).
    pub gate: GateRule,
    /// How a dead-letter queue is named by default (§6.3).
    pub dead_letter: DeadLetterNaming,
    /// Whether the worker's back-off delays a retry; `false` on Kafka, whose tiers do (§7.5), and
    /// where the broker has no delay.
    pub backoff: bool,
}

impl Rules {
    /// The row of a broker that keeps to the middle column: the body counts, poison takes the
    /// bounded path, a gated delivery is dropped, `<queue>.dlq`, back-off honoured.
    pub const fn standard() -> Self {
        Self {
            attempts: AttemptsRule::Body,
            poison: PoisonRule::Bounded,
            gate: GateRule::Drop,
            dead_letter: DeadLetterNaming::DotSuffix,
            backoff: true,
        }
    }
}

/// How attempts are reconciled. Body, property and broker count are each "how often it was
/// delivered before this".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptsRule {
    /// The body alone (Redis).
    Body,
    /// The largest of body, property and broker count (RabbitMQ, SQS, Service Bus, Artemis, memory).
    Largest,
    /// A valid property replaces the body; then the larger of that and the broker's count (Pulsar,
    /// §15.4).
    PropertyThenLargest,
    /// A valid property decides, even when it is lower than the body (Kafka, §16.3). For a poison
    /// body the property alone counts (§8.1).
    PropertyFirst,
}

/// The column of the poison table (§8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoisonRule {
    /// To the dead-letter queue at once, whatever is configured (Redis).
    AlwaysDeadLetter,
    /// Off: left to the broker's own dead-lettering on the first delivery (SQS, Service Bus).
    Native,
    /// Off: retried up to the cap, then dropped (Pulsar, RabbitMQ, Artemis, memory, Kafka with
    /// tiers).
    Bounded,
    /// Off: dropped at once (Kafka without tiers).
    Drop,
}

/// What a version-gated delivery gets where dead-lettering is off (§9.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateRule {
    /// Acknowledged and dropped, with an error in the log.
    Drop,
    /// Left to the broker's own dead-lettering (SQS, Service Bus).
    Native,
    /// To the dead-letter queue at once, whatever is configured (Redis, §18.5).
    AlwaysDeadLetter,
}

/// How a dead-letter queue is named after its source (§6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterNaming {
    /// `<queue>.dlq`.
    DotSuffix,
    /// `<queue>-dlq`, and `<base>-dlq.fifo` for a FIFO queue (SQS).
    Sqs,
}
