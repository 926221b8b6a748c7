use std::fmt::Debug;

use super::{Mutant, history, run, run_mutant};

/// CI plays 20,000 in a release build (`examples/simulate.rs`); these are the ones that a plain
/// `cargo test` can afford.
const SEEDS: u64 = 150;

#[test]
fn no_seed_breaks_a_promise() {
    for seed in 0..SEEDS {
        let figures = run(seed).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(figures.messages >= 48, "seed {seed}: {figures:?}");
        assert!(
            figures.deliveries >= figures.messages,
            "seed {seed}: {figures:?}"
        );
    }
}

#[test]
fn the_runs_are_rough() {
    let (mut faults, mut duplicates) = (0, 0);
    for figures in (1_000..1_030).filter_map(|seed| run(seed).ok()) {
        faults += figures.faults;
        duplicates += figures.duplicates;
    }
    assert!(
        faults > 50 && duplicates > 10,
        "{faults} faults, {duplicates} duplicates"
    );
}

#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        let found = (0..SEEDS).find(|&seed| run_mutant(seed, mutant).is_err());
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}

#[test]
fn a_seed_plays_the_same_way_again() {
    for seed in 0..12 {
        assert_eq!(told(seed, None), told(seed, None), "seed {seed}");
    }
    let mutant = Some(Mutant::BeginIgnored);
    assert_eq!(told(1, mutant), told(1, mutant));
}

/// A history in words, without the moments that the machine's clock chose.
fn told(seed: u64, mutant: Option<Mutant>) -> Vec<String> {
    let (_, history) = history(seed, mutant).unwrap();
    let began = history.began;
    let broker = history.events.iter();
    let broker = broker.map(|event| (event.at - began, without_instants(event)));
    let workers = history.seen.iter();
    let workers = workers.map(|note| (note.at - began, without_instants(note)));
    broker
        .chain(workers)
        .map(|told| format!("{told:?}"))
        .collect()
}

fn without_instants(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let mut parts = text.split("Instant {");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('}').map_or(part, |(_, rest)| rest)
    })
}
