//! Settings: how a consumer behaves.

use std::time::Duration;

use super::record::OpenLimits;
use crate::config::DURATION_MAX;
use crate::error::{Error, Result};

/// When what is handed over counts as done, and is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitMode {
    /// At least once. What was handed over is done when the consumer is asked for more, or to
    /// commit, or is closed; what is done is committed this often, and when a partition moves.
    Automatic {
        /// How often.
        every: Duration,
    },
    /// At least once. Records are done when they are marked, in any order; they are committed when
    /// `commit` is called, and at no other time.
    Manual,
    /// At most once. Records are committed, a run at a time, before they are handed over: what a
    /// crash interrupts is not handed over again.
    AtMostOnce,
}

impl Default for CommitMode {
    fn default() -> CommitMode {
        CommitMode::Automatic { every: Duration::from_secs(1) }
    }
}

/// What to do when the offset to read is not in the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfRange {
    /// `next` returns an error, and the partition stands still until `seek` or `resume`.
    #[default]
    Error,
    /// Go on at the oldest record that is left; the skipped range is an event.
    Earliest,
    /// Go on with what is appended from now on; the skipped range is an event.
    Latest,
}

/// What to do about records that are damaged on the server's disk, or on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// `next` returns an error, and the partition stands still until `seek` or `resume`.
    #[default]
    Error,
    /// Go on behind them; the skipped range is an event.
    Skip,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) mode: CommitMode,
    pub(super) out_of_range: OutOfRange,
    pub(super) on_corrupt: OnCorrupt,
    pub(super) session_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) processing_timeout: Duration,
    pub(super) max_ahead: u64,
    pub(super) prefetch_bytes: u32,
    pub(super) partition_bytes: u32,
    pub(super) batch_max_expanded_bytes: u32,
    pub(super) fetch_wait: Duration,
    /// The most bytes of a frame, as the client takes them.
    pub(super) frame_max_bytes: usize,
    /// How long a commit is tried.
    pub(super) commit_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: CommitMode::default(),
            out_of_range: OutOfRange::default(),
            on_corrupt: OnCorrupt::default(),
            session_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            processing_timeout: Duration::from_secs(300),
            max_ahead: 100_000,
            prefetch_bytes: 16 * 1024 * 1024,
            partition_bytes: 1024 * 1024,
            batch_max_expanded_bytes: 256 * 1024 * 1024,
            fetch_wait: Duration::from_millis(500),
            frame_max_bytes: usize::MAX,
            commit_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// What is decompressed of a partition at a time is about as much as is fetched of it.
    pub(super) fn open_limits(&self) -> OpenLimits {
        let bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        OpenLimits {
            batch_bytes: bytes(self.batch_max_expanded_bytes),
            run_bytes: bytes(self.partition_bytes),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let every = match self.mode {
            CommitMode::Automatic { every } => every,
            _ => DURATION_MAX,
        };
        let timeouts = [self.session_timeout, self.drain_timeout, self.processing_timeout];
        let longest = timeouts.into_iter().chain([every, self.commit_timeout, self.fetch_wait]);
        let wrong = if every.is_zero() {
            "the time between commits must be longer than zero"
        } else if timeouts.iter().any(|timeout| timeout.is_zero()) {
            "session, drain and processing timeout must be longer than zero"
        } else if longest.max() > Some(DURATION_MAX) {
            "times are a year at most"
        } else if self.max_ahead == 0 {
            "max_ahead must be one at least"
        } else if self.partition_bytes == 0 || self.prefetch_bytes < self.partition_bytes {
            "partition_bytes must be one at least, and prefetch_bytes no less than it"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }
}
