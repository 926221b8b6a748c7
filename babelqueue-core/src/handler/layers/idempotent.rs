use std::borrow::Cow;
use std::sync::Arc;

use super::{CatchPanic, from_fn};
use crate::handler::{Handler, Layer, Outcome};
use crate::idempotency::{Effect, Idempotent};

/// Skips a message that has been handled, and has it acknowledged. A message counts as handled when
/// its handler says that it is done with it: [`Outcome::Done`] or [`Outcome::Drop`].
impl Layer for Idempotent {
    fn layer(&self, inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let once = self.clone();
        let layer = from_fn(move |context, inner: Arc<dyn Handler>| {
            let once = once.clone();
            async move {
                let id = context.id().map(Cow::into_owned);
                let done = |outcome: &Outcome| matches!(outcome, Outcome::Done | Outcome::Drop);
                let handler = || inner.call(context);
                let effect = once.run_remembering_if(id.as_deref(), done, handler);
                match effect.await? {
                    Effect::Ran(outcome) => Ok(outcome),
                    Effect::Skipped => {
                        tracing::debug!(id, "skipped: the message has been handled before");
                        Ok(Outcome::Done)
                    }
                }
            }
        });
        // A panic must not leave a claim behind.
        layer.layer(CatchPanic.layer(inner))
    }
}
