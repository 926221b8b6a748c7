use std::time::Duration;

use super::Memory;
use super::journal::Journal;
use crate::transport::{Capabilities, Delay, Prefetch, PublishFeatures, Rules};

/// How a broker holds what it has handed out. Each is the likeness of some real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A delivery has a lease and survives its connection (Redis, SQS, Service Bus). A message whose
    /// lease ran out comes again and is counted. A retry in a lane stays at the lane's head.
    Leased {
        /// How long a delivery is reserved, from its receipt or last renewal.
        lease: Duration,
    },
    /// A delivery is bound to its connection (RabbitMQ, Artemis, Pulsar): when that goes, it comes
    /// again and is counted. A retry or a dead letter is a copy and then an acknowledgement.
    Bound,
    /// Every message has one of a fixed number of lanes, read in order (Kafka's partitions); what is
    /// given back rewinds its lane, and nothing is counted. A retry or a dead letter is a copy and
    /// then an acknowledgement.
    Rewinding {
        /// How many lanes a queue has, at least 1. A message goes by its key, else its group, else
        /// in turn.
        lanes: u32,
    },
}

/// Settings of a broker in memory; [`Memory::builder`] starts one.
#[derive(Debug, Clone)]
#[must_use]
pub struct MemoryBuilder {
    kind: Kind,
    rules: Rules,
    native_dead_letter: bool,
    journal: bool,
}

impl MemoryBuilder {
    pub(super) const fn new() -> Self {
        Self {
            kind: Kind::Leased {
                lease: Duration::from_secs(30),
            },
            rules: Rules::MEMORY,
            native_dead_letter: false,
            journal: false,
        }
    }

    /// How deliveries are held. By default [leased](Kind::Leased) for 30 seconds.
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// [Leased](Kind::Leased) deliveries, with this lease.
    pub const fn lease(self, lease: Duration) -> Self {
        self.kind(Kind::Leased { lease })
    }

    /// The rows of the contract's tables that the worker goes by, in place of memory's own: to test
    /// another binding's rules without its broker.
    pub const fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Whether the broker has dead-lettering of its own, as SQS and Service Bus have: off by default.
    /// What is left to it goes to [`Memory::native_dead_letter_queue`].
    pub const fn native_dead_letter(mut self, on: bool) -> Self {
        self.native_dead_letter = on;
        self
    }

    /// Whether the broker writes a journal of what happens, for
    /// [`take_journal`](Memory::take_journal): off by default, for it grows until it is taken.
    pub const fn journal(mut self, on: bool) -> Self {
        self.journal = on;
        self
    }

    /// The broker, empty.
    pub fn build(self) -> Memory {
        let journal = if self.journal {
            Journal::kept()
        } else {
            Journal::default()
        };
        Memory::with(self.capabilities(), self.kind, journal)
    }

    fn capabilities(&self) -> Capabilities {
        let mut options = PublishFeatures::NONE;
        options.key = true;
        options.group = true;
        let mut capabilities = Capabilities::new("memory", self.rules);
        capabilities.delay = Delay::Supported { max: None };
        capabilities.headers = true;
        capabilities.lease = matches!(self.kind, Kind::Leased { .. });
        capabilities.lanes = true;
        capabilities.prefetch = match self.kind {
            Kind::Rewinding { .. } => Prefetch::Deep,
            Kind::Leased { .. } | Kind::Bound => Prefetch::Double,
        };
        capabilities.native_dead_letter = self.native_dead_letter;
        capabilities.counts_crashes = !matches!(self.kind, Kind::Rewinding { .. });
        capabilities.publish_batch = 1024;
        capabilities.receive_batch = 1024;
        capabilities.settle_calls = match self.kind {
            Kind::Rewinding { .. } => 4,
            Kind::Leased { .. } | Kind::Bound => 1,
        };
        capabilities.options = options;
        capabilities
    }
}
