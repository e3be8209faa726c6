//! ActiveSegment: the one writer of a segment; it stores batches and publishes them.
//!
//! Space is allocated, and pages are populated, ahead of the appends by a background job, in steps
//! that grow with what is being written; an append that outruns it does the allocation itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{HEADER_BYTES, Segment, SegmentDir, SegmentHeader, SegmentIndex};
use crate::disk::{DiskFile, FileMode, MappedFile, MappedWriter};
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::record::BatchHeader;

/// The least and the most that is prepared ahead of the appends.
const AHEAD_MIN_BYTES: u64 = 64 * 1024;
const AHEAD_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// A large batch does not leave its memory with every partition that it came by.
const SCRATCH_KEPT_BYTES: usize = 256 * 1024;
/// How much is populated by one call in the background.
const POPULATE_STEP_BYTES: u64 = 256 * 1024;
/// How much an append populates that finds the background late: it should not take long.
const LATE_STEP_BYTES: u64 = 32 * 1024;
/// How much may lack its pages, but not its blocks, of an append that must not wait.
const FEW_BYTES: u64 = 256 * 1024;

/// How bytes get into the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteWay {
    /// Stored into the map: no system call.
    Store,
    /// Written by pwrite: little is dirtied, and a full disk is an error, not a signal.
    Write,
}

/// The writer of a segment.
#[derive(Debug)]
pub struct ActiveSegment {
    segment: Arc<Segment>,
    writer: MappedWriter,
    seed: u32,
    position: u64,
    prepared: Arc<Prepared>,
    /// Where a batch is made that goes in by pwrite.
    scratch: Vec<u8>,
}

/// What has been made ready for appends, shared with the background job that does it.
#[derive(Debug)]
pub struct Prepared {
    file: Arc<dyn DiskFile>,
    map: Arc<MappedFile>,
    allocated: AtomicU64,
    /// What lies below is populated, or somebody is at it.
    claimed: AtomicU64,
    /// Where this process began to append: what it prepares ahead grows with what it appends.
    began_at: u64,
    busy: AtomicBool,
}

/// A file that waits to become the next segment.
#[derive(Debug)]
pub struct Spare {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    writer: MappedWriter,
    prepared: Arc<Prepared>,
}

/// The name of a file that waits to become a segment; removed when a partition is opened.
pub const SPARE_FILE: &str = "spare.tmp";

impl Spare {
    /// Makes one: allocated and, if its bytes will be stored, populated for a start.
    ///
    /// # Errors
    /// `Io`; `DiskFull`.
    pub fn create(place: &SegmentDir, map_bytes: u64, way: WriteWay, ahead: u64) -> Result<Spare> {
        let path = place.dir.join(SPARE_FILE);
        let file = place.disk.open(&path, FileMode::Create)?;
        let writer = file.map(map_bytes)?;
        let map = Arc::clone(writer.file());
        if way == WriteWay::Write {
            map.keep_pages_small();
        }
        let prepared = Arc::new(Prepared::new(Arc::clone(&file), map, HEADER_BYTES as u64));
        prepared.allocate_until((HEADER_BYTES as u64 + ahead).min(map_bytes))?;
        if way == WriteWay::Store {
            prepared.populate_until(HEADER_BYTES as u64 + ahead, POPULATE_STEP_BYTES);
        }
        Ok(Spare { path, file, writer, prepared })
    }

    /// How much of it is mapped.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.writer.file().len()
    }
}

impl ActiveSegment {
    /// Begins a segment: header and table of producers are written, nothing is synced. A spare
    /// becomes the segment; the name appears only once the header is in the file, and room for a
    /// first batch of `len` bytes: a file with the name of a segment says where its predecessor
    /// ends, so nothing must fail behind it.
    ///
    /// # Errors
    /// `DiskFull`: there is no new segment then. `Io`: there may be one.
    pub fn create(
        place: &SegmentDir,
        header: SegmentHeader,
        producers: &[u8],
        spare: Spare,
        len: usize,
    ) -> Result<ActiveSegment> {
        let Spare { path, file, mut writer, prepared } = spare;
        let data_start = u64::from(header.data_start);
        prepared.allocate_until(data_start + len as u64)?;
        file.write_at(&header.encode(), 0)?;
        if !producers.is_empty() {
            file.write_at(producers, HEADER_BYTES as u64)?;
        }
        place.disk.rename(&path, &place.dir.join(header.name.log_file()))?;
        writer.publish(data_start);
        let seed = header.seed();
        let segment = Segment::active(place.clone(), header, Arc::clone(writer.file()));
        Ok(ActiveSegment {
            segment,
            writer,
            seed,
            position: data_start,
            prepared,
            scratch: Vec::new(),
        })
    }

