//! Segment: one file of a partition, as readers see it; its active writer is in `active.rs`.

mod active;
mod ahead;
mod file_name;
mod header;
mod index;
mod index_file;
mod maps;
mod read;
mod scan;
mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::disk::{Disk, FileMode, MappedFile};
use crate::error::{Corruption, Error, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::{BatchHeader, BatchView};

pub use active::{ActiveSegment, Prepared, SPARE_FILE, Spare, WriteWay};
pub use file_name::SegmentName;
pub use header::{
    FIRST_DATA_START, HEADER_BYTES, PartitionId, Predecessor, SEGMENT_VERSION, SegmentHeader,
};
pub use index::{Place, SegmentIndex, Times};
pub use maps::SealedMaps;
pub use read::{Chunk, ReadAhead, Source};
pub use scan::{BadSpot, Found, SegmentScan, seed_at};

/// How much is read into memory at once before it is parsed.
const POPULATE_BYTES: u64 = 256 * 1024;

/// What was appended last, up to this many bytes, is taken to be in memory.
const RECENT_BYTES: u64 = 64 * 1024 * 1024;

/// Bodies from this length on are verified once: at most one of them begins in that many bytes.
const VERIFIED_BYTES: u64 = 4096;

/// Where a segment's files are, and what they share with the others of the store.
#[derive(Debug, Clone)]
pub struct SegmentDir {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The partition's directory.
    pub dir: PathBuf,
    /// The cap on maps of sealed segments.
    pub maps: Arc<SealedMaps>,
}

/// Where a segment's part of the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEnd {
    /// The position after its last batch.
    pub position: u64,
    /// The offset that comes next: the base of its successor.
    pub offset: Offset,
}

/// One segment.
#[derive(Debug)]
pub struct Segment {
    name: SegmentName,
    place: SegmentDir,
    /// What its header says, or what is wrong with it.
    header: std::result::Result<SegmentHeader, Fault>,
    seed: u32,
    map: RwLock<Option<Arc<Mapped>>>,
    index: RwLock<Option<SegmentIndex>>,
    /// What its index said of times, if that is not in memory any more.
    times: OnceLock<Times>,
    /// Set once nothing more is appended to it.
    end: OnceLock<SegmentEnd>,
    /// Whether `SealedMaps` knows that it holds something.
    listed: AtomicBool,
    read_lately: AtomicBool,
}

/// A map, and which parts of it have been read into memory.
#[derive(Debug)]
struct Mapped {
    file: Arc<MappedFile>,
    /// What lies above was written by this process: it is in memory.
    cold_below: u64,
    /// A bit for each `POPULATE_BYTES`.
    populated: Bits,
    /// Where the last `ReadAhead` ends that was handed out.
    ahead_end: AtomicU64,
    /// A bit for each `VERIFIED_BYTES` in which a batch begins whose body was found sound. What is
    /// published never changes, so once is enough while it stays mapped. Made when first needed.
    verified: OnceLock<Bits>,
}

