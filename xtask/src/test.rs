//! `cargo xtask test`: everything, against real brokers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::thread;

use crate::root::target;
use crate::{Result, brokers, cargo, packages, python, suite};

/// What failed, and what it said: thousands of lines may stand between that and the end.
const FAILURES: &str = "failures.txt";

/// Starts the brokers, runs every test of every package and the suite, stops what it started, and
/// closes with the counts.
pub(crate) fn run() -> Result {
    let packages = packages::all();
    packages::prepare(&packages)?;
    let results = target().join("conformance");
    suite::prepare(&results, &packages)?;

    let everything = || cargo::command(&["test", "--workspace", "--all-features"]);
    let (servers, python) = thread::scope(|scope| {
        // Brokers are fetched and started while the compiler works, and so is the Python SDK.
        let servers = scope.spawn(|| {
            let servers = brokers::up_for(&packages)?;
            Ok((servers, python::environment(&packages)))
        });
        let built = cargo::run(everything().arg("--no-run"));
        let servers = servers.join().unwrap_or_else(|_| Err("it panicked".into()));
        built.and(servers)
    })?;

    let mut everything = everything();
    everything
        .arg("--no-fail-fast")
        .env(suite::RESULTS, &results)
        .envs(servers.environment())
        .envs(python);
    let mut seen = Seen::default();
    let mut passed = watched(&mut everything, &mut seen)?;
    passed &= watched(&mut core_among_strangers(), &mut seen)?;
    drop(servers);

    // Its own counts are of cases, and stand above the counts of tests.
    passed &= suite::report(&results, &packages)?;
    println!();
    println!("{}", seen.counts);
    let failures = target().join(FAILURES);
    fs::write(&failures, &seen.failures)?;
    if passed && seen.counts.failed == 0 {
        return Ok(());
    }
    Err(format!("there are failures: {}", failures.display()).into())
}

/// The core by itself, so that nobody else's features hide a missing one, and with `serde_json` in
/// the shape that some other crate of the user's program may have given it.
fn core_among_strangers() -> Command {
    let mut command = cargo::command(&["test", "-p", "babelqueue-core", "--no-fail-fast"]);
    command.args(["--lib", "--test", "conformance"]).args([
        "--features",
        "serde_json/arbitrary_precision,serde_json/preserve_order",
    ]);
    command
}

/// Runs a `cargo test`, shows what it prints, and keeps what its test binaries say of themselves.
fn watched(command: &mut Command, seen: &mut Seen) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut shown = std::io::stdout().lock();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            shown.write_all(&line)?;
            shown.write_all(b"\n")?;
            seen.line(&String::from_utf8_lossy(&line));
        }
    }
    Ok(child.wait()?.success())
}

/// What the test binaries printed that is wanted at the end.
#[derive(Default)]
struct Seen {
    counts: Counts,
    failures: String,
    failing: bool,
}

impl Seen {
    /// Takes the next line of the output. A binary tells its failures between a line `failures:`
    /// and the line with its counts.
    fn line(&mut self, line: &str) {
        let counts = Counts::of(line);
        self.failing = (self.failing || line == "failures:") && counts.is_none();
        if self.failing {
            self.failures.push_str(line);
            self.failures.push('\n');
        }
        if let Some(more) = counts {
            self.counts += more;
        }
    }
}

/// How many tests there were.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Reads the line with which a test binary ends:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn of(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |word: &str| {
            counts
                .split("; ")
                .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("ignored")?,
        })
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binarys_last_line_is_read() {
        let line = "test result: FAILED. 283 passed; 2 failed; 1 ignored; 0 measured; \
                    4 filtered out; finished in 0.02s";
        let counts = Counts {
            passed: 283,
            failed: 2,
            skipped: 1,
        };
        assert_eq!(Counts::of(line), Some(counts));
        assert_eq!(Counts::of("test result_is_kept ... ok"), None);
        assert_eq!(Counts::of("running 3 tests"), None);
    }

    #[test]
    fn failures_are_kept_for_the_end() {
        let mut seen = Seen::default();
        for line in [
            "test fine ... ok",
            "test broken ... FAILED",
            "failures:",
            "---- broken ----",
            "it said why",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured",
            "test other ... ok",
        ] {
            seen.line(line);
        }
        assert_eq!(seen.failures, "failures:\n---- broken ----\nit said why\n");
        assert_eq!((seen.counts.passed, seen.counts.failed), (1, 1));
    }
}
