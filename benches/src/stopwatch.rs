//! Stopwatch: how long something took, and waiting until it has taken so long.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;

/// Runs from when it is started.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[must_use]
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "measuring time is what this crate is for")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// How long it has run.
    #[must_use]
    #[inline]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Sleeps until it has run that long; not at all if it has.
    #[expect(clippy::disallowed_methods, reason = "a pace is a matter of time, not of conditions")]
    pub fn sleep_until(self, due: Duration) {
        if let Some(left) = due.checked_sub(self.elapsed()) {
            thread::sleep(left);
        }
    }

    /// How many of `count` there were in a second.
    #[must_use]
    pub fn rate(self, count: u64) -> f64 {
        per_second(count, self.elapsed())
    }
}

/// How many of `count` there were in a second, if all of them took `time`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Does the work on this thread with timers that are not put off to be shared with others.
///
/// # Errors
/// What the work returns; if the kernel does not allow it.
pub fn with_tight_timers<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let done = work();
    // None is what it was before.
    rustix::thread::set_current_timer_slack(None)?;
    done
}
