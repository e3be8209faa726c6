//! MappedFile: a mapped file whose published part never changes. All `unsafe` of the engine is here.
//!
//! Invariants, which the safe interface enforces:
//! 1. `published` only grows, and never past the length of the map.
//! 2. Bytes below `published` are never written through this map, and shared slices are made of
//!    such bytes alone. [`MappedWriter`] hands out `&mut [u8]` above `published` only.
//! 3. There is one `MappedWriter` for a map: it can't be cloned, and `&mut self` guards it.
//! 4. A map lives as long as anything that refers to it ([`PublishedBytes`] holds the `Arc`).
//!
//! What no type can enforce, and the rest of the engine keeps: nobody shrinks a mapped file or
//! writes below `published` through a file handle, the data directory's LOCK keeps other
//! processes out, and pages that are touched have blocks (else a full disk is a SIGBUS).
//! docs/decisions/0002-unsafe.md says where each is kept.
#![expect(unsafe_code, reason = "maps are raw memory; this file wraps them")]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapRaw};

/// Memory that outlives whoever maps it: what stands behind a map.
enum Region {
    /// A file, mapped by the kernel.
    File(MmapRaw),
    /// Plain memory: a file of a disk that is simulated.
    #[cfg(any(test, feature = "testing"))]
    Memory(Arc<MemoryRegion>),
}

/// A mapped file. See the head of this file for what holds of it.
pub struct MappedFile {
    region: Region,
    len: u64,
    published: AtomicU64,
}

/// The one writer of a [`MappedFile`].
#[derive(Debug)]
pub struct MappedWriter {
    file: Arc<MappedFile>,
}

impl MappedWriter {
    /// Takes over a map of a file that may be written. Nothing is published yet.
    pub(super) fn of_file(map: MmapRaw) -> MappedWriter {
        let len = map.len() as u64;
        MappedWriter { file: Arc::new(MappedFile::new(Region::File(map), len, 0)) }
    }

    /// Takes over a map of simulated memory.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn of_memory(memory: Arc<MemoryRegion>, len: u64) -> MappedWriter {
        let len = len.min(memory.len());
        MappedWriter { file: Arc::new(MappedFile::new(Region::Memory(memory), len, 0)) }
    }

    /// The readers' side.
    #[must_use]
    pub fn file(&self) -> &Arc<MappedFile> {
        &self.file
    }

    /// The bytes `[published + skip, published + skip + len)`, to be filled.
    ///
    /// # Panics
    /// If they do not lie in the map: the caller checks that there is room.
    pub fn unpublished(&mut self, skip: u64, len: usize) -> &mut [u8] {
        let published = self.file.published.load(Ordering::Relaxed);
        // By subtraction: a sum could wrap around, to below `published`.
        let room = self.file.len - published;
        let fits = skip <= room && len as u64 <= room - skip;
        assert!(fits, "the caller checks that there is room in the map");
        let start = published + skip;
        // SAFETY: the range lies in the map (just checked) and above `published`, so no shared
        // slice overlaps it (2), and `&mut self` makes this the only mutable one (3). The map
        // lives as long as the borrow of `self` (4).
        unsafe { std::slice::from_raw_parts_mut(self.file.at(start).as_ptr(), len) }
    }

    /// Publishes `[.., position)`: whoever sees the new length sees the bytes.
    ///
    /// # Panics
    /// If it would go back, or past the map.
    pub fn publish(&mut self, position: u64) {
        let published = self.file.published.load(Ordering::Relaxed);
        assert!(published <= position && position <= self.file.len, "published only grows");
        self.file.published.store(position, Ordering::Release);
    }
}

impl MappedFile {
    fn new(region: Region, len: u64, published: u64) -> MappedFile {
        MappedFile { region, len, published: AtomicU64::new(published) }
    }

