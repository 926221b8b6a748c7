//! `cargo xtask lean`: what must not be in a package's dependency tree is not (contract GR-7).

use std::collections::BTreeSet;

use crate::{Result, cargo, packages};

/// Nowhere: `ring` and `native-tls` would be a second TLS stack beside rustls with aws-lc-rs, and
/// `async-std` a second runtime.
const NOWHERE: &[&str] = &["ring", "native-tls", "async-std"];

/// Not in the core, whatever features are on: no TLS, no HTTP, no broker's client.
const NOT_IN_CORE: &[&str] = &[
    "rustls",
    "openssl",
    "openssl-sys",
    "aws-lc-rs",
    "hyper",
    "reqwest",
    "fe2o3-amqp",
    "opentelemetry",
];

/// All that the core depends on by itself, without features.
const CORE: &[&str] = &[
    "async-trait",
    "bytes",
    "chrono",
    "futures-util",
    "serde",
    "serde_json",
    "thiserror",
    "tokio",
    "tracing",
    "uuid",
];

/// Each broker's client is in its own package only.
const CLIENTS: &[(&str, &str)] = &[
    ("babelqueue-redis", "redis"),
    ("babelqueue-amqp", "lapin"),
    ("babelqueue-sqs", "aws-sdk-sqs"),
    ("babelqueue-kafka", "rdkafka"),
    ("babelqueue-pulsar", "pulsar"),
];

/// Changes what other people's code does with JSON, for the whole program (`design.md`, rule 1).
const JSON_FEATURES: &[&str] = &["arbitrary_precision", "preserve_order", "float_roundtrip"];

pub(crate) fn run() -> Result {
    let complaints = complaints()?;
    if complaints.is_empty() {
        println!("lean: nothing is in a tree that must not be");
        return Ok(());
    }
    Err(complaints.join("\n").into())
}

fn complaints() -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in packages::all() {
        let tree = tree(package.name, &["--all-features"])?;
        complaints.extend(refused(package.name, &tree));
    }

    let direct = tree("babelqueue-core", &["--depth", "1"])?;
    for name in direct.iter().filter(|name| *name != "babelqueue-core") {
        if !CORE.contains(&name.as_str()) {
            complaints.push(format!(
                "babelqueue-core depends on {name} without a feature"
            ));
        }
    }
    for package in packages::all() {
        complaints.extend(json_features(package.name)?);
    }
    Ok(complaints)
}

/// The features of `serde_json` that the package switches on, and must not.
fn json_features(package: &str) -> Result<Vec<String>> {
    let features = output(&[
        "tree",
        "-p",
        package,
        "-e",
        "normal,features",
        "--all-features",
        "--prefix",
        "none",
    ])?;
    let on = |feature: &&&str| features.contains(&format!("serde_json feature \"{feature}\""));
    Ok(JSON_FEATURES
        .iter()
        .filter(on)
        .map(|feature| format!("{package} switches serde_json/{feature} on"))
        .collect())
}

/// What must not be in this package's tree, and is.
fn refused(package: &str, tree: &BTreeSet<String>) -> Vec<String> {
    let in_core = NOT_IN_CORE.iter().filter(|_| package == "babelqueue-core");
    let clients = CLIENTS
        .iter()
        .filter_map(|(owner, client)| (*owner != package).then_some(client));
    let names = NOWHERE.iter().chain(in_core).chain(clients);
    names
        .filter(|name| tree.contains(**name))
        .map(|name| format!("{package} depends on {name}"))
        .collect()
}

/// The names in the tree of what is built with `package`, tests aside.
fn tree(package: &str, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let mut all = vec![
        "tree",
        "-p",
        package,
        "-e",
        "normal,build",
        "--prefix",
        "none",
    ];
    all.extend(arguments);
    let text = output(&all)?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

fn output(arguments: &[&str]) -> Result<String> {
    let output = cargo::command(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_lean() {
        assert_eq!(complaints().unwrap(), [""; 0]);
    }

    #[test]
    fn what_must_not_be_in_a_tree_is_found() {
        let tree = ["tokio", "redis", "ring"].map(str::to_owned).into();
        assert_eq!(
            refused("babelqueue-redis", &tree),
            ["babelqueue-redis depends on ring"]
        );
        assert_eq!(
            refused("babelqueue-sqs", &tree),
            [
                "babelqueue-sqs depends on ring",
                "babelqueue-sqs depends on redis"
            ]
        );
    }

    #[test]
    fn a_tree_holds_what_the_package_depends_on() {
        let tree = tree("babelqueue-core", &[]).unwrap();
        assert!(tree.contains("serde_json"), "a direct dependency");
        assert!(tree.contains("itoa"), "one of a dependency");
        assert!(!tree.contains("libtest-mimic"), "one of the tests");
    }
}
