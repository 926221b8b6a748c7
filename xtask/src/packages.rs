//! The packages that are published.

use crate::root::root;
use crate::{Result, apt};

/// A published package.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name, and the name of its folder.
    pub(crate) name: &'static str,
    /// The bindings of the suite that it carries (contract §17B.4).
    pub(crate) bindings: &'static [&'static str],
    /// The servers that its live tests need.
    pub(crate) brokers: &'static [&'static str],
    /// What the Python SDK needs to talk to those.
    pub(crate) python: &'static [&'static str],
    /// The C headers that it builds with, each with the Debian package that brings it.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// All packages, in publish order: each after those that it depends on. One that has no folder yet
/// is passed over.
const ALL: &[Package] = &[
    Package {
        name: "babelqueue-core",
        bindings: &[],
        brokers: &[],
        python: &[],
        headers: &[],
    },
    Package {
        name: "babelqueue-redis",
        bindings: &["redis"],
        brokers: &["redis", "redis-durable"],
        python: &["redis"],
        headers: &[],
    },
    Package {
        name: "babelqueue-amqp",
        bindings: &["amqp"],
        brokers: &["rabbitmq", "rabbitmq4"],
        python: &["pika"],
        headers: &[],
    },
    Package {
        name: "babelqueue-sqs",
        bindings: &["sqs"],
        brokers: &["sqs", "sqs-mortal"],
        python: &["boto3"],
        headers: &[],
    },
    Package {
        name: "babelqueue-asb",
        bindings: &["asb"],
        brokers: &[],
        python: &[],
        headers: &[],
    },
    Package {
        name: "babelqueue-artemis",
        bindings: &["artemis"],
        brokers: &[],
        python: &[],
        headers: &[],
    },
    Package {
        name: "babelqueue-kafka",
        bindings: &["kafka"],
        brokers: &["kafka", "kafka-mortal"],
        python: &["confluent-kafka"],
        headers: &[("zlib.h", "zlib1g-dev"), ("openssl/ssl.h", "libssl-dev")],
    },
    Package {
        name: "babelqueue-pulsar",
        bindings: &["pulsar"],
        brokers: &[],
        python: &[],
        headers: &[],
    },
    Package {
        name: "babelqueue-otel",
        bindings: &["otel"],
        brokers: &[],
        python: &[],
        headers: &[],
    },
];

/// The packages that are there, in publish order.
pub(crate) fn all() -> Vec<&'static Package> {
    let there = |package: &&Package| root().join(package.name).join("Cargo.toml").is_file();
    ALL.iter().filter(there).collect()
}

/// Installs what the packages build with, where it is missing.
pub(crate) fn prepare(packages: &[&Package]) -> Result {
    for (header, package) in packages.iter().flat_map(|package| package.headers) {
        apt::need_header(header, package)?;
    }
    Ok(())
}

/// The package of that name.
pub(crate) fn find(name: &str) -> Result<&'static Package> {
    let packages = all();
    let known: Vec<_> = packages.iter().map(|package| package.name).collect();
    packages
        .iter()
        .find(|package| {
            package.name == name || package.name.strip_prefix("babelqueue-") == Some(name)
        })
        .copied()
        .ok_or_else(|| format!("no package `{name}`; there are {}", known.join(", ")).into())
}
