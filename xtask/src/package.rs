//! `cargo xtask package`: each published package packs, and builds from what was packed alone.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::packages::{self, Package};
use crate::{Result, cargo};

/// Packs the packages in publish order, each after those that it depends on, which cargo takes from
/// what it has just packed rather than from a registry.
pub(crate) fn run() -> Result {
    let packages = packages::all();
    for unpacked in unpacked_before(&packages)? {
        fs::remove_dir_all(unpacked)?;
    }
    let mut pack = cargo::command(&["package", "--allow-dirty", "--quiet"]);
    for package in &packages {
        pack.args(["-p", package.name]);
    }
    cargo::run(&mut pack)?;
    for package in packages {
        println!("{} packs and builds by itself", package.name);
    }
    Ok(())
}

/// Where cargo unpacked what an earlier run packed. It takes a package of the same name and version
/// from there again, whatever has been packed since.
fn unpacked_before(packages: &[&Package]) -> Result<Vec<PathBuf>> {
    let sources = cargo::home()?.join("registry").join("src");
    let registries = match fs::read_dir(sources) {
        Ok(registries) => registries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut unpacked = Vec::new();
    for registry in registries {
        let registry = registry?;
        // What was just packed is served from a directory, and such a registry has no host's name in
        // front of its hash.
        if !registry.file_name().to_string_lossy().starts_with('-') {
            continue;
        }
        for source in fs::read_dir(registry.path())? {
            let source = source?;
            let name = source.file_name();
            let name = name.to_string_lossy();
            if packages.iter().any(|package| is_of(package.name, &name)) {
                unpacked.push(source.path());
            }
        }
    }
    Ok(unpacked)
}

/// Whether a directory `name-1.2.3` is of the package `package`.
fn is_of(package: &str, directory: &str) -> bool {
    let version = directory.strip_prefix(package);
    let version = version.and_then(|rest| rest.strip_prefix('-'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_of_the_package_before_its_version() {
        assert!(is_of("babelqueue-redis", "babelqueue-redis-0.1.0"));
        assert!(!is_of("babelqueue-redis", "babelqueue-redis-more-0.1.0"));
        assert!(!is_of("babelqueue-redis", "babelqueue-rediss-0.1.0"));
        assert!(!is_of("babelqueue-redis", "redis-1.0.0"));
    }
}
