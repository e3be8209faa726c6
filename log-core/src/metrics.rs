//! Metrics: plain counters that the engine adds to and anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it has grown to.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a store has done since it was opened.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Syncs of segment files.
    pub syncs: Counter,
    /// Segments begun.
    pub segments_rolled: Counter,
    /// Segments removed by retention or trim.
    pub segments_removed: Counter,
    /// Reads that met corrupt bytes.
    pub corrupt_reads: Counter,
    /// Maintenance jobs that failed.
    pub maintenance_failures: Counter,
    /// Maps of sealed segments made, and made again after they were let go.
    pub maps_made: Counter,
}
