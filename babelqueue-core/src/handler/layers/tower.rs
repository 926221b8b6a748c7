//! Between [`Handler`] and tower's `Service`, both ways.

use std::any::{Any, type_name};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};

use tower_service::Service;

use crate::BoxError;
use crate::handler::{Context, Failure, Handler, HandlerFuture, Layer, Outcome};

/// A tower `Service` as a [`Handler`].
///
/// Each message gets a clone of the service, as is usual for tower; state that all share belongs
/// behind an `Arc`, or in a buffer.
pub struct TowerHandler<S> {
    // Only to clone it: many services are `Send` and not `Sync`.
    service: Mutex<S>,
}

impl<S> TowerHandler<S> {
    /// Handles messages with `service`.
    pub const fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
        }
    }
}

impl<S> Handler for TowerHandler<S>
where
    S: Service<Context> + Clone + Send + 'static,
    S::Response: Into<Outcome>,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send,
{
    fn call(&self, context: Context) -> HandlerFuture {
        let service = self.service.lock();
        let mut service = service.unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let ready = poll_fn(|cx| service.poll_ready(cx)).await;
            ready.map_err(failure)?;
            service.call(context).await.map(Into::into).map_err(failure)
        })
    }
}

impl<S> fmt::Debug for TowerHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerHandler").finish_non_exhaustive()
    }
}

/// A tower layer as a [`Layer`].
///
/// ```
/// use std::time::Duration;
/// use babelqueue_core::handler::Layer;
/// use babelqueue_core::handler::layers::Tower;
///
/// let layer = Tower::new(tower::timeout::TimeoutLayer::new(Duration::from_secs(5)));
/// # let _: &dyn Layer = &layer;
/// ```
#[derive(Debug, Clone)]
pub struct Tower<L> {
    layer: L,
}

impl<L> Tower<L> {
    /// Wraps handlers with `layer`.
    pub const fn new(layer: L) -> Self {
        Self { layer }
    }
}

impl<L> Layer for Tower<L>
where
    L: tower_layer::Layer<HandlerService> + Send + Sync + 'static,
    TowerHandler<L::Service>: Handler,
{
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let service = HandlerService { handler: inner };
        Arc::new(TowerHandler::new(self.layer.layer(service)))
    }
}

/// A [`Handler`] as a tower `Service`, always ready.
#[derive(Clone)]
pub struct HandlerService {
    handler: Arc<dyn Handler>,
}

impl HandlerService {
    /// Serves with `handler`.
    pub fn new(handler: Arc<dyn Handler>) -> Self {
        Self { handler }
    }
}

impl Service<Context> for HandlerService {
    type Response = Outcome;
    type Error = ServiceFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome, ServiceFailure>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), ServiceFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, context: Context) -> Self::Future {
        let mut handling = self.handler.call(context);
        Box::pin(poll_fn(move |cx| {
            let result = ready!(handling.as_mut().poll(cx));
            Poll::Ready(result.map_err(ServiceFailure))
        }))
    }
}

impl fmt::Debug for HandlerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerService").finish_non_exhaustive()
    }
}

/// A [`Failure`] on its way through tower layers, which want an error that can be boxed. Where it
/// comes out again it is the failure that it was.
#[derive(Debug)]
pub struct ServiceFailure(pub Failure);

impl fmt::Display for ServiceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for ServiceFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.error().source()
    }
}

/// What a service's error means for the message.
fn failure<E: Into<BoxError> + Any>(error: E) -> Failure {
    match error.into().downcast::<ServiceFailure>() {
        Ok(failure) => failure.0,
        Err(error) => Failure::with(error, type_name::<E>()),
    }
}