/// Bits that are set once and never cleared.
#[derive(Debug)]
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(bits: u64) -> Bits {
        Bits((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, bit: u64) -> &AtomicU64 {
        &self.0[usize::try_from(bit / 64).expect("bits of a map")]
    }

    fn is_set(&self, bit: u64) -> bool {
        self.word(bit).load(Ordering::Relaxed) & (1 << (bit % 64)) != 0
    }

    fn set(&self, bit: u64) {
        self.word(bit).fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }
}

impl Segment {
    /// A segment that will not be written any more.
    #[must_use]
    pub fn sealed(place: SegmentDir, header: SegmentHeader, end: SegmentEnd) -> Arc<Segment> {
        let segment = Segment::new(place, header.name, Ok(header));
        let _ = segment.end.set(end);
        Arc::new(segment)
    }

    /// A segment whose file is missing, or whose header can't be read: its offsets are known, and
    /// reading them tells what is wrong.
    #[must_use]
    pub fn lost(place: SegmentDir, name: SegmentName, fault: Fault, end: Offset) -> Arc<Segment> {
        let segment = Segment::new(place, name, Err(fault));
        let _ = segment.end.set(SegmentEnd { position: 0, offset: end });
        Arc::new(segment)
    }

    /// The readers' side of a segment that is being written.
    fn active(place: SegmentDir, header: SegmentHeader, map: Arc<MappedFile>) -> Arc<Segment> {
        let index = SegmentIndex::new(header.name.base, u64::from(header.data_start));
        let segment = Segment::new(place, header.name, Ok(header));
        *segment.map.write() = Some(Arc::new(Mapped::new(map, 0)));
        *segment.index.write() = Some(index);
        Arc::new(segment)
    }

    /// The readers' side of a segment that is written on, after it was closed.
    fn reopened(
        place: SegmentDir,
        header: SegmentHeader,
        map: Arc<MappedFile>,
        index: SegmentIndex,
    ) -> Arc<Segment> {
        let segment = Segment::new(place, header.name, Ok(header));
        let cold_below = map.published();
        *segment.map.write() = Some(Arc::new(Mapped::new(map, cold_below)));
        *segment.index.write() = Some(index);
        Arc::new(segment)
    }

    fn new(
        place: SegmentDir,
        name: SegmentName,
        header: std::result::Result<SegmentHeader, Fault>,
    ) -> Segment {
        let seed = header.as_ref().map_or(0, SegmentHeader::seed);
        Segment {
            name,
            place,
            header,
            seed,
            map: RwLock::new(None),
            index: RwLock::new(None),
            times: OnceLock::new(),
            end: OnceLock::new(),
            listed: AtomicBool::new(false),
            read_lately: AtomicBool::new(false),
        }
    }

    /// Its base offset and epoch.
    #[must_use]
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.place.dir.join(self.name.log_file())
    }

    /// Its index file.
    #[must_use]
    pub fn index_path(&self) -> PathBuf {
        self.place.dir.join(self.name.index_file())
    }

    /// What its header says.
    ///
    /// # Errors
    /// What is wrong with it, or that the file is missing.
    pub fn header(&self) -> std::result::Result<&SegmentHeader, &Fault> {
        self.header.as_ref()
    }

    /// Where it ends, once nothing more is appended to it.
    #[must_use]
    pub fn end(&self) -> Option<SegmentEnd> {
        self.end.get().copied()
    }

    /// How many bytes of it are in use: its header and its batches, not what is preallocated.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let active = || self.map.read().as_ref().map_or(0, |mapped| mapped.file.published());
        self.end().map_or_else(active, |end| end.position)
    }

    /// Takes over an index that somebody has made by walking the segment.
    pub fn set_index(&self, index: SegmentIndex) {
        *self.index.write() = Some(index);
    }

    /// Notes a batch that is about to be published.
    #[inline]
    fn note(&self, header: &BatchHeader, position: u64) {
        if let Some(index) = self.index.write().as_mut() {
            index.add(header, position);
        }
    }

    /// Says that nothing more is appended. What it ends at is what is published.
    fn seal(self: &Arc<Segment>, offset: Offset) {
        let position = self.used_bytes();
        let _ = self.end.set(SegmentEnd { position, offset });
        self.place.maps.loaded(self);
    }

    /// Whether it was read since this was last asked.
    fn was_read_lately(&self) -> bool {
        self.read_lately.swap(false, Ordering::Relaxed)
    }

    /// Whether `SealedMaps` knows of it; from now on, it does.
    fn is_listed(&self) -> bool {
        self.listed.swap(true, Ordering::AcqRel)
    }

    /// Lets go of the map, and of the index: they are had again from the files.
    fn unmap(&self) {
        self.listed.store(false, Ordering::Release);
        *self.map.write() = None;
        *self.index.write() = None;
    }

    fn mapped(self: &Arc<Segment>) -> Result<Arc<Mapped>> {
        if let Some(mapped) = self.map.read().as_ref() {
            if !self.read_lately.load(Ordering::Relaxed) {
                self.read_lately.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(mapped));
        }
        self.readable_header()?;
        let mut map = self.map.write();
        if let Some(mapped) = map.as_ref() {
            return Ok(Arc::clone(mapped));
        }
        let file = self.place.disk.open(&self.path(), FileMode::Read)?;
        let (size, end) = (file.size()?, self.used_bytes());
        // Nothing past the end of the file is mapped: touching it would be a SIGBUS.
        let mapped = Arc::new(Mapped::new(file.map_read_only(end.min(size))?, u64::MAX));
        *map = Some(Arc::clone(&mapped));
        drop(map);
        self.place.maps.mapped(self);
        Ok(mapped)
    }

    /// Whether a read of `bytes` from `from` on is likely to wait for no disk. It only looks at what
    /// is in memory itself.
    #[must_use]
    pub fn is_in_memory(&self, from: Offset, bytes: u64) -> bool {
        let Some(position) = self.index.read().as_ref().map(|index| index.seek(from).position)
        else {
            return false;
        };
        self.map.read().as_ref().is_some_and(|mapped| {
            let published = mapped.file.published();
            let recent = published.saturating_sub(RECENT_BYTES).max(mapped.cold_below);
            let end = position.saturating_add(bytes.max(POPULATE_BYTES)).min(published);
            position >= recent || mapped.file.map_resident(position, end)
        })
    }

    /// Has the kernel begin to read `bytes` from `from` on from the disk, if it is known where that
    /// is.
    pub fn will_need(self: &Arc<Segment>, from: Offset, bytes: u64) {
        let place = self.with_index(|index| index.seek(from));
        if let (Ok(place), Ok(mapped)) = (place, self.mapped()) {
            let end = place.position.saturating_add(bytes).min(mapped.file.published());
            mapped.file.will_need(place.position, end);
        }
    }

    fn readable_header(&self) -> Result<&SegmentHeader> {
        self.header.as_ref().map_err(|fault| {
            let end = self.end().map_or(self.name.base, |end| end.offset);
            self.corrupt(0, OffsetRange::new(self.name.base, end), fault.clone())
        })
    }

    fn corrupt(&self, position: u64, offsets: OffsetRange, fault: Fault) -> Error {
        Error::Corrupt(Corruption { path: self.path(), position, offsets, fault })
    }
}

