//! The Python SDK as a rival: `interop/rival.py`, run by the interpreter that `BQ_PYTHON` names, which
//! `cargo xtask bench` installs.
//!
//! Included by path (`#[path = "support/python.rs"] mod python;`), so that it needs no crate.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An interpreter that has the SDK and the broker's client.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    interpreter: PathBuf,
}

impl Python {
    /// The one that `BQ_PYTHON` names; `None`, and a word about it, where it names none.
    #[expect(clippy::print_stderr, reason = "the figures are on the other stream")]
    pub(crate) fn installed() -> Option<Self> {
        let interpreter = std::env::var_os("BQ_PYTHON").map(PathBuf::from);
        if interpreter.is_none() {
            eprintln!("no figures beside the Python SDK: no BQ_PYTHON");
        }
        interpreter.map(|interpreter| Self { interpreter })
    }

    /// Has it publish so many messages, one by one, as is its way; gives how many a second.
    pub(crate) fn publish(&self, url: &str, queue: &str, count: u32) -> f64 {
        self.run("publish", url, queue, count)
    }

    /// Has it handle so many messages that are there, with a handler that does nothing; gives how
    /// many a second.
    pub(crate) fn consume(&self, url: &str, queue: &str, count: u32) -> f64 {
        self.run("consume", url, queue, count)
    }

    /// Blocks its thread meanwhile.
    fn run(&self, verb: &str, url: &str, queue: &str, count: u32) -> f64 {
        let rival = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/rival.py");
        let output = Command::new(&self.interpreter)
            .args([rival, verb, "--broker", url, "--queue", queue])
            .args(["--count", &count.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .expect("an interpreter");
        assert!(output.status.success(), "{rival} {verb}: {}", output.status);
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim().parse().expect("a rate")
    }
}
