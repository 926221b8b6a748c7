//! Against a real server. Without one they are ignored, with the reason; where `BQ_REQUIRE_BROKERS` is
//! set they fail.

#[path = "../common/mod.rs"]
mod common;

use std::process::ExitCode;

use common::{SHARED, kit};

fn main() -> ExitCode {
    let tests = [kit::of_the_kit(false, |_| true)];
    common::run(&SHARED, 8, tests.concat())
}
