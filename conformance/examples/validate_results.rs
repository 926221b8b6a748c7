//! Holds results files against the suite's own schema: `validate-results FILE…`.

#![expect(clippy::print_stderr, reason = "a command-line program")]

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

use babelqueue_conformance::Suite;
use serde_json::Value;

fn main() -> ExitCode {
    match invalid(env::args().skip(1)) {
        Ok(lines) if lines.is_empty() => ExitCode::SUCCESS,
        Ok(lines) => {
            for line in lines {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with the files, one line each.
fn invalid(files: impl Iterator<Item = String>) -> Result<Vec<String>, Box<dyn Error>> {
    let schema = Suite::vendored_at().join("schema/results.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(schema)?)?;
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)?;
    let mut lines = Vec::new();
    for file in files {
        let results: Value =
            serde_json::from_slice(&fs::read(&file).map_err(|e| format!("{file}: {e}"))?)?;
        lines.extend(
            validator
                .iter_errors(&results)
                .map(|error| format!("{file}: {}: {error}", error.instance_path())),
        );
    }
    Ok(lines)
}
