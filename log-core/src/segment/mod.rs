//! Segment: one file of a partition, as readers see it; its active writer is in `active.rs`.

mod active;
mod file_name;
mod header;
mod index;
mod maps;
mod scan;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::clock::Timestamp;
use crate::disk::{Disk, FileMode, MappedFile};
use crate::error::{Corruption, Error, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, BatchView, check_header};

pub use active::{ActiveSegment, Prepared, SPARE_FILE, Spare, WriteWay};
pub use file_name::SegmentName;
pub use header::{
    FIRST_DATA_START, HEADER_BYTES, PartitionId, Predecessor, SEGMENT_VERSION, SegmentHeader,
};
pub use index::{Place, SegmentIndex};
pub use maps::SealedMaps;
pub use scan::{BadSpot, Found, SegmentScan, seed_at};

/// How much is read into memory at once before it is parsed.
const POPULATE_BYTES: u64 = 256 * 1024;

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
    /// Set once nothing more is appended to it.
    end: OnceLock<SegmentEnd>,
    read_lately: AtomicBool,
}

/// A map, and which parts of it have been read into memory.
#[derive(Debug)]
struct Mapped {
    file: Arc<MappedFile>,
    /// What lies above was written by this process: it is in memory.
    cold_below: u64,
    /// A bit for each `POPULATE_BYTES`.
    populated: Vec<AtomicU64>,
}

