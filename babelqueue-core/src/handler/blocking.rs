use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::de::DeserializeOwned;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Context, Failure, Handler, HandlerFuture, Incoming, Outcome};

/// A blocking function of an [`Incoming<T>`] as a [`Handler`]: it runs on a thread of its own, and
/// does not stall the runtime.
///
/// Once it has started it cannot be aborted. Its lease is renewed until it returns or the stop's
/// deadline passes; then it is reported, not given back. One that still waits for its thread is given
/// back. A timeout around it ends the wait, not the work.
pub struct Blocking<F, T> {
    function: Arc<F>,
    payload: PhantomData<fn(T)>,
}

impl<F, T> Blocking<F, T> {
    /// Makes `function` a handler.
    pub fn new<R>(function: F) -> Self
    where
        F: Fn(Incoming<T>) -> Result<R, Failure> + Send + Sync + 'static,
        R: Into<Outcome>,
        T: DeserializeOwned + 'static,
    {
        Self {
            function: Arc::new(function),
            payload: PhantomData,
        }
    }
}

impl<F, T, R> Handler for Blocking<F, T>
where
    F: Fn(Incoming<T>) -> Result<R, Failure> + Send + Sync + 'static,
    R: Into<Outcome>,
    T: DeserializeOwned + 'static,
{
    fn call(&self, context: Context) -> HandlerFuture {
        let function = Arc::clone(&self.function);
        Box::pin(async move {
            let turn = context.turn().cloned().unwrap_or_default();
            turn.wait();
            let begun = Arc::clone(&turn);
            let call = spawn_blocking(move || {
                if !begun.begin() {
                    return Err(Failure::msg("nobody waits for it any more"));
                }
                let incoming = Incoming::read(context)?;
                function(incoming).map(Into::into)
            });
            let mut thread = Thread { call, turn };
            match (&mut thread.call).await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(payload) => resume_unwind(payload),
                    Err(error) => Err(Failure::from(error)),
                },
            }
        })
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

/// A call that has not started yet never starts once nobody waits for it.
struct Thread {
    call: JoinHandle<Result<Outcome, Failure>>,
    turn: Arc<Turn>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.call.abort();
        self.turn.give_up();
    }
}

/// Whether a blocking call has got its thread: there may be fewer threads than calls. One that has
/// not is as good as never made, and its message can be given back.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU8);

const UNASKED: u8 = 0;
const WAITING: u8 = 1;
const BEGUN: u8 = 2;
const GIVEN_UP: u8 = 3;

impl Turn {
    /// A call waits for its thread. One that was given up before may be made anew.
    fn wait(&self) {
        for from in [UNASKED, GIVEN_UP] {
            self.turn(from, WAITING);
        }
    }

    /// The call has its thread. False where nobody waits for it any more.
    fn begin(&self) -> bool {
        self.turn(WAITING, BEGUN);
        self.0.load(Ordering::SeqCst) != GIVEN_UP
    }

    /// Nobody waits for the call any more.
    fn give_up(&self) {
        self.turn(WAITING, GIVEN_UP);
    }

    /// Whether it has not begun, and never will.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::SeqCst) == GIVEN_UP
    }

    fn turn(&self, from: u8, to: u8) {
        // Where it is something else, that is how it stays.
        let order = Ordering::SeqCst;
        let _ = self.0.compare_exchange(from, to, order, order);
    }
}

impl<F, T> fmt::Debug for Blocking<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}
