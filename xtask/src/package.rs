//! `cargo xtask package`: each published package packs, and builds from what was packed alone.

use crate::{Result, cargo, packages};

/// Packs the packages in publish order, each after those that it depends on, which cargo takes from
/// what it has just packed rather than from a registry.
pub(crate) fn run() -> Result {
    let mut pack = cargo::command(&["package", "--allow-dirty", "--quiet"]);
    let packages = packages::all();
    for package in &packages {
        pack.args(["-p", package.name]);
    }
    cargo::run(&mut pack)?;
    for package in packages {
        println!("{} packs and builds by itself", package.name);
    }
    Ok(())
}
