//! The core's own sections of the conformance suite: one trial a case, named `section/case-id`.

use std::process::ExitCode;

use babelqueue_conformance::Package;

fn main() -> ExitCode {
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).main()
}
