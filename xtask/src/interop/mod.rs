//! `cargo xtask interop`: live hand-over between us and the other SDKs, a line for each cell of the
//! matrix.
//!
//! Our side is the program `peer`; the others' are drivers under `interop/BROKER`, which take the same
//! verbs and print the same lines.

mod ground;
mod install;
mod kafka;
mod matrix;
mod rabbitmq;
mod redis;
mod side;
mod sqs;

use clap::{Args, Subcommand};

use crate::Result;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    broker: Broker,
}

#[derive(Subcommand)]
enum Broker {
    /// Redis in both layouts, against the Python SDK and Laravel's own queue
    Redis,
    /// RabbitMQ 3.10 and 4.0, with classic and with quorum queues, against the Python SDK
    #[command(name = "rabbitmq")]
    RabbitMq,
    /// Amazon SQS, standard and FIFO queues, against the Python SDK
    Sqs,
    /// Kafka with a retry tier, against the Python SDK
    Kafka,
}

pub(crate) fn run(options: &Options) -> Result {
    match options.broker {
        Broker::Redis => redis::run(),
        Broker::RabbitMq => rabbitmq::run(),
        Broker::Sqs => sqs::run(),
        Broker::Kafka => kafka::run(),
    }
}
