//! SegmentScan: the walk over a segment's bytes in the file, which tells batches from bad bytes.
//!
//! Recovery, check and the rebuilding of indexes use it. It reads; it never changes a thing.

use std::sync::Arc;

use super::ahead::Ahead;
use super::window::Window;
use crate::disk::DiskFile;
use crate::error::{Fault, Result};
use crate::offset::Offset;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, BatchView, MAGIC, check_header};
use crate::segment::SegmentHeader;

/// What stands at a place.
#[derive(Debug)]
pub enum Found {
    /// A whole batch, both of its checksums right, where it belongs.
    Batch {
        /// Its header.
        header: BatchHeader,
        /// Where it begins.
        position: u64,
    },
    /// Bytes that are no batch, up to the next one that is whole, or to the end.
    Bad(BadSpot),
}

/// Bytes that are no batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSpot {
    /// Where they begin.
    pub position: u64,
    /// Where the next good batch begins, or the region ends.
    pub end: u64,
    /// The offset that was expected at `position`.
    pub offset: Offset,
    /// The base offset of the next good batch; `None` if there is none in this segment.
    pub next_offset: Option<Offset>,
    /// What is wrong with the first of them.
    pub fault: Fault,
    /// Whether a header's worth of bytes at `position` is zero: nothing was ever written there,
    /// or it was lost whole.
    pub zero: bool,
}

/// A walk over the batches of one segment.
#[derive(Debug)]
pub struct SegmentScan {
    window: Window,
    seed: u32,
    epoch: u32,
    /// The offset that the next batch should have.
    expected: Offset,
    position: u64,
    end: u64,
    /// The last region of the log may simply end before the file does.
    ends_open: bool,
    ahead: Ahead,
}

impl SegmentScan {
    /// Walks `[position, end)`, where the batch with `expected` should begin. With `ends_open`,
    /// zeros with no batch after them are the end, not a bad spot.
    #[must_use]
    pub fn new(
        file: Arc<dyn DiskFile>,
        header: &SegmentHeader,
        (position, expected): (u64, Offset),
        end: u64,
        ends_open: bool,
    ) -> SegmentScan {
        let window = Window::new(file, position, end);
        let (seed, epoch) = (header.seed(), header.name.epoch);
        let ahead = window.map().map(|map| Ahead::start(map, seed, position, end));
        let ahead = ahead.unwrap_or_default();
        SegmentScan { window, seed, epoch, expected, position, end, ends_open, ahead }
    }

    /// The offset that would come next.
    #[must_use]
    pub fn expected(&self) -> Offset {
        self.expected
    }

    /// The position that would come next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The batch that [`SegmentScan::step`] has just found, whole.
    ///
    /// # Errors
    /// `Io`.
    pub fn bytes_of(&mut self, header: &BatchHeader, position: u64) -> Result<&[u8]> {
        self.window.read_up_to(position, header.total_len())
    }

    /// What comes next; `None` at the end.
    ///
    /// # Errors
    /// `Io` if the file can't be read: that is no bad spot.
    pub fn step(&mut self) -> Result<Option<Found>> {
        if self.position >= self.end {
            return Ok(None);
        }
        match self.batch_at(self.position)? {
            Ok(header) => {
                let position = self.position;
                self.position += header.total_len() as u64;
                self.expected = header.next_offset();
                Ok(Some(Found::Batch { header, position }))
            }
            Err(fault) => self.bad_spot(fault),
        }
    }

    fn bad_spot(&mut self, fault: Fault) -> Result<Option<Found>> {
        let (position, offset) = (self.position, self.expected);
        let head = self.window.read_up_to(position, BATCH_HEADER_BYTES.min(self.left(position)))?;
        let zero = head.iter().all(|byte| *byte == 0);
        let next = self.next_batch(position + 1)?;
        if next.is_none() && zero && self.ends_open {
            return Ok(None);
        }
        let (end, next_offset) = match next {
            Some((position, header)) => (position, Some(header.base_offset)),
            None => (self.end, None),
        };
        self.position = end;
        self.expected = next_offset.unwrap_or(offset);
        let spot = BadSpot { position, end, offset, next_offset, fault, zero };
        Ok(Some(Found::Bad(spot)))
    }

