//! Window: what a walk sees of a file, by pread, or in a map where it goes on for long.
//!
//! What is read is checked for errors of the disk before it is touched, either way.

use std::sync::Arc;

use crate::disk::{DiskFile, MappedFile};
use crate::error::Result;

/// How much is read at a time.
const STEP: usize = 1024 * 1024;
/// From so much on, a walk is through a map: that saves the copy, but costs page tables.
const MAPPED_MIN_BYTES: u64 = 16 * 1024 * 1024;
/// How much of a map is read into memory at a time.
pub(super) const POPULATE_BYTES: u64 = 2 * 1024 * 1024;

/// The part of a file that is in memory.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn DiskFile>,
    /// Where the walk ends: nothing is read ahead past it.
    end: u64,
    map: Option<Arc<MappedFile>>,
    /// Where what is in memory stands in the file: `bytes`, or that part of the map.
    start: u64,
    filled: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Over a file, for a walk over `[from, end)`.
    pub(super) fn new(file: Arc<dyn DiskFile>, from: u64, end: u64) -> Window {
        let map = (end.saturating_sub(from) >= MAPPED_MIN_BYTES).then(|| map_of(&*file, end));
        let map = map.flatten();
        Window { file, end, map, start: from, filled: from, bytes: Vec::new() }
    }

    /// The file.
    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// The map, if the walk is through one.
    pub(super) fn map(&self) -> Option<&Arc<MappedFile>> {
        self.map.as_ref()
    }

    /// Whether the byte at `position` is in memory.
    pub(super) fn holds(&self, position: u64) -> bool {
        (self.start..self.filled).contains(&position)
    }

    /// Between `least` and `most` bytes: what is in memory, if that is enough.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read_some(&mut self, position: u64, least: usize, most: usize) -> Result<&[u8]> {
        let there = if position >= self.start { self.filled.saturating_sub(position) } else { 0 };
        let there = usize::try_from(there).unwrap_or(0);
        let len = if there >= least { there } else { STEP };
        self.read_up_to(position, len.min(most))
    }

    /// Up to `len` bytes: fewer only where the file ends.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read_up_to(&mut self, position: u64, len: usize) -> Result<&[u8]> {
        let end = position + len as u64;
        if position < self.start || end > self.filled {
            self.fill(position, end)?;
        }
        let end = end.min(self.filled);
        if let Some(map) = &self.map {
            let end = end.min(map.len());
            return Ok(map.slice(position.min(end), end));
        }
        let at = |position: u64| usize::try_from(position - self.start).expect("in the window");
        Ok(&self.bytes[at(position)..at(end.max(position)).min(self.bytes.len())])
    }

    fn fill(&mut self, position: u64, end: u64) -> Result<()> {
        if let Some(map) = &self.map {
            let goes_on = self.holds(position) || position == self.filled;
            let from = if goes_on { self.filled } else { position };
            let until = end.max(from + POPULATE_BYTES).min(map.len());
            if map.populate_for_reading(from, until).is_ok() {
                self.start = if goes_on { self.start } else { position };
                self.filled = until.max(from);
                return Ok(());
            }
            // Bytes that can't be read: reading tells which, and why.
            self.map = None;
        }
        // The caller has checked `end` against what the region can hold.
        let len = usize::try_from(end - position).expect("a batch");
        let ahead = usize::try_from(self.end.saturating_sub(position)).unwrap_or(STEP);
        self.bytes.resize(len.max(STEP.min(ahead)), 0);
        (self.start, self.filled) = (position, position);
        let read = self.file.read_at(&mut self.bytes, position)?;
        self.bytes.truncate(read);
        self.filled = position + read as u64;
        Ok(())
    }
}

/// A map of what there is below `end`. `None` where there is none to be had, or where an error of
/// the disk would come as a signal, as the kernel can't read ahead into it: the walk is by pread.
fn map_of(file: &dyn DiskFile, end: u64) -> Option<Arc<MappedFile>> {
    let size = file.size().ok()?;
    let map = file.map_read_only(end.min(size)).ok()?;
    map.can_populate().then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, FileMode, OsDisk};

    const LEN: usize = 20 * 1024 * 1024;

    fn file_of(bytes: &[u8]) -> (tempfile::TempDir, Arc<dyn DiskFile>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        (dir, OsDisk.open(&path, FileMode::Read).unwrap())
    }

    /// Every byte tells where it stands.
    fn bytes() -> Vec<u8> {
        (0..LEN / 4).flat_map(|at| u32::try_from(at).unwrap().to_le_bytes()).collect()
    }

    #[test]
    fn a_walk_sees_what_is_in_the_file() {
        let all = bytes();
        let (_dir, file) = file_of(&all);
        // Through a map, and by pread; both believe that there is more than there is.
        let windows = [
            Window::new(Arc::clone(&file), 0, LEN as u64 * 2),
            Window { map: None, ..Window::new(file, 0, LEN as u64 * 2) },
        ];
        for mut window in windows {
            for (from, to) in [(0, 15_000_000), (2_000_000, 9_000_000), (18_000_000, LEN)] {
                let mut position = from;
                for len in [100_000, 7, 300_000, 64, 5_000_000].into_iter().cycle() {
                    if position >= to {
                        break;
                    }
                    let read = window.read_up_to(position as u64, len).unwrap();
                    assert!(read == &all[position..(position + len).min(LEN)], "{position}");
                    position += read.len();
                }
            }
            assert_eq!(window.read_up_to(LEN as u64 + 5, 10).unwrap(), b"");
            assert!(window.read_some(100, 4, 10).unwrap() == &all[100..110]);
        }
    }
}
