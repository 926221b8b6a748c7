use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::{Context, Failure, Handler, HandlerFuture, Incoming, Outcome};

/// An async function of an [`Incoming<T>`] as a [`Handler`].
///
/// `data` is deserialised straight into `T`; where that fails the message failed, with an error that
/// names the field (contract §7.3).
pub struct Function<F, T> {
    function: F,
    payload: PhantomData<fn(T)>,
}

impl<F, T> Function<F, T> {
    /// Makes `function` a handler.
    pub fn new<Fut, R>(function: F) -> Self
    where
        F: Fn(Incoming<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
        T: DeserializeOwned + 'static,
    {
        Self {
            function,
            payload: PhantomData,
        }
    }
}

impl<F, T, Fut, R> Handler for Function<F, T>
where
    F: Fn(Incoming<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Outcome>,
    T: DeserializeOwned + 'static,
{
    fn call(&self, context: Context) -> HandlerFuture {
        match Incoming::read(context) {
            Ok(incoming) => {
                let handling = (self.function)(incoming);
                Box::pin(async move { handling.await.map(Into::into) })
            }
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }
    }
}

impl<F, T> fmt::Debug for Function<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").finish_non_exhaustive()
    }
}
