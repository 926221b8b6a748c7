//! `cargo xtask conformance`: run the suite, or renew the vendored copy.

mod checksums;
mod report;
mod run;
#[cfg(test)]
mod scratch;
mod source;
mod strip;
mod sync;
mod tree;

use clap::{Args, Subcommand};

pub(crate) use run::{RESULTS, prepare, report};

use crate::Result;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    step: Option<Step>,

    #[command(flatten)]
    run: run::Selection,
}

#[derive(Subcommand)]
enum Step {
    /// Vendor a release of the suite: verified, and without its prose
    Sync(sync::Options),
}

pub(crate) fn run(options: &Options) -> Result {
    match &options.step {
        Some(Step::Sync(options)) => sync::run(options),
        None => run::run(&options.run),
    }
}
