//! What a package's `tests/conformance.rs` is made of.

mod outcomes;
mod results;
mod tamper;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use babelqueue_core::transport::Capabilities;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{Case, Met, Section, Suite, Unmet, core_sections, page};
use outcomes::Outcomes;

/// The folder that the results file of each package goes to (contract §17B.4).
pub const RESULTS: &str = "BQ_CONFORMANCE_RESULTS";

type Runner = Arc<dyn Fn(&Case) -> Met + Send + Sync>;

/// A published package, with what runs its sections of the suite.
///
/// A `tests/conformance.rs` in whole:
///
/// ```no_run
/// use std::process::ExitCode;
/// use babelqueue_conformance::{Case, Met, Package};
///
/// # #[expect(dead_code)]
/// fn main() -> ExitCode {
///     Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
///         .binding("sqs")
///         .section("delay", delay)
///         .main()
/// }
///
/// fn delay(case: &Case) -> Met {
///     let asked = case.number("delay_seconds")?;
///     // … and what the crate makes of it.
/// #   let _ = asked;
///     Ok(())
/// }
/// ```
pub struct Package {
    name: &'static str,
    version: &'static str,
    bindings: Vec<&'static str>,
    runners: BTreeMap<&'static str, Runner>,
    page: Option<(PathBuf, Vec<(&'static str, Capabilities)>)>,
}

impl Package {
    /// A package that carries no binding yet; the core's sections are in.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        let mut package = Self {
            name,
            version,
            bindings: Vec::new(),
            runners: BTreeMap::new(),
            page: None,
        };
        for (section, runner) in core_sections() {
            package = package.section(section, *runner);
        }
        package
    }

    /// The package carries the binding `name`: every section of that scope has to be run.
    #[must_use]
    pub fn binding(mut self, name: &'static str) -> Self {
        self.bindings.push(name);
        self
    }

    /// What runs the cases of the section `name`.
    #[must_use]
    pub fn section(
        mut self,
        name: &'static str,
        runner: impl Fn(&Case) -> Met + Send + Sync + 'static,
    ) -> Self {
        self.runners.insert(name, Arc::new(runner));
        self
    }

    /// The page of the package in `folder` (`env!("CARGO_MANIFEST_DIR")`), and the repository's,
    /// say of these transports what they say of themselves, each under a name of its own. The
    /// tables stand between `<!-- capabilities -->` and `<!-- /capabilities -->`; a run with
    /// `BQ_WRITE_PAGES` set writes them.
    #[must_use]
    pub fn page(
        mut self,
        folder: &'static str,
        transports: Vec<(&'static str, Capabilities)>,
    ) -> Self {
        self.page = Some((PathBuf::from(folder), transports));
        self
    }

    /// Runs one trial for each case, named `section/case-id`, and beside them a trial for each
    /// section that alters its expectations and wants red, and one that finds gaps. Takes the
    /// arguments of an ordinary test binary.
    ///
    /// A complete run, one without filters, leaves `<package>.json` in the folder that
    /// `BQ_CONFORMANCE_RESULTS` names.
    #[expect(clippy::print_stderr, reason = "a test binary's last word")]
    pub fn main(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        // Live cases share a server; the others take milliseconds.
        arguments.test_threads.get_or_insert(4);
        match Suite::vendored() {
            Ok(suite) => self.run(&suite, &arguments).unwrap_or_else(|error| {
                eprintln!("no results file: {error}");
                ExitCode::FAILURE
            }),
            Err(error) => {
                eprintln!("the vendored suite: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(&self, suite: &Suite, arguments: &Arguments) -> Result<ExitCode, String> {
        let outcomes = Outcomes::default();
        let trials = self.trials(suite, &outcomes);
        let conclusion = libtest_mimic::run(arguments, trials);
        let everything = conclusion.num_filtered_out == 0 && !arguments.list;
        if let (true, Some(folder)) = (everything, env::var_os(RESULTS)) {
            self.write_results(suite, &outcomes, Path::new(&folder))?;
        }
        Ok(conclusion.exit_code())
    }

    fn trials(&self, suite: &Suite, outcomes: &Outcomes) -> Vec<Trial> {
        let mut trials = vec![self.completeness(suite)];
        if let Some((folder, transports)) = self.page.clone() {
            trials.push(Trial::test("page/capabilities", move || {
                page::check(&folder, &transports).map_err(Failed::from)
            }));
        }
        for section in suite.in_scope(&self.bindings) {
            let Some(runner) = self.runners.get(&*section.name) else {
                continue;
            };
            let cases = section.cases.iter().cloned();
            trials.extend(cases.map(|case| trial(case, Arc::clone(runner), outcomes.clone())));
            trials.push(self_test(section.clone(), Arc::clone(runner)));
        }
        trials
    }

    /// No section in scope lacks a runner, and no runner lacks a section in scope.
    fn completeness(&self, suite: &Suite) -> Trial {
        let wanted: BTreeSet<String> = suite
            .in_scope(&self.bindings)
            .map(|section| section.name.to_string())
            .collect();
        let there: BTreeSet<String> = self.runners.keys().map(ToString::to_string).collect();
        Trial::test("self-test/completeness", move || {
            if wanted == there {
                return Ok(());
            }
            let gaps: Vec<_> = wanted.difference(&there).collect();
            let strays: Vec<_> = there.difference(&wanted).collect();
            Err(format!("sections without a runner: {gaps:?}; out of scope: {strays:?}").into())
        })
    }

    fn write_results(
        &self,
        suite: &Suite,
        outcomes: &Outcomes,
        folder: &Path,
    ) -> Result<(), String> {
        let text = results::text(self.name, self.version, &self.bindings, suite, outcomes)?;
        let path = folder.join(format!("{}.json", self.name));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl std::fmt::Debug for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Package")
            .field("name", &self.name)
            .field("bindings", &self.bindings)
            .field("sections", &self.runners.keys())
            .finish_non_exhaustive()
    }
}

fn trial(case: Case, runner: Runner, outcomes: Outcomes) -> Trial {
    let name = format!("{}/{}", case.section, case.id);
    Trial::ignorable_test(name, move || {
        let met = judged(caught(&case, &runner));
        outcomes.note(&case, &met);
        completion(met)
    })
}

/// Every case of the section that states an expectation turns red when that is altered.
fn self_test(section: Section, runner: Runner) -> Trial {
    let name = format!("self-test/{}", section.name);
    Trial::ignorable_test(name, move || {
        let found = tamper::every_case_can_fail(&section, |case| caught(case, &runner));
        completion(judged(found))
    })
}

/// A panicking runner is a failed case, not a missing one.
fn caught(case: &Case, runner: &Runner) -> Met {
    panic::catch_unwind(AssertUnwindSafe(|| runner(case)))
        .unwrap_or_else(|_| Err(Unmet::failed("the runner panicked; its message is above")))
}

fn judged(met: Met) -> Met {
    outcomes::judged(met, outcomes::brokers_are_required())
}

fn completion(met: Met) -> Result<Completion, Failed> {
    match met {
        Ok(()) => Ok(Completion::Completed),
        Err(Unmet::Skipped(reason) | Unmet::NoBroker(reason)) => {
            Ok(Completion::ignored_with(reason))
        }
        Err(Unmet::Failed(reason)) => Err(reason.into()),
    }
}
