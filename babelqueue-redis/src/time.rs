//! The time that a call goes by: ours, or the server's.

use std::time::Duration;

use crate::config::Time;
use crate::reply;

/// The time that a call goes by.
#[derive(Debug)]
pub(crate) struct Now {
    /// As a script takes it: whole seconds, or nothing for the server's own.
    text: String,
    ours: Option<Duration>,
}

impl Now {
    /// The time now by `time`.
    pub(crate) fn by(time: &Time) -> Self {
        match time {
            Time::Ours(clock) => {
                let since_epoch = clock.unix_time();
                Self {
                    text: since_epoch.as_secs().to_string(),
                    ours: Some(since_epoch),
                }
            }
            Time::Server => Self {
                text: String::new(),
                ours: None,
            },
        }
    }

    /// As a script takes it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The time that the script went by, since the epoch, given what it answered.
    pub(crate) fn answered(&self, text: &[u8]) -> Duration {
        self.ours.unwrap_or_else(|| {
            let seconds = reply::number(text).unwrap_or_default();
            Duration::try_from_secs_f64(seconds).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use babelqueue_core::clock::ManualClock;

    use super::*;

    #[test]
    fn our_time_goes_out_in_whole_seconds_and_counts_to_the_nanosecond() {
        let clock = Arc::new(ManualClock::at(Duration::from_millis(1_000_700)));
        let now = Now::by(&Time::Ours(clock));
        assert_eq!(now.text(), "1000");
        assert_eq!(now.answered(b"1000"), Duration::from_millis(1_000_700));
    }

    #[test]
    fn the_servers_time_is_what_it_answers() {
        let now = Now::by(&Time::Server);
        assert_eq!(now.text(), "");
        assert_eq!(now.answered(b"1000.25"), Duration::from_millis(1_000_250));
        assert_eq!(now.answered(b"nonsense"), Duration::ZERO);
    }
}
