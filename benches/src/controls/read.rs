//! The control for reads: the same walk over the same bytes, in one map, with no engine.

use log_core::record::{BatchView, check_header};
use log_core::segment::seed_at;

use super::BareLog;
use super::append::SEED;
use crate::Outcome;

/// Visits every record, all checksums checked; returns how many bytes of value there were.
///
/// # Errors
/// If the bytes are not what was appended.
pub fn scan(log: &BareLog) -> Outcome<u64> {
    let mut seen = 0;
    let mut value_bytes = 0;
    let mut rest = log.bytes();
    let mut position = 0_u64;
    while !rest.is_empty() {
        check_header(rest, seed_at(SEED, position))?;
        let (batch, after) = BatchView::parse(rest)?;
        batch.check_body()?;
        for record in batch.open(0)?.records() {
            value_bytes += record?.value.map_or(0, <[u8]>::len) as u64;
            seen += 1;
        }
        position += batch.bytes().len() as u64;
        rest = after;
    }
    if seen != log.end() {
        return Err(format!("{seen} records were read of {}", log.end()).into());
    }
    Ok(value_bytes)
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
