//! Wall time, injected.
//!
//! Everything that ends up on the wire or in a broker's score (`created_at`, `failed_at`, a
//! reservation's deadline) is read from a [`Clock`], so that a test pins it. What only runs inside
//! this process (back-off, renewals, the stop's deadline) goes by `tokio::time`, which a paused
//! runtime drives.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of wall time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Time since the Unix epoch, UTC.
    fn unix_time(&self) -> Duration;

    /// [`unix_time`](Self::unix_time) in whole milliseconds, the unit of `meta.created_at` and
    /// `dead_letter.failed_at` (contract §1).
    fn unix_millis(&self) -> i64 {
        i64::try_from(self.unix_time().as_millis()).unwrap_or(i64::MAX)
    }
}

/// The machine's own clock. A clock set before 1970 reads as the epoch.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_time(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// A clock that moves only when it is told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `since_epoch`.
    pub fn at(since_epoch: Duration) -> Self {
        let clock = Self::default();
        clock.set(since_epoch);
        clock
    }

    /// Sets the time since the Unix epoch (nanosecond resolution, up to the year 2554).
    pub fn set(&self, since_epoch: Duration) {
        let nanos = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(nanos, Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.unix_time() + by);
    }
}

impl Clock for ManualClock {
    fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}
