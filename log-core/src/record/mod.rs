//! Records: what a user appends and reads, and the batches they are stored and sent in.
//!
//! A batch is the one format of disk and wire (drawn in `batch.rs`). Its producer writes it once;
//! the partition stamps a few header fields; the body stays as it came, up to the consumer.

mod batch;
mod builder;
mod compression;
mod encode;
pub mod headers;
mod lz4;
mod marker;
#[cfg(test)]
mod tests;
mod varint;
mod verify;
mod view;

pub use batch::{
    BATCH_HEADER_BYTES, BatchHeader, MAGIC, Stamp, attributes, check_header, header_checksum, stamp,
};
pub use builder::BatchBuilder;
pub use compression::{Codec, ZSTD_LEVEL};
pub use encode::{encode_into, encoded_len};
pub use marker::{MARKER_BYTES, Marker, MarkerKind};
pub use verify::{BatchLimits, check_records, verify_produced};
pub use view::{BatchView, Body, Headers, RecordView, Records};

use crate::clock::Timestamp;

/// A record to append. Absent (null) and empty are different, for key and value alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// Chooses the partition; the records of one key keep their order.
    pub key: Option<&'a [u8]>,
    /// The payload.
    pub value: Option<&'a [u8]>,
    /// Named facts beside the payload; their order and duplicates are kept.
    pub headers: &'a [Header<'a>],
    /// When it happened; without one, when it is encoded.
    pub timestamp: Option<Timestamp>,
}

impl<'a> Record<'a> {
    /// A record with this payload, and nothing else yet.
    #[must_use]
    pub fn new(value: &'a [u8]) -> Record<'a> {
        Record { value: Some(value), ..Record::default() }
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key(self, key: &'a [u8]) -> Record<'a> {
        Record { key: Some(key), ..self }
    }

    /// The same with headers.
    #[must_use]
    pub fn with_headers(self, headers: &'a [Header<'a>]) -> Record<'a> {
        Record { headers, ..self }
    }

    /// The same with the time at which it happened.
    #[must_use]
    pub fn with_timestamp(self, timestamp: Timestamp) -> Record<'a> {
        Record { timestamp: Some(timestamp), ..self }
    }
}

/// A named fact beside a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name; several headers may share one.
    pub name: &'a str,
    /// Its value, which may be absent.
    pub value: Option<&'a [u8]>,
}
