//! Writing records: how long a batch will be, and its bytes.
//!
//! ```text
//! | length | attributes 1 (0) | timestamp_delta | offset_delta | key_len | key | value_len | value |
//! | header_count | { name_len | name | value_len | value } * header_count |
//! ```
//! Every number without a width is a zigzag varint; `length` counts what follows it; a length of
//! -1 is null. This is the record of Kafka's record batch v2.

use std::mem;

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, attributes, set_body_crc};
use super::varint::{ONE_BYTE, TWO_BYTES, VARINT_MAX_BYTES, varint_len, write_varint, zigzag};
use super::{Record, headers};
use crate::clock::Timestamp;

/// Lengths and counts are i32 in the format, so that no batch may be longer.
pub(super) const BATCH_LIMIT: u32 = 0x7fff_ffff;

const NULL: u64 = zigzag(-1);

/// The exact length of the batch, header included, that an append makes of the records.
#[must_use]
#[inline]
pub fn encoded_len(records: &[Record<'_>], now: Timestamp) -> usize {
    let base = base_timestamp(records, now);
    let lengths = records.iter().zip(0..).map(|(record, delta)| {
        let frame = Frame::of(record, base, now, delta);
        frame.total_len()
    });
    BATCH_HEADER_BYTES + lengths.sum::<usize>()
}

/// Writes the records as one batch that is not compressed, and checksums its body; returns its
/// header. What the partition sets stays zero.
///
/// # Panics
/// If there are no records, or `out` is not exactly [`encoded_len`] long, or that is over the
/// 2 GiB which the format can hold: the caller checks its limits first.
#[doc(hidden)]
#[inline]
pub fn encode_into(out: &mut [u8], records: &[Record<'_>], now: Timestamp) -> BatchHeader {
    assert!(
        !records.is_empty() && out.len() <= BATCH_LIMIT as usize,
        "the caller checks its limits"
    );
    let Some((front, body)) = out.split_first_chunk_mut::<BATCH_HEADER_BYTES>() else {
        panic!("a batch has a header");
    };
    let base = base_timestamp(records, now);
    let mut summary = Summary::starting_at(base);
    let mut writer = Writer { rest: &mut *body };
    for (record, delta) in records.iter().zip(0..) {
        summary.add(record, now);
        writer.put_record(record, &Frame::of(record, base, now, delta));
    }
    assert!(writer.rest.is_empty(), "encoded_len is exact");
    // The header is written before the body is read again: by then the body's last stores have
    // left the store buffer, and the checksum's wide loads do not wait for them.
    let mut header = summary.header(body.len());
    header.encode(front);
    header.body_crc = crc32fast::hash(body);
    set_body_crc(front, header.body_crc);
    header
}

fn base_timestamp(records: &[Record<'_>], now: Timestamp) -> Timestamp {
    records.first().and_then(|record| record.timestamp).unwrap_or(now)
}

/// What the header says about the records, gathered while they are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    pub(super) base_timestamp: Timestamp,
    pub(super) record_count: u32,
    max_timestamp: Timestamp,
    attributes: u16,
}

impl Summary {
    pub(super) fn starting_at(base_timestamp: Timestamp) -> Summary {
        Summary { base_timestamp, record_count: 0, max_timestamp: base_timestamp, attributes: 0 }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, record: &Record<'_>, now: Timestamp) {
        self.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp.unwrap_or(now));
        if record.headers.iter().any(|header| header.name == headers::EXPIRES_AT) {
            self.attributes |= attributes::HAS_EXPIRY;
        }
    }

    /// The header of a batch with a body this long as stored; its checksum is still to be set.
    #[inline]
    pub(super) fn header(&self, body_length: usize) -> BatchHeader {
        let Ok(body_length) = u32::try_from(body_length) else {
            panic!("a batch is within BATCH_LIMIT");
        };
        BatchHeader {
            body_length,
            attributes: self.attributes,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            record_count: self.record_count,
            last_offset_delta: self.record_count.saturating_sub(1),
            ..BatchHeader::default()
        }
    }
}

/// The numbers around a record, zigzagged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    length: usize,
    timestamp_delta: u64,
    offset_delta: u64,
}

impl Frame {
    #[inline(always)]
    pub(super) fn of(record: &Record<'_>, base: Timestamp, now: Timestamp, delta: u32) -> Frame {
        let timestamp = record.timestamp.unwrap_or(now);
        // Wraps for times that are 292 million years apart; the reader wraps back.
        let timestamp_delta = zigzag(timestamp.as_millis().wrapping_sub(base.as_millis()));
        let offset_delta = u64::from(delta) << 1;
        let length = size_of::<u8>()
            + varint_len(timestamp_delta)
            + varint_len(offset_delta)
            + field_len(record.key)
            + field_len(record.value)
            + headers_len(record);
        Frame { length, timestamp_delta, offset_delta }
    }

    /// The record's whole length, that of its own length field included.
    #[inline(always)]
    pub(super) fn total_len(&self) -> usize {
        varint_len(doubled(self.length)) + self.length
    }
}

