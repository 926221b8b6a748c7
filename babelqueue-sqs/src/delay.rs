//! Delays, as SQS counts them: in whole seconds (contract §13.3, §13.5).

use std::time::Duration;

use babelqueue_core::Error;

/// The longest that a publish may be delayed.
pub(crate) const MAX_PUBLISH: Duration = Duration::from_mins(15);

/// The longest that a message may be invisible, counted from its receipt.
pub(crate) const MAX_VISIBILITY: Duration = Duration::from_hours(12);

/// The `DelaySeconds` of a message; a fraction is rounded up, so that it never comes too early.
///
/// # Errors
///
/// [`Error::Unsupported`] for more than 900 s, and for any delay of a single message of a FIFO queue,
/// zero among them.
pub fn publish_seconds(delay: Option<Duration>, fifo: bool) -> Result<Option<i32>, Error> {
    let Some(delay) = delay else {
        return Ok(None);
    };
    let refused = |context: &str| {
        Err(Error::Unsupported {
            broker: crate::BROKER,
            feature: "delay",
            context: context.to_owned(),
        })
    };
    if fifo {
        return refused("a FIFO queue delays all of its messages or none");
    }
    if delay > MAX_PUBLISH {
        return refused("at most 900 s");
    }
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    Ok(i32::try_from(seconds).ok().filter(|seconds| *seconds > 0))
}

/// The `VisibilityTimeout` that gives a message back after `delay`: whole seconds, a fraction cut
/// off, and no more than what is left of the 12 hours of a message that was received `ago`.
pub fn visibility_seconds(delay: Duration, ago: Duration) -> i32 {
    let most = MAX_VISIBILITY.saturating_sub(ago).as_secs();
    let seconds = delay.as_secs();
    if seconds > most {
        tracing::warn!(seconds, most, "a delay is cut to what SQS can hold back");
    }
    i32::try_from(seconds.min(most)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_message_never_comes_too_early() {
        for (millis, seconds) in [
            (0, None),
            (1, Some(1)),
            (1000, Some(1)),
            (1001, Some(2)),
            (900_000, Some(900)),
        ] {
            let delay = Some(Duration::from_millis(millis));
            assert_eq!(publish_seconds(delay, false).unwrap(), seconds, "{millis}");
        }
        assert!(publish_seconds(Some(Duration::from_millis(900_001)), false).is_err());
        assert!(publish_seconds(Some(Duration::ZERO), true).is_err());
        assert_eq!(publish_seconds(None, true).unwrap(), None);
    }

    #[test]
    fn a_message_is_held_back_no_longer_than_12_hours_after_its_receipt() {
        let hours = Duration::from_hours;
        assert_eq!(visibility_seconds(Duration::from_millis(2900), hours(1)), 2);
        assert_eq!(visibility_seconds(Duration::MAX, hours(0)), 43_200);
        assert_eq!(visibility_seconds(hours(12), hours(11)), 3_600);
        assert_eq!(visibility_seconds(hours(12), hours(13)), 0);
    }
}
