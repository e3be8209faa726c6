//! RawMap: a fresh file, mapped, for the controls: stores without an engine around them.
//!
//! Invariants:
//! 1. A file is made by [`RawMap::create`], named by nobody else, and never shrinks.
//! 2. Bytes are handed out below `allocated` only: there, every page has blocks.
//! 3. There is one `RawMap` for a map; `&mut self` guards what may be written. What is shared with
//!    another thread, [`Ahead`], touches no bytes: it allocates and populates.
#![expect(unsafe_code, reason = "maps are raw memory; this file wraps them")]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;

/// A mapped file that one owner writes.
#[derive(Debug)]
pub struct RawMap {
    ahead: Arc<Ahead>,
}

/// What can be done to the map by another thread, ahead of the stores.
#[derive(Debug)]
pub struct Ahead {
    file: File,
    map: MmapRaw,
    allocated: AtomicUsize,
    populated: AtomicUsize,
}

impl RawMap {
    /// A new file of no length yet, mapped as far as it may grow.
    ///
    /// # Errors
    /// If it exists already, or can't be made or mapped.
    pub fn create(path: &Path, len: usize) -> io::Result<RawMap> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        let (allocated, populated) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(RawMap { ahead: Arc::new(Ahead { file, map, allocated, populated }) })
    }

    /// What another thread may prepare.
    #[must_use]
    pub fn ahead(&self) -> &Arc<Ahead> {
        &self.ahead
    }

    /// The bytes `[start, start + len)`, to be written.
    ///
    /// # Panics
    /// If they have no blocks yet.
    #[inline]
    pub fn bytes_mut(&mut self, start: usize, len: usize) -> &mut [u8] {
        self.ahead.check(start, len);
        // SAFETY: the range lies in the map and has blocks (just checked, 2), and `&mut self`
        // makes this the only slice of it (3). The map lives as long as the borrow of `self`.
        unsafe { std::slice::from_raw_parts_mut(self.ahead.map.as_mut_ptr().add(start), len) }
    }

    /// The bytes `[start, start + len)`.
    ///
    /// # Panics
    /// If they have no blocks yet.
    #[must_use]
    #[inline]
    pub fn bytes(&self, start: usize, len: usize) -> &[u8] {
        self.ahead.check(start, len);
        // SAFETY: the range lies in the map and has blocks (just checked, 2); nobody writes while
        // `self` is borrowed (3). The map lives as long as the borrow of `self`.
        unsafe { std::slice::from_raw_parts(self.ahead.map.as_mut_ptr().add(start), len) }
    }
}

impl Ahead {
    /// Up to where there are blocks.
    #[must_use]
    #[inline]
    pub fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Acquire)
    }

    /// Up to where there are page frames.
    #[must_use]
    #[inline]
    pub fn populated(&self) -> usize {
        self.populated.load(Ordering::Acquire)
    }

    /// Gives the file blocks up to `end`, or to the end of the map.
    ///
    /// # Errors
    /// If the disk is full, or the file system can't preallocate.
    pub fn allocate_until(&self, end: usize) -> io::Result<()> {
        let end = end.min(self.map.len());
        if end > self.allocated() {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, end as u64)?;
            self.allocated.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Gives the map page frames that can be stored into, from where the last call ended up to
    /// `end`, as far as there are blocks.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn populate_until(&self, end: usize) -> io::Result<()> {
        let (from, end) = (self.populated(), end.min(self.allocated()));
        if end > from {
            self.map.advise_range(Advice::PopulateWrite, from, end - from)?;
            self.populated.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }

    fn check(&self, start: usize, len: usize) {
        let allocated = self.allocated();
        let fits = start <= allocated && len <= allocated - start;
        assert!(fits, "only bytes that have blocks are touched");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut map = RawMap::create(&dir.path().join("map"), 1 << 20).unwrap();
        map.ahead().allocate_until(8192).unwrap();
        map.ahead().populate_until(1 << 20).unwrap();
        assert_eq!((map.ahead().allocated(), map.ahead().populated()), (8192, 8192));
        map.bytes_mut(8190, 2).copy_from_slice(b"hi");
        assert_eq!(map.bytes(8190, 2), b"hi");
        assert_eq!(std::fs::read(dir.path().join("map")).unwrap()[8190..], *b"hi");
    }

    #[test]
    #[should_panic(expected = "only bytes that have blocks are touched")]
    fn bytes_without_blocks_are_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let map = RawMap::create(&dir.path().join("map"), 1 << 20).unwrap();
        map.ahead().allocate_until(4096).unwrap();
        let _ = map.bytes(4095, 2);
    }
}
