//! The core's own sections of the conformance suite: one trial a case, named `section/case-id`.

use std::process::ExitCode;

use babelqueue_conformance::Package;
use babelqueue_core::memory::Memory;
use babelqueue_core::transport::Transport as _;

fn main() -> ExitCode {
    let memory = Memory::new().capabilities().clone();
    Package::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .page(env!("CARGO_MANIFEST_DIR"), vec![("memory", memory)])
        .main()
}
