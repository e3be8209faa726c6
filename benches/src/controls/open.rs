//! The control for opening after a kill: a walk with checksums over the last segment, and one sync.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use log_core::disk::{Disk, FileMode, OsDisk};
use log_core::record::{BATCH_HEADER_BYTES, BatchView, check_header};
use log_core::segment::{SegmentHeader, seed_at};

use crate::Outcome;

const READ_BYTES: usize = 1 << 20;

/// Reads the segment at `path` until its bytes are no batch any more, with pread; syncs it;
/// returns how many bytes of batches there were.
///
/// # Errors
/// If it can't be read or synced, or has no header.
pub fn walk_and_sync(path: &Path) -> Outcome<u64> {
    let header = SegmentHeader::read(&*OsDisk.open(path, FileMode::Read)?)??.header;
    let (seed, start) = (header.seed(), u64::from(header.data_start));
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut position = start;
    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        let read = file.read_at(&mut buffer[filled..], position + filled as u64)?;
        filled += read;
        let mut used = 0;
        while let Some(len) = next_batch(&buffer[used..filled], seed, position + used as u64)? {
            used += len;
        }
        if used == 0 {
            let wanted = wanted_bytes(&buffer[..filled], seed, position).unwrap_or(0);
            if read == 0 || wanted <= filled {
                break;
            }
            buffer.resize(wanted.max(buffer.len()), 0);
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
        position += used as u64;
    }
    file.sync_data()?;
    Ok(position - start)
}

/// The length of the good batch at the front of `bytes`, if all of it is there.
fn next_batch(bytes: &[u8], seed: u32, position: u64) -> Outcome<Option<usize>> {
    match wanted_bytes(bytes, seed, position) {
        Some(len) if len <= bytes.len() => {
            let (batch, _) = BatchView::parse(bytes)?;
            Ok(batch.check_body().is_ok().then_some(len))
        }
        _ => Ok(None),
    }
}

/// How long the batch at the front of `bytes` is; none if there is none.
fn wanted_bytes(bytes: &[u8], seed: u32, position: u64) -> Option<usize> {
    if bytes.len() < BATCH_HEADER_BYTES {
        return None;
    }
    check_header(bytes, seed_at(seed, position)).ok().map(|header| header.total_len())
}
