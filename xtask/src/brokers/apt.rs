//! Debian packages, installed where a program is missing.

use std::env;
use std::process::Command;

use crate::Result;

/// Makes sure that `program` is in the path; installs the Debian package `package` otherwise.
pub(super) fn need(program: &str, package: &str) -> Result {
    if is_in_path(program) {
        return Ok(());
    }
    println!("installing {package} …");
    if install(package).is_err() {
        // A fresh machine has no package lists yet, an old one stale ones.
        apt(&["update", "-qq"])?;
        install(package)?;
    }
    if is_in_path(program) {
        return Ok(());
    }
    Err(format!("{package} is installed, but there is no {program}").into())
}

fn install(package: &str) -> Result {
    apt(&["install", "-qq", "-y", "--no-install-recommends", package])
}

fn apt(arguments: &[&str]) -> Result {
    let output = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Keeps the package from starting a service of its own.
        .env("RUNLEVEL", "1")
        .output()
        .map_err(|e| format!("apt-get: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("apt-get {} failed: {}", arguments.join(" "), said.trim()).into())
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
