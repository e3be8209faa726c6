//! Content: the bytes of a simulated file, as the page cache has them and as the platter has them.
//!
//! `durable` is the platter: what a power cut can't touch. `live` is the page cache, and the memory
//! that maps of the file share. A sector in `dirty` is still to be written; one that differs and is
//! not dirty was lost by a sync that failed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::disk::mmap::{MappedFile, MappedWriter, MemoryRegion};

/// What a disk writes as one.
pub(super) const SECTOR: u64 = 512;
pub(super) const SECTOR_BYTES: usize = 512;
/// What is compared at once, since most of a file is usually the same.
const CHUNK_BYTES: usize = 16 * SECTOR_BYTES;

#[derive(Debug)]
pub(super) struct Content {
    /// As large as it must be, so that copies of a disk are cheap; it moves to grow, unless the
    /// file is mapped for writing.
    live: Arc<MemoryRegion>,
    len: u64,
    /// How large `live` may grow by writing.
    capacity: u64,
    durable: Vec<u8>,
    dirty: BTreeSet<u64>,
    /// The live bytes as they were when `dirty` was last brought up to date; there once the file
    /// has been mapped for writing, since nobody tells of stores into a map.
    shadow: Option<Vec<u8>>,
}

impl Content {
    /// A new, empty file, nothing of it durable.
    pub(super) fn empty(capacity: u64) -> Content {
        Content {
            live: region(0),
            len: 0,
            capacity,
            durable: Vec::new(),
            dirty: BTreeSet::new(),
            shadow: None,
        }
    }

    /// A file that has these bytes, durably.
    pub(super) fn durable_bytes(bytes: Vec<u8>, capacity: u64) -> Content {
        let len = bytes.len() as u64;
        let live = region(len);
        live.write(0, &bytes);
        Content { live, len, capacity, durable: bytes, dirty: BTreeSet::new(), shadow: None }
    }

    /// The same file without the maps of it: dirty bytes are dirty there, too.
    pub(super) fn duplicate(&mut self) -> Content {
        self.note_map_stores();
        let live = region(self.len);
        live.write(0, &self.bytes());
        Content {
            live,
            len: self.len,
            capacity: self.capacity,
            durable: self.durable.clone(),
            dirty: self.dirty.clone(),
            shadow: None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long it can become by writing.
    pub(super) fn longest(&self) -> u64 {
        if self.can_move() { self.capacity.max(self.live.len()) } else { self.live.len() }
    }

    /// All live bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.len)];
        self.live.read(0, &mut bytes);
        bytes
    }

    /// All durable bytes.
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn read(&self, bytes: &mut [u8], position: u64) -> usize {
        let some = bytes.len().min(to_usize(self.len.saturating_sub(position)));
        if some > 0 {
            self.live.read(position, &mut bytes[..some]);
        }
        some
    }

    /// Writes; the caller has checked that there is room.
    pub(super) fn write(&mut self, bytes: &[u8], position: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = position + bytes.len() as u64;
        self.grow(end);
        self.live.write(position, bytes);
        self.dirty.extend(position / SECTOR..end.div_ceil(SECTOR));
    }

    /// Makes it at least that long; the caller has checked that there is room.
    ///
    /// # Panics
    /// If something was stored beyond the end, through a map: a SIGBUS, had this been a file.
    pub(super) fn grow(&mut self, len: u64) {
        if len <= self.len {
            return;
        }
        if self.shadow.is_some() {
            let mut beyond = vec![0; to_usize(len.min(self.live.len()) - self.len)];
            self.live.read(self.len, &mut beyond);
            let stored = beyond.iter().any(|byte| *byte != 0);
            assert!(!stored, "a store into a map beyond the end of its file (SIGBUS)");
        }
        if len > self.live.len() {
            self.move_to(len.max(self.capacity.min(2 * len)));
        }
        self.len = len;
    }

    /// Empties it. Maps keep the bytes that they had.
    pub(super) fn truncate(&mut self) {
        let longest = self.len.max(self.durable.len() as u64);
        self.live = region(0);
        self.len = 0;
        self.shadow = None;
        self.dirty.extend(0..longest.div_ceil(SECTOR));
    }

    /// A writing map; none if the memory would have to move while there are maps of it.
    pub(super) fn map(&mut self, len: u64) -> Option<MappedWriter> {
        if self.can_move() {
            // From here on it can't, so it takes all that it may need.
            self.capacity = self.capacity.max(len);
            self.move_to(self.capacity.max(self.live.len()));
        } else if len > self.live.len() {
            return None;
        }
        self.note_map_stores();
        if self.shadow.is_none() {
            self.shadow = Some(self.bytes());
        }
        Some(MappedWriter::of_memory(Arc::clone(&self.live), len))
    }

    /// A reading map; none if it would reach past the end.
    pub(super) fn map_read_only(&self, published: u64) -> Option<Arc<MappedFile>> {
        (published <= self.len)
            .then(|| MappedFile::read_only_memory(Arc::clone(&self.live), published))
    }

    /// Takes what is dirty, and the length, to the platter.
    pub(super) fn sync(&mut self) {
        self.note_map_stores();
        self.durable.resize(to_usize(self.len), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let start = to_usize(sector * SECTOR);
            if start < self.durable.len() {
                let end = self.durable.len().min(start + SECTOR_BYTES);
                self.live.read(sector * SECTOR, &mut self.durable[start..end]);
            }
        }
    }

    /// What a sync that failed leaves: nothing was written, and nothing is dirty any more. The
    /// length is metadata, which the next sync does write.
    pub(super) fn fail_sync(&mut self) {
        self.note_map_stores();
        self.dirty.clear();
    }

    /// Reads clean sectors anew from the platter. Maps keep the bytes that they had.
    pub(super) fn drop_clean(&mut self) {
        self.detach();
        for sector in self.sectors_not_durable() {
            let some = self.bytes_in(sector);
            if some > 0 && !self.dirty.contains(&sector) {
                let old = self.durable_sector(sector);
                self.live.write(sector * SECTOR, &old[..some]);
            }
        }
    }

    /// Changes bytes behind everybody's back, live and durable. Maps keep the bytes they had.
    pub(super) fn tamper(&mut self, bytes: &[u8], position: u64) {
        let end = position + bytes.len() as u64;
        self.detach();
        self.grow(end);
        self.live.write(position, bytes);
        if self.durable.len() < to_usize(end) {
            self.durable.resize(to_usize(end), 0);
        }
        self.durable[to_usize(position)..to_usize(end)].copy_from_slice(bytes);
    }

    /// Shortens it behind everybody's back, live and durable. Maps keep the bytes they had.
    pub(super) fn tamper_len(&mut self, len: u64) {
        self.note_map_stores();
        let mut bytes = self.bytes();
        bytes.truncate(to_usize(len));
        self.len = bytes.len() as u64;
        self.live = region(self.len);
        self.live.write(0, &bytes);
        self.shadow = None;
        self.durable.truncate(to_usize(len));
    }

    /// The sectors in which the live bytes are not the durable ones, in order.
    pub(super) fn sectors_not_durable(&mut self) -> Vec<u64> {
        self.note_map_stores();
        let len = self.len.max(self.durable.len() as u64).min(self.live.len());
        let mut sectors = differing_sectors(&self.live, len, &self.durable);
        // A file that was emptied may have had more bytes than there is memory for now.
        let beyond = len.div_ceil(SECTOR)..(self.durable.len() as u64).div_ceil(SECTOR);
        sectors.extend(beyond);
        sectors
    }

    pub(super) fn is_dirty(&self, sector: u64) -> bool {
        self.dirty.contains(&sector)
    }

    /// A sector as it is live, zero beyond the end.
    pub(super) fn live_sector(&self, sector: u64) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let some = self.bytes_in(sector);
        if some > 0 {
            self.live.read(sector * SECTOR, &mut bytes[..some]);
        }
        bytes
    }

