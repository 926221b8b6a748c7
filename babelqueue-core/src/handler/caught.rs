//! Running a user's code where a panic must go no further.

use std::any::Any;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use super::{Failure, HandlerFuture, Outcome};

/// What `run` gives, or its panic as a failure. Nothing that a panic left half-done is looked at
/// again.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Failure::panicked)
}

/// Polls a handler.
pub(crate) fn poll_caught(
    handling: &mut HandlerFuture,
    cx: &mut Context<'_>,
) -> Poll<Result<Outcome, Failure>> {
    caught(|| handling.as_mut().poll(cx)).unwrap_or_else(|failure| Poll::Ready(Err(failure)))
}

/// What a handler that is done has given, once what it leaves behind is dropped: that can panic as
/// well, and then the handler has.
pub(crate) fn clear_away(
    handling: HandlerFuture,
    result: Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    match caught(|| drop(handling)) {
        Ok(()) => result,
        Err(failure) => {
            discard(result);
            Err(failure)
        }
    }
}

/// Drops what is of no use any more. Should that panic, nobody hears of it.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        discard_payload(payload);
    }
}

/// Drops what a panic carried, which can panic in turn. What that one carries is never dropped: it
/// could go on for ever.
pub(super) fn discard_payload(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb(usize);

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Self(self.0 + 1));
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_goes_no_further() {
        let failure = caught(|| std::panic::panic_any(Bomb(0))).unwrap_err();
        assert_eq!(failure.exception(), "Panicked");
        discard(Bomb(0));
    }

    #[test]
    fn a_future_that_panics_when_it_is_dropped_has_panicked() {
        let bomb = |result: Result<Outcome, Failure>| {
            let bomb = Bomb(0);
            let handling: HandlerFuture = Box::pin(async move {
                let _bomb = &bomb;
                Ok(Outcome::Done)
            });
            clear_away(handling, result)
        };
        let rude = || Failure::from(RudeError(Bomb(0)));
        for result in [Ok(Outcome::Done), Err(rude())] {
            assert_eq!(bomb(result).unwrap_err().exception(), "Panicked");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("rude")]
    struct RudeError(Bomb);

    impl std::fmt::Debug for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Bomb")
        }
    }
}
