//! RabbitMQ 3.10 and 4.0, with classic and with quorum queues.
//!
//! The other SDKs declare without arguments. So both sides share quorum queues where the vhost makes
//! them its default; where we declare one by argument, a peer's declaration is refused.

use std::process::Command;

use babelqueue_conformance::Json;

use super::ground::{Ground, Pairing, Queue, URN, unique};
use super::install;
use super::matrix::{Cell, Matrix, expect, same};
use super::side::Side;
use crate::{Result, brokers, packages, python};

pub(super) fn run() -> Result {
    let package = packages::find("amqp")?;
    let servers = brokers::up_for(&[package])?;
    let environment = servers.environment();
    let variable = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| *name == wanted);
        let value = found.map(|(_, value)| value.as_str());
        value.ok_or_else(|| format!("no {wanted}: was the server started?"))
    };

    let ours = Side::new("rust", &[install::our_peer()?.into()]);
    let python = Side::new(
        "python",
        &[
            python::interpreter(&[package])?.into(),
            install::driver("rabbitmq/peer.py").into(),
        ],
    );
    let mut matrix = Matrix::default();
    for (version, url, run) in [
        ("3.10", "BQ_RABBITMQ_URL", "BQ_RABBITMQ_RUN"),
        ("4.0", "BQ_RABBITMQ4_URL", "BQ_RABBITMQ4_RUN"),
    ] {
        let (url, run) = (variable(url)?, variable(run)?);
        for kind in ["classic", "quorum"] {
            let vhost = Vhost::make(version, url, run, kind, &python)?;
            Pairing {
                ours: &ours,
                peer: &python,
                ground: &vhost,
            }
            .cells(&mut matrix);
            vhost.remove()?;
        }
        matrix.cell(
            &format!("rabbitmq {version:12} rust    → python  a quorum queue by argument"),
            || declared_otherwise(url, &ours, &python),
        );
    }
    matrix.close()
}

/// A vhost of its own, whose queues are of one kind.
struct Vhost<'a> {
    title: String,
    name: String,
    url: String,
    run: &'a str,
    python: &'a Side,
}

impl<'a> Vhost<'a> {
    fn make(version: &str, url: &str, run: &'a str, kind: &str, python: &'a Side) -> Result<Self> {
        let name = unique();
        let new = Self {
            title: format!("rabbitmq {version:4} {kind}"),
            url: format!("{url}/{name}"),
            name,
            run,
            python,
        };
        new.ctl(&["add_vhost", &new.name, "--default-queue-type", kind])?;
        new.ctl(&[
            "set_permissions",
            "-p",
            &new.name,
            "guest",
            ".*",
            ".*",
            ".*",
        ])?;
        Ok(new)
    }

    fn remove(&self) -> Result {
        self.ctl(&["delete_vhost", &self.name])
    }

    fn ctl(&self, arguments: &[&str]) -> Result {
        let mut ctl = Command::new("sh");
        ctl.arg(self.run);
        let output = ctl.args(["rabbitmqctl", "-q"]).args(arguments).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("rabbitmqctl {}: {}", arguments.join(" "), said.trim()).into())
    }
}

impl Ground for Vhost<'_> {
    fn title(&self) -> &str {
        &self.title
    }

    fn url(&self) -> &str {
        &self.url
    }

    fn queue(&self) -> Result<Queue> {
        let name = unique();
        Ok(Queue {
            dead_letters: format!("{name}.dlq"),
            name,
        })
    }

    fn lying(&self, queue: &str) -> Result<Vec<Json>> {
        let printed = self
            .python
            .run("peek", &self.url, queue, &["--count", "0"])?;
        Ok(printed.lines)
    }

    fn attempts_in_a_retry(&self) -> u64 {
        1
    }

    fn loses_headers(&self, from: &Side) -> Option<&'static str> {
        (from.name == "python").then_some("python: its retry drops the headers")
    }
}

/// A queue that we declared with arguments is refused to a peer that declares it without; nothing is
/// lost by that.
fn declared_otherwise(url: &str, ours: &Side, python: &Side) -> Result<Cell> {
    let (queue, quorum) = (unique(), format!("{url}?queue_type=quorum"));
    let id = ours.produce(&quorum, &queue, &["--urn", URN])?;
    let refused = python.run("consume", url, &queue, &["--count", "1", "--timeout", "5"]);
    let said = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    let is_named = said.contains("PRECONDITION_FAILED") && said.contains("x-queue-type");
    same(
        "whether it is refused for its type",
        &is_named.into(),
        &true.into(),
    )?;
    expect(
        &ours.consume(&quorum, &queue, &[])?,
        &[("id", (&*id).into()), ("attempts", 0.into())],
    )?;
    Ok(Cell::Deviates(
        "python: it declares without arguments, which the broker refuses".to_owned(),
    ))
}