#[inline(always)]
fn headers_len(record: &Record<'_>) -> usize {
    if record.headers.is_empty() { varint_len(0) } else { some_headers_len(record) }
}

#[inline(never)]
fn some_headers_len(record: &Record<'_>) -> usize {
    let fields = record
        .headers
        .iter()
        .map(|header| field_len(Some(header.name.as_bytes())) + field_len(header.value));
    varint_len(doubled(record.headers.len())) + fields.sum::<usize>()
}

#[inline(always)]
fn field_len(field: Option<&[u8]>) -> usize {
    varint_len(zigzagged_len(field)) + field.map_or(0, <[u8]>::len)
}

#[inline(always)]
fn zigzagged_len(field: Option<&[u8]>) -> u64 {
    field.map_or(NULL, |bytes| doubled(bytes.len()))
}

/// The zigzag of what is not negative.
#[inline(always)]
fn doubled(value: usize) -> u64 {
    (value as u64) << 1
}

/// Writes from the front of a slice that is long enough; past its end, it panics.
pub(super) struct Writer<'a> {
    pub(super) rest: &'a mut [u8],
}

impl Writer<'_> {
    #[inline(always)]
    pub(super) fn put_record(&mut self, record: &Record<'_>, frame: &Frame) {
        self.put_prefix(frame, zigzagged_len(record.key));
        self.put(record.key.unwrap_or_default());
        self.put_field(record.value);
        self.put_varint(doubled(record.headers.len()));
        if !record.headers.is_empty() {
            self.put_headers(record);
        }
    }

    #[inline(never)]
    fn put_headers(&mut self, record: &Record<'_>) {
        for header in record.headers {
            self.put_field(Some(header.name.as_bytes()));
            self.put_field(header.value);
        }
    }

    /// Everything up to the key. The usual case is put together in one register and stored at
    /// once; the surplus bytes are overwritten by what follows.
    #[inline(always)]
    fn put_prefix(&mut self, frame: &Frame, key_len: u64) {
        let length = doubled(frame.length);
        let short = frame.timestamp_delta < ONE_BYTE && key_len < ONE_BYTE;
        let usual = short && length < TWO_BYTES && frame.offset_delta < TWO_BYTES;
        if usual && self.rest.len() >= size_of::<u64>() {
            let (deltas, width) = if frame.offset_delta < ONE_BYTE {
                (frame.timestamp_delta | frame.offset_delta << 8 | key_len << 16, 3)
            } else {
                (frame.timestamp_delta | two_bytes(frame.offset_delta) << 8 | key_len << 24, 4)
            };
            // One more byte between the length and the deltas is the attributes, which are zero.
            if length < ONE_BYTE {
                self.put_packed(length | deltas << 16, 2 + width);
            } else {
                self.put_packed(two_bytes(length) | deltas << 24, 3 + width);
            }
        } else {
            self.put_wide_prefix(frame, key_len);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_wide_prefix(&mut self, frame: &Frame, key_len: u64) {
        self.put_varint(doubled(frame.length));
        self.put(&[0]);
        self.put_varint(frame.timestamp_delta);
        self.put_varint(frame.offset_delta);
        self.put_varint(key_len);
    }

    #[inline(always)]
    fn put_packed(&mut self, packed: u64, bytes: usize) {
        if let Some(front) = self.rest.first_chunk_mut() {
            *front = packed.to_le_bytes();
        }
        self.rest = &mut mem::take(&mut self.rest)[bytes..];
    }

    #[inline(always)]
    fn put_field(&mut self, field: Option<&[u8]>) {
        self.put_varint(zigzagged_len(field));
        self.put(field.unwrap_or_default());
    }

    #[inline(always)]
    fn put_varint(&mut self, value: u64) {
        if value < ONE_BYTE {
            let [low, ..] = value.to_le_bytes();
            self.put(&[low]);
        } else if value < TWO_BYTES {
            let [low, high, ..] = two_bytes(value).to_le_bytes();
            self.put(&[low, high]);
        } else {
            self.put_long(value);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_long(&mut self, value: u64) {
        let mut bytes = [0; VARINT_MAX_BYTES];
        let length = write_varint(&mut bytes, value);
        self.put(&bytes[..length]);
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let (front, rest) = mem::take(&mut self.rest).split_at_mut(bytes.len());
        copy(front, bytes);
        self.rest = rest;
    }
}

/// Copies a slice onto one of the same length. Keys are short: two words that may overlap are
/// faster than a call to `memcpy`.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    const WORD: usize = 8;
    if from.len() <= 2 * WORD
        && let (Some(first), Some(last)) = (from.first_chunk::<WORD>(), from.last_chunk::<WORD>())
    {
        if let Some(front) = to.first_chunk_mut() {
            *front = *first;
        }
        if let Some(back) = to.last_chunk_mut() {
            *back = *last;
        }
        return;
    }
    to.copy_from_slice(from);
}

/// The two-byte varint of a number, in the low bytes.
#[inline(always)]
fn two_bytes(value: u64) -> u64 {
    (value & (ONE_BYTE - 1)) | ONE_BYTE | (value >> 7) << 8
}
