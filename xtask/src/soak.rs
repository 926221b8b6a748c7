//! `cargo xtask soak`: what takes minutes. By hand; CI runs the short form of each.

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};

use crate::root::{root, target};
use crate::{Result, apt, brokers, cargo, packages};

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand)]
enum Name {
    /// Feed the decoder, the verdict and the poison record with bodies that libFuzzer makes up
    Fuzz {
        /// One target only: decode, verdict or `poison_record`
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// Kill Redis and its workers under load, and count what is lost and what comes twice
    Redis {
        /// How many messages
        #[arg(long, default_value_t = 100_000)]
        messages: u64,
    },
    /// Kill RabbitMQ twice under load, both versions, with a classic and with a quorum queue, and count
    /// what is lost and what comes twice
    #[command(name = "rabbitmq")]
    RabbitMq {
        /// How many messages for each of the four
        #[arg(long, default_value_t = 100_000)]
        messages: u64,
    },
    /// Play simulated runs of the worker over the broker in memory, each from its seed
    Simulation {
        /// How many seeds
        #[arg(long, default_value_t = 1_000_000)]
        seeds: u64,
        /// The first one: a failing seed is played again with `--first SEED --seeds 1`
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// After how many seeds each bug that is put in on purpose is found, instead
        #[arg(long)]
        mutants: bool,
    },
}

pub(crate) fn run(options: &Options) -> Result {
    match &options.name {
        Name::Fuzz { target, seconds } => fuzz(target.as_deref(), *seconds),
        Name::Redis { messages } => redis(*messages),
        Name::RabbitMq { messages } => rabbitmq(*messages),
        Name::Simulation {
            seeds,
            first,
            mutants,
        } => simulation(*first..first.saturating_add(*seeds), *mutants),
    }
}

fn redis(messages: u64) -> Result {
    apt::need("redis-server", "redis-server")?;
    let mut soak = cargo::command(&["run", "--quiet", "-p", "babelqueue-redis"]);
    soak.args(["--example", "soak", "--", &messages.to_string()]);
    cargo::run(&mut soak)
}

fn rabbitmq(messages: u64) -> Result {
    let servers = brokers::up_for(&[packages::find("amqp")?])?;
    let mut soak = cargo::command(&["test", "--quiet", "-p", "babelqueue-amqp", "--all-features"]);
    soak.args(["--test", "outages", "--", "two_kills"])
        .env("BQ_SOAK", messages.to_string())
        .envs(servers.environment());
    cargo::run(&mut soak)
}

fn simulation(seeds: Range<u64>, mutants: bool) -> Result {
    let mut play = cargo::command(&["run", "--quiet", "--release", "-p", "babelqueue-core"]);
    play.args(["--features", "test-kit", "--example", "simulate", "--"])
        .args(["--seeds", &format!("{}..{}", seeds.start, seeds.end)])
        .args(mutants.then_some("--mutants"));
    cargo::run(&mut play)
}

fn fuzz(only: Option<&str>, seconds: u64) -> Result {
    let cargo_fuzz = installed("cargo-fuzz")?;
    let targets: Vec<String> = std::fs::read_dir(root().join("fuzz/fuzz_targets"))?
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .filter(|name| only.is_none_or(|only| only == name))
        .collect();
    if targets.is_empty() {
        return Err("there is no such target".into());
    }
    for name in targets {
        println!("{name}: {seconds} s");
        let mut command = Command::new(&cargo_fuzz);
        command
            .current_dir(root())
            // The sanitizers want a nightly compiler; the core has no `unsafe` for them to watch.
            .args(["fuzz", "run", "--sanitizer", "none", &name, "--"])
            .arg(format!("-max_total_time={seconds}"));
        cargo::run(&mut command)?;
    }
    Ok(())
}

/// A cargo tool, installed under `target/` where it is missing.
fn installed(tool: &str) -> Result<PathBuf> {
    let folder = target().join("tools");
    let path = folder.join("bin").join(tool);
    if !path.is_file() {
        let mut install = cargo::command(&["install", "--locked", tool, "--root"]);
        cargo::run(install.arg(&folder))?;
    }
    Ok(path)
}
