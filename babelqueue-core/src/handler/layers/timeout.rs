use std::sync::Arc;
use std::time::Duration;

use super::from_fn;
use crate::handler::{Failure, Handler, Layer};

/// Ends a handler that takes too long: its future is dropped where it waits, and the message has
/// failed with [`TimedOut`].
///
/// A blocking handler cannot be ended: the message has failed all the same, and may run again while
/// the first run goes on.
#[derive(Debug, Clone, Copy)]
pub struct Timeout {
    after: Duration,
}

impl Timeout {
    /// Ends handlers after this time.
    pub const fn after(after: Duration) -> Self {
        Self { after }
    }
}

impl Layer for Timeout {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let after = self.after;
        let timed = from_fn(move |context, inner: Arc<dyn Handler>| async move {
            let handling = tokio::time::timeout(after, inner.call(context));
            let timed_out = |_| Err(Failure::named(TimedOut { after }, "TimedOut"));
            handling.await.unwrap_or_else(timed_out)
        });
        timed.layer(inner)
    }
}

/// A handler took longer than its [`Timeout`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler was not done after {after:?}")]
#[non_exhaustive]
pub struct TimedOut {
    /// What it was allowed.
    pub after: Duration,
}