    /// Takes over a map for reading; all of it is published.
    pub(super) fn read_only(map: MmapRaw) -> Arc<MappedFile> {
        let len = map.len() as u64;
        Arc::new(MappedFile::new(Region::File(map), len, len))
    }

    /// The same over simulated memory.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn read_only_memory(memory: Arc<MemoryRegion>, published: u64) -> Arc<MappedFile> {
        let len = published.min(memory.len());
        Arc::new(MappedFile::new(Region::Memory(memory), len, len))
    }

    /// How much is published: an acquire load, so that the bytes below are there.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// How much is mapped.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The published bytes `[start, end)`.
    ///
    /// # Panics
    /// If they are not all published.
    #[must_use]
    pub fn slice(&self, start: u64, end: u64) -> &[u8] {
        assert!(start <= end && end <= self.published(), "only published bytes are shared");
        let len = usize::try_from(end - start).expect("a map fits in memory");
        // SAFETY: the range is published (just checked, with an acquire load that makes the
        // writer's stores visible), so it lies in the map (1) and is never written again (2).
        unsafe { std::slice::from_raw_parts(self.at(start).as_ptr(), len) }
    }

    /// The same bytes, with a share in the map.
    ///
    /// # Panics
    /// If they are not all published.
    #[must_use]
    pub fn share(self: &Arc<MappedFile>, start: u64, end: u64) -> Bytes {
        assert!(start <= end && end <= self.published(), "only published bytes are shared");
        Bytes::from_owner(PublishedBytes { file: Arc::clone(self), start, end })
    }

    /// Gives `[start, end)` page frames that can be stored into, ahead of the stores.
    ///
    /// # Errors
    /// What the kernel says: the range has no blocks, or there is no memory.
    pub fn populate_for_writing(&self, start: u64, end: u64) -> io::Result<()> {
        self.advise(Advice::PopulateWrite, start, end)
    }

    /// Reads the published bytes `[start, end)` into memory; an error here would be a SIGBUS later.
    ///
    /// # Errors
    /// What the kernel says: the disk can't be read there, or the file is shorter.
    pub fn populate_for_reading(&self, start: u64, end: u64) -> io::Result<()> {
        if self.map_resident(start, end) {
            return Ok(());
        }
        self.advise(Advice::PopulateRead, start, end)
    }

    /// Has the kernel begin to read `[start, end)` from the disk, without waiting for it. Advice may
    /// be refused without harm.
    pub fn will_need(&self, start: u64, end: u64) {
        let _ = self.advise(Advice::WillNeed, start, end);
    }

    /// Maps what the page cache has of the published bytes `[start, end)`, without a read from the
    /// disk; whether that is all of them. Who reads them then waits for nothing, unless the machine
    /// is so short of memory that a page is dropped meanwhile.
    #[must_use]
    pub fn map_resident(&self, start: u64, end: u64) -> bool {
        let end = end.min(self.published());
        let mut window = start / FAULT_AROUND * FAULT_AROUND;
        while window < end {
            let first = window.max(start);
            if self.is_resident(first, first + 1) {
                // The kernel maps all that it has around it: a fifth of what populating costs.
                std::hint::black_box(self.slice(first, first + 1)[0]);
            }
            window += FAULT_AROUND;
        }
        // What is mapped is soon looked through.
        self.is_resident(start, end)
    }

    /// Whether the page cache has all of `[start, end)`, free of errors.
    fn is_resident(&self, start: u64, end: u64) -> bool {
        let Some(map) = self.mapped() else { return true };
        let page = rustix::param::page_size();
        // What can be mapped has an address.
        let inside = |at: u64| usize::try_from(at.min(self.len)).unwrap_or(usize::MAX);
        let (mut at, end) = (inside(start) & !(page - 1), inside(end));
        let mut pages = [0_u8; 1024];
        while at < end {
            let len = (end - at).min(pages.len() * page);
            // SAFETY: `[at, at + len)` lies in the map, which `self` keeps (4); `at` is at a page's
            // beginning, as maps are. The kernel writes a byte for each page that the range
            // touches: no more than there are in `pages`.
            let known =
                unsafe { libc::mincore(map.as_mut_ptr().add(at).cast(), len, pages.as_mut_ptr()) };
            let touched = &pages[..len.div_ceil(page)];
            if known != 0 || touched.iter().any(|page| page & 1 == 0) {
                return false;
            }
            at += len;
        }
        true
    }

    /// Whether [`MappedFile::populate_for_reading`] reads, and meets the disk's errors. Kernels before
    /// 5.14 do not, and simulated memory has none.
    #[must_use]
    pub fn can_populate(&self) -> bool {
        let first = |map: &MmapRaw| map.advise_range(Advice::PopulateRead, 0, 1).is_ok();
        self.mapped().is_some_and(first)
    }

    /// Has the page cache keep this file in single pages. In larger units, which are cheaper to
    /// populate, each sync after a small append would write up to 2 MiB. Advice may be refused
    /// without harm.
    pub fn keep_pages_small(&self) {
        if let Some(map) = self.mapped() {
            let _ = map.advise(Advice::Random);
        }
    }

    fn advise(&self, advice: Advice, start: u64, end: u64) -> io::Result<()> {
        let Some(map) = self.mapped() else { return Ok(()) };
        let offset = usize::try_from(start & !(PAGE - 1)).expect("a map fits in memory");
        let end = usize::try_from(end.min(self.len)).expect("a map fits in memory");
        if end <= offset {
            return Ok(());
        }
        match map.advise_range(advice, offset, end - offset) {
            // Kernels before 5.14 do not know these two; pages come at first touch then.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            outcome => outcome,
        }
    }

    /// The kernel's map; simulated memory takes no advice.
    fn mapped(&self) -> Option<&MmapRaw> {
        match &self.region {
            Region::File(map) => Some(map),
            #[cfg(any(test, feature = "testing"))]
            Region::Memory(_) => None,
        }
    }

    /// The address of `position`, which must not be past the end of the map.
    fn at(&self, position: u64) -> NonNull<u8> {
        debug_assert!(position <= self.len);
        let offset = usize::try_from(position).expect("a map fits in memory");
        let base = match &self.region {
            Region::File(map) => NonNull::new(map.as_mut_ptr()).expect("a map is not at null"),
            #[cfg(any(test, feature = "testing"))]
            Region::Memory(memory) => memory.base,
        };
        // SAFETY: callers pass positions within the map, so the result stays within, or one past
        // the end of, the one allocation.
        unsafe { base.add(offset) }
    }
}