    /// Goes on with a segment that ends, proven, at `position`.
    ///
    /// # Errors
    /// `Io`.
    pub fn reopen(
        place: &SegmentDir,
        header: SegmentHeader,
        index: SegmentIndex,
        position: u64,
        map_bytes: u64,
        way: WriteWay,
    ) -> Result<ActiveSegment> {
        let path = place.dir.join(header.name.log_file());
        let file = place.disk.open(&path, FileMode::ReadWrite)?;
        let mut writer = file.map(map_bytes.max(position))?;
        writer.publish(position);
        let map = Arc::clone(writer.file());
        if way == WriteWay::Write {
            map.keep_pages_small();
        }
        let prepared = Arc::new(Prepared::new(file, map, position));
        let seed = header.seed();
        let segment = Segment::reopened(place.clone(), header, Arc::clone(writer.file()), index);
        Ok(ActiveSegment { segment, writer, seed, position, prepared, scratch: Vec::new() })
    }

    /// The readers' side.
    #[must_use]
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The file, to be synced.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.prepared.file
    }

    /// The seed of the header checksum of the next batch.
    #[must_use]
    pub fn next_seed(&self) -> u32 {
        super::seed_at(self.seed, self.position)
    }

    /// Where the next batch goes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many more bytes fit.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.writer.file().len() - self.position
    }

    /// Makes sure that `len` more bytes have their blocks. Nothing is written yet.
    ///
    /// # Errors
    /// `DiskFull` and `Io`: nothing has changed.
    #[inline]
    pub fn reserve(&self, len: usize) -> Result<()> {
        let end = self.position + len as u64;
        if end <= self.prepared.allocated.load(Ordering::Acquire) {
            return Ok(());
        }
        self.prepared.allocate_until(end)
    }

    /// Whether `len` more bytes fit without waiting for the disk: their blocks are there and, if
    /// they are stored, their pages, up to a few that take no longer than to tell another thread.
    #[must_use]
    pub fn is_ready(&self, len: usize, way: WriteWay) -> bool {
        let end = self.position + len as u64;
        let has_blocks = end <= self.prepared.allocated.load(Ordering::Acquire);
        let has_pages = way == WriteWay::Write
            || end <= self.prepared.claimed.load(Ordering::Relaxed) + FEW_BYTES;
        end <= self.writer.file().len() && has_blocks && has_pages
    }

    /// Appends one batch of `len` bytes, which `fill` writes whole, its checksums included, and
    /// publishes it. The caller has reserved the space.
    ///
    /// # Errors
    /// `Io` and `DiskFull`, by [`WriteWay::Write`] alone: bytes past the end may have changed, so
    /// the caller must begin a new segment.
    ///
    /// # Panics
    /// If there is no room: the caller asks first.
    #[inline]
    pub fn append(
        &mut self,
        len: usize,
        way: WriteWay,
        fill: impl FnOnce(&mut [u8]) -> BatchHeader,
    ) -> Result<()> {
        let header = match way {
            WriteWay::Store => {
                let end = self.position + len as u64;
                if end > self.prepared.claimed.load(Ordering::Relaxed) {
                    // A step by one call costs less than its pages do one by one, when they are
                    // touched.
                    self.prepared.populate_until(end, LATE_STEP_BYTES);
                }
                fill(self.writer.unpublished(0, len))
            }
            WriteWay::Write => {
                if self.scratch.len() < len {
                    self.scratch.resize(len, 0);
                }
                let header = fill(&mut self.scratch[..len]);
                let written = self.prepared.file.write_at(&self.scratch[..len], self.position);
                if len > SCRATCH_KEPT_BYTES {
                    self.scratch = Vec::new();
                }
                written?;
                header
            }
        };
        self.segment.note(&header, self.position);
        self.position += len as u64;
        self.writer.publish(self.position);
        Ok(())
    }

    /// What a background job should make ready, if it is time for that.
    #[inline]
    #[must_use]
    pub fn due_preparation(&self, way: WriteWay) -> Option<Arc<Prepared>> {
        let prepared = &self.prepared;
        let ready = match way {
            WriteWay::Store => prepared.claimed.load(Ordering::Relaxed),
            WriteWay::Write => prepared.allocated.load(Ordering::Relaxed),
        };
        let enough = ready >= self.position + prepared.ahead(self.position) / 2;
        if enough || ready >= prepared.map.len() || prepared.busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Arc::clone(prepared))
    }

    /// How far ahead of the appends things are made ready now.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.prepared.ahead(self.position)
    }

    /// Ends the segment: its successor begins at `offset`.
    pub fn seal(self, offset: Offset) -> (Arc<Segment>, Arc<dyn DiskFile>) {
        self.segment.seal(offset);
        (self.segment, Arc::clone(&self.prepared.file))
    }
}

