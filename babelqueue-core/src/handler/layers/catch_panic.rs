use std::future::poll_fn;
use std::sync::Arc;

use super::from_fn;
use crate::handler::{Handler, Layer, caught, clear_away, poll_caught};

/// Makes a panic inside a failure ([`Panicked`](crate::handler::Panicked)) already here, so that the
/// layers outside see it as one.
///
/// A worker catches every panic itself; this is for a layer of one's own that has to tidy up.
#[derive(Debug, Clone, Copy, Default)]
pub struct CatchPanic;

impl Layer for CatchPanic {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let catch = from_fn(|context, inner: Arc<dyn Handler>| async move {
            // The call itself can panic as well as its future, and the drop of what it leaves behind.
            let mut handling = caught(|| inner.call(context))?;
            let result = poll_fn(|cx| poll_caught(&mut handling, cx)).await;
            clear_away(handling, result)
        });
        catch.layer(inner)
    }
}
