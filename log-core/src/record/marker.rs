//! Markers: batches of no records, by which the log records what was durable, and where it begins.
//!
//! ```text
//! 104 | kind 1 | zero 7 | log_start 8 |
//! ```
//! The header's `base_offset` is the partition's end at that point, its `durable_end` what had
//! been synced before it.

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, attributes};
use super::view::BatchView;
use crate::error::Fault;
use crate::offset::Offset;

const KIND_AT: usize = 0;
const ZERO_AT: usize = KIND_AT + size_of::<u8>();
const LOG_START_AT: usize = ZERO_AT + 7;
const BODY_BYTES: usize = LOG_START_AT + size_of::<u64>();
const _: () = assert!(BODY_BYTES == 16);

/// The length of a marker, header and body.
#[doc(hidden)]
pub const MARKER_BYTES: usize = BATCH_HEADER_BYTES + BODY_BYTES;

/// Why a marker was written.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerKind {
    /// Appending goes on after a clean stop.
    Open,
    /// A clean stop.
    Close,
    /// Nothing was appended for a while.
    Idle,
    /// The segment ends here.
    Roll,
    /// Records below `log_start` were given up.
    Trim,
}

impl MarkerKind {
    fn code(self) -> u8 {
        match self {
            MarkerKind::Open => 1,
            MarkerKind::Close => 2,
            MarkerKind::Idle => 3,
            MarkerKind::Roll => 4,
            MarkerKind::Trim => 5,
        }
    }

    fn from_code(code: u8) -> Result<MarkerKind, Fault> {
        Ok(match code {
            1 => MarkerKind::Open,
            2 => MarkerKind::Close,
            3 => MarkerKind::Idle,
            4 => MarkerKind::Roll,
            5 => MarkerKind::Trim,
            _ => return Err(Fault::Unknown { what: "marker kind", found: u32::from(code) }),
        })
    }
}

/// What a marker says beyond its batch header.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Why it was written.
    pub kind: MarkerKind,
    /// The oldest offset that the partition kept then.
    pub log_start: Offset,
}

impl Marker {
    /// The marker as a batch, to be stamped by the partition.
    #[must_use]
    pub fn encode(self) -> [u8; MARKER_BYTES] {
        let mut body = [0; BODY_BYTES];
        body[KIND_AT] = self.kind.code();
        body[LOG_START_AT..].copy_from_slice(&self.log_start.to_le_bytes());
        let header = BatchHeader {
            body_length: 16,
            body_crc: crc32fast::hash(&body),
            attributes: attributes::CONTROL,
            ..BatchHeader::default()
        };
        let mut out = [0; MARKER_BYTES];
        if let Some((front, back)) = out.split_first_chunk_mut() {
            header.encode(front);
            back.copy_from_slice(&body);
        }
        out
    }

    /// Reads a marker; its body checksum is checked too.
    ///
    /// # Errors
    /// What keeps the batch from being a marker that this release understands.
    pub fn decode(batch: &BatchView<'_>) -> Result<Marker, Fault> {
        let attributes = batch.header.attributes;
        if attributes != attributes::CONTROL {
            let value = i64::from(attributes);
            return Err(Fault::Field { field: "attributes of a marker", value });
        }
        batch.check_body()?;
        let Ok(body) = <&[u8; BODY_BYTES]>::try_from(batch.body()) else {
            let value = i64::from(batch.header.body_length);
            return Err(Fault::Field { field: "body_length of a marker", value });
        };
        let (front, log_start) = body.split_at(LOG_START_AT);
        if let Some(&byte) = front[ZERO_AT..].iter().find(|byte| **byte != 0) {
            return Err(Fault::Field { field: "reserved bytes", value: i64::from(byte) });
        }
        let mut bytes = [0; size_of::<u64>()];
        bytes.copy_from_slice(log_start);
        let kind = MarkerKind::from_code(body[KIND_AT])?;
        Ok(Marker { kind, log_start: u64::from_le_bytes(bytes) })
    }
}
