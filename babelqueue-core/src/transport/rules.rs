use std::time::Duration;

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
    /// Whether a message that no handler takes is given back as a counted retry, without a cap:
    /// Kafka has no other way than the hop through a tier (§7.7, §16.5).
    pub counted_release: bool,
}

impl Rules {
    /// The in-memory broker; a broker of one's own does well to begin here.
    pub const MEMORY: Self = Self {
        attempts: AttemptsRule::Largest,
        poison: PoisonRule::Bounded,
        gate: GateRule::Drop,
        dead_letter: DeadLetterNaming::DotSuffix,
        backoff: true,
        counted_release: false,
    };

    /// Redis in its own layout, which has no delay (contract §11A).
    pub const REDIS: Self = Self {
        attempts: AttemptsRule::Body,
        poison: PoisonRule::AlwaysDeadLetter,
        gate: GateRule::AlwaysDeadLetter,
        backoff: false,
        ..Self::MEMORY
    };

    /// Redis in the Laravel-compatible layout (§11B).
    pub const REDIS_LARAVEL: Self = Self {
        backoff: true,
        ..Self::REDIS
    };

    /// RabbitMQ (§12).
    pub const AMQP: Self = Self::MEMORY;

    /// Amazon SQS (§13).
    pub const SQS: Self = Self {
        dead_letter: DeadLetterNaming::Sqs,
        ..Self::SERVICE_BUS
    };

    /// Azure Service Bus (§14).
    pub const SERVICE_BUS: Self = Self {
        poison: PoisonRule::Native,
        gate: GateRule::Native,
        ..Self::MEMORY
    };

    /// Apache Pulsar (§15).
    pub const PULSAR: Self = Self {
        attempts: AttemptsRule::PropertyThenLargest,
        ..Self::MEMORY
    };

    /// Apache Kafka without retry tiers (§16).
    pub const KAFKA: Self = Self {
        attempts: AttemptsRule::PropertyFirst,
        poison: PoisonRule::Drop,
        backoff: false,
        counted_release: true,
        ..Self::MEMORY
    };

    /// Apache Kafka with retry tiers (§16.5).
    pub const KAFKA_WITH_TIERS: Self = Self {
        poison: PoisonRule::Bounded,
        ..Self::KAFKA
    };

    /// Apache ActiveMQ Artemis (§17).
    pub const ARTEMIS: Self = Self {
        attempts: AttemptsRule::BodyOrBroker,
        ..Self::MEMORY
    };

    /// The row of [`MEMORY`](Self::MEMORY), to change what differs.
    pub const fn standard() -> Self {
        Self::MEMORY
    }

    /// The delay that the binding honours of one that the worker would like.
    pub(crate) const fn delayed(self, delay: Duration) -> Duration {
        if self.backoff { delay } else { Duration::ZERO }
    }
}

/// How attempts are reconciled. Body, property and broker count are each "how often it was
/// delivered before this".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptsRule {
    /// The body alone (Redis).
    Body,
    /// The largest of body, property and broker count (RabbitMQ, SQS, Service Bus, memory).
    Largest,
    /// The larger of body and broker count; the property counts only for a poison body (Artemis,
    /// §17.2, §8.1).
    BodyOrBroker,
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
