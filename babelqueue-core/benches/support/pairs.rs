//! Two ways of doing the same work, timed in turn in one run.
//!
//! The machines that this runs on are shared, and the same work can take twice as long from one
//! minute to the next. So a figure never stands alone: ours and its rival take turns, at least seven
//! pairs of them, and what counts is the median of the pairs' ratios, with its range.
//!
//! Included by path (`#[path = "support/pairs.rs"] mod pairs;`), so that it needs no crate.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How many pairs are timed.
const PAIRS: usize = 11;

/// How long one side of a pair runs.
const TURN: Duration = Duration::from_millis(40);

/// One figure beside its rival.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// What was done.
    pub(crate) name: String,
    /// Median of ours, in `unit`.
    pub(crate) ours: f64,
    /// Median of the rival, in `unit`.
    pub(crate) rival: f64,
    /// Median over the pairs of ours divided by the rival.
    pub(crate) ratio: f64,
    /// The least and the greatest of those.
    pub(crate) range: (f64, f64),
    /// The unit of `ours` and `rival`.
    pub(crate) unit: &'static str,
}

impl Pair {
    /// A figure from pairs that somebody else timed: `(ours, rival)`, in `unit`.
    pub(crate) fn of(name: &str, unit: &'static str, pairs: &[(f64, f64)]) -> Self {
        let ratios: Vec<f64> = pairs.iter().map(|(ours, rival)| ours / rival).collect();
        Self {
            name: name.to_owned(),
            ours: median(pairs.iter().map(|(ours, _)| *ours).collect()),
            rival: median(pairs.iter().map(|(_, rival)| *rival).collect()),
            ratio: median(ratios.clone()),
            range: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            ),
            unit,
        }
    }

    /// One JSON object, on one line.
    pub(crate) fn to_json(&self) -> String {
        let mut line = String::new();
        let Self {
            name,
            ours,
            rival,
            ratio,
            range: (least, greatest),
            unit,
        } = self;
        let _ = write!(
            line,
            r#"{{"name":"{name}","ours":{ours:.3},"rival":{rival:.3},"ratio":{ratio:.4},"range":[{least:.4},{greatest:.4}],"unit":"{unit}"}}"#
        );
        line
    }
}

/// Times one call of `ours` against one call of `rival`, in nanoseconds.
pub(crate) fn time<A, B>(
    name: &str,
    mut ours: impl FnMut() -> A,
    mut rival: impl FnMut() -> B,
) -> Pair {
    let (our_calls, rival_calls) = (calls_per_turn(&mut ours), calls_per_turn(&mut rival));
    let pairs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|pair| {
            // Who begins changes from pair to pair.
            if pair % 2 == 0 {
                let first = turn(&mut ours, our_calls);
                (first, turn(&mut rival, rival_calls))
            } else {
                let first = turn(&mut rival, rival_calls);
                (turn(&mut ours, our_calls), first)
            }
        })
        .collect();
    Pair::of(name, "ns", &pairs)
}

/// Prints the figures: as JSON lines where `--json` is among the arguments, else as a table.
#[expect(clippy::print_stdout, reason = "a benchmark's report is its output")]
pub(crate) fn report(pairs: &[Pair]) {
    if std::env::args().any(|argument| argument == "--json") {
        for pair in pairs {
            println!("{}", pair.to_json());
        }
        return;
    }
    println!(
        "{:44} {:>12} {:>12} {:>7}  range",
        "", "ours", "rival", "ratio"
    );
    for pair in pairs {
        println!(
            "{:44} {:>9.1} {:2} {:>9.1} {:2} {:>7.3}  {:.3}..{:.3}",
            pair.name,
            pair.ours,
            pair.unit,
            pair.rival,
            pair.unit,
            pair.ratio,
            pair.range.0,
            pair.range.1
        );
    }
}

fn calls_per_turn<T>(work: &mut impl FnMut() -> T) -> u32 {
    let mut calls = 1;
    loop {
        let started = Instant::now();
        for _ in 0..calls {
            black_box(work());
        }
        let took = started.elapsed();
        if took >= TURN / 4 {
            let per_turn = f64::from(calls) * TURN.as_secs_f64() / took.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a saturating cast of a positive count"
            )]
            return (per_turn as u32).max(1);
        }
        calls *= 2;
    }
}

/// Nanoseconds a call.
fn turn<T>(work: &mut impl FnMut() -> T, calls: u32) -> f64 {
    let started = Instant::now();
    for _ in 0..calls {
        black_box(work());
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
