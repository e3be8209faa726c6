//! The control for durable appends: pwrite and fdatasync into a fresh, preallocated file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use log_core::record::{Record, Stamp, encode_into, encoded_len, stamp};
use rustix::fs::FallocateFlags;

use super::append::{NOW, SEED};
use crate::Outcome;

/// As much as a segment of the engine may take.
const FILE_BYTES: u64 = 128 << 20;

/// A file that is written and synced, write by write.
#[derive(Debug)]
pub struct BareFile {
    file: File,
    position: u64,
}

impl BareFile {
    /// A new one.
    ///
    /// # Errors
    /// If it can't be made, or there is no space.
    pub fn create(path: &Path) -> Outcome<BareFile> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
        // Its name and its size are on disk before the clock starts.
        file.sync_all()?;
        Ok(BareFile { file, position: 0 })
    }

    /// Writes the bytes behind those before, and waits until they are on disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn append(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.file.write_all_at(bytes, self.position)?;
        self.file.sync_data()?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

/// Files that are filled one after the other, all made beforehand.
#[derive(Debug)]
pub struct BareFiles {
    files: Vec<BareFile>,
    current: usize,
}

impl BareFiles {
    /// As many new ones in `dir` as hold so many bytes, and one more.
    ///
    /// # Errors
    /// If they can't be made, or there is no space.
    pub fn create(dir: &Path, bytes: u64) -> Outcome<BareFiles> {
        let create = |number: u64| BareFile::create(&dir.join(number.to_string()));
        let files = (0..=bytes.div_ceil(FILE_BYTES)).map(create).collect::<Outcome<_>>()?;
        Ok(BareFiles { files, current: 0 })
    }

    /// Writes the bytes, and waits until they are on disk.
    ///
    /// # Errors
    /// If that fails.
    ///
    /// # Panics
    /// If there are more than was said.
    pub fn append(&mut self, bytes: &[u8]) -> Outcome<()> {
        if self.files[self.current].position + bytes.len() as u64 > FILE_BYTES {
            self.current += 1;
        }
        self.files[self.current].append(bytes)
    }
}

/// The bytes that the engine stores for these records.
#[must_use]
pub fn one_batch(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; encoded_len(records, NOW)];
    encode_into(&mut bytes, records, NOW);
    stamp(&mut bytes, Stamp { base_offset: 1, append_time: NOW, durable_end: 1, epoch: 1 }, SEED);
    bytes
}
