//! `cargo xtask bench`: each figure beside its rival, in one run.
//!
//! A bench binary times the two in turn, and prints one JSON object a line where it is given
//! `--json`: `{"name", "ours", "rival", "ratio", "range", "unit"}`.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use babelqueue_conformance::{Json, json};
use clap::Args;

use crate::packages::{self, Package};
use crate::{Result, brokers, cargo, python};

#[derive(Args)]
pub(crate) struct Options {
    /// The bench's name, or the package's, with or without `babelqueue-`; all by default
    name: Option<String>,

    /// Write the figures there, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result {
    let benches = benches(options.name.as_deref())?;
    if benches.is_empty() {
        return Err("there is no such bench".into());
    }
    let mut lines = Vec::new();
    for (package, bench) in benches {
        let servers = brokers::up_for(&[package])?;
        let output = cargo::command(&["bench", "--quiet", "-p", package.name, "--all-features"])
            .args(["--bench", &bench, "--", "--json"])
            .envs(servers.environment())
            .envs(python::environment(&[package]))
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("bench {bench} failed").into());
        }
        let text = String::from_utf8(output.stdout)?;
        println!("{}: {bench}", package.name);
        for line in text.lines().filter(|line| line.starts_with('{')) {
            println!("  {}", row(line)?);
            lines.push(line.to_owned());
        }
    }
    if let Some(path) = &options.json {
        fs::write(path, lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// The bench targets of the published packages that go by `name`.
fn benches(name: Option<&str>) -> Result<Vec<(&'static Package, String)>> {
    let metadata = cargo::metadata()?;
    let mut benches = Vec::new();
    for package in packages::all() {
        let short = package.name.strip_prefix("babelqueue-");
        let whole = name.is_none() || name == Some(package.name) || name == short;
        for bench in cargo::targets(&metadata, package.name, "bench") {
            if whole || name == Some(&bench) {
                benches.push((package, bench));
            }
        }
    }
    Ok(benches)
}

fn row(line: &str) -> Result<String> {
    let figure = json::parse(line).map_err(|e| format!("{line}: {e}"))?;
    let number = |pointer: &str| {
        figure
            .pointer(pointer)
            .and_then(Json::as_f64)
            .ok_or_else(|| format!("{line}: no number at {pointer}"))
    };
    let text = |name: &str| figure.get(name).and_then(Json::as_str).unwrap_or_default();
    Ok(format!(
        "{:44} {:>14.1} against {:>14.1} {:5} ratio {:.3} ({:.3} to {:.3})",
        text("name"),
        number("/ours")?,
        number("/rival")?,
        text("unit"),
        number("/ratio")?,
        number("/range/0")?,
        number("/range/1")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_needs_all_of_its_numbers() {
        let line = r#"{"name":"decode","ours":250.1,"rival":1300,"ratio":0.19,"range":[0.18,0.21],"unit":"ns"}"#;
        assert!(row(line).unwrap().contains("ratio 0.190 (0.180 to 0.210)"));
        assert!(row(r#"{"name":"decode","ours":250.1}"#).is_err());
    }
}
