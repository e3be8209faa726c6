//! The batch header: 104 bytes, little-endian, in front of the records.
//!
//! ```text
//!   0 | header_crc 4     | magic 4           | body_length 4        | body_crc 4      |
//!  16 | version 1 | header_length 1 | features 2 | attributes 2 | producer_epoch 2    |
//!  24 | base_offset 8                        | append_time 8                          |
//!  40 | durable_end 8                        | base_timestamp 8                       |
//!  56 | max_timestamp 8                      | producer_id 8                          |
//!  72 | base_sequence 4  | record_count 4    | last_offset_delta 4  | epoch 4         |
//!  88 | key_id 4         | dictionary_id 4   | zero 8                                 |
//! 104 | body ...
//! ```
//! `header_crc` covers bytes 4..104 and begins from the partition's seed; `body_crc` covers the
//! body as stored and is the producer's. The producer leaves `header_crc`, `base_offset`,
//! `append_time`, `durable_end` and `epoch` zero: the partition stamps them.

use super::compression::Codec;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::Offset;

/// The length of a batch header.
pub const BATCH_HEADER_BYTES: usize = 104;

/// What a batch header begins with, after its checksum.
pub const MAGIC: u32 = 0x4c42_4731;
pub(super) const VERSION: u8 = 1;
const HEADER_LENGTH: u8 = 104;

pub(super) const HEADER_CRC_AT: usize = 0;
pub(super) const MAGIC_AT: usize = HEADER_CRC_AT + size_of::<u32>();
pub(super) const BODY_LENGTH_AT: usize = MAGIC_AT + size_of::<u32>();
pub(super) const BODY_CRC_AT: usize = BODY_LENGTH_AT + size_of::<u32>();
pub(super) const VERSION_AT: usize = BODY_CRC_AT + size_of::<u32>();
pub(super) const HEADER_LENGTH_AT: usize = VERSION_AT + size_of::<u8>();
pub(super) const FEATURES_AT: usize = HEADER_LENGTH_AT + size_of::<u8>();
pub(super) const ATTRIBUTES_AT: usize = FEATURES_AT + size_of::<u16>();
pub(super) const PRODUCER_EPOCH_AT: usize = ATTRIBUTES_AT + size_of::<u16>();
pub(super) const BASE_OFFSET_AT: usize = PRODUCER_EPOCH_AT + size_of::<u16>();
pub(super) const APPEND_TIME_AT: usize = BASE_OFFSET_AT + size_of::<u64>();
pub(super) const DURABLE_END_AT: usize = APPEND_TIME_AT + size_of::<i64>();
pub(super) const BASE_TIMESTAMP_AT: usize = DURABLE_END_AT + size_of::<u64>();
pub(super) const MAX_TIMESTAMP_AT: usize = BASE_TIMESTAMP_AT + size_of::<i64>();
pub(super) const PRODUCER_ID_AT: usize = MAX_TIMESTAMP_AT + size_of::<i64>();
pub(super) const BASE_SEQUENCE_AT: usize = PRODUCER_ID_AT + size_of::<u64>();
pub(super) const RECORD_COUNT_AT: usize = BASE_SEQUENCE_AT + size_of::<u32>();
pub(super) const LAST_OFFSET_DELTA_AT: usize = RECORD_COUNT_AT + size_of::<u32>();
pub(super) const EPOCH_AT: usize = LAST_OFFSET_DELTA_AT + size_of::<u32>();
pub(super) const KEY_ID_AT: usize = EPOCH_AT + size_of::<u32>();
pub(super) const DICTIONARY_ID_AT: usize = KEY_ID_AT + size_of::<u32>();
pub(super) const RESERVED_AT: usize = DICTIONARY_ID_AT + size_of::<u32>();
const _: () = assert!(RESERVED_AT + size_of::<u64>() == BATCH_HEADER_BYTES);
const _: () = assert!(HEADER_LENGTH as usize == BATCH_HEADER_BYTES);

/// The bits of a batch's attributes.
pub mod attributes {
    /// Bits 0 to 2: the codec.
    pub const CODEC_MASK: u16 = 0b111;
    /// The records' time is the batch's append time, not what their producer said.
    pub const APPEND_TIME: u16 = 1 << 3;
    /// The batch belongs to a transaction.
    pub const TRANSACTIONAL: u16 = 1 << 4;
    /// The batch is the log's own: a marker.
    pub const CONTROL: u16 = 1 << 5;
    /// Some record of the batch has an expiry header.
    pub const HAS_EXPIRY: u16 = 1 << 6;
    /// Every bit that has a meaning.
    pub const KNOWN: u16 = CODEC_MASK | APPEND_TIME | TRANSACTIONAL | CONTROL | HAS_EXPIRY;
}

