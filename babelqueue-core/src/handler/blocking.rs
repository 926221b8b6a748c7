use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Context, Failure, Handler, HandlerFuture, Incoming, Outcome};

/// A blocking function of an [`Incoming<T>`] as a [`Handler`]: it runs on a thread of its own, and
/// does not stall the runtime.
///
/// Once it has started it cannot be aborted. Its lease is renewed until it returns or the stop's
/// deadline passes; then it is reported, not given back. A timeout around it ends the wait, not the
/// work.
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
            let mut thread = Thread(spawn_blocking(move || {
                let incoming = Incoming::read(context)?;
                function(incoming).map(Into::into)
            }));
            match (&mut thread.0).await {
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
struct Thread(JoinHandle<Result<Outcome, Failure>>);

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<F, T> fmt::Debug for Blocking<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}
