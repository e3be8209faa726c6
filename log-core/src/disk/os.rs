//! OsDisk: files of the operating system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapOptions;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};

use super::mmap::{MappedFile, MappedWriter};
use super::{DirEntry, Disk, DiskFile, FileMode};
use crate::error::{Error, Result};

/// Zeros for file systems that can't preallocate.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

#[derive(Debug)]
struct OsFile {
    file: File,
    path: PathBuf,
}

/// A lock that is held.
#[derive(Debug)]
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting has a copy of the
        // descriptor until it runs its program, and the lock would be held by that.
        let _ = self.0.unlock();
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: FileMode) -> Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != FileMode::Read);
        if mode == FileMode::Create {
            options.create(true).truncate(true);
        }
        let action = if mode == FileMode::Create { "create" } else { "open" };
        let file = options.open(path).map_err(|error| Error::io(action, path, error))?;
        Ok(Arc::new(OsFile { file, path: path.to_path_buf() }))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io("create directory", path, error))
            }
            _ => Ok(()),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let failed = |error| Error::io("list", path, error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_dir = entry.file_type().map_err(failed)?.is_dir();
            entries
                .push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), is_dir });
        }
        entries.sort();
        Ok(entries)
    }

    #[expect(clippy::disallowed_methods, reason = "this file is the door to the disk")]
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    #[expect(clippy::disallowed_methods, reason = "this file is the door to the disk")]
    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io("remove directory", path, error))
    }

    #[expect(clippy::disallowed_methods, reason = "this file is the door to the disk")]
    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = File::open(path).and_then(|dir| dir.sync_all());
        synced.map_err(|error| Error::io("sync directory", path, error))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        // Not truncated: on a full disk an existing lock file must still do.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| Error::io("open", path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Held(file))),
            Err(TryLockError::WouldBlock) => {
                let dir = path.parent().unwrap_or(path);
                Err(Error::Locked { path: dir.to_path_buf() })
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path, error)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this file is the door to the disk")]
    fn can_store_into_maps(&self, dir: &Path) -> bool {
        /// File systems that overwrite preallocated blocks in place. XFS may share blocks
        /// (reflink), but a freshly made segment shares none.
        const IN_PLACE: [u64; 3] = [
            0xef53,      // ext2, ext3, ext4
            0x5846_5342, // xfs
            0x0102_1994, // tmpfs
        ];
        let Ok(opened) = File::open(dir) else { return false };
        let Ok(found) = rustix::fs::fstatfs(&opened) else { return false };
        u64::try_from(found.f_type).is_ok_and(|kind| IN_PLACE.contains(&kind))
    }
}

impl DiskFile for OsFile {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn size(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(|error| self.failed("stat", error))?;
        Ok(found.len())
    }

    fn read_at(&self, bytes: &mut [u8], position: u64) -> Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], position + read as u64) {
                Ok(0) => break,
                Ok(some) => read += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        Ok(read)
    }

    fn next_data(&self, position: u64) -> Result<Option<u64>> {
        // Blocks that were allocated and never written count as a hole, unless the page cache
        // holds something for them. The file's own position is used by nobody.
        match rustix::fs::seek(&self.file, SeekFrom::Data(position)) {
            Ok(data) => Ok(Some(data)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some(position)),
            Err(error) => Err(self.failed("seek in", error.into())),
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> Result<()> {
        // `write_all_at` completes short writes and retries after a signal.
        self.file.write_all_at(bytes, position).map_err(|error| self.failed("write", error))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::OPNOTSUPP) => return self.fill_with_zeros(len),
                Err(error) => return Err(self.failed("allocate space for", error.into())),
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed("sync", error))
    }

    fn map(&self, len: u64) -> Result<MappedWriter> {
        Ok(MappedWriter::of_file(self.map_raw(len)?))
    }

    fn map_read_only(&self, published: u64) -> Result<Arc<MappedFile>> {
        let len = usize::try_from(published).expect("segments fit in memory");
        let mapped = MmapOptions::new().len(len).map_raw_read_only(&self.file);
        Ok(MappedFile::read_only(mapped.map_err(|error| self.failed("map", error))?))
    }

    fn forget(&self, position: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.file, position, NonZeroU64::new(len), Advice::DontNeed);
    }

    fn advise_random(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
    }
}

impl OsFile {
    fn failed(&self, action: &'static str, error: io::Error) -> Error {
        Error::io(action, &self.path, error)
    }

    fn map_raw(&self, len: u64) -> Result<memmap2::MmapRaw> {
        let len = usize::try_from(len).expect("segments fit in memory");
        let mapped = MmapOptions::new().len(len).map_raw(&self.file);
        mapped.map_err(|error| self.failed("map", error))
    }

    /// Preallocation by hand. Only what lies beyond the end is written: the rest has its blocks.
    fn fill_with_zeros(&self, len: u64) -> Result<()> {
        let mut position = self.size()?;
        while position < len {
            let step = ZEROS.len().min(usize::try_from(len - position).unwrap_or(usize::MAX));
            self.write_at(&ZEROS[..step], position)?;
            position += step as u64;
        }
        Ok(())
    }
}
