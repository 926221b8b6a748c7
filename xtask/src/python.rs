//! The Python SDK, in an environment of its own under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::Package;
use crate::root::target;
use crate::{Result, apt};

/// The variable by which tests and benches find the interpreter.
const VARIABLE: &str = "BQ_PYTHON";

const SDK: &str = "babelqueue==1.24.0";

/// An interpreter that has the SDK and its clients for the brokers of `packages`, installed where it
/// is missing.
pub(crate) fn interpreter(packages: &[&Package]) -> Result<PathBuf> {
    let folder = target().join("interop/python");
    let python = folder.join("bin/python");
    if !python.is_file() {
        make(&folder)?;
    }
    let clients = packages.iter().flat_map(|package| package.python);
    for wanted in [SDK].iter().chain(clients) {
        // Asking pip each time would take it seconds, and the network.
        let done = folder.join(format!(".{wanted}"));
        if !done.is_file() {
            let mut install = Command::new(&python);
            install.args(["-m", "pip", "install", "--quiet"]);
            run(install.args(["--disable-pip-version-check", wanted]))?;
            fs::write(done, "")?;
        }
    }
    Ok(python)
}

/// The environment by which benches and tests find it. Without it they say what they leave out.
pub(crate) fn environment(packages: &[&Package]) -> Vec<(&'static str, PathBuf)> {
    if packages.iter().all(|package| package.python.is_empty()) {
        return Vec::new();
    }
    match interpreter(packages) {
        Ok(python) => vec![(VARIABLE, python)],
        Err(error) => {
            eprintln!("xtask: no Python SDK: {error}");
            Vec::new()
        }
    }
}

fn make(folder: &Path) -> Result {
    apt::need("python3", "python3")?;
    let make = || run(Command::new("python3").args(["-m", "venv"]).arg(folder));
    make().or_else(|_| {
        apt::need_file("/usr/share/doc/python3-venv", "python3-venv")?;
        make()
    })
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