impl Prepared {
    /// Nothing is taken as allocated that this process has not allocated: a file that was copied
    /// may have holes, and a store into one of them can be a signal.
    fn new(file: Arc<dyn DiskFile>, map: Arc<MappedFile>, began_at: u64) -> Prepared {
        let (allocated, claimed) = (AtomicU64::new(0), AtomicU64::new(began_at));
        Prepared { file, map, allocated, claimed, began_at, busy: AtomicBool::new(false) }
    }

    /// As far ahead as the appends of this process have come, within limits: a partition that
    /// takes little costs little.
    fn ahead(&self, position: u64) -> u64 {
        (position - self.began_at).clamp(AHEAD_MIN_BYTES, AHEAD_MAX_BYTES)
    }

    /// Allocates and, for stores, populates ahead of what is published. Run in the background.
    ///
    /// # Errors
    /// `DiskFull` and `Io`: the next append that needs the space meets it again, and tells.
    pub fn run(&self, way: WriteWay) -> Result<()> {
        let outcome = self.catch_up(way);
        self.busy.store(false, Ordering::Release);
        outcome
    }

    fn catch_up(&self, way: WriteWay) -> Result<()> {
        loop {
            let position = self.map.published();
            let target = (position + self.ahead(position)).min(self.map.len());
            self.allocate_until(target)?;
            if way == WriteWay::Write || self.claimed.load(Ordering::Relaxed) >= target {
                return Ok(());
            }
            self.populate_until(target, POPULATE_STEP_BYTES);
        }
    }

    /// Allocates up to `end`, and some more, so that the file grows in few steps.
    fn allocate_until(&self, end: u64) -> Result<()> {
        if end <= self.allocated.load(Ordering::Acquire) {
            return Ok(());
        }
        let step = self.ahead(self.map.published().max(self.began_at));
        let wanted = (end + step).next_multiple_of(4096).min(self.map.len()).max(end);
        let allocated = match self.file.allocate(wanted) {
            // Where the step does not fit any more, what is needed may.
            Err(Error::DiskFull { .. }) if wanted > end => {
                self.file.allocate(end)?;
                end
            }
            outcome => outcome.map(|()| wanted)?,
        };
        self.allocated.fetch_max(allocated, Ordering::AcqRel);
        Ok(())
    }

    /// Populates up to `target` at least, as far as there are blocks, in steps of `step` bytes.
    /// Whoever claims a step does it; so the appender and the background job never do the same.
    fn populate_until(&self, target: u64, step: u64) {
        let limit = self.allocated.load(Ordering::Acquire).min(self.map.len());
        let target = target.min(limit);
        // What was appended has its pages.
        self.claimed.fetch_max(self.map.published(), Ordering::Relaxed);
        loop {
            let from = self.claimed.load(Ordering::Relaxed);
            if from >= target {
                return;
            }
            let until = (from + step).min(limit);
            let claimed =
                self.claimed.compare_exchange(from, until, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() {
                // Where this fails, pages come when they are touched: they have blocks.
                let _ = self.map.populate_for_writing(from, until);
            }
        }
    }
}
