use std::any::{Any, type_name};
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Outcome;
use super::caught::discard_payload;
use super::report::report;
use crate::BoxError;

/// Why a handler failed: any error at all, with what should become of the message.
///
/// Every type that is an [`Error`](std::error::Error) converts into it, so `?` works in a handler. For
/// a boxed error or `anyhow::Error`, which are none, there is `.map_err(|e| Failure::boxed(e.into()))`;
/// for a text [`Failure::msg`]. It remembers the error's type for the dead-letter record
/// (`dead_letter.exception`, contract §6.1), and for that reason is no [`Error`](std::error::Error)
/// itself.
///
/// ```
/// use std::time::Duration;
/// use babelqueue_core::handler::{Failure, Outcome};
///
/// fn amount(text: &str) -> Result<f64, Failure> {
///     // A number that cannot be read is no better the next time.
///     text.parse().map_err(|error| Failure::from(error).reject())
/// }
///
/// let failure = amount("ten").unwrap_err();
/// assert_eq!(failure.outcome(), Outcome::Reject);
/// assert_eq!(failure.exception(), "core::num::dec2flt::ParseFloatError");
/// assert_eq!(Failure::msg("closed").retry_after(Duration::from_mins(1)).to_string(), "closed");
/// ```
pub struct Failure {
    // Boxed as a whole, so that a handler's result stays two words.
    inner: Box<Inner>,
}

struct Inner {
    error: BoxError,
    exception: &'static str,
    outcome: Outcome,
}

impl Failure {
    /// A failure that is nothing but a text.
    pub fn msg(text: impl fmt::Display) -> Self {
        Self::named(Message(text.to_string()), "Failure")
    }

    /// A failure from an error whose type is erased already. (A `Box<dyn Error>` is no `Error`, so
    /// `?` cannot convert it.)
    pub fn boxed(error: BoxError) -> Self {
        Self::with(error, type_name::<BoxError>())
    }

    /// Tries again after `delay` in place of the policy's back-off
    /// ([`Outcome::RetryAfter`]).
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.inner.outcome = Outcome::RetryAfter(delay);
        self
    }

    /// Does not try again ([`Outcome::Reject`]).
    #[must_use]
    pub fn reject(mut self) -> Self {
        self.inner.outcome = Outcome::Reject;
        self
    }

    /// What should become of the message: [`Retry`](Outcome::Retry) unless
    /// [`retry_after`](Self::retry_after) or [`reject`](Self::reject) said otherwise.
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// The name of the error's type, as it stands in the dead-letter record.
    pub fn exception(&self) -> &'static str {
        self.inner.exception
    }

    /// The error itself.
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.inner.error
    }

    /// The error as an `E`, where it is one.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.inner.error.downcast_ref()
    }

    /// The error and what it came from, in one line: as it is logged, and stands in the dead-letter
    /// record. Never longer than [`TEXT_LIMIT`], and never a panic: an error whose own text cannot be
    /// had says so.
    ///
    /// [`TEXT_LIMIT`]: crate::dead_letter::TEXT_LIMIT
    pub fn report(&self) -> String {
        report(&*self.inner.error)
    }

    /// A failure whose error is one of this crate's: its name alone stands for its type.
    pub(crate) fn named(error: impl StdError + Send + Sync + 'static, name: &'static str) -> Self {
        Self::with(error.into(), name)
    }

    /// What a panic leaves behind.
    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        let panicked = Panicked::new(&*payload);
        discard_payload(payload);
        Self::named(panicked, "Panicked")
    }

    /// A failure from an error of that type.
    pub(crate) fn with(error: BoxError, exception: &'static str) -> Self {
        let inner = Inner {
            error,
            exception,
            outcome: Outcome::Retry,
        };
        Self {
            inner: Box::new(inner),
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::with(Box::new(error), type_name::<E>())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner.error, f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("error", &self.inner.error)
            .field("exception", &self.inner.exception)
            .field("outcome", &self.inner.outcome)
            .finish()
    }
}

/// The error behind [`Failure::msg`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Message(String);

/// A handler panicked. The panic's own output went to the panic hook.
#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {message}")]
pub struct Panicked {
    message: String,
}

impl Panicked {
    /// The panic's message where it is a text, as `panic!` makes it.
    fn new(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&'static str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Self { message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::TEXT_LIMIT;

    #[derive(Debug, thiserror::Error)]
    #[error("no answer")]
    struct NoAnswer(#[source] std::num::ParseIntError);

    fn fails() -> Result<(), Failure> {
        "x".parse::<i32>().map_err(NoAnswer)?;
        Ok(())
    }

    #[test]
    fn an_error_keeps_its_type_and_its_causes() {
        let failure = fails().unwrap_err();
        assert!(failure.exception().ends_with("NoAnswer"));
        assert_eq!(failure.to_string(), "no answer");
        assert_eq!(failure.report(), "no answer: invalid digit found in string");
        assert!(failure.downcast_ref::<NoAnswer>().is_some());
        assert_eq!(failure.outcome(), Outcome::Retry);
    }

    #[test]
    fn a_cause_that_the_text_names_already_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] NoAnswer);

        let cause = NoAnswer("x".parse::<i32>().unwrap_err());
        let failure = Failure::from(Outer(cause));
        assert_eq!(
            failure.report(),
            "outer: no answer: invalid digit found in string"
        );
    }

    #[test]
    fn a_report_has_an_end_whatever_the_error_does() {
        enum Rude {
            Ring,
            Long,
            Fails,
            Panics,
        }
        impl fmt::Display for Rude {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rude")?;
                match self {
                    Self::Ring => Ok(()),
                    Self::Long => loop {
                        f.write_str("☕")?;
                    },
                    Self::Fails => Err(fmt::Error),
                    Self::Panics => panic!("no text"),
                }
            }
        }
        impl fmt::Debug for Rude {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Rude")
            }
        }
        impl StdError for Rude {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(self)
            }
        }
        let report = |error: Rude| Failure::from(error).report();
        assert_eq!(report(Rude::Ring), "rude");
        let long = report(Rude::Long);
        assert!(long.ends_with("☕…") && long.len() <= TEXT_LIMIT, "{long}");
        assert!(report(Rude::Fails).contains("its Display failed"));
        assert!(report(Rude::Panics).contains("it panicked"));
    }

    #[test]
    fn the_handler_says_what_becomes_of_the_message() {
        let later = Failure::msg("busy").retry_after(Duration::from_secs(9));
        assert_eq!(later.outcome(), Outcome::RetryAfter(Duration::from_secs(9)));
        assert_eq!(Failure::msg("bad").reject().outcome(), Outcome::Reject);
        assert_eq!(Failure::msg("bad").exception(), "Failure");
    }

    #[test]
    fn a_panic_is_told_by_its_message() {
        let texts: [(Box<dyn Any + Send>, &str); 3] = [
            (Box::new("static"), "the handler panicked: static"),
            (Box::new("owned".to_owned()), "the handler panicked: owned"),
            (Box::new(7_u8), "the handler panicked: no message"),
        ];
        for (payload, expected) in texts {
            let failure = Failure::panicked(payload);
            assert_eq!(failure.to_string(), expected);
            assert_eq!(failure.exception(), "Panicked");
        }
    }
}
