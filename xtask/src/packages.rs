//! The packages that are published.

use crate::Result;
use crate::root::root;

/// A published package.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name, and the name of its folder.
    pub(crate) name: &'static str,
    /// The bindings of the suite that it carries (contract §17B.4).
    pub(crate) bindings: &'static [&'static str],
    /// The servers that its live tests need.
    pub(crate) brokers: &'static [&'static str],
}

/// All packages, in publish order: each after those that it depends on. One that has no folder yet
/// is passed over.
const ALL: &[Package] = &[
    Package {
        name: "babelqueue-core",
        bindings: &[],
        brokers: &[],
    },
    Package {
        name: "babelqueue-redis",
        bindings: &["redis"],
        brokers: &["redis", "redis-durable"],
    },
    Package {
        name: "babelqueue-amqp",
        bindings: &["amqp"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-sqs",
        bindings: &["sqs"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-asb",
        bindings: &["asb"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-artemis",
        bindings: &["artemis"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-kafka",
        bindings: &["kafka"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-pulsar",
        bindings: &["pulsar"],
        brokers: &[],
    },
    Package {
        name: "babelqueue-otel",
        bindings: &["otel"],
        brokers: &[],
    },
];

/// The packages that are there, in publish order.
pub(crate) fn all() -> Vec<&'static Package> {
    let there = |package: &&Package| root().join(package.name).join("Cargo.toml").is_file();
    ALL.iter().filter(there).collect()
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
