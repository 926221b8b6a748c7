use std::time::Duration;

/// What a handler wants done with its message.
///
/// A handler that returns `Ok(())` says [`Done`](Self::Done); one that returns an error says that
/// it failed, and the queue's policy decides ([`Failure`](super::Failure)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled: the message is acknowledged.
    #[default]
    Done,
    /// Try again after the policy's back-off. It counts as an attempt, as a failure does: at the cap
    /// the message is dead-lettered, or dropped where dead-lettering is off (contract §7.4).
    Retry,
    /// The same after this delay in place of the back-off. Where the broker has no delay, or fixed
    /// steps of its own, the broker's way decides.
    RetryAfter(Duration),
    /// No attempt will help: to the dead-letter queue at once with reason `failed`, or dropped with
    /// a warning where dead-lettering is off (contract §7.3).
    Reject,
    /// Not wanted, and not worth keeping: acknowledged without being handled.
    Drop,
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}
