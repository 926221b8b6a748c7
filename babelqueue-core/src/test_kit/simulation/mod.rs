//! The worker, the broker in memory and the clock, played from a seed.
//!
//! A run is its seed: how many messages there are, of which queues, lanes and kinds; what their
//! handlers do; when workers start, stop and are killed; which calls over the seam fail, before or
//! after the work was done, and how long each takes. Everything runs on one thread in a runtime whose
//! time jumps to what is due next, so that minutes pass in microseconds and a seed plays the same way
//! again. Afterwards a checker reads the history: nothing lost, nothing settled twice, the order of
//! each lane kept, no count lowered, every repeat explained by a fault, every stop clean.
//!
//! ```
//! use babelqueue_core::test_kit::simulation::{Mutant, run, run_mutant};
//!
//! let figures = run(7).unwrap();
//! assert!(figures.messages >= 48);
//!
//! // The checker finds a worker that acknowledges before it has written the copy.
//! assert!((0..50).any(|seed| run_mutant(seed, Mutant::AckBeforeCopy).is_err()));
//! ```

mod checker;
mod dice;
mod faults;
mod handlers;
mod log;
mod mutants;
mod scenario;
mod tap;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;

pub use checker::Figures;
pub use mutants::Mutant;

use self::scenario::Scenario;
use self::world::History;

/// What a run broke.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: {broken}")]
#[non_exhaustive]
pub struct Broken {
    /// The run, to be played again.
    pub seed: u64,
    /// The promise that was broken, and when.
    pub broken: String,
}

/// Plays the run of `seed`.
///
/// # Errors
///
/// The run broke a promise; it does so each time.
pub fn run(seed: u64) -> Result<Figures, Broken> {
    play(seed, None)
}

/// The same with a bug in the worker or in its settlements.
///
/// # Errors
///
/// The checker has found the bug.
pub fn run_mutant(seed: u64, mutant: Mutant) -> Result<Figures, Broken> {
    play(seed, Some(mutant))
}

fn play(seed: u64, mutant: Option<Mutant>) -> Result<Figures, Broken> {
    let broken = |broken: String| Broken { seed, broken };
    let (scenario, history) = history(seed, mutant).map_err(broken)?;
    checker::check(&scenario, &history).map_err(broken)
}

fn history(seed: u64, mutant: Option<Mutant>) -> Result<(Arc<Scenario>, History), String> {
    let scenario = Arc::new(Scenario::of(seed).map_err(|error| error.to_string())?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let history = runtime.block_on(world::play(Arc::clone(&scenario), mutant));
    Ok((scenario, history))
}
