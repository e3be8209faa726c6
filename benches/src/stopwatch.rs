//! Stopwatch: how long something took.

use std::time::{Duration, Instant};

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