    /// The first whole batch at or after `from` that may follow on what was read.
    fn next_batch(&mut self, mut from: u64) -> Result<Option<(u64, BatchHeader)>> {
        let magic = MAGIC.to_le_bytes();
        while from + BATCH_HEADER_BYTES as u64 <= self.end {
            if !self.window.holds(from) {
                // What may not be zero may be in the middle of a batch header at most.
                match self.window.file().next_data(from)? {
                    Some(data) => from = from.max(data.saturating_sub(BATCH_HEADER_BYTES as u64)),
                    None => return Ok(None),
                }
            }
            let left = self.left(from);
            let bytes = self.window.read_some(from, BATCH_HEADER_BYTES, left)?;
            if bytes.len() < BATCH_HEADER_BYTES {
                return Ok(None);
            }
            let limit = bytes.len() - BATCH_HEADER_BYTES + 1;
            let Some(at) = find(bytes, MAGIC_AT, limit, magic) else {
                from += limit as u64;
                continue;
            };
            let position = from + at as u64;
            if let Ok(header) = self.batch_at(position)? {
                return Ok(Some((position, header)));
            }
            from = position + 1;
        }
        Ok(None)
    }

    /// Checks the batch at `position`: what it says of itself, and that it belongs there.
    fn batch_at(&mut self, position: u64) -> Result<std::result::Result<BatchHeader, Fault>> {
        let left = self.left(position);
        let bytes = self.window.read_up_to(position, BATCH_HEADER_BYTES.min(left))?;
        if bytes.len() < BATCH_HEADER_BYTES {
            return Ok(Err(Fault::Truncated { what: "batch header" }));
        }
        let header = match check_header(bytes, seed_at(self.seed, position)) {
            Ok(header) => header,
            Err(fault) => return Ok(Err(fault)),
        };
        if header.epoch != self.epoch {
            let value = i64::from(header.epoch);
            return Ok(Err(Fault::Field { field: "batch epoch", value }));
        }
        // A jump forward follows on a bad spot that was stepped over; else it is itself one.
        let stepping_over = position != self.position;
        let found = header.base_offset;
        if found < self.expected || (found > self.expected && !stepping_over) {
            return Ok(Err(Fault::OffsetJump { found, expected: self.expected }));
        }
        if header.total_len() > left {
            return Ok(Err(Fault::Truncated { what: "batch" }));
        }
        if self.ahead.has_checked(position, header.total_len()) {
            return Ok(Ok(header));
        }
        let bytes = self.window.read_up_to(position, header.total_len())?;
        if bytes.len() < header.total_len() {
            return Ok(Err(Fault::Truncated { what: "batch" }));
        }
        Ok(BatchView::parse(bytes).and_then(|(batch, _)| batch.check_body()).map(|()| header))
    }

    fn left(&self, position: u64) -> usize {
        usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX)
    }
}

/// Where the magic number stands in a batch header.
const MAGIC_AT: usize = 4;

/// The seed of the header checksum of a batch at `position`: a batch that was moved never matches.
///
/// # Panics
/// Never: it only takes halves of a number.
#[must_use]
pub fn seed_at(segment_seed: u32, position: u64) -> u32 {
    // Positions are below 4 GiB; should one not be, the fold keeps them apart well enough.
    let low = u32::try_from(position & 0xFFFF_FFFF).expect("32 bits");
    let high = u32::try_from(position >> 32).expect("32 bits");
    segment_seed ^ low ^ high
}

/// Where in `bytes` the first header of a batch begins that was made for its place.
pub(super) fn find_header(bytes: &[u8], seed_at: impl Fn(u64) -> u32) -> Option<u64> {
    let magic = MAGIC.to_le_bytes();
    let mut from = 0;
    while from + BATCH_HEADER_BYTES <= bytes.len() {
        let limit = bytes.len() - from - BATCH_HEADER_BYTES + 1;
        from += find(&bytes[from..], MAGIC_AT, limit, magic)?;
        if check_header(&bytes[from..], seed_at(from as u64)).is_ok() {
            return Some(from as u64);
        }
        from += 1;
    }
    None
}

/// The first place below `limit` with `magic` at its `magic_at`.
fn find(bytes: &[u8], magic_at: usize, limit: usize, magic: [u8; 4]) -> Option<usize> {
    let searched = &bytes[magic_at..(limit - 1) + magic_at + magic.len()];
    memchr::memmem::find(searched, &magic)
}