impl Mapped {
    fn new(file: Arc<MappedFile>, cold_below: u64) -> Mapped {
        let populated = Bits::new(file.len().div_ceil(POPULATE_BYTES));
        let (ahead_end, verified) = (AtomicU64::new(0), OnceLock::new());
        Mapped { file, cold_below, populated, ahead_end, verified }
    }

    /// Checks the body of the batch at `position`, the first time that it is asked of a large one.
    fn verify(&self, batch: &BatchView<'_>, position: u64) -> std::result::Result<(), Fault> {
        if (batch.bytes().len() as u64) < VERIFIED_BYTES {
            return batch.check_body();
        }
        let all = || Bits::new(self.file.len().div_ceil(VERIFIED_BYTES));
        let (verified, bit) = (self.verified.get_or_init(all), position / VERIFIED_BYTES);
        if !verified.is_set(bit) {
            batch.check_body()?;
            verified.set(bit);
        }
        Ok(())
    }

    /// What to read ahead for who has read up to `position`: half of `bytes` at a time, once.
    fn ahead(&self, position: u64, bytes: u64) -> Option<(u64, u64)> {
        let limit = self.cold_below.min(self.file.published());
        let taken = self.ahead_end.load(Ordering::Relaxed);
        let start = taken.max(position);
        let end = position.saturating_add(bytes).min(limit);
        if start >= end || (end < limit && end - start < bytes / 2) {
            return None;
        }
        let order = Ordering::Relaxed;
        // Somebody else has just taken it, if not we.
        self.ahead_end.compare_exchange(taken, end, order, order).ok().map(|_| (start, end))
    }

    /// Reads `[start, end)` into memory, the first time.
    fn populate(&self, start: u64, end: u64, segment: &Segment) -> Result<()> {
        let published = self.file.published();
        let end = end.min(self.cold_below).min(published);
        if start >= end {
            return Ok(());
        }
        let mut at = start / POPULATE_BYTES * POPULATE_BYTES;
        while at < end {
            let chunk = at / POPULATE_BYTES;
            if !self.populated.is_set(chunk) {
                let until = (at + POPULATE_BYTES).min(published);
                let populated = self.file.populate_for_reading(at, until);
                populated.map_err(|error| Error::io("read", &segment.path(), error))?;
                if until == at + POPULATE_BYTES || self.file.len() == published {
                    self.populated.set(chunk);
                }
            }
            at += POPULATE_BYTES;
        }
        Ok(())
    }
}