/// Advice needs page boundaries; 4 KiB divides every page size, and memmap2 rounds the rest.
const PAGE: u64 = 4096;
/// How much the kernel maps at a fault, if the page cache has it: its default.
const FAULT_AROUND: u64 = 64 * 1024;

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published = self.published();
        write!(f, "MappedFile {{ len: {}, published: {published} }}", self.len)
    }
}

/// A published range that keeps its map alive: the owner behind a `Bytes`.
#[derive(Debug)]
struct PublishedBytes {
    file: Arc<MappedFile>,
    start: u64,
    end: u64,
}

impl AsRef<[u8]> for PublishedBytes {
    fn as_ref(&self) -> &[u8] {
        self.file.slice(self.start, self.end)
    }
}

/// Fixed, zeroed memory that a simulated file and its maps share.
#[cfg(any(test, feature = "testing"))]
pub(super) struct MemoryRegion {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory that any thread may touch; what keeps reads and writes apart is said
// at `read` and `write`, and for maps at the head of this file.
#[cfg(any(test, feature = "testing"))]
unsafe impl Send for MemoryRegion {}
// SAFETY: as for `Send`.
#[cfg(any(test, feature = "testing"))]
unsafe impl Sync for MemoryRegion {}

#[cfg(any(test, feature = "testing"))]
impl MemoryRegion {
    /// `len` bytes of zeros.
    ///
    /// # Panics
    /// If `len` is zero.
    pub(super) fn zeroed(len: usize) -> Arc<MemoryRegion> {
        assert!(len > 0, "a region has bytes");
        let boxed = Box::into_raw(vec![0_u8; len].into_boxed_slice());
        let base = NonNull::new(boxed.cast::<u8>()).expect("a box is not at null");
        Arc::new(MemoryRegion { base, len })
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Copies bytes out. Like reading a file that another thread stores into, it may see a store
    /// by halves; the simulated disk calls it under its lock, in tests that store from one thread.
    ///
    /// # Panics
    /// If the range is not in the region.
    pub(super) fn read(&self, position: u64, bytes: &mut [u8]) {
        let start = self.checked(position, bytes.len());
        // SAFETY: the range is in the allocation (just checked); `bytes` is borrowed mutably, so
        // the two don't overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.as_ptr().add(start),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    /// Copies bytes in: what a write to the file does. The engine's rule holds here too: never
    /// below what a map of this region has published.
    ///
    /// # Panics
    /// If the range is not in the region.
    pub(super) fn write(&self, position: u64, bytes: &[u8]) {
        let start = self.checked(position, bytes.len());
        // SAFETY: the range is in the allocation (just checked); `bytes` is not part of it, since
        // shared slices of it are of published bytes, which nobody writes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.as_ptr().add(start),
                bytes.len(),
            );
        }
    }

