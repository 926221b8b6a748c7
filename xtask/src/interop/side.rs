//! One side of a hand-over: a program that takes the verbs of `peer`.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use babelqueue_conformance::{Json, json};

use crate::Result;

/// A program, ours or a peer's.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// As the matrix names it.
    pub(super) name: &'static str,
    /// The program, and what stands before the verb.
    command: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
}

/// What a run printed, and whether it reached its count.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) lines: Vec<Json>,
    pub(super) reached: bool,
}

impl Side {
    pub(super) fn new(name: &'static str, command: &[OsString]) -> Self {
        Self {
            name,
            command: command.to_vec(),
            environment: Vec::new(),
        }
    }

    /// Runs with these variables besides.
    pub(super) fn with_environment(mut self, environment: &[(&'static str, String)]) -> Self {
        self.environment = environment.to_vec();
        self
    }

    /// Runs a verb to its end. An exit code that says neither "reached" nor "not reached" is an error.
    pub(super) fn run(&self, verb: &str, url: &str, queue: &str, more: &[&str]) -> Result<Printed> {
        let (program, before) = self.command.split_first().ok_or("no program")?;
        let output = Command::new(program)
            .args(before)
            .args([verb, "--broker", url, "--queue", queue])
            .args(more)
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{}: {e}", self.name))?;
        let reached = match output.status.code() {
            Some(0) => true,
            Some(3) => false,
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(
                    format!("{} {verb}: {}: {}", self.name, output.status, said.trim()).into(),
                );
            }
        };
        let text = String::from_utf8(output.stdout)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| json::parse(line).map_err(|e| format!("{}: {line}: {e}", self.name)))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Printed { lines, reached })
    }

    /// Publishes one message, and gives its id.
    pub(super) fn produce(&self, url: &str, queue: &str, more: &[&str]) -> Result<String> {
        let printed = self.run("produce", url, queue, more)?;
        let id = printed
            .lines
            .first()
            .and_then(|line| line.get("published")?.as_str());
        Ok(id
            .ok_or_else(|| format!("{} published nothing", self.name))?
            .to_owned())
    }

    /// Handles one message.
    pub(super) fn consume(&self, url: &str, queue: &str, more: &[&str]) -> Result<Json> {
        let given = [&["--count", "1", "--timeout", "15"], more].concat();
        let printed = self.run("consume", url, queue, &given)?;
        let last = printed.lines.last().filter(|_| printed.reached).cloned();
        last.ok_or_else(|| format!("{} got nothing: {:?}", self.name, printed.lines).into())
    }

    /// Has its first delivery fail, and leaves the rest to others.
    pub(super) fn fail(&self, url: &str, queue: &str, more: &[&str]) -> Result<Json> {
        let once = [
            "--count",
            "1",
            "--timeout",
            "15",
            "--fail-first",
            "1",
            "--deliveries",
            "1",
        ];
        let printed = self.run("consume", url, queue, &[&once[..], more].concat())?;
        let first = printed.lines.into_iter().next();
        first.ok_or_else(|| format!("{} got nothing", self.name).into())
    }
}
