//! Debian packages, installed where what they bring is missing.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Makes sure that `program` is in the path; installs the Debian package `package` otherwise.
pub(crate) fn need(program: &str, package: &str) -> Result {
    let is_there = || {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    need_unless(is_there, package)
}

/// The same for a file or a folder.
pub(crate) fn need_file(path: &str, package: &str) -> Result {
    need_unless(|| Path::new(path).exists(), package)
}

/// The same for a C header, by its name under the system's own folder.
pub(crate) fn need_header(header: &str, package: &str) -> Result {
    let is_there = || Path::new("/usr/include").join(header).is_file();
    need_unless(is_there, package)
}

fn need_unless(is_there: impl Fn() -> bool, package: &str) -> Result {
    if is_there() {
        return Ok(());
    }
    println!("installing {package} …");
    if install(package).is_err() {
        // A fresh machine has no package lists yet, an old one stale ones.
        apt(&["update", "-qq"])?;
        install(package)?;
    }
    if is_there() {
        return Ok(());
    }
    Err(format!("{package} is installed, but what it should bring is not there").into())
}

fn install(package: &str) -> Result {
    apt(&["install", "-qq", "-y", "--no-install-recommends", package])
}

fn apt(arguments: &[&str]) -> Result {
    let output = Command::new("apt-get")
        .args(arguments)
        // Somebody else may be installing something.
        .args(["-o", "DPkg::Lock::Timeout=300"])
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
