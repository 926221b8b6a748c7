//! A run: the broker, the publisher, the workers one after another, the weather.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::faults::Weather;
use super::handlers::{Rough, Tries};
use super::log::{LifeId, LifeOutcome, Log, Note, Seen};
use super::mutants::{Mutant, Mutated};
use super::scenario::{End, Life, NOW, Scenario, UNKNOWN, WORK};
use super::tap::Tap;
use crate::Error;
use crate::clock::{Clock, ManualClock};
use crate::memory::{Event, Memory};
use crate::random::Random;
use crate::transport::{Outgoing, Transport};
use crate::worker::Worker;

/// How long the last worker may take to empty the queues, when nothing goes wrong any more.
const DRAIN: Duration = Duration::from_mins(30);

/// What a run leaves behind.
#[derive(Debug)]
pub(super) struct History {
    pub(super) events: Vec<Event>,
    pub(super) seen: Vec<Seen>,
    /// What was still in the queues when the last worker had to stop.
    pub(super) left: usize,
    pub(super) began: Instant,
}

#[derive(Clone)]
struct World {
    scenario: Arc<Scenario>,
    memory: Memory,
    log: Arc<Log>,
    mutant: Option<Mutant>,
    tries: Tries,
    clock: Arc<dyn Clock>,
    began: Instant,
}

/// Plays a scenario to its end.
pub(super) async fn play(scenario: Arc<Scenario>, mutant: Option<Mutant>) -> History {
    let memory = Memory::builder().kind(scenario.kind).journal(true).build();
    let log = Arc::new(Log::new(memory.journal()));
    let weather = Weather::new(!scenario.seed, scenario.rates, Arc::clone(&log));
    memory.fail_by(weather);
    let world = World {
        scenario,
        memory,
        log,
        mutant,
        tries: Tries::default(),
        clock: Arc::new(ManualClock::at(NOW)),
        began: Instant::now(),
    };
    let left = world.run().await;
    History {
        left,
        events: world.memory.take_journal(),
        seen: world.log.take(),
        began: world.began,
    }
}

impl World {
    async fn run(&self) -> usize {
        let publisher = tokio::spawn(self.clone().publish());
        let mut parts = vec![tokio::spawn(self.clone().cut())];
        for (id, life) in self.scenario.lives.iter().enumerate() {
            parts.push(tokio::spawn(self.clone().live(id, life.clone())));
        }
        for part in parts {
            expect(part.await);
        }
        self.memory.heal();
        expect(publisher.await);
        self.drain().await
    }

    /// Publishes each message when its time has come, and again until the broker has confirmed it.
    async fn publish(self) {
        let mut next = 0;
        let messages = &self.scenario.messages;
        let mut pending: Vec<usize> = Vec::new();
        while next < messages.len() || !pending.is_empty() {
            if pending.is_empty() {
                sleep_until(self.began + messages[next].at).await;
            }
            let now = Instant::now();
            while next < messages.len() && self.began + messages[next].at <= now {
                pending.push(next);
                next += 1;
            }
            pending = self.publish_some(pending).await;
            if !pending.is_empty() {
                sleep(Duration::from_millis(150)).await;
            }
        }
    }

    /// Gives back those that were not confirmed.
    async fn publish_some(&self, numbers: Vec<usize>) -> Vec<usize> {
        for &number in &numbers {
            self.log.note(Note::Publishing { number });
        }
        let batch: Vec<Outgoing> = numbers
            .iter()
            .map(|&number| self.scenario.messages[number].outgoing.clone())
            .collect();
        let answers = self.memory.publish(batch).await;
        let mut again = Vec::new();
        for (number, answer) in numbers.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.log.note(Note::Confirmed { number }),
                Err(_) => again.push(number),
            }
        }
        again
    }

    async fn cut(self) {
        let mut cuts = self.scenario.cuts.clone();
        cuts.sort_unstable();
        for at in cuts {
            sleep_until(self.began + at).await;
            self.log.note(Note::Cut);
            self.memory.disconnect();
        }
    }

    /// One worker, from its start to its end.
    async fn live(self, id: LifeId, life: Life) {
        sleep_until(self.began + life.from).await;
        let worker = self.worker(id, &life, self.scenario.roughness);
        let (tell, told) = oneshot::channel::<()>();
        let mut running = tokio::spawn(worker.run_until(told));
        let early = tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            () = sleep_until(self.began + life.until) => None,
        };
        let ended = match (early, life.end) {
            (Some(ended), _) => ended,
            (None, End::Stop(_)) => {
                self.log.note(Note::StopTold { life: id });
                drop(tell);
                running.await
            }
            (None, End::Kill) => {
                self.log.note(Note::Killed { life: id });
                running.abort();
                let _aborted = running.await;
                return;
            }
        };
        self.log.note(Note::LifeEnded {
            life: id,
            outcome: outcome(expect(ended)),
        });
    }

    /// The last worker, in fair weather and with handlers that do as they are told. Gives the number
    /// of messages that it could not get done.
    async fn drain(&self) -> usize {
        let id = self.scenario.lives.len();
        let last = Life {
            from: Duration::ZERO,
            until: Duration::ZERO,
            end: End::Stop(Duration::from_secs(30)),
            concurrency: 4,
            prefetch: None,
        };
        let worker = self.worker(id, &last, 0);
        let world = self.clone();
        let stop = async move {
            let end = Instant::now() + DRAIN;
            while world.left() > 0 && Instant::now() < end {
                sleep(Duration::from_secs(1)).await;
            }
            world.log.note(Note::StopTold { life: id });
        };
        let ended = worker.run_until(stop).await;
        self.log.note(Note::LifeEnded {
            life: id,
            outcome: outcome(ended),
        });
        self.left()
    }

    fn left(&self) -> usize {
        let queues = self.scenario.queues.iter();
        queues.map(|queue| self.memory.depth(queue).total()).sum()
    }

    fn worker(&self, id: LifeId, life: &Life, roughness: u64) -> Worker {
        let scenario = &self.scenario;
        let tap = Tap::new(self.memory.clone(), Arc::clone(&self.log), id);
        let transport: Arc<dyn Transport> = match self.mutant {
            Some(bug) => Arc::new(Mutated::new(tap, bug)),
            None => Arc::new(tap),
        };
        let handler = || Rough {
            life: id,
            log: Arc::clone(&self.log),
            seed: scenario.seed,
            roughness,
            tries: Arc::clone(&self.tries),
        };
        let mut worker = Worker::shared(transport)
            .policy(scenario.policy.clone())
            .concurrency(life.concurrency)
            .clock(Arc::clone(&self.clock))
            .random(Random::seeded(scenario.seed ^ id as u64))
            .handler(WORK, handler());
        for queue in &scenario.queues {
            worker = worker.queue(Arc::clone(queue));
        }
        if let Some(prefetch) = life.prefetch {
            worker = worker.prefetch(prefetch);
        }
        if let End::Stop(within) = life.end {
            worker = worker.shutdown_timeout(within);
        }
        if id == scenario.lives.len() {
            worker = worker.handler(UNKNOWN, handler());
        }
        worker
    }
}

fn outcome(ended: Result<crate::worker::Stopped, Error>) -> LifeOutcome {
    match ended {
        Ok(stopped) => LifeOutcome::Stopped {
            in_flight: stopped.in_flight,
            counts: stopped.counts,
        },
        Err(_) => LifeOutcome::Failed,
    }
}

/// A part of the simulation does not panic; if it does, so does the run.
fn expect<T>(part: Result<T, tokio::task::JoinError>) -> T {
    match part {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => std::panic::panic_any(error.to_string()),
        },
    }
}
