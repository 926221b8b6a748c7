use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::from_fn;
use crate::handler::{Failure, Handler, Layer};

/// Makes a panic inside a failure ([`Panicked`](crate::handler::Panicked)) already here, so that the
/// layers outside see it as one.
///
/// A worker catches every panic itself; this is for a layer of one's own that has to tidy up.
#[derive(Debug, Clone, Copy, Default)]
pub struct CatchPanic;

impl Layer for CatchPanic {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let catch = from_fn(|context, inner: Arc<dyn Handler>| async move {
            // The call itself can panic as well as its future. Nothing that it left half-done is
            // looked at again.
            let handling = AssertUnwindSafe(async { inner.call(context).await });
            let caught = handling.catch_unwind().await;
            caught.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
        });
        catch.layer(inner)
    }
}
