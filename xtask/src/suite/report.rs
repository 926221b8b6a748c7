//! What the results files say, held against the manifest.

use std::fmt;
use std::fs;
use std::path::Path;

use babelqueue_conformance::{Json, Section, Suite, json};

use super::run::file;
use crate::packages::Package;
use crate::{Result, cargo};

/// The results of some packages.
pub(crate) struct Report {
    version: String,
    /// Section names, each with its counts for each package; `None` where it is out of scope.
    rows: Vec<(String, Vec<Option<Counts>>)>,
    packages: Vec<&'static str>,
    /// What is not as it should be, one line each.
    complaints: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    /// Reads the results file of each package in `folder`.
    pub(crate) fn read(folder: &Path, packages: &[&'static Package]) -> Result<Self> {
        let suite = Suite::vendored()?;
        let mut report = Self {
            version: suite.version().to_owned(),
            rows: suite
                .sections()
                .iter()
                .map(|section| (section.name.to_string(), vec![None; packages.len()]))
                .collect(),
            packages: packages.iter().map(|package| package.name).collect(),
            complaints: Vec::new(),
        };
        let mut files = Vec::new();
        for (column, package) in packages.iter().enumerate() {
            let path = file(folder, package);
            let results = fs::read_to_string(&path)
                .map_err(|e| e.to_string())
                .and_then(|text| json::parse(&text).map_err(|e| e.to_string()));
            match results {
                Ok(results) => {
                    report.take(column, package, &results, &suite);
                    files.push(path);
                }
                // A run that could not tell of every case leaves no file.
                Err(error) => report.complain(package, format_args!("no results: {error}")),
            }
        }
        report.complaints.extend(invalid(&files)?);
        report
            .rows
            .retain(|(_, cells)| cells.iter().any(Option::is_some));
        Ok(report)
    }

    /// Whether no case failed, and every case in scope was run.
    pub(crate) fn is_clean(&self) -> bool {
        self.complaints.is_empty() && self.total().failed == 0
    }

    fn take(&mut self, column: usize, package: &Package, results: &Json, suite: &Suite) {
        let text = |name: &str| results.get(name).and_then(Json::as_str);
        if text("conformance_version") != Some(suite.version()) {
            self.complain(package, "the results are of another suite");
        }
        let bindings = Json::Array(package.bindings.iter().map(|b| Json::from(*b)).collect());
        if results.get("bindings") != Some(&bindings) {
            self.complain(package, format_args!("expected the bindings {bindings}"));
        }
        let sections = results.get("sections");
        for section in suite.in_scope(package.bindings) {
            let cases = sections.and_then(|sections| sections.get(&section.name));
            let counts = self.count(package, section, cases);
            let row = self
                .rows
                .iter_mut()
                .find(|(name, _)| *name == *section.name);
            if let Some((_, cells)) = row {
                cells[column] = Some(counts);
            }
        }
        let in_scope = suite.in_scope(package.bindings).count();
        if sections.map(|sections| sections.names().len()) != Some(in_scope) {
            self.complain(package, "there are sections that are out of scope");
        }
    }

    fn count(&mut self, package: &Package, section: &Section, cases: Option<&Json>) -> Counts {
        let mut counts = Counts::default();
        for case in &section.cases {
            let result = cases.and_then(|cases| cases.get(&case.id));
            let word = |name: &str| result.and_then(|result| result.get(name)?.as_str());
            match word("status") {
                Some("pass") => counts.passed += 1,
                Some("skip") => counts.skipped += 1,
                status => {
                    counts.failed += 1;
                    let reason = word("reason").unwrap_or_default();
                    let what = status.map_or("was not run", |_| "failed");
                    self.complain(
                        package,
                        format_args!("{}/{} {what}: {reason}", section.name, case.id),
                    );
                }
            }
        }
        if cases.map(|cases| cases.names().len()) != Some(section.cases.len()) {
            self.complain(
                package,
                format_args!("{} does not have the manifest's cases", section.name),
            );
        }
        counts
    }

    fn complain(&mut self, package: &Package, what: impl fmt::Display) {
        self.complaints.push(format!("{}: {what}", package.name));
    }

    fn total(&self) -> Counts {
        let cells = self.rows.iter().flat_map(|(_, cells)| cells);
        cells.flatten().fold(Counts::default(), |sum, cell| Counts {
            passed: sum.passed + cell.passed,
            failed: sum.failed + cell.failed,
            skipped: sum.skipped + cell.skipped,
        })
    }
}

/// What the suite's own schema has against the files.
fn invalid(files: &[std::path::PathBuf]) -> Result<Vec<String>> {
    let mut validate = cargo::command(&["run", "--quiet", "--all-features"]);
    validate
        .args(["--example", "validate-results", "--"])
        .args(files);
    let output = validate.output()?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(said.lines().map(str::to_owned).collect())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |name: &'static str| name.strip_prefix("babelqueue-").unwrap_or(name);
        write!(f, "{:24}", format!("suite {}", self.version))?;
        for package in &self.packages {
            write!(f, " {:>9}", short(package))?;
        }
        writeln!(f)?;
        for (section, cells) in &self.rows {
            write!(f, "{section:24}")?;
            for cell in cells {
                let cell = cell.map_or("–".to_owned(), |counts| {
                    let all = counts.passed + counts.failed + counts.skipped;
                    format!("{}/{all}", counts.passed)
                });
                write!(f, " {cell:>9}")?;
            }
            writeln!(f)?;
        }
        for line in &self.complaints {
            writeln!(f, "{line}")?;
        }
        let Counts {
            passed,
            failed,
            skipped,
        } = self.total();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
