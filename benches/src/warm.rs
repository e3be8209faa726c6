//! Warm: memory that the host has handed over, before anything is timed.
//!
//! A virtual machine's host gives it memory when it is first touched, and may take it back when it
//! lies idle: the same code can run several times slower on untouched memory. So each side touches
//! and frees as much as it will use before its clock starts.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::Outcome;

const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1024 * 1024;

/// Touches and frees `bytes` of memory, as the process's own and as page cache of a file under
/// `dir`, and waits until the file system has nothing left to write.
///
/// # Errors
/// If the scratch file can't be written.
pub fn warm(dir: &Path, bytes: usize) -> Outcome<()> {
    touch_own_memory(bytes);
    let scratch = tempfile::tempdir_in(dir)?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(scratch.path().join("warm"))?;
    let chunk = vec![1_u8; CHUNK_BYTES];
    for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
        file.write_all(&chunk)?;
    }
    // Removed before it is written back: its pages are free again, its blocks were never needed.
    scratch.close()?;
    drop(file);
    settle(dir)
}

/// Writes back what the file system holds, so that nobody's leftovers are written while a clock
/// runs.
///
/// # Errors
/// If it can't be synced.
pub fn settle(dir: &Path) -> Outcome<()> {
    Ok(rustix::fs::syncfs(OpenOptions::new().read(true).open(dir)?)?)
}

fn touch_own_memory(bytes: usize) {
    let mut memory = vec![0_u8; bytes];
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
}
