//! What the handlers of a run do: anything that a user's may do.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::dice::Dice;
use super::log::{Ending, LifeId, Log, Note};
use super::scenario::LEASE;
use crate::handler::{Context, Failure, Handler, HandlerFuture, Outcome};
use crate::transport::Fence;

/// How often each message was handled, over all lives: what a handler does follows from it.
pub(super) type Tries = Arc<Mutex<BTreeMap<Vec<u8>, u64>>>;

pub(super) struct Rough {
    pub(super) life: LifeId,
    pub(super) log: Arc<Log>,
    pub(super) seed: u64,
    /// 0 for one that does what it is told.
    pub(super) roughness: u64,
    pub(super) tries: Tries,
}

/// What one call does, after it has waited.
#[derive(Debug, Clone, Copy)]
enum Act {
    End(Ending),
    PanicAtOnce,
    Panic,
}

impl Handler for Rough {
    fn call(&self, context: Context) -> HandlerFuture {
        let fence = context.delivery().fence;
        self.log.note(Note::Started {
            life: self.life,
            fence,
            attempts: context.attempts(),
            lost: context.is_lost(),
            body: context.envelope().bytes().clone(),
            headers: context.headers().clone(),
        });
        let mut running = Running {
            log: Arc::clone(&self.log),
            fence,
            ending: Ending::Aborted,
        };
        let (act, wait, until_lost) = self.draw(&context);
        if matches!(act, Act::PanicAtOnce) {
            running.ending = Ending::Failed;
            drop(running);
            // Without the panic hook, which would print.
            resume_unwind(Box::new("a panic of the simulation, at once"));
        }
        Box::pin(async move {
            if until_lost {
                tokio::select! {
                    biased;
                    () = context.lost() => {}
                    () = context.stopping() => {}
                    () = sleep(wait) => {}
                }
            } else if wait.is_zero() {
                yield_now().await;
            } else {
                sleep(wait).await;
            }
            let Act::End(ending) = act else {
                running.ending = Ending::Failed;
                drop(running);
                resume_unwind(Box::new("a panic of the simulation"));
            };
            running.ending = ending;
            drop(running);
            match ending {
                Ending::Done | Ending::Aborted => Ok(Outcome::Done),
                Ending::Drop => Ok(Outcome::Drop),
                Ending::Failed => Err(Failure::msg("a failure of the simulation")),
                Ending::RetryAfter => Ok(Outcome::RetryAfter(Duration::from_secs(3))),
                Ending::Reject => Ok(Outcome::Reject),
            }
        })
    }
}

impl Rough {
    /// What to do, after how long, and whether a loss or a stop ends the wait.
    fn draw(&self, context: &Context) -> (Act, Duration, bool) {
        let key = context
            .id()
            .map_or_else(Vec::new, |id| id.as_bytes().to_vec());
        let tries = {
            let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
            let tries = tries.entry(key.clone()).or_default();
            *tries += 1;
            *tries
        };
        let mix = key
            .iter()
            .fold(self.seed ^ tries.rotate_left(40), |mix, &byte| {
                (mix ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let mut dice = Dice::new(mix);
        if self.roughness == 0 {
            return (
                Act::End(Ending::Done),
                Duration::from_millis(dice.below(20)),
                false,
            );
        }
        let act = match dice.below(100 / self.roughness) {
            0..=5 => Act::End(Ending::Failed),
            6 | 7 => Act::End(Ending::RetryAfter),
            8 => Act::End(Ending::Reject),
            9 => Act::End(Ending::Drop),
            10 | 11 => Act::Panic,
            12 => Act::PanicAtOnce,
            _ => Act::End(Ending::Done),
        };
        let (wait, until_lost) = match dice.below(20) {
            0..=9 => (Duration::ZERO, false),
            10..=16 => (Duration::from_millis(dice.below(300)), false),
            17 | 18 => (LEASE / 5 * (1 + dice.below_u32(10)), false),
            _ => (LEASE * 3, true),
        };
        (act, wait, until_lost)
    }
}

/// Notes the end of a handler, also where it is dropped half-way.
struct Running {
    log: Arc<Log>,
    fence: Fence,
    ending: Ending,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.log.note(Note::Ended {
            fence: self.fence,
            ending: self.ending,
        });
    }
}
