//! Reading a segment: the walk over published batches in its map, and what it is good for.

use std::sync::Arc;

use bytes::Bytes;

use super::scan::{Found, SegmentScan, seed_at};
use super::{Mapped, POPULATE_BYTES, Place, Segment};
use crate::clock::Timestamp;
use crate::disk::FileMode;
use crate::error::{Error, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, BatchView, RecordView, check_header};

/// Whole batches, one after the other, as they stand in the file.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Their bytes, which share the map.
    pub bytes: Bytes,
    /// Where they come from.
    pub source: Source,
    /// The base offset of the first.
    pub base: Offset,
    /// The offset after the last.
    pub next: Offset,
}

/// Where batches come from: a segment's map.
#[derive(Debug, Clone)]
pub struct Source {
    segment: Arc<Segment>,
    mapped: Arc<Mapped>,
    position: u64,
    end: u64,
}

/// A part of a segment that is worth reading into memory before somebody asks for it.
#[derive(Debug)]
pub struct ReadAhead(Source);

impl Source {
    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where in the file the first batch begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads the bytes into memory, whether they were there before or not.
    ///
    /// # Errors
    /// `Io`.
    pub fn populate(&self) -> Result<()> {
        let populated = self.mapped.file.populate_for_reading(self.position, self.end);
        populated.map_err(|error| Error::io("read", &self.segment.path(), error))
    }

    /// What to read ahead of a reader who goes on behind these batches, up to `bytes`; `None` if
    /// that was done, or was never needed.
    #[must_use]
    pub fn ahead(&self, bytes: u64) -> Option<ReadAhead> {
        let (position, end) = self.mapped.ahead(self.end, bytes)?;
        Some(ReadAhead(Source { position, end, ..self.clone() }))
    }
}

impl ReadAhead {
    /// Reads it, and waits for the disk. What can't be read is told to who asks for it.
    pub fn read(self) {
        let ReadAhead(Source { segment, mapped, position, end }) = self;
        if !mapped.file.map_resident(position, end) {
            mapped.file.will_need(position, end);
        }
        let _ = mapped.populate(position, end, &segment);
    }
}

impl Segment {
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
        walk.populate(end)?;
        Ok(Some(Chunk {
            bytes: mapped.file.share(first.position, end),
            source: Source {
                segment: Arc::clone(self),
                mapped: Arc::clone(&mapped),
                position: first.position,
                end,
            },
            base: first.header.base_offset,
            next,
        }))
    }

    /// Shows the record at `offset` to `visit`; `None` if the segment has none there.
    ///
    /// # Errors
    /// As [`Segment::read`].
    pub fn visit<T>(
        self: &Arc<Segment>,
        offset: Offset,
        visible_end: Offset,
        max_expanded: usize,
        visit: impl FnOnce(RecordView<'_>) -> T,
    ) -> Result<Option<T>> {
        let place = self.with_index(|index| index.seek(offset))?;
        let mapped = self.mapped()?;
        let mut walk = Walk::new(self, &mapped, place, 0)?;
        let found = walk.find(|header| header.next_offset() > offset)?;
        if walk.gap.contains(offset) && offset < visible_end {
            return Err(self.corrupt(walk.gap_position, walk.gap, walk.gap_fault()));
        }
        let Some(found) = found.filter(|found| found.header.next_offset() <= visible_end) else {
            return Ok(None);
        };
        walk.populate(walk.position)?;
        let bytes = mapped.file.slice(found.position, walk.position);
        let range = OffsetRange::new(found.header.base_offset, found.header.next_offset());
        let corrupt = |fault| self.corrupt(found.position, range, fault);
        let batch = BatchView::new(found.header, bytes);
        mapped.verify(&batch, found.position).map_err(corrupt)?;
        let body = batch.open(max_expanded).map_err(corrupt)?;
        let record = body.record_at(offset).map_err(corrupt)?;
        Ok(record.map(visit))
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
        if self.times()?.max < time {
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
            let found = walk.find(wanted)?;
            // What can't be read may be what is looked for.
            if walk.gap.end > from && walk.gap.start < visible_end && !walk.gap.is_empty() {
                return Err(self.corrupt(walk.gap_position, walk.gap, walk.gap_fault()));
            }
            let Some(found) = found else { return Ok(None) };
            if found.header.base_offset >= visible_end {
                return Ok(None);
            }
            walk.populate(walk.position)?;
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
