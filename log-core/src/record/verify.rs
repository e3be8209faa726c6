//! Checking what arrives: records about to be encoded, and batches that a producer made.

use super::Record;
use super::batch::{BATCH_HEADER_BYTES, BatchHeader, attributes};
use super::compression::Codec;
use super::encode::{BATCH_LIMIT, encoded_len};
use super::headers;
use super::view::{BatchView, RecordView, check_openable};
use crate::clock::Timestamp;
use crate::error::{Error, Fault, Result};

/// The shortest record: no key, an empty value, no headers.
const RECORD_MIN_BYTES: u32 = 7;

/// What an arriving batch may be, as its topic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The largest record, framing included.
    pub record_max_bytes: u32,
    /// The largest batch as stored, header included.
    pub batch_max_bytes: u32,
    /// The most that a compressed body may expand to.
    pub expanded_max: u32,
    /// The most headers of a record.
    pub headers_max: u32,
    /// Whether compressed bodies are opened and walked too.
    pub strict: bool,
}

/// Checks that an arriving batch is one that a partition may append as it is: exactly one, whole,
/// within the limits, with what the partition sets left zero, and well-formed down to the last
/// record (a compressed one: down to its checksum, unless `strict`).
///
/// # Errors
/// `TooLarge` if it is over a limit, else `Malformed`.
pub fn verify_produced(bytes: &[u8], limits: &BatchLimits) -> Result<BatchHeader> {
    at_most("batch bytes", bytes.len(), limits.batch_max_bytes)?;
    let (batch, rest) = BatchView::parse(bytes).map_err(Error::Malformed)?;
    if !rest.is_empty() {
        let value = i64::from(batch.header.body_length);
        return Err(malformed("body_length", value));
    }
    check_produced_header(&batch.header, limits)?;
    batch.check_body().map_err(Error::Malformed)?;
    let codec = batch.header.codec().map_err(Error::Malformed)?;
    if codec == Codec::None || limits.strict {
        walk(&batch, limits)?;
    }
    Ok(batch.header)
}

fn check_produced_header(header: &BatchHeader, limits: &BatchLimits) -> Result<()> {
    let refused = header.attributes & (attributes::CONTROL | attributes::TRANSACTIONAL);
    let zero = [
        ("attributes", i64::from(refused)),
        ("header_crc", i64::from(header.header_crc)),
        ("base_offset", header.base_offset.cast_signed()),
        ("append_time", header.append_time.as_millis()),
        ("durable_end", header.durable_end.cast_signed()),
        ("epoch", i64::from(header.epoch)),
    ];
    if let Some((field, value)) = zero.into_iter().find(|(_, value)| *value != 0) {
        return Err(malformed(field, value));
    }
    // What a compressed batch says is believed until somebody opens it; but not that it holds
    // more records than fit.
    let most = limits.expanded_max / RECORD_MIN_BYTES;
    if header.record_count == 0 || header.record_count > most {
        return Err(malformed("record_count", i64::from(header.record_count)));
    }
    if header.last_offset_delta != header.record_count - 1 {
        return Err(malformed("last_offset_delta", i64::from(header.last_offset_delta)));
    }
    if header.max_timestamp < header.base_timestamp {
        return Err(malformed("max_timestamp", header.max_timestamp.as_millis()));
    }
    check_openable(header).map_err(Error::Malformed)
}

fn walk(batch: &BatchView<'_>, limits: &BatchLimits) -> Result<()> {
    // The time that the producer gave is checked, also where readers will be told another.
    let mut batch = *batch;
    batch.header.attributes &= !attributes::APPEND_TIME;
    let header = batch.header;
    let body = batch.open(limits.expanded_max as usize).map_err(Error::Malformed)?;
    let mut records = body.records();
    let mut latest = Timestamp::MIN;
    let mut unread = records.rest.len();
    while let Some(record) = records.next() {
        let record = record.map_err(Error::Malformed)?;
        at_most("record bytes", unread - records.rest.len(), limits.record_max_bytes)?;
        unread = records.rest.len();
        check_record(&record, &header, limits)?;
        latest = latest.max(record.timestamp);
    }
    // The count is right, the deltas grow, and the last may be at most count - 1: so there is no
    // hole between them.
    if latest != header.max_timestamp {
        return Err(malformed("max_timestamp", header.max_timestamp.as_millis()));
    }
    Ok(())
}

#[inline]
fn check_record(record: &RecordView<'_>, header: &BatchHeader, limits: &BatchLimits) -> Result<()> {
    if record.headers.len() == 0 {
        return Ok(());
    }
    at_most("record headers", record.headers.len(), limits.headers_max)?;
    // Readers look for expired records only in batches that have the bit.
    let told = header.attributes & attributes::HAS_EXPIRY != 0;
    let mut names = record.headers.map(|header| header.name);
    if !told && names.any(|name| name == headers::EXPIRES_AT) {
        return Err(malformed("attributes", i64::from(header.attributes)));
    }
    Ok(())
}

/// Checks records that are about to be encoded, and returns how long their batch will be.
///
/// # Errors
/// `TooLarge` if a record or the batch is over a limit; `Malformed` if there are no records.
#[doc(hidden)]
#[inline]
pub fn check_records(
    records: &[Record<'_>],
    now: Timestamp,
    limits: &BatchLimits,
) -> Result<usize> {
    if records.is_empty() {
        return Err(malformed("record_count", 0));
    }
    let length = encoded_len(records, now);
    at_most("batch bytes", length, limits.batch_max_bytes)?;
    at_most("batch bytes", length, BATCH_LIMIT)?;
    for record in records {
        at_most("record headers", record.headers.len(), limits.headers_max)?;
    }
    // No record is longer than all of them: the usual batch needs no second look.
    if length - BATCH_HEADER_BYTES > limits.record_max_bytes as usize {
        for record in records {
            let alone = encoded_len(std::slice::from_ref(record), now) - BATCH_HEADER_BYTES;
            at_most("record bytes", alone, limits.record_max_bytes)?;
        }
    }
    Ok(length)
}

#[inline]
fn at_most(what: &'static str, actual: usize, limit: u32) -> Result<()> {
    if actual > limit as usize {
        return Err(Error::TooLarge { what, actual: actual as u64, limit: u64::from(limit) });
    }
    Ok(())
}

#[cold]
fn malformed(field: &'static str, value: i64) -> Error {
    Error::Malformed(Fault::Field { field, value })
}