    fn checked(&self, position: u64, len: usize) -> usize {
        let start = usize::try_from(position).expect("a position in memory");
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len), "in the region");
        start
    }
}

#[cfg(any(test, feature = "testing"))]
impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
        // SAFETY: `base` and `len` came from `Box::into_raw` in `zeroed`, and nothing else frees
        // them; maps hold an `Arc` of the region, so none is left.
        drop(unsafe { Box::from_raw(slice) });
    }
}

#[cfg(any(test, feature = "testing"))]
impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion {{ len: {} }}", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_exactly_what_is_published() {
        let mut writer = MappedWriter::of_memory(MemoryRegion::zeroed(64), 64);
        writer.unpublished(0, 3).copy_from_slice(b"abc");
        writer.unpublished(3, 2).copy_from_slice(b"de");
        assert_eq!(writer.file().published(), 0);
        writer.publish(5);
        let bytes = writer.file().share(1, 5);
        writer.unpublished(0, 3).copy_from_slice(b"xyz");
        writer.publish(8);
        assert_eq!(&bytes[..], b"bcde");
        assert_eq!(writer.file().slice(5, 8), b"xyz");
    }

    #[test]
    fn bytes_outlive_the_map_they_came_from() {
        let mut writer = MappedWriter::of_memory(MemoryRegion::zeroed(16), 16);
        writer.unpublished(0, 2).copy_from_slice(b"hi");
        writer.publish(2);
        let bytes = writer.file().share(0, 2);
        drop(writer);
        assert_eq!(&bytes[..], b"hi");
    }

    #[test]
    #[should_panic(expected = "only published bytes are shared")]
    fn unpublished_bytes_are_not_shared() {
        let writer = MappedWriter::of_memory(MemoryRegion::zeroed(16), 16);
        let _ = writer.file().share(0, 1);
    }

    #[test]
    #[should_panic(expected = "there is room in the map")]
    fn a_skip_that_wraps_around_does_not_reach_published_bytes() {
        let mut writer = MappedWriter::of_memory(MemoryRegion::zeroed(16), 16);
        writer.publish(8);
        let _ = writer.unpublished(u64::MAX - 3, 2);
    }

    #[test]
    #[should_panic(expected = "published only grows")]
    fn published_never_shrinks() {
        let mut writer = MappedWriter::of_memory(MemoryRegion::zeroed(16), 16);
        writer.publish(8);
        writer.publish(7);
    }
}
