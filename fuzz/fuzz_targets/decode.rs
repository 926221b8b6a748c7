//! See `invariants`: `cargo fuzz run --sanitizer none decode`.

#![no_main]

#[path = "../../babelqueue-core/tests/support/invariants.rs"]
#[allow(dead_code, reason = "each target holds bodies against its own part")]
mod invariants;

libfuzzer_sys::fuzz_target!(|body: &[u8]| invariants::decode(body));