/// Whole batches, one after the other, as they stand in the file.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Their bytes, which share the map.
    pub bytes: Bytes,
    /// Where in the file the first begins.
    pub position: u64,
    /// The base offset of the first.
    pub base: Offset,
    /// The offset after the last.
    pub next: Offset,
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
            end: OnceLock::new(),
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
        self.place.maps.mapped(self);
    }

    /// Whole batches from the one that holds `from`, or the first after it, up to about
    /// `max_bytes`, but at least one; none of them reaches `visible_end`. `None` if the segment
    /// has nothing there.
    ///
    /// # Errors
    /// `Corrupt` if `from` lies in a range that can't be read; `Io`.
    pub fn read(
        self: &Arc<Segment>,
        from: Offset,
        visible_end: Offset,
        max_bytes: usize,
    ) -> Result<Option<Chunk>> {
        let place = self.with_index(|index| index.seek(from))?;
        let mapped = self.mapped()?;
        let mut walk = Walk::new(self, &mapped, place, max_bytes as u64)?;
        let first = walk.find(|header| header.next_offset() > from)?;
        if walk.gap.contains(from) && from < visible_end {
            return Err(self.corrupt(walk.gap_position, walk.gap, walk.gap_fault()));
        }
        let Some(first) = first.filter(|first| first.header.next_offset() <= visible_end) else {
            return Ok(None);
        };
        let (mut next, mut end) = (first.header.next_offset(), walk.position);
        while end - first.position < max_bytes as u64 {
            let Some(header) = walk.next_good()? else { break };
            let fits = walk.position - first.position <= max_bytes as u64;
            if !fits || header.next_offset() > visible_end {
                break;
            }
            (next, end) = (header.next_offset(), walk.position);
        }
        Ok(Some(Chunk {
            bytes: mapped.file.share(first.position, end),
            position: first.position,
            base: first.header.base_offset,
            next,
        }))
    }

    /// The first record in log order, at or after `from` and below `visible_end`, that is stamped
    /// at or after `time`.
    ///
    /// # Errors
    /// `Corrupt` if bytes on the way can't be read; `Io`.
    pub fn first_at_or_after(
        self: &Arc<Segment>,
        time: Timestamp,
        from: Offset,
        visible_end: Offset,
        max_expanded: usize,
    ) -> Result<Option<Offset>> {
        if !self.with_index(|index| index.reaches(time))? {
            return Ok(None);
        }
        let (by_time, by_offset) =
            self.with_index(|index| (index.seek_time(time), index.seek(from)))?;
        let place = if by_time.position > by_offset.position { by_time } else { by_offset };
        let mapped = self.mapped()?;
        let mut walk = Walk::new(self, &mapped, place, POPULATE_BYTES)?;
        loop {
            let wanted =
                |header: &BatchHeader| header.next_offset() > from && header.max_timestamp >= time;
            let Some(found) = walk.find(wanted)? else { return Ok(None) };
            if found.header.base_offset >= visible_end {
                return Ok(None);
            }
            let bytes = mapped.file.slice(found.position, walk.position);
            let range = OffsetRange::new(found.header.base_offset, found.header.next_offset());
            let corrupt = |fault| self.corrupt(found.position, range, fault);
            let (batch, _) = BatchView::parse(bytes).map_err(corrupt)?;
            batch.check_body().map_err(corrupt)?;
            let body = batch.open(max_expanded).map_err(corrupt)?;
            for record in body.records() {
                let record = record.map_err(corrupt)?;
                if record.timestamp >= time && record.offset >= from {
                    return Ok((record.offset < visible_end).then_some(record.offset));
                }
            }
        }
    }

    /// What the index knows, read or rebuilt first if need be.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the segment is lost.
    pub fn with_index<T>(&self, ask: impl FnOnce(&SegmentIndex) -> T) -> Result<T> {
        if let Some(index) = self.index.read().as_ref() {
            return Ok(ask(index));
        }
        let loaded = self.load_index()?;
        let mut index = self.index.write();
        Ok(ask(index.get_or_insert(loaded)))
    }

    /// Reads the index file; rebuilds the index where that is missing, stale or damaged.
    fn load_index(&self) -> Result<SegmentIndex> {
        match self.stored_index() {
            Ok(Ok(index)) => Ok(index),
            Ok(Err(_)) => self.rebuild_index(),
            Err(error) if crate::disk::is_not_found(&error) => self.rebuild_index(),
            Err(error) => Err(error),
        }
    }

    /// What the index file says, if it is sound and fits this segment.
    ///
    /// # Errors
    /// `Io`, also if there is none; `Corrupt` if the segment is lost. `Ok(Err(..))` says what is
    /// wrong with it.
    pub fn stored_index(&self) -> Result<std::result::Result<SegmentIndex, Fault>> {
        let header = self.readable_header()?;
        let path = self.index_path();
        let file = self.place.disk.open(&path, FileMode::Read)?;
        let size = file.size()?;
        let most = 64 + self.used_bytes() / 16;
        if size > most {
            return Ok(Err(Fault::Field { field: "index length", value: size.cast_signed() }));
        }
        let mut bytes = vec![0_u8; usize::try_from(size).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let (base, data_start) = (self.name.base, u64::from(header.data_start));
        let index = match SegmentIndex::decode(&bytes, base, data_start, header.nonce) {
            Ok(index) => index,
            Err(fault) => return Ok(Err(fault)),
        };
        let ends_at = self.end().map(|end| end.position);
        if ends_at.is_some_and(|position| index.end_position() > position) {
            let value = index.end_position().cast_signed();
            return Ok(Err(Fault::Field { field: "index's end position", value }));
        }
        Ok(Ok(index))
    }

    /// Walks the file and makes the index anew.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the segment is lost.
    pub fn rebuild_index(&self) -> Result<SegmentIndex> {
        let header = self.readable_header()?;
        let file = self.place.disk.open(&self.path(), FileMode::Read)?;
        file.advise_random();
        let data_start = u64::from(header.data_start);
        let mut index = SegmentIndex::new(self.name.base, data_start);
        let end = self.used_bytes();
        let start = (data_start, self.name.base);
        let mut scan = SegmentScan::new(file, header, start, end, false);
        while let Some(found) = scan.step()? {
            if let Found::Batch { header, position } = found {
                index.add(&header, position);
            }
        }
        Ok(index)
    }

    /// Writes the index file, if the index is in memory. It may be lost or torn: it has a
    /// checksum, and whoever reads it can do without.
    ///
    /// # Errors
    /// `Io`; `DiskFull`.
    pub fn store_index(&self) -> Result<()> {
        let Ok(header) = &self.header else { return Ok(()) };
        let bytes = match self.index.read().as_ref() {
            Some(index) => index.encode(header.nonce),
            None => return Ok(()),
        };
        let file = self.place.disk.open(&self.index_path(), FileMode::Create)?;
        file.write_at(&bytes, 0)
    }

    /// Whether it was read since this was last asked.
    fn was_read_lately(&self) -> bool {
        self.read_lately.swap(false, Ordering::Relaxed)
    }

    /// Lets go of the map, and of the index: they are had again from the files.
    fn unmap(&self) {
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
        let bits = file.len().div_ceil(POPULATE_BYTES);
        let populated = (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Mapped { file, cold_below, populated }
    }

    /// Reads `[start, end)` into memory, the first time.
    fn populate(&self, start: u64, end: u64, segment: &Segment) -> Result<()> {
        let published = self.file.published();
        let end = end.min(self.cold_below).min(published);
        let mut at = start / POPULATE_BYTES * POPULATE_BYTES;
        while at < end {
            let chunk = at / POPULATE_BYTES;
            let word = &self.populated[usize::try_from(chunk / 64).expect("bits of a map")];
            let bit = 1_u64 << (chunk % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                let until = (at + POPULATE_BYTES).min(published);
                let populated = self.file.populate_for_reading(at, until);
                populated.map_err(|error| Error::io("read", &segment.path(), error))?;
                if until == at + POPULATE_BYTES || self.file.len() == published {
                    word.fetch_or(bit, Ordering::Relaxed);
                }
            }
            at += POPULATE_BYTES;
        }
        Ok(())
    }
}

/// A batch that a walk has found.
struct Step {
    header: BatchHeader,
    position: u64,
}

/// A walk over published batches in the map: headers are checked, bodies are not.
struct Walk<'a> {
    segment: &'a Segment,
    mapped: &'a Mapped,
    /// After the batch that was found last.
    position: u64,
    /// What lies below was read into memory.
    populated: u64,
    step: u64,
    expected: Offset,
    /// The last range of offsets that could not be read.
    gap: OffsetRange,
    gap_position: u64,
}

