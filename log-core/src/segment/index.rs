//! SegmentIndex: where offsets and times stand in a segment, about one entry for 4 KiB.
//!
//! It is derived: its file is never needed for a right answer, only for a quick one.
//!
//! ```text
//! | magic 4 | version 4 | segment nonce 8 | end position 4 | count 4 |
//! | max timestamp 8 | first append time 8 | last append time 8 | crc of what is above 4 |
//! | entries: (relative offset 4, position 4, max timestamp before 8) * count | crc of them 4 |
//! ```

use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::Offset;
use crate::record::BatchHeader;

/// About how many bytes of batches lie between two entries.
const INTERVAL_BYTES: u64 = 4096;

const MAGIC: u32 = 0x5844_494C; // "LIDX"
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 52;
const ENTRY_BYTES: usize = 16;

/// A batch that begins at a known place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    relative_offset: u32,
    position: u32,
    /// The largest timestamp of all records before this batch: it only grows.
    max_timestamp_before: i64,
}

/// What is known of the times in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The largest timestamp of a record; the largest there is, if some can't be read.
    pub max: Timestamp,
    /// When the first record was appended; `None` while there is none.
    pub first_append: Option<Timestamp>,
    /// When the last record was appended; [`Timestamp::MIN`] while there is none.
    pub last_append: Timestamp,
}

/// Where to start walking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The base offset of the batch at `position`.
    pub offset: Offset,
    /// Where it begins.
    pub position: u64,
}

/// The index of one segment, and what else is known from having walked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentIndex {
    base: Offset,
    data_start: u64,
    entries: Vec<Entry>,
    /// The end of the last batch that was added.
    end_position: u64,
    max_timestamp: i64,
    first_append_time: Option<Timestamp>,
    last_append_time: Timestamp,
}

impl SegmentIndex {
    /// The index of a segment without batches.
    #[must_use]
    pub fn new(base: Offset, data_start: u64) -> SegmentIndex {
        SegmentIndex {
            base,
            data_start,
            entries: Vec::new(),
            end_position: data_start,
            max_timestamp: i64::MIN,
            first_append_time: None,
            last_append_time: Timestamp::MIN,
        }
    }

