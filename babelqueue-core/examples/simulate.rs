//! Plays simulated runs of the worker over the broker in memory, and prints the seeds that break a
//! promise.
//!
//! ```text
//! simulate --seeds 0..20000                  # what CI runs
//! simulate --seeds 1234..1235                # one seed again
//! simulate --mutants --seeds 0..20000        # after how many seeds each deliberate bug is found
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that a person runs"
)]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use babelqueue_core::test_kit::simulation::{Figures, Mutant, run, run_mutant};

/// No run takes a thousandth of it, unless something spins without a call over the seam.
const STUCK: Duration = Duration::from_secs(30);

/// How many broken seeds are printed.
const SHOWN: u64 = 10;

struct Asked {
    seeds: Range<u64>,
    mutants: bool,
    threads: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(asked) if asked.mutants => hunt(&asked.seeds),
        Ok(asked) => play(&asked),
        Err(problem) => {
            eprintln!("{problem}\nusage: simulate [--mutants] [--seeds FROM..TO] [--threads N]");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        seeds: 0..20_000,
        mutants: false,
        threads: thread::available_parallelism().map_or(1, usize::from),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("`{argument}` wants a value"));
        match argument.as_str() {
            "--mutants" => asked.mutants = true,
            "--seeds" => {
                let range = value()?;
                asked.seeds = range_of(range).ok_or(format!("{range:?} is not FROM..TO"))?;
            }
            "--threads" => {
                let threads = value()?;
                let parsed = threads.parse().ok().filter(|threads| *threads > 0);
                asked.threads = parsed.ok_or(format!("{threads:?} is no number of threads"))?;
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(asked)
}

fn range_of(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

/// Plays every seed.
fn play(asked: &Asked) -> ExitCode {
    let started = Instant::now();
    let count = asked.seeds.end.saturating_sub(asked.seeds.start);
    let broken = AtomicU64::new(0);
    let totals = shared_out(asked, |seed, totals| match run(seed) {
        Ok(figures) => totals.add(&figures),
        Err(failure) => {
            if broken.fetch_add(1, Ordering::Relaxed) < SHOWN {
                println!("{failure}");
            }
        }
    });
    let broken = broken.into_inner();
    let took = started.elapsed();
    println!(
        "{count} seeds from {} in {took:.1?} ({} a second): {} messages, {} deliveries, {} \
         handlers, {} faults, {} handled twice; {broken} seeds broken",
        asked.seeds.start,
        u128::from(count) * 1000 / took.as_millis().max(1),
        totals.messages,
        totals.deliveries,
        totals.handlers,
        totals.faults,
        totals.duplicates,
    );
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Says after how many seeds each mutant is found.
fn hunt(seeds: &Range<u64>) -> ExitCode {
    let mut missed = 0;
    for mutant in Mutant::ALL {
        let found = seeds
            .clone()
            .find_map(|seed| Some((seed, run_mutant(seed, mutant).err()?)));
        if let Some((seed, failure)) = found {
            let seeds = seed - seeds.start + 1;
            println!("{mutant:?}: found after {seeds} seeds\n  {failure}");
        } else {
            println!("{mutant:?}: not found");
            missed += 1;
        }
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Default)]
struct Totals {
    messages: u64,
    deliveries: u64,
    handlers: u64,
    faults: u64,
    duplicates: u64,
}

impl Totals {
    fn add(&mut self, figures: &Figures) {
        self.messages += figures.messages;
        self.deliveries += figures.deliveries;
        self.handlers += figures.handlers;
        self.faults += figures.faults;
        self.duplicates += figures.duplicates;
    }

    fn plus(mut self, other: &Self) -> Self {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.handlers += other.handlers;
        self.faults += other.faults;
        self.duplicates += other.duplicates;
        self
    }
}

/// Shares the seeds out among threads, and watches that none gets stuck.
fn shared_out(asked: &Asked, each: impl Fn(u64, &mut Totals) + Sync) -> Totals {
    let next = AtomicU64::new(asked.seeds.start);
    let playing: Vec<AtomicU64> = (0..asked.threads)
        .map(|_| AtomicU64::new(u64::MAX))
        .collect();
    let (next, each) = (&next, &each);
    thread::scope(|scope| {
        let handles: Vec<_> = playing
            .iter()
            .map(|playing| scope.spawn(move || play_some(asked, next, playing, each)))
            .collect();
        watch(&playing, || {
            handles.iter().all(thread::ScopedJoinHandle::is_finished)
        });
        handles
            .into_iter()
            .map(|handle| handle.join().expect("the run did not panic"))
            .fold(Totals::default(), |sum, part| sum.plus(&part))
    })
}

fn play_some(
    asked: &Asked,
    next: &AtomicU64,
    playing: &AtomicU64,
    each: impl Fn(u64, &mut Totals),
) -> Totals {
    let mut totals = Totals::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= asked.seeds.end {
            playing.store(u64::MAX, Ordering::Relaxed);
            return totals;
        }
        playing.store(seed, Ordering::Relaxed);
        each(seed, &mut totals);
    }
}

/// Ends the program where one seed is played for too long: it spins, and cannot be ended otherwise.
fn watch(playing: &[AtomicU64], done: impl Fn() -> bool) {
    let mut since = vec![(u64::MAX, Instant::now()); playing.len()];
    while !done() {
        thread::sleep(Duration::from_millis(20));
        for (seed, (last, at)) in playing.iter().zip(&mut since) {
            let seed = seed.load(Ordering::Relaxed);
            if seed != *last {
                (*last, *at) = (seed, Instant::now());
            } else if seed != u64::MAX && at.elapsed() > STUCK {
                println!("seed {seed}: still going after {STUCK:?}; it spins");
                std::process::exit(1);
            }
        }
    }
}
