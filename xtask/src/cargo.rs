//! Calling cargo again.

use std::env;
use std::process::Command;

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
