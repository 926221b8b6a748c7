//! `cargo xtask conformance`: run the sections of every package, and report.

use std::path::{Path, PathBuf};

use clap::Args;

use super::report::Report;
use crate::packages::{self, Package};
use crate::root::target;
use crate::{Result, brokers, cargo};

/// Where the harness writes the results file of a package.
pub(crate) const RESULTS: &str = "BQ_CONFORMANCE_RESULTS";

#[derive(Args)]
pub(super) struct Selection {
    /// Only this package; all by default
    #[arg(long, value_name = "P")]
    package: Option<String>,

    /// Where the results go, as `<package>.json`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(options: &Selection) -> Result {
    let packages = match &options.package {
        Some(name) => vec![packages::find(name)?],
        None => packages::all(),
    };
    let out = match &options.out {
        Some(folder) => std::path::absolute(folder)?,
        None => target().join("conformance"),
    };
    packages::prepare(&packages)?;
    prepare(&out, &packages)?;

    let servers = brokers::up_for(&packages)?;
    let mut test = cargo::command(&["test", "--all-features", "--no-fail-fast", "--quiet"]);
    test.args(["--test", "conformance"]);
    match packages.as_slice() {
        // The whole workspace shares its features, and so its build, with every other chore.
        _ if options.package.is_none() => test.arg("--workspace"),
        packages => packages
            .iter()
            .fold(&mut test, |test, package| test.args(["-p", package.name])),
    };
    // One dot a case; the report tells the rest.
    test.args(["--", "--quiet"]);
    test.env(RESULTS, &out).envs(servers.environment());
    // A red case is told by the report below, with the rest; what can't be told there is a gap.
    let passed = cargo::run(&mut test).is_ok();
    drop(servers);

    let clean = report(&out, &packages)?;
    if passed && clean {
        return Ok(());
    }
    Err("the suite does not pass".into())
}

/// The folder, without results of an earlier run.
pub(crate) fn prepare(out: &Path, packages: &[&Package]) -> Result {
    std::fs::create_dir_all(out)?;
    for package in packages {
        match std::fs::remove_file(file(out, package)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Prints the table and the counts; says whether nothing failed and nothing is missing.
pub(crate) fn report(out: &Path, packages: &[&'static Package]) -> Result<bool> {
    let report = Report::read(out, packages)?;
    println!("{report}");
    Ok(report.is_clean())
}

pub(super) fn file(out: &Path, package: &Package) -> PathBuf {
    out.join(format!("{}.json", package.name))
}
