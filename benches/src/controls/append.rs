//! The control for appends: batches stored straight into the map of a fresh file.
//!
//! The same bytes as the engine's, stamped and with both checksums; the file's blocks and page
//! frames are had ahead of the stores, in steps, while the clock runs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use log_core::clock::Timestamp;
use log_core::record::{Record, Stamp, encode_into, encoded_len, stamp};
use log_core::segment::seed_at;

use crate::Outcome;
use crate::raw_map::{Ahead, RawMap};
use crate::stats::{Latencies, Tail};
use crate::stopwatch::Stopwatch;
use crate::work::in_batches;

/// The most that a bare log may grow to; it is mapped at once, which costs nothing.
const MAP_BYTES: usize = 3 << 30;
const ALLOCATE_STEP_BYTES: usize = 64 << 20;
const POPULATE_STEP_BYTES: usize = 1 << 20;
/// How far ahead a thread of its own keeps the log.
const AHEAD_BYTES: usize = 16 << 20;

/// What header checksums begin from; the engine makes one for each segment.
pub(super) const SEED: u32 = 0x5eed_5eed;
/// A control does not ask what time it is.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A log that is nothing but its bytes.
#[derive(Debug)]
pub struct BareLog {
    map: RawMap,
    position: usize,
    end: u64,
    /// Who populates ahead; without one, the appending thread does it.
    preparer: Option<Preparer>,
}

impl BareLog {
    /// A new one, which the appending thread keeps ahead of itself.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn create(path: &Path) -> Outcome<BareLog> {
        let map = RawMap::create(path, MAP_BYTES)?;
        Ok(BareLog { map, position: 0, end: 0, preparer: None })
    }

    /// A new one, which a thread of its own keeps ahead.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn create_prepared(path: &Path) -> Outcome<BareLog> {
        let mut log = BareLog::create(path)?;
        log.preparer = Some(Preparer::start(Arc::clone(log.map.ahead()))?);
        Ok(log)
    }

    /// Appends the records as one batch.
    ///
    /// # Errors
    /// If there is no space.
    #[inline]
    pub fn append(&mut self, records: &[Record<'_>]) -> Outcome<()> {
        let (position, end) = (self.position, self.end);
        self.write(encoded_len(records, NOW), |batch| {
            encode_into(batch, records, NOW);
            let stamps = Stamp { base_offset: end, append_time: NOW, durable_end: 0, epoch: 1 };
            stamp(batch, stamps, seed_at(SEED, position as u64));
        })?;
        self.end += records.len() as u64;
        Ok(())
    }

    /// Copies in a batch that was encoded and stamped elsewhere; its records are not counted.
    ///
    /// # Errors
    /// If there is no space.
    #[inline]
    pub fn store(&mut self, batch: &[u8]) -> Outcome<()> {
        self.write(batch.len(), |bytes| bytes.copy_from_slice(batch))
    }

    #[inline]
    fn write(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome<()> {
        let next = self.position + len;
        if next > self.map.ahead().allocated() || next > self.map.ahead().populated() {
            self.prepare(next)?;
        }
        write(self.map.bytes_mut(self.position, len));
        self.position = next;
        if let Some(preparer) = &self.preparer {
            preparer.has_come_to(next);
        }
        Ok(())
    }

    /// Everything that was appended.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes(0, self.position)
    }

    /// One past the last offset.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    #[cold]
    fn prepare(&self, next: usize) -> io::Result<()> {
        let ahead = self.map.ahead();
        if next > ahead.allocated() {
            ahead.allocate_until(next + ALLOCATE_STEP_BYTES)?;
        }
        if self.preparer.is_none() {
            ahead.populate_until(next + POPULATE_STEP_BYTES)?;
        }
        Ok(())
    }
}

/// A thread that allocates and populates ahead of the appends.
#[derive(Debug)]
struct Preparer {
    shared: Arc<Progress>,
    ahead: Arc<Ahead>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Progress {
    position: AtomicUsize,
    parked: AtomicBool,
    stopped: AtomicBool,
}

impl Preparer {
    fn start(ahead: Arc<Ahead>) -> io::Result<Preparer> {
        let shared = Arc::new(Progress::default());
        let (its_shared, its_ahead) = (Arc::clone(&shared), Arc::clone(&ahead));
        let run = move || its_shared.keep_ahead(&its_ahead);
        let thread = Some(thread::Builder::new().name("preparer".to_owned()).spawn(run)?);
        Ok(Preparer { shared, ahead, thread })
    }

    #[inline]
    fn has_come_to(&self, position: usize) {
        self.shared.position.store(position, Ordering::Release);
        if self.ahead.populated() < position + AHEAD_BYTES / 2 {
            self.wake();
        }
    }

    fn wake(&self) {
        if self.shared.parked.swap(false, Ordering::AcqRel)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }
}

impl Progress {
    fn keep_ahead(&self, ahead: &Ahead) {
        while !self.stopped.load(Ordering::Acquire) {
            let target = self.position.load(Ordering::Acquire) + AHEAD_BYTES;
            if ahead.populated() >= target {
                self.parked.store(true, Ordering::Release);
                thread::park();
                continue;
            }
            let prepared = (|| {
                if target > ahead.allocated() {
                    ahead.allocate_until(target + ALLOCATE_STEP_BYTES)?;
                }
                ahead.populate_until(ahead.populated() + POPULATE_STEP_BYTES)
            })();
            // The appending thread meets the same error when it needs the space.
            if prepared.is_err() {
                return;
            }
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Appends `count` records, `at_once` in a batch, to a fresh log; returns how many went in a
/// second, and the log.
///
/// # Errors
/// If the file can't be made, or there is no space.
pub fn append(
    path: &Path,
    records: &[Record<'_>],
    count: u64,
    at_once: usize,
) -> Outcome<(f64, BareLog)> {
    let stopwatch = Stopwatch::start();
    let mut log = BareLog::create(path)?;
    in_batches(records, count, at_once, |batch| log.append(batch))?;
    Ok((stopwatch.rate(count), log))
}

/// Appends `count` records one by one, populated ahead by a thread, and notes how long each took.
///
/// # Errors
/// If the file can't be made, or there is no space.
pub fn append_noting(path: &Path, records: &[Record<'_>], count: usize) -> Outcome<Tail> {
    let mut latencies = Latencies::with_room(count);
    let mut log = BareLog::create_prepared(path)?;
    in_batches(records, count as u64, 1, |record| {
        let stopwatch = Stopwatch::start();
        log.append(record)?;
        latencies.note(stopwatch.elapsed());
        Ok(())
    })?;
    Ok(latencies.tail())
}
