use std::fmt;
use std::sync::Arc;

use crate::handler::{Context, Failure, Handler, HandlerFuture, Layer, Outcome};

/// A layer from a function that takes the message and the handler inside, and calls the handler or
/// does not.
///
/// ```
/// use babelqueue_core::handler::Handler;
/// use babelqueue_core::handler::layers::from_fn;
///
/// let layer = from_fn(|context, inner| async move {
///     let urn = context.envelope().urn().into_owned();
///     let result = inner.call(context).await;
///     println!("{urn}: {result:?}");
///     result
/// });
/// ```
pub fn from_fn<F, R>(function: F) -> FromFn<F>
where
    F: Fn(Context, Arc<dyn Handler>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    FromFn {
        function: Arc::new(function),
    }
}

/// A layer made by [`from_fn`].
pub struct FromFn<F> {
    function: Arc<F>,
}

impl<F, R> Layer for FromFn<F>
where
    F: Fn(Context, Arc<dyn Handler>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        Arc::new(Around {
            function: Arc::clone(&self.function),
            inner,
        })
    }
}

impl<F> Clone for FromFn<F> {
    fn clone(&self) -> Self {
        Self {
            function: Arc::clone(&self.function),
        }
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").finish_non_exhaustive()
    }
}

struct Around<F> {
    function: Arc<F>,
    inner: Arc<dyn Handler>,
}

impl<F, R> Handler for Around<F>
where
    F: Fn(Context, Arc<dyn Handler>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    fn call(&self, context: Context) -> HandlerFuture {
        Box::pin((self.function)(context, Arc::clone(&self.inner)))
    }
}
