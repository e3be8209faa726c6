//! The control for reads: the same walk over the same bytes, in one map, with no engine.

use log_core::record::{BATCH_HEADER_BYTES, BatchView, check_header};
use log_core::segment::seed_at;

use super::BareLog;
use super::append::SEED;
use crate::Outcome;

/// What was visited.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walked {
    /// How many bytes the batches took.
    pub len: usize,
    /// How many records there were.
    pub records: u64,
    /// How many bytes of value.
    pub value_bytes: u64,
}

/// Visits every record, all checksums checked; returns how many bytes of value there were.
///
/// # Errors
/// If the bytes are not what was appended.
pub fn scan(log: &BareLog) -> Outcome<u64> {
    let bytes = log.bytes();
    let mut all = Walked::default();
    while all.len < bytes.len() {
        let walked = walk_batch(&bytes[all.len..], seed_at(SEED, all.len as u64))?;
        all = all.and(walked);
    }
    if all.records != log.end() {
        return Err(format!("{} records were read of {}", all.records, log.end()).into());
    }
    Ok(all.value_bytes)
}

/// Visits every record of the whole batches in front of `bytes`, which were made by
/// [`one_batch`](super::one_batch), all checksums checked.
///
/// # Errors
/// If they are no such batches.
pub fn walk(bytes: &[u8]) -> Outcome<Walked> {
    let mut all = Walked::default();
    loop {
        let rest = &bytes[all.len..];
        if rest.len() < BATCH_HEADER_BYTES || check_header(rest, SEED)?.total_len() > rest.len() {
            return Ok(all);
        }
        all = all.and(walk_batch(rest, SEED)?);
    }
}

fn walk_batch(bytes: &[u8], seed: u32) -> Outcome<Walked> {
    check_header(bytes, seed)?;
    let (batch, _) = BatchView::parse(bytes)?;
    batch.check_body()?;
    let mut walked = Walked { len: batch.bytes().len(), ..Walked::default() };
    for record in batch.open(0)?.records() {
        walked.value_bytes += record?.value.map_or(0, <[u8]>::len) as u64;
        walked.records += 1;
    }
    Ok(walked)
}

impl Walked {
    fn and(self, other: Walked) -> Walked {
        Walked {
            len: self.len + other.len,
            records: self.records + other.records,
            value_bytes: self.value_bytes + other.value_bytes,
        }
    }
}

/// Reads the record at `offset` from the batch at `position`, checksums checked; returns the
/// length of its value.
///
/// # Errors
/// If it is not there.
pub fn read_one(log: &BareLog, position: usize, offset: u64) -> Outcome<usize> {
    let bytes = &log.bytes()[position..];
    check_header(bytes, seed_at(SEED, position as u64))?;
    let (batch, _) = BatchView::parse(bytes)?;
    batch.check_body()?;
    let body = batch.open(0)?;
    let record = body.record_at(offset)?.ok_or("the offset is in another batch")?;
    Ok(record.value.map_or(0, <[u8]>::len))
}
