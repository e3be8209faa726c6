//! Disk: the one door to files; `OsDisk` is the real one, `FaultyDisk` the one that lies for tests.

#[cfg(any(test, feature = "testing"))]
mod faulty;
mod mmap;
mod os;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;

#[cfg(any(test, feature = "testing"))]
pub use faulty::{Call, CrashMode, Failure, FaultyDisk};
pub use mmap::{MappedFile, MappedWriter};
pub use os::OsDisk;

/// A file system, as far as the engine needs one. Every error names its path.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file, or creates it.
    ///
    /// # Errors
    /// `Io`; `DiskFull`. A file that is missing gives `Io` with kind `NotFound`.
    fn open(&self, path: &Path, mode: FileMode) -> Result<Arc<dyn DiskFile>>;

    /// Creates a directory; its parent must exist. One that exists already is fine.
    ///
    /// # Errors
    /// `Io`; `DiskFull`.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// What is in a directory, sorted by name.
    ///
    /// # Errors
    /// `Io`, also where the directory is missing.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// Gives a file another name in the same directory, replacing what has that name. Durable
    /// only once the directory is synced.
    ///
    /// # Errors
    /// `Io`; `DiskFull`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file; maps of it live on. Durable only once the directory is synced.
    ///
    /// # Errors
    /// `Io`.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory. Durable only once its parent is synced.
    ///
    /// # Errors
    /// `Io`.
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Makes durable what was created, renamed or removed in a directory.
    ///
    /// # Errors
    /// `Io`.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Takes the lock file at `path`, for as long as the result lives.
    ///
    /// # Errors
    /// `Locked` if somebody has it; `Io`.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>>;

    /// Whether a store into a map of a preallocated file here can't fail for want of space. Where
    /// it can (copy-on-write file systems, unknown ones), all bytes go in by `write_at`.
    fn can_store_into_maps(&self, dir: &Path) -> bool;
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// The path it was opened by; a rename does not change it.
    fn path(&self) -> PathBuf;

    /// How long it is.
    ///
    /// # Errors
    /// `Io`.
    fn size(&self) -> Result<u64>;

    /// Reads until `bytes` is full or the file ends; returns how many were read.
    ///
    /// # Errors
    /// `Io`.
    fn read_at(&self, bytes: &mut [u8], position: u64) -> Result<usize>;

    /// Where bytes that may not be zero come next, at or after `position`: what lies before them
    /// reads as zeros, and need not be read. `None` if there are none.
    ///
    /// # Errors
    /// `Io`.
    fn next_data(&self, position: u64) -> Result<Option<u64>>;

    /// Writes all of `bytes`, the file growing if need be.
    ///
    /// # Errors
    /// `Io`; `DiskFull`; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> Result<()>;

    /// Makes sure that the blocks of `[0, len)` exist, zero where nothing was written; the file is
    /// at least that long then.
    ///
    /// # Errors
    /// `DiskFull`, nothing is lost; `Io`.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Makes what was written, by either way, durable, with the file's length.
    ///
    /// # Errors
    /// `Io`. What it covered may or may not be on disk, and a later success proves nothing.
    fn sync(&self) -> Result<()>;

    /// Maps `[0, len)` for reading and writing; `len` may lie beyond the end of the file, but
    /// what does must not be touched before `allocate` reaches it.
    ///
    /// # Errors
    /// `Io`, as when the process has too many maps.
    fn map(&self, len: u64) -> Result<MappedWriter>;

    /// Maps `[0, published)` for reading.
    ///
    /// # Errors
    /// `Io`.
    fn map_read_only(&self, published: u64) -> Result<Arc<MappedFile>>;

    /// Has the page cache let go of what it holds of `[position, position + len)` and need not
    /// write: it is had from the disk again. What is still to be written, or mapped and in use,
    /// may stay.
    fn forget(&self, position: u64, len: u64);

    /// Says that reads will not be sequential, so that the kernel reads no more than asked.
    fn advise_random(&self);
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// To be read; it must exist.
    Read,
    /// To be read and written; it must exist.
    ReadWrite,
    /// To be read and written; made if missing, emptied if not.
    Create,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name; one that is no UTF-8 is shown with replacement characters, and is not ours.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Whether an error says that the file is not there.
#[must_use]
pub fn is_not_found(error: &crate::error::Error) -> bool {
    use crate::error::Error;
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
