//! What the peers need: each installed where it is missing.

use std::path::PathBuf;
use std::process::Command;

use crate::root::{root, target};
use crate::{Result, apt, cargo};

/// The Python SDK.
const PYTHON_SDK: &str = "babelqueue==1.24.0";

/// Builds the program `peer`, and says where it is.
pub(super) fn our_peer() -> Result<PathBuf> {
    cargo::run(&mut cargo::command(&["build", "--quiet", "-p", "peer"]))?;
    Ok(target().join("debug/peer"))
}

/// A Python with the SDK and `clients`, in an environment of its own under `target/`.
pub(super) fn python(clients: &[&str]) -> Result<PathBuf> {
    let folder = target().join("interop/python");
    let python = folder.join("bin/python");
    if !python.is_file() {
        apt::need("python3", "python3")?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder)).or_else(|_| {
            apt::need_file("/usr/share/doc/python3-venv", "python3-venv")?;
            run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        })?;
    }
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    run(install.arg(PYTHON_SDK).args(clients))?;
    Ok(python)
}

/// Laravel's own queue classes.
pub(super) fn laravel() -> Result {
    apt::need("php", "php-cli")?;
    for (folder, package) in [
        ("Illuminate/Queue", "php-illuminate-queue"),
        ("Illuminate/Redis", "php-illuminate-redis"),
        ("Predis", "php-nrk-predis"),
    ] {
        apt::need_file(&format!("/usr/share/php/{folder}"), package)?;
    }
    Ok(())
}

/// A driver of ours for a peer.
pub(super) fn driver(name: &str) -> PathBuf {
    root().join("interop").join(name)
}

fn run(command: &mut Command) -> Result {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().display();
    Err(format!("{program} failed: {}", said.trim()).into())
}
