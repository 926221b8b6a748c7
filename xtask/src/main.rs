//! The chores of this repository. `cargo xtask --help` lists them.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program"
)]

mod apt;
mod bench;
mod brokers;
mod cargo;
mod interop;
mod lean;
mod package;
mod packages;
mod python;
mod root;
mod soak;
mod suite;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Any error, with its context in words.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, Error>;

#[derive(Parser)]
#[command(about = "The chores of BabelQueue for Rust", version)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Time the code, each figure beside a rival's
    Bench(bench::Options),
    /// Start, stop and kill the servers of the live tests
    Brokers(brokers::Options),
    /// Run the conformance suite, or renew the vendored copy of it
    Conformance(suite::Options),
    /// Hand messages over between us and the other SDKs, live
    Interop(interop::Options),
    /// Prove what is not in the dependency trees
    Lean,
    /// Pack each published package, and build it from what was packed
    Package,
    /// Run what takes minutes: by hand, not in CI
    Soak(soak::Options),
    /// Start the brokers, run every test, and stop what was started
    Test,
    /// Check the rules of the house
    Tidy,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Bench(options) => bench::run(&options),
        Chore::Brokers(options) => brokers::run(&options),
        Chore::Conformance(options) => suite::run(&options),
        Chore::Interop(options) => interop::run(&options),
        Chore::Lean => lean::run(),
        Chore::Package => package::run(),
        Chore::Soak(options) => soak::run(&options),
        Chore::Test => test::run(),
        Chore::Tidy => tidy::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
