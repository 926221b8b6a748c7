//! `cargo xtask brokers`: real servers for the live tests, each on loopback, with its data, its log
//! and its pid under `target/brokers/NAME`.
//!
//! A broker is a [`Broker`]; what is the same for all (start, wait, stop, kill) is in [`server`].

mod kafka;
mod maven;
mod rabbitmq;
mod redis;
mod server;
mod sqs;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::packages::Package;
use crate::{Error, Result};
pub(crate) use server::Server;

/// One kind of server that live tests need.
pub(crate) trait Broker: Sync {
    /// What it is called on the command line, and its folder under `target/brokers`.
    fn name(&self) -> &'static str;

    /// The loopback port that it takes when nobody else has it; another free one otherwise.
    fn port(&self) -> u16;

    /// Which ports above that one it takes besides, as distances.
    fn ports_beside(&self) -> &'static [u16] {
        &[]
    }

    /// Installs it where it is missing. Called before each start, so it has to be quick when there
    /// is nothing to do.
    fn install(&self) -> Result;

    /// The command that runs it in the foreground on `address`, with its data in the folder `data`,
    /// which is there already, and holds what an earlier run left.
    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command>;

    /// Whether the server there *answers*: an open port is not enough.
    fn answers(&self, address: SocketAddr) -> bool;

    /// The environment variables by which the tests find it.
    fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)>;

    /// How long a start may take.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Ends what the server itself leaves running when it is stopped.
    fn stopped(&self) -> Result {
        Ok(())
    }
}

/// All that there are.
pub(crate) const BROKERS: &[&dyn Broker] = &[
    &redis::PLAIN,
    &redis::DURABLE,
    &kafka::SHARED,
    &kafka::MORTAL,
    &rabbitmq::V3,
    &rabbitmq::V4,
    &sqs::SHARED,
    &sqs::MORTAL,
];

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Start: installed where it is missing, with the data of the last run where it was not `down`;
    /// does nothing where it runs
    Up(Names),
    /// Stop, and delete the data
    Down(Names),
    /// Stop and start, with its data
    Restart(Names),
    /// End with SIGKILL, and keep the data
    Kill(Names),
    /// Say what runs, and where
    Status(OptionalNames),
}

#[derive(Args)]
struct Names {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args)]
struct OptionalNames {
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result {
    match &options.step {
        Step::Up(names) => each(&names.names, |server| {
            server.up()?;
            println!("{}", server.status());
            Ok(())
        }),
        Step::Down(names) => each(&names.names, Server::down),
        Step::Restart(names) => each(&names.names, |server| {
            server.restart()?;
            println!("{}", server.status());
            Ok(())
        }),
        Step::Kill(names) => each(&names.names, Server::kill),
        Step::Status(names) if names.names.is_empty() => {
            let all: Vec<_> = BROKERS.iter().map(|b| b.name().to_owned()).collect();
            each(&all, report)
        }
        Step::Status(names) => each(&names.names, report),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the steps")]
fn report(server: &Server) -> Result {
    println!("{}", server.status());
    Ok(())
}

fn each(names: &[String], step: impl Fn(&Server) -> Result) -> Result {
    for name in names {
        step(&find(name)?).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// The server of that name.
pub(crate) fn find(name: &str) -> Result<Server> {
    let broker = BROKERS.iter().find(|broker| broker.name() == name);
    let Some(broker) = broker else {
        let known: Vec<_> = BROKERS.iter().map(|broker| broker.name()).collect();
        return Err(format!("no broker `{name}`; there are {}", known.join(", ")).into());
    };
    Ok(Server::of(*broker))
}

/// Servers that tests run against. Those that were started for it are taken down at the end.
pub(crate) struct Servers {
    servers: Vec<Server>,
    started: Vec<bool>,
}

/// Starts what the live tests of `packages` need, all at once.
pub(crate) fn up_for(packages: &[&Package]) -> Result<Servers> {
    let mut servers = Servers {
        servers: Vec::new(),
        started: Vec::new(),
    };
    for name in packages.iter().flat_map(|package| package.brokers) {
        let server = find(name)?;
        // One after another: two installations would be in each other's way.
        server.install().map_err(|e| format!("{name}: {e}"))?;
        servers.started.push(!server.is_up());
        servers.servers.push(server);
    }
    let up = |server: &Server| {
        let up = server.up().map_err(|e| format!("{}: {e}", server.name()));
        up.map_err(Error::from)
    };
    thread::scope(|scope| {
        let starts: Vec<_> = servers
            .servers
            .iter()
            .map(|server| scope.spawn(move || up(server)))
            .collect();
        // All are joined before the first error counts.
        let started: Vec<Result> = starts
            .into_iter()
            .map(|start| start.join().unwrap_or_else(|_| Err("it panicked".into())))
            .collect();
        started.into_iter().collect::<Result>()
    })?;
    Ok(servers)
}

impl Servers {
    /// The environment that tests need: where the servers are, and that they are not to be missed.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![("BQ_REQUIRE_BROKERS", "1".to_owned())];
        environment.extend(self.servers.iter().flat_map(Server::environment));
        environment
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (server, started) in self.servers.iter().zip(&self.started) {
            if *started && let Err(error) = server.down() {
                eprintln!("{}: {error}", server.name());
            }
        }
    }
}