/// A batch header, field by field; docs/format.md says what each one means and who sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the drawing at the head of this file names the same fields")]
pub struct BatchHeader {
    pub header_crc: u32,
    pub body_length: u32,
    pub body_crc: u32,
    pub attributes: u16,
    pub producer_epoch: u16,
    pub base_offset: Offset,
    pub append_time: Timestamp,
    pub durable_end: Offset,
    pub base_timestamp: Timestamp,
    pub max_timestamp: Timestamp,
    pub producer_id: u64,
    pub base_sequence: u32,
    pub record_count: u32,
    pub last_offset_delta: u32,
    pub epoch: u32,
    pub key_id: u32,
    pub dictionary_id: u32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`. It does not check the checksums.
    ///
    /// # Errors
    /// What keeps the bytes from being a batch header that this release understands.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, Fault> {
        let bytes = bytes.first_chunk().ok_or(Fault::Truncated { what: "batch header" })?;
        check_constants(bytes)?;
        let header = BatchHeader {
            header_crc: u32::from_le_bytes(field(bytes, HEADER_CRC_AT)),
            body_length: u32::from_le_bytes(field(bytes, BODY_LENGTH_AT)),
            body_crc: u32::from_le_bytes(field(bytes, BODY_CRC_AT)),
            attributes: u16::from_le_bytes(field(bytes, ATTRIBUTES_AT)),
            producer_epoch: u16::from_le_bytes(field(bytes, PRODUCER_EPOCH_AT)),
            base_offset: u64::from_le_bytes(field(bytes, BASE_OFFSET_AT)),
            append_time: timestamp(field(bytes, APPEND_TIME_AT)),
            durable_end: u64::from_le_bytes(field(bytes, DURABLE_END_AT)),
            base_timestamp: timestamp(field(bytes, BASE_TIMESTAMP_AT)),
            max_timestamp: timestamp(field(bytes, MAX_TIMESTAMP_AT)),
            producer_id: u64::from_le_bytes(field(bytes, PRODUCER_ID_AT)),
            base_sequence: u32::from_le_bytes(field(bytes, BASE_SEQUENCE_AT)),
            record_count: u32::from_le_bytes(field(bytes, RECORD_COUNT_AT)),
            last_offset_delta: u32::from_le_bytes(field(bytes, LAST_OFFSET_DELTA_AT)),
            epoch: u32::from_le_bytes(field(bytes, EPOCH_AT)),
            key_id: u32::from_le_bytes(field(bytes, KEY_ID_AT)),
            dictionary_id: u32::from_le_bytes(field(bytes, DICTIONARY_ID_AT)),
        };
        header.check_counts()?;
        Ok(header)
    }

    /// Writes the header.
    #[inline]
    pub fn encode(&self, out: &mut [u8; BATCH_HEADER_BYTES]) {
        *out = [0; BATCH_HEADER_BYTES];
        put(out, HEADER_CRC_AT, self.header_crc.to_le_bytes());
        put(out, MAGIC_AT, MAGIC.to_le_bytes());
        put(out, BODY_LENGTH_AT, self.body_length.to_le_bytes());
        put(out, BODY_CRC_AT, self.body_crc.to_le_bytes());
        put(out, VERSION_AT, [VERSION]);
        put(out, HEADER_LENGTH_AT, [HEADER_LENGTH]);
        put(out, ATTRIBUTES_AT, self.attributes.to_le_bytes());
        put(out, PRODUCER_EPOCH_AT, self.producer_epoch.to_le_bytes());
        put(out, BASE_OFFSET_AT, self.base_offset.to_le_bytes());
        put(out, APPEND_TIME_AT, self.append_time.as_millis().to_le_bytes());
        put(out, DURABLE_END_AT, self.durable_end.to_le_bytes());
        put(out, BASE_TIMESTAMP_AT, self.base_timestamp.as_millis().to_le_bytes());
        put(out, MAX_TIMESTAMP_AT, self.max_timestamp.as_millis().to_le_bytes());
        put(out, PRODUCER_ID_AT, self.producer_id.to_le_bytes());
        put(out, BASE_SEQUENCE_AT, self.base_sequence.to_le_bytes());
        put(out, RECORD_COUNT_AT, self.record_count.to_le_bytes());
        put(out, LAST_OFFSET_DELTA_AT, self.last_offset_delta.to_le_bytes());
        put(out, EPOCH_AT, self.epoch.to_le_bytes());
        put(out, KEY_ID_AT, self.key_id.to_le_bytes());
        put(out, DICTIONARY_ID_AT, self.dictionary_id.to_le_bytes());
    }

    /// The length of the batch, header and body.
    #[must_use]
    pub fn total_len(&self) -> usize {
        BATCH_HEADER_BYTES.saturating_add(self.body_length as usize)
    }

    /// Whether the batch is the log's own: it holds no record and takes no offset.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.attributes & attributes::CONTROL != 0
    }

    /// How the body is compressed.
    ///
    /// # Errors
    /// `Unknown` for a codec of a later release.
    pub fn codec(&self) -> Result<Codec, Fault> {
        Codec::from_bits(self.attributes & attributes::CODEC_MASK)
    }

    /// The last offset that the batch covers; of a marker, its base offset.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset + u64::from(self.last_offset_delta)
    }

    /// The offset after the batch; a marker takes none.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        if self.is_marker() { self.base_offset } else { self.last_offset() + 1 }
    }

    fn check_counts(&self) -> Result<(), Fault> {
        // One more than the last offset is computed everywhere; it must exist.
        if self.base_offset > u64::MAX - u64::from(u32::MAX) - 1 {
            let value = self.base_offset.cast_signed();
            return Err(Fault::Field { field: "base_offset", value });
        }
        let holds = u64::from(self.last_offset_delta) + 1;
        let most = if self.is_marker() { 0 } else { holds };
        if u64::from(self.record_count) > most {
            let value = i64::from(self.record_count);
            return Err(Fault::Field { field: "record_count", value });
        }
        if self.is_marker() && self.last_offset_delta != 0 {
            let value = i64::from(self.last_offset_delta);
            return Err(Fault::Field { field: "last_offset_delta", value });
        }
        Ok(())
    }
}

/// Checks the bytes that are the same in every header, and the bits that must be known.
#[inline]
fn check_constants(bytes: &[u8; BATCH_HEADER_BYTES]) -> Result<(), Fault> {
    let magic = u32::from_le_bytes(field(bytes, MAGIC_AT));
    if magic != MAGIC {
        return Err(Fault::Magic { found: magic, expected: MAGIC });
    }
    let [version] = field(bytes, VERSION_AT);
    if version != VERSION {
        return Err(Fault::Unknown { what: "batch version", found: u32::from(version) });
    }
    let [length] = field(bytes, HEADER_LENGTH_AT);
    if length != HEADER_LENGTH {
        return Err(Fault::Field { field: "header_length", value: i64::from(length) });
    }
    let features = u16::from_le_bytes(field(bytes, FEATURES_AT));
    if features != 0 {
        return Err(Fault::Unknown { what: "batch feature bits", found: u32::from(features) });
    }
    let unknown = u16::from_le_bytes(field(bytes, ATTRIBUTES_AT)) & !attributes::KNOWN;
    if unknown != 0 {
        return Err(Fault::Unknown { what: "batch attributes", found: u32::from(unknown) });
    }
    let reserved = i64::from_le_bytes(field(bytes, RESERVED_AT));
    if reserved != 0 {
        return Err(Fault::Field { field: "reserved bytes", value: reserved });
    }
    Ok(())
}

/// What the partition adds to a batch when it appends it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The partition's time, which never goes back.
    pub append_time: Timestamp,
    /// What was durable then.
    pub durable_end: Offset,
    /// The partition's epoch.
    pub epoch: u32,
}

/// Fills in the partition's fields of the batch at the front of `bytes`, then its header checksum.
///
/// # Panics
/// If `bytes` is shorter than a batch header.
#[doc(hidden)]
#[inline]
pub fn stamp(bytes: &mut [u8], stamp: Stamp, seed: u32) {
    let Some(header) = bytes.first_chunk_mut() else { panic!("a batch has a header") };
    put(header, BASE_OFFSET_AT, stamp.base_offset.to_le_bytes());
    put(header, APPEND_TIME_AT, stamp.append_time.as_millis().to_le_bytes());
    put(header, DURABLE_END_AT, stamp.durable_end.to_le_bytes());
    put(header, EPOCH_AT, stamp.epoch.to_le_bytes());
    let checksum = checksum_of(header, seed);
    put(header, HEADER_CRC_AT, checksum.to_le_bytes());
}

#[inline]
pub(super) fn set_body_crc(header: &mut [u8; BATCH_HEADER_BYTES], checksum: u32) {
    put(header, BODY_CRC_AT, checksum.to_le_bytes());
}

/// The checksum of the batch header at the front of `bytes`.
///
/// # Panics
/// If `bytes` is shorter than a batch header.
#[doc(hidden)]
#[must_use]
pub fn header_checksum(bytes: &[u8], seed: u32) -> u32 {
    let Some(header) = bytes.first_chunk() else { panic!("a batch has a header") };
    checksum_of(header, seed)
}

/// Reads the header at the front of `bytes`, after its checksum was found right.
///
/// # Errors
/// `Checksum`, and what [`BatchHeader::decode`] refuses.
#[doc(hidden)]
#[inline]
pub fn check_header(bytes: &[u8], seed: u32) -> Result<BatchHeader, Fault> {
    let header: &[u8; BATCH_HEADER_BYTES] =
        bytes.first_chunk().ok_or(Fault::Truncated { what: "batch header" })?;
    let expected = u32::from_le_bytes(field(header, HEADER_CRC_AT));
    let found = checksum_of(header, seed);
    if found != expected {
        return Err(Fault::Checksum { what: "batch header", found, expected });
    }
    BatchHeader::decode(header)
}

#[inline]
fn checksum_of(header: &[u8; BATCH_HEADER_BYTES], seed: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(&header[MAGIC_AT..]);
    hasher.finalize()
}

#[inline]
fn timestamp(bytes: [u8; 8]) -> Timestamp {
    Timestamp::from_millis(i64::from_le_bytes(bytes))
}

/// `at` is a constant wherever this is called, so that no check is left when it is inlined.
#[inline(always)]
fn field<const N: usize>(bytes: &[u8; BATCH_HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8; BATCH_HEADER_BYTES], at: usize, field: [u8; N]) {
    out[at..at + N].copy_from_slice(&field);
}