impl<'a> Walk<'a> {
    fn new(segment: &'a Segment, mapped: &'a Mapped, place: Place, step: u64) -> Result<Walk<'a>> {
        let gap = OffsetRange::new(place.offset, place.offset);
        Ok(Walk {
            segment,
            mapped,
            position: place.position,
            populated: place.position,
            step: step.clamp(4096, POPULATE_BYTES),
            expected: place.offset,
            gap,
            gap_position: place.position,
        })
    }

    /// The first batch that is `wanted`, bad bytes and markers stepped over.
    fn find(&mut self, wanted: impl Fn(&BatchHeader) -> bool) -> Result<Option<Step>> {
        loop {
            let position = self.position;
            match self.next_good()? {
                Some(header) if !header.is_marker() && wanted(&header) => {
                    return Ok(Some(Step { header, position }));
                }
                Some(_) => {}
                None if !self.step_over()? => return Ok(None),
                None => {}
            }
        }
    }

    /// The batch at the position, if there is a good one: a damaged one ends a chunk.
    #[inline]
    fn next_good(&mut self) -> Result<Option<BatchHeader>> {
        let end = self.mapped.file.published();
        if self.position + BATCH_HEADER_BYTES as u64 > end {
            return Ok(None);
        }
        self.populate(self.position + BATCH_HEADER_BYTES as u64)?;
        let bytes = self.mapped.file.slice(self.position, end);
        let Ok(header) = check_header(bytes, seed_at(self.segment.seed, self.position)) else {
            return Ok(None);
        };
        let next = self.position + header.total_len() as u64;
        if next > end || header.base_offset != self.expected {
            return Ok(None);
        }
        self.position = next;
        self.expected = header.next_offset();
        Ok(Some(header))
    }

    #[inline]
    fn populate(&mut self, until: u64) -> Result<()> {
        if until <= self.populated {
            return Ok(());
        }
        let target = until.max(self.populated + self.step);
        self.mapped.populate(self.populated, target, self.segment)?;
        self.populated = target;
        Ok(())
    }

    /// Goes to the next good batch after bad bytes; `false` if there is none.
    fn step_over(&mut self) -> Result<bool> {
        let end = self.mapped.file.published();
        let sealed = self.segment.end();
        if self.position >= end {
            // A sealed segment whose batches stop short of its end has lost the rest.
            let offset = sealed.map_or(self.expected, |end| end.offset);
            if offset > self.expected {
                self.note_gap(offset);
            }
            return Ok(false);
        }
        let header = self.segment.readable_header()?;
        let file = self.segment.place.disk.open(&self.segment.path(), FileMode::Read)?;
        let from = (self.position, self.expected);
        let mut scan = SegmentScan::new(file, header, from, end, false);
        match scan.step()? {
            Some(Found::Bad(spot)) => {
                let none = sealed.map_or(self.expected, |end| end.offset);
                self.note_gap(spot.next_offset.unwrap_or(none));
                self.position = spot.end;
                self.populated = self.populated.max(spot.end);
                Ok(spot.next_offset.is_some())
            }
            // The map saw bad bytes where the file has good ones: ask the map again.
            Some(Found::Batch { .. }) | None => Ok(false),
        }
    }

    fn note_gap(&mut self, until: Offset) {
        self.gap = OffsetRange::new(self.expected, until.max(self.expected));
        self.gap_position = self.position;
        self.expected = self.gap.end;
    }

    /// What is wrong at the gap.
    fn gap_fault(&self) -> Fault {
        let end = self.mapped.file.published();
        if self.gap_position + BATCH_HEADER_BYTES as u64 > end {
            return Fault::Truncated { what: "segment" };
        }
        let bytes = self.mapped.file.slice(self.gap_position, end);
        match check_header(bytes, seed_at(self.segment.seed, self.gap_position)) {
            Err(fault) => fault,
            Ok(header) if header.base_offset != self.gap.start => {
                Fault::OffsetJump { found: header.base_offset, expected: self.gap.start }
            }
            Ok(_) => Fault::Truncated { what: "batch" },
        }
    }
}
