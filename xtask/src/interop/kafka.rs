//! Kafka, with one retry tier.

use std::time::{SystemTime, UNIX_EPOCH};

use babelqueue_conformance::json;

use super::ground::{DATA, TRACE, URN};
use super::install;
use super::matrix::{Cell, Matrix, expect};
use super::side::Side;
use crate::{Result, brokers, packages, python};

pub(super) fn run() -> Result {
    let package = packages::find("kafka")?;
    let servers = brokers::up_for(&[package])?;
    let environment = servers.environment();
    let url = environment.iter().find(|(name, _)| *name == "BQ_KAFKA_URL");
    let (_, url) = url.ok_or("no Kafka was started")?;

    let ours = Side::new("rust", &[install::our_peer()?.into()]);
    let python = Side::new(
        "python",
        &[
            python::interpreter(&[package])?.into(),
            install::driver("kafka/peer.py").into(),
        ],
    );
    let pairing = Pairing {
        // The topics are made by whoever of us comes first.
        url: &format!("{url}/?retry_tiers=300&create_topics=1"),
        ours: &ours,
        python: &python,
    };
    let mut matrix = Matrix::default();
    pairing.cells(&mut matrix);
    matrix.close()
}

/// Us and Python over a server.
struct Pairing<'a> {
    url: &'a str,
    ours: &'a Side,
    python: &'a Side,
}

impl Pairing<'_> {
    fn cells(&self, matrix: &mut Matrix) {
        for (from, to) in [(self.ours, self.python), (self.python, self.ours)] {
            let name = |what: &str| format!("kafka {:7} → {:7} {what}", from.name, to.name);
            matrix.cell(&name("published, handled"), || self.published(from, to));
            matrix.cell(&name("a retry begun, by way of a tier, finished"), || {
                self.retried(from, to)
            });
            matrix.cell(&name("dead-lettered, redriven"), || {
                self.dead_lettered(from, to)
            });
        }
    }

    fn published(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = &self.queue()?;
        let given = ["--urn", URN, "--data", DATA, "--trace", TRACE];
        let id = from.produce(url, queue, &given)?;
        expect(
            &to.consume(url, queue, &[])?,
            &[
                ("urn", URN.into()),
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("data", json::parse(DATA)?),
                ("lang", from.name.into()),
                ("ok", true.into()),
            ],
        )?;
        Ok(Cell::Met)
    }

    fn retried(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = &self.queue()?;
        let id = to.produce(url, queue, &["--urn", URN, "--trace", TRACE])?;
        expect(
            &from.fail(url, queue, &[])?,
            &[("attempts", 0.into()), ("ok", false.into())],
        )?;
        if to.name == "python" {
            // Python's worker leaves the way back to a program of its own; ours brings its along.
            let given = ["--count", "1", "--timeout", "20"];
            self.python.run("reinject", url, queue, &given)?;
        }
        expect(
            &to.consume(url, queue, &[])?,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 1.into()),
                ("ok", true.into()),
            ],
        )?;
        Ok(Cell::Met)
    }

    fn dead_lettered(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = &self.queue()?;
        let id = to.produce(url, queue, &["--urn", URN, "--trace", TRACE])?;
        from.fail(url, queue, &["--max-attempts", "1", "--dlq"])?;
        let dead_letters = format!("{queue}.dlq");
        if !to
            .run("redrive", url, &dead_letters, &["--count", "1"])?
            .reached
        {
            return Err(format!("{} redrove nothing", to.name).into());
        }
        expect(
            &to.consume(url, queue, &[])?,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("ok", true.into()),
            ],
        )?;
        Ok(Cell::Met)
    }

    /// A queue that no other cell uses, with its tier and its dead-letter queue (a worker of ours
    /// makes them when it starts), and the URL for its group.
    fn queue(&self) -> Result<(String, String)> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let queue = format!("interop-{}", now.as_nanos());
        let given = ["--count", "1", "--timeout", "2", "--dlq"];
        let url = format!("{}&group={queue}", self.url);
        self.ours.run("consume", &url, &queue, &given)?;
        Ok((url, queue))
    }
}
