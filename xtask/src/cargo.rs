//! Calling cargo again.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use babelqueue_conformance::{Json, json};

use crate::Result;
use crate::root::root;

/// The cargo that runs us, in the root of the repository.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    // What `cargo run` told us about ourselves is not about the others.
    for (name, _) in env::vars_os() {
        let told = name.to_string_lossy().starts_with("CARGO_PKG_");
        if told || name == "CARGO_MANIFEST_DIR" || name == "CARGO_MANIFEST_PATH" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!("cargo {} failed: {status}", arguments.join(" ")).into())
}

/// Where cargo keeps what it fetched and unpacked.
pub(crate) fn home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = env::home_dir().ok_or("neither CARGO_HOME nor a home directory is known")?;
    Ok(home.join(".cargo"))
}

/// What cargo knows of the workspace's own packages.
pub(crate) fn metadata() -> Result<Json> {
    let output = command(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ])
    .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(json::parse(std::str::from_utf8(&output.stdout)?)?)
}

/// The names of a package's targets of one kind: `bench`, `test`, `example` …
pub(crate) fn targets(metadata: &Json, package: &str, kind: &str) -> Vec<String> {
    let items = |json: &Json, name: &str| -> Vec<Json> {
        json.get(name)
            .and_then(Json::as_array)
            .unwrap_or_default()
            .to_vec()
    };
    let mut names = Vec::new();
    for known in items(metadata, "packages") {
        if known.get("name").and_then(Json::as_str) != Some(package) {
            continue;
        }
        for target in items(&known, "targets") {
            if items(&target, "kind").contains(&Json::from(kind)) {
                names.extend(target.get("name").and_then(Json::as_str).map(str::to_owned));
            }
        }
    }
    names
}
