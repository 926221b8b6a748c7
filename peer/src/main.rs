//! Our side of the interop matrix: one program over every broker, chosen by the URL's scheme.
//!
//! The peers' drivers under `interop/` take the same verbs and print the same lines, so that the
//! matrix does not care who is on which side.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program"
)]

mod broker;
mod consume;
mod produce;
mod redrive;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The count was not reached.
const SHORT: u8 = 3;

#[derive(Parser)]
#[command(about = "Produces and consumes for the interop matrix", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Publishes, and prints `{"published": ID, "urn": U}` for each message
    Produce(produce::Options),
    /// Handles, and prints a JSON line for each delivery; exits with 3 where the count is not reached
    Consume(consume::Options),
    /// Brings dead letters back, and prints `{"redriven": ID, "to": QUEUE, "ok": true}` for each;
    /// exits with 3 where there were fewer
    Redrive(redrive::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Produce(options) => produce::run(options).await.map(|()| true),
        Verb::Consume(options) => consume::run(options).await,
        Verb::Redrive(options) => redrive::run(options).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(SHORT),
        Err(error) => {
            eprintln!("peer: {error}");
            ExitCode::FAILURE
        }
    }
}
