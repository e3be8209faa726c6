//! Bounds: where a partition begins, what of it is durable, where it ends.
//!
//! Invariant: `log_start <= durable_end <= end`, and none of them goes back. Each has one writer:
//! retention, group commit, and append; they assert this.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::offset::Offset;

/// Where a partition begins and ends; every end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The oldest offset that is kept.
    pub log_start: Offset,
    /// Everything below is known to be on disk.
    pub durable_end: Offset,
    /// The offset of the next record.
    pub end: Offset,
}

#[derive(Debug)]
pub(super) struct Bounds {
    log_start: AtomicU64,
    durable_end: AtomicU64,
    end: AtomicU64,
}

impl Bounds {
    pub(super) fn new(ends: Ends) -> Bounds {
        assert!(ends.log_start <= ends.end && ends.durable_end <= ends.end, "{ends:?}");
        Bounds {
            log_start: AtomicU64::new(ends.log_start),
            durable_end: AtomicU64::new(ends.durable_end),
            end: AtomicU64::new(ends.end),
        }
    }

    #[inline]
    pub(super) fn log_start(&self) -> Offset {
        self.log_start.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn durable(&self) -> Offset {
        self.durable_end.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn end(&self) -> Offset {
        self.end.load(Ordering::Acquire)
    }

    /// All three, loaded in the order that keeps the invariant visible.
    pub(super) fn all(&self) -> Ends {
        let log_start = self.log_start();
        let durable_end = self.durable();
        Ends { log_start, durable_end, end: self.end() }
    }

    #[inline]
    pub(super) fn raise_end(&self, end: Offset) {
        debug_assert!(self.end() <= end, "the end only grows");
        self.end.store(end, Ordering::Release);
    }

    pub(super) fn raise_durable(&self, durable_end: Offset) {
        assert!(durable_end <= self.end(), "nothing is durable before it is there");
        self.durable_end.fetch_max(durable_end, Ordering::AcqRel);
    }

    pub(super) fn raise_log_start(&self, log_start: Offset) {
        assert!(log_start <= self.end(), "the log begins before it ends");
        self.log_start.fetch_max(log_start, Ordering::AcqRel);
    }

    /// Nobody can wait for what has not been appended.
    pub(super) fn must_reach(&self, offset: Offset) -> Result<()> {
        let Ends { log_start, end, .. } = self.all();
        if offset > end {
            return Err(Error::OffsetOutOfRange { offset, log_start, end });
        }
        Ok(())
    }
}
