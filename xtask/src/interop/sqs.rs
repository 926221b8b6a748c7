//! Amazon SQS, over `ElasticMQ`, with standard and with FIFO queues.

use babelqueue_conformance::Json;

use super::ground::{Ground, Pairing, Queue, unique};
use super::install;
use super::matrix::Matrix;
use super::side::Side;
use crate::{Result, brokers, packages, python};

pub(super) fn run() -> Result {
    let package = packages::find("sqs")?;
    let servers = brokers::up_for(&[package])?;
    let environment = servers.environment();
    let url = environment.iter().find(|(name, _)| *name == "BQ_SQS_URL");
    let (_, url) = url.ok_or("no SQS was started")?;

    // Among it what stands for credentials.
    let ours = Side::new("rust", &[install::our_peer()?.into()]).with_environment(&environment);
    let python = [
        python::interpreter(&[package])?.into(),
        install::driver("sqs/peer.py").into(),
    ];
    let python = Side::new("python", &python).with_environment(&environment);

    let mut matrix = Matrix::default();
    for (title, ending) in [("sqs standard", ""), ("sqs fifo", ".fifo")] {
        let queues = Queues {
            title,
            ending,
            url: format!("{url}&wait_time=1"),
            python: &python,
        };
        Pairing {
            ours: &ours,
            peer: &python,
            ground: &queues,
        }
        .cells(&mut matrix);
    }
    matrix.close()
}

/// Queues of one kind.
struct Queues<'a> {
    title: &'static str,
    ending: &'static str,
    url: String,
    python: &'a Side,
}

impl Ground for Queues<'_> {
    fn title(&self) -> &str {
        self.title
    }

    fn url(&self) -> &str {
        &self.url
    }

    fn queue(&self) -> Result<Queue> {
        let (name, ending) = (unique(), self.ending);
        let queue = Queue {
            name: format!("{name}{ending}"),
            dead_letters: format!("{name}-dlq{ending}"),
        };
        for name in [&queue.dead_letters, &queue.name] {
            self.python.run("create", &self.url, name, &[])?;
        }
        Ok(queue)
    }

    fn lying(&self, queue: &str) -> Result<Vec<Json>> {
        let printed = self.python.run("peek", &self.url, queue, &[])?;
        if printed.reached {
            return Ok(printed.lines);
        }
        Err(format!("{queue} holds more than it shows").into())
    }

    /// SQS counts.
    fn attempts_in_a_retry(&self) -> u64 {
        0
    }

    fn loses_headers(&self, _: &Side) -> Option<&'static str> {
        None
    }

    /// A retry that were there at once would be received, and so counted, once more before the side
    /// that began it has stopped.
    fn backoff(&self) -> &'static [&'static str] {
        &["--backoff", "3"]
    }

    fn ends_at_poison(&self, by: &Side) -> Option<&'static str> {
        let ends = by.name == "python" && self.ending == ".fifo";
        ends.then_some("python: its dead letter has the id of the message, and poison has none")
    }

    fn loses_redriven(&self, by: &Side) -> Option<&'static str> {
        let loses = by.name == "python" && self.ending == ".fifo";
        loses.then_some(
            "python: its redrive keeps the deduplication id, and SQS drops what it accepted",
        )
    }
}
