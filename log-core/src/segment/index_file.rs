//! The index of a segment: had from its file, or made anew by walking the segment.

use std::sync::Arc;

use super::scan::{Found, SegmentScan};
use super::{Segment, SegmentIndex, Times};
use crate::disk::{FileMode, is_not_found};
use crate::error::{Fault, Result};

impl Segment {
    /// What the index knows, read or rebuilt first if need be.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the segment is lost.
    pub fn with_index<T>(self: &Arc<Segment>, ask: impl FnOnce(&SegmentIndex) -> T) -> Result<T> {
        if let Some(index) = self.index.read().as_ref() {
            return Ok(ask(index));
        }
        let loaded = self.load_index()?;
        let answer = ask(self.index.write().get_or_insert(loaded));
        self.place.maps.loaded(self);
        Ok(answer)
    }

    /// What is known of the times in the segment. For that alone, the index is not kept in memory.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the segment is lost.
    pub fn times(&self) -> Result<Times> {
        if let Some(index) = self.index.read().as_ref() {
            return Ok(index.times());
        }
        if let Some(times) = self.times.get() {
            return Ok(*times);
        }
        let times = self.load_index()?.times();
        Ok(*self.times.get_or_init(|| times))
    }

    /// Reads the index file; rebuilds the index where that is missing, stale or damaged.
    fn load_index(&self) -> Result<SegmentIndex> {
        match self.stored_index() {
            Ok(Ok(index)) => Ok(index),
            Ok(Err(_)) => self.rebuild_index(),
            Err(error) if is_not_found(&error) => self.rebuild_index(),
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
            match found {
                Found::Batch { header, position } => index.add(&header, position),
                Found::Bad(bad) if bad.next_offset == Some(bad.offset) => {}
                Found::Bad(_) => index.add_unreadable(),
            }
        }
        Ok(index)
    }

    /// Writes the index file, if the index is in memory. A power cut may lose or tear it: it has a
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
        // By a second name, so that a process that dies here leaves no half of one.
        let path = self.index_path();
        let temporary = path.with_extension("index.tmp");
        let file = self.place.disk.open(&temporary, FileMode::Create)?;
        file.write_at(&bytes, 0)?;
        self.place.disk.rename(&temporary, &path)
    }
}
