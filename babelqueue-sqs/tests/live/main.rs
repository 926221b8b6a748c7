//! Against a real server. Without one they are ignored, with the reason; where `BQ_REQUIRE_BROKERS` is
//! set they fail.

#![expect(clippy::print_stdout, reason = "they tell what they counted")]

#[path = "../common/mod.rs"]
mod common;

mod publishing;
mod refusals;
mod settling;

use std::process::ExitCode;

use common::{SHARED, kit};

fn main() -> ExitCode {
    let tests = [
        publishing::tests(),
        refusals::tests(),
        settling::tests(),
        kit::of_the_kit(false, |_| true),
    ];
    common::run(&SHARED, 8, tests.concat())
}