    /// A sector as it is on the platter, zero beyond the end.
    pub(super) fn durable_sector(&self, sector: u64) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let start = to_usize(sector * SECTOR).min(self.durable.len());
        let end = (start + SECTOR_BYTES).min(self.durable.len());
        bytes[..end - start].copy_from_slice(&self.durable[start..end]);
        bytes
    }

    /// How many live bytes the sector has.
    fn bytes_in(&self, sector: u64) -> usize {
        to_usize(self.len.saturating_sub(sector * SECTOR).min(SECTOR))
    }

    /// Marks as dirty what was stored into maps.
    fn note_map_stores(&mut self) {
        let Some(shadow) = &mut self.shadow else { return };
        shadow.resize(to_usize(self.len), 0);
        for sector in differing_sectors(&self.live, self.len, shadow) {
            let start = to_usize(sector * SECTOR);
            let end = shadow.len().min(start + SECTOR_BYTES);
            self.live.read(sector * SECTOR, &mut shadow[start..end]);
            self.dirty.insert(sector);
        }
    }

    /// Whether nobody can be storing into a map of it. Maps that only read may keep the memory
    /// that was: what they show never changes.
    fn can_move(&self) -> bool {
        self.shadow.is_none() || Arc::strong_count(&self.live) == 1
    }

    /// Parts from the memory that maps share, so that it can be changed under them.
    fn detach(&mut self) {
        self.move_to(self.live.len());
    }

    fn move_to(&mut self, len: u64) {
        self.note_map_stores();
        let live = region(len);
        live.write(0, &self.bytes());
        self.live = live;
        self.shadow = None;
    }
}

/// Simulated files fit in memory, and so do positions in them.
pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("simulated files fit in memory")
}

/// Zeroed memory for that many bytes, or for one: there is no empty region.
fn region(len: u64) -> Arc<MemoryRegion> {
    MemoryRegion::zeroed(to_usize(len.max(1)))
}

/// The sectors of `[0, len)` in which `region` is not `other`, which goes on with zeros.
fn differing_sectors(region: &MemoryRegion, len: u64, other: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut chunk = [0; CHUNK_BYTES];
    let mut expected = [0; CHUNK_BYTES];
    let len = to_usize(len);
    for start in (0..len).step_by(CHUNK_BYTES) {
        let some = CHUNK_BYTES.min(len - start);
        region.read(start as u64, &mut chunk[..some]);
        let known = other.get(start..).unwrap_or_default();
        let known = &known[..known.len().min(some)];
        expected[..known.len()].copy_from_slice(known);
        expected[known.len()..].fill(0);
        if chunk[..some] == expected[..some] {
            continue;
        }
        for at in (0..some).step_by(SECTOR_BYTES) {
            let end = some.min(at + SECTOR_BYTES);
            if chunk[at..end] != expected[at..end] {
                found.push((start + at) as u64 / SECTOR);
            }
        }
    }
    found
}
