//! Handle: an open file of a simulated disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::content::SECTOR_BYTES;
use super::script::{Call, Failure, Verdict};
use super::tree::SimulatedFile;
use super::{FaultyDisk, State};
use crate::disk::{DiskFile, MappedFile, MappedWriter};
use crate::error::{Error, Result};

pub(super) struct Handle {
    disk: FaultyDisk,
    file: Arc<SimulatedFile>,
    path: PathBuf,
    writable: bool,
}

impl Handle {
    pub(super) fn new(
        disk: FaultyDisk,
        file: Arc<SimulatedFile>,
        path: &Path,
        writable: bool,
    ) -> Handle {
        Handle { disk, file, path: path.to_path_buf(), writable }
    }

    fn enter(&self, call: Call, action: &'static str) -> Result<MutexGuard<'_, State>> {
        self.disk.enter(call, action, &self.path)
    }

    fn must_be_writable(&self, action: &'static str) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(self.failed(action, io::ErrorKind::PermissionDenied.into()))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> Error {
        Error::io(action, &self.path, error)
    }

    fn full(&self, action: &'static str) -> Error {
        self.failed(action, io::ErrorKind::StorageFull.into())
    }
}

impl DiskFile for Handle {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn size(&self) -> Result<u64> {
        let _state = self.enter(Call::Size, "stat")?;
        Ok(self.file.content.lock().len())
    }

    fn read_at(&self, bytes: &mut [u8], position: u64) -> Result<usize> {
        let _state = self.enter(Call::Read, "read")?;
        Ok(self.file.content.lock().read(bytes, position))
    }

    fn next_data(&self, position: u64) -> Result<Option<u64>> {
        let _state = self.enter(Call::Read, "seek in")?;
        let content = self.file.content.lock();
        let mut sector = [0; SECTOR_BYTES];
        let mut at = position;
        loop {
            match content.read(&mut sector, at) {
                0 => return Ok(None),
                read if sector[..read].iter().any(|byte| *byte != 0) => return Ok(Some(at)),
                read => at += read as u64,
            }
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> Result<()> {
        self.must_be_writable("write")?;
        let mut state = self.disk.state.lock();
        let verdict = state.script.enter(Call::Write);
        let wanted = match verdict {
            Verdict::Proceed => bytes.len(),
            Verdict::Fail(Failure::ShortWrite { bytes: some }) => bytes.len().min(some),
            Verdict::Fail(_) | Verdict::PowerOff => 0,
        };
        let longest = state.longest(&self.file);
        let room = usize::try_from(longest.saturating_sub(position)).unwrap_or(usize::MAX);
        self.file.content.lock().write(&bytes[..wanted.min(room)], position);
        verdict.check().map_err(|error| self.failed("write", error))?;
        if bytes.len() > room {
            return Err(self.full("write"));
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.must_be_writable("allocate space for")?;
        let state = self.enter(Call::Allocate, "allocate space for")?;
        if len > state.longest(&self.file) {
            return Err(self.full("allocate space for"));
        }
        self.file.content.lock().grow(len);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.disk.state.lock();
        let verdict = state.script.enter(Call::Sync);
        match verdict {
            Verdict::Proceed => self.file.content.lock().sync(),
            Verdict::Fail(_) => self.file.content.lock().fail_sync(),
            Verdict::PowerOff => {}
        }
        verdict.check().map_err(|error| self.failed("sync", error))
    }

    fn map(&self, len: u64) -> Result<MappedWriter> {
        self.must_be_writable("map")?;
        let _state = self.enter(Call::Map, "map")?;
        let mapped = self.file.content.lock().map(len);
        mapped.ok_or_else(|| {
            let why = "the file is mapped already, and its memory too small for this map: \
                       set a larger file capacity";
            self.failed("map", io::Error::new(io::ErrorKind::InvalidInput, why))
        })
    }

    fn map_read_only(&self, published: u64) -> Result<Arc<MappedFile>> {
        let _state = self.enter(Call::Map, "map")?;
        let mapped = self.file.content.lock().map_read_only(published);
        mapped.ok_or_else(|| {
            let why = "the map would reach past the end of the file";
            self.failed("map", io::Error::new(io::ErrorKind::UnexpectedEof, why))
        })
    }

    /// A cache need not: what is written again is written, here.
    fn forget(&self, _position: u64, _len: u64) {}

    fn advise_random(&self) {}
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle {{ path: {} }}", self.path.display())
    }
}
