//! Time: the wall clock for timestamps, the monotonic clock for intervals, one that tests set.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest timestamp that can be told.
    pub const MIN: Timestamp = Timestamp(i64::MIN);

    /// The timestamp that many milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This timestamp plus `duration`, or the farthest one there is.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }

    /// How much later this is than `earlier`; zero if it is not later.
    #[must_use]
    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Where the engine gets the time from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. It may jump, in either direction.
    fn now(&self) -> Timestamp;

    /// Time since some fixed instant; it never goes back. For intervals and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// The machine's clocks; monotonic time counts from here.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this file is the door to the clock")]
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this file is the door to the clock")]
    fn now(&self) -> Timestamp {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp(millis(since)),
            Err(before) => Timestamp(-millis(before.duration())),
        }
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that stands still until it is moved: for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    millis: AtomicI64,
    monotonic_nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock { millis: AtomicI64::new(now.0), monotonic_nanos: AtomicU64::new(0) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, duration: Duration) {
        let later = self.now().saturating_add(duration);
        self.millis.store(later.0, Ordering::SeqCst);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.monotonic_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an operator or NTP would: monotonic time does not jump.
    pub fn set_wall(&self, now: Timestamp) {
        self.millis.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_nanos.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let far = Timestamp::from_millis(i64::MAX - 1);
        assert_eq!(far.saturating_add(Duration::from_secs(9)).as_millis(), i64::MAX);
        assert_eq!(Timestamp::MIN.saturating_since(far), Duration::ZERO);
        assert!(far.saturating_since(Timestamp::MIN) > Duration::from_secs(1));
    }

    #[test]
    fn a_wall_jump_leaves_monotonic_time_alone() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        clock.advance(Duration::from_secs(1));
        clock.set_wall(Timestamp::from_millis(5));
        assert_eq!((clock.now().as_millis(), clock.monotonic()), (5, Duration::from_secs(1)));
    }
}