    /// Notes a batch, in the order of the file; markers too.
    #[inline]
    pub fn add(&mut self, header: &BatchHeader, position: u64) {
        self.end_position = position + header.total_len() as u64;
        if header.is_marker() {
            return;
        }
        let last = self.entries.last().map_or(0, |entry| u64::from(entry.position));
        if position >= last + INTERVAL_BYTES {
            // An offset or position too far away for an entry is found by walking.
            let relative = u32::try_from(header.base_offset.saturating_sub(self.base));
            if let (Ok(relative_offset), Ok(position)) = (relative, u32::try_from(position)) {
                let max_timestamp_before = self.max_timestamp;
                self.entries.push(Entry { relative_offset, position, max_timestamp_before });
            }
        }
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp.as_millis());
        self.first_append_time.get_or_insert(header.append_time);
        self.last_append_time = self.last_append_time.max(header.append_time);
    }

    /// Notes records that can't be read: any time may be theirs, so that who looks for a time
    /// meets them, and is told.
    pub fn add_unreadable(&mut self) {
        self.max_timestamp = i64::MAX;
    }

    /// A batch at or before the one that holds `offset`.
    #[must_use]
    pub fn seek(&self, offset: Offset) -> Place {
        let relative = offset.saturating_sub(self.base);
        let after = self.entries.partition_point(|e| u64::from(e.relative_offset) <= relative);
        self.place(after)
    }

    /// A batch at or before the first one with a record at or after `time`.
    #[must_use]
    pub fn seek_time(&self, time: Timestamp) -> Place {
        let time = time.as_millis();
        let after = self.entries.partition_point(|e| e.max_timestamp_before < time);
        self.place(after)
    }

    fn place(&self, after: usize) -> Place {
        match after.checked_sub(1).map(|at| self.entries[at]) {
            Some(entry) => Place {
                offset: self.base + u64::from(entry.relative_offset),
                position: u64::from(entry.position),
            },
            None => Place { offset: self.base, position: self.data_start },
        }
    }

    /// What it knows of times.
    #[must_use]
    pub fn times(&self) -> Times {
        Times {
            max: Timestamp::from_millis(self.max_timestamp),
            first_append: self.first_append_time,
            last_append: self.last_append_time,
        }
    }

    /// Where the last batch ends.
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.end_position
    }

    /// Whether it is the one that a walk gives: the marker that a roll adds may be in either.
    #[must_use]
    pub fn agrees_with(&self, walked: &SegmentIndex) -> bool {
        self.entries == walked.entries
            && self.max_timestamp == walked.max_timestamp
            && self.end_position <= walked.end_position
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of its file.
    #[must_use]
    pub fn encode(&self, nonce: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.entries.len() * ENTRY_BYTES + 4);
        let first = self.first_append_time.map_or(i64::MIN, Timestamp::as_millis);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&nonce.to_le_bytes());
        bytes.extend_from_slice(&narrow(self.end_position).to_le_bytes());
        bytes.extend_from_slice(&narrow(self.entries.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.max_timestamp.to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&self.last_append_time.as_millis().to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.relative_offset.to_le_bytes());
            bytes.extend_from_slice(&entry.position.to_le_bytes());
            bytes.extend_from_slice(&entry.max_timestamp_before.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[HEAD_BYTES..]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the bytes of an index file.
    ///
    /// # Errors
    /// What is wrong with them: they are damaged, or of another segment.
    pub fn decode(
        bytes: &[u8],
        base: Offset,
        data_start: u64,
        nonce: u64,
    ) -> Result<SegmentIndex, Fault> {
        let truncated = Fault::Truncated { what: "index" };
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(truncated.clone())?;
        let checked = |bytes: &[u8], stored: &[u8]| {
            let (found, expected) = (crc32fast::hash(bytes), u32_at(stored, 0));
            if found == expected {
                return Ok(());
            }
            Err(Fault::Checksum { what: "index", found, expected })
        };
        if u32_at(head, 0) != MAGIC {
            return Err(Fault::Magic { found: u32_at(head, 0), expected: MAGIC });
        }
        checked(&head[..HEAD_BYTES - 4], &head[HEAD_BYTES - 4..])?;
        if u32_at(head, 4) != VERSION {
            return Err(Fault::Unknown { what: "index version", found: u32_at(head, 4) });
        }
        if i64_at(head, 8) != nonce.cast_signed() {
            return Err(Fault::Field { field: "index's segment nonce", value: i64_at(head, 8) });
        }
        let length = usize::try_from(u32_at(head, 20)).map_err(|_| truncated.clone())?;
        if rest.len() != length.saturating_mul(ENTRY_BYTES).saturating_add(4) {
            return Err(truncated);
        }
        let (stored, crc) = rest.split_at(rest.len() - 4);
        checked(stored, crc)?;
        let first = i64_at(head, 32);
        Ok(SegmentIndex {
            base,
            data_start,
            entries: stored.chunks_exact(ENTRY_BYTES).map(entry).collect(),
            end_position: u64::from(u32_at(head, 16)),
            max_timestamp: i64_at(head, 24),
            first_append_time: (first != i64::MIN).then_some(Timestamp::from_millis(first)),
            last_append_time: Timestamp::from_millis(i64_at(head, 40)),
        })
    }
}

fn entry(bytes: &[u8]) -> Entry {
    Entry {
        relative_offset: u32_at(bytes, 0),
        position: u32_at(bytes, 4),
        max_timestamp_before: i64_at(bytes, 8),
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("segments are smaller than 4 GiB")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Offset = 1000;
    const DATA_START: u64 = 8192;
    const NONCE: u64 = 0x1122_3344_5566_7788;

    const GOLDEN: [&[u8]; 16] = [
        b"LIDX",
        b"\x01\0\0\0",                       // version
        b"\x88\x77\x66\x55\x44\x33\x22\x11", // segment nonce
        b"\0\x50\0\0",                       // end position
        b"\x02\0\0\0",                       // count
        b"\x7b\xc2\x80\xf3\x3b\x01\0\0",     // max timestamp
        b"\xe8\xc5\x80\xf3\x3b\x01\0\0",     // first append time
        b"\xd0\xc9\x80\xf3\x3b\x01\0\0",     // last append time
        b"\xff\xe4\x0e\x14",                 // crc
        b"\x07\0\0\0",                       // relative offset
        b"\0\x30\0\0",                       // position
        b"\0\0\0\0\0\0\0\x80",               // max timestamp before: there was none
        b"\x09\0\0\0",
        b"\0\x40\0\0",
        b"\0\xc2\x80\xf3\x3b\x01\0\0",
        b"\x7e\xc3\xf3\x9e", // crc
    ];

    fn index() -> SegmentIndex {
        let entry = |relative_offset, position, max_timestamp_before| Entry {
            relative_offset,
            position,
            max_timestamp_before,
        };
        SegmentIndex {
            base: BASE,
            data_start: DATA_START,
            entries: vec![entry(7, 0x3000, i64::MIN), entry(9, 0x4000, 1_357_000_000_000)],
            end_position: 0x5000,
            max_timestamp: 1_357_000_000_123,
            first_append_time: Some(Timestamp::from_millis(1_357_000_001_000)),
            last_append_time: Timestamp::from_millis(1_357_000_002_000),
        }
    }

    fn decode(bytes: &[u8]) -> Result<SegmentIndex, Fault> {
        SegmentIndex::decode(bytes, BASE, DATA_START, NONCE)
    }

    #[test]
    fn the_bytes_are_the_golden_ones_and_give_the_index_again() {
        assert_eq!(index().encode(NONCE), GOLDEN.concat());
        assert_eq!(decode(&GOLDEN.concat()), Ok(index()));
        let empty = SegmentIndex::new(BASE, DATA_START);
        assert_eq!(decode(&empty.encode(NONCE)), Ok(empty));
    }

    #[test]
    fn a_flipped_byte_and_a_missing_one_are_refused() {
        let bytes = index().encode(NONCE);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte too many");
    }

    #[test]
    fn the_index_of_another_segment_or_version_is_refused() {
        let bytes = index().encode(NONCE + 1);
        assert!(matches!(decode(&bytes), Err(Fault::Field { .. })));
        let mut newer = index().encode(NONCE);
        newer[4] = 2;
        let crc = crc32fast::hash(&newer[..HEAD_BYTES - 4]);
        newer[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&newer), Err(Fault::Unknown { what: "index version", found: 2 }));
    }
}
