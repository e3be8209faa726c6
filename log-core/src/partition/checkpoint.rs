//! Checkpoint: a shortcut to a close marker, so that opening after a clean stop walks nothing.
//!
//! It is written after a clean stop and only points at a marker that is in the log. What it adds
//! (the index and the producers as of that marker) would be had by walking the segment; without
//! it, or if it does not fit, that is what happens. An old one is as true as ever: it points at an
//! older place.
//!
//! ```text
//! | magic 4 | version 4 | base 8 | epoch 4 | marker position 4 | nonce 8 | end 8 | log_start 8 |
//! | last append time 8 | index length 4 | producers length 4 | index | producers | crc 4 |
//! ```

use crate::clock::Timestamp;
use crate::disk::{Disk, FileMode};
use crate::error::{Fault, Result};
use crate::offset::Offset;
use crate::segment::{SegmentHeader, SegmentIndex, SegmentName};

use super::producer_state::ProducerState;

use std::path::Path;

const MAGIC: u32 = 0x504B_434C; // "LCKP"
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 72;
/// The name of its file.
pub(super) const CHECKPOINT_FILE: &str = "checkpoint";
const TEMPORARY_FILE: &str = "checkpoint.tmp";

/// The largest file that is worth reading: an index of a 2 GiB segment, and many producers.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What the log was like at a close marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) segment: SegmentName,
    pub(super) nonce: u64,
    pub(super) marker_position: u64,
    pub(super) end: Offset,
    pub(super) log_start: Offset,
    pub(super) last_append_time: Timestamp,
    /// As of before the marker.
    pub(super) index: SegmentIndex,
    pub(super) producers: ProducerState,
}

impl Checkpoint {
    /// Replaces the one that is there. Nothing is synced: it may be lost.
    pub(super) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        let temporary = dir.join(TEMPORARY_FILE);
        let file = disk.open(&temporary, FileMode::Create)?;
        file.write_at(&self.encode(), 0)?;
        drop(file);
        disk.rename(&temporary, &dir.join(CHECKPOINT_FILE))
    }

    /// Reads the one that is there, if it is sound and speaks of this segment.
    pub(super) fn load(disk: &dyn Disk, dir: &Path, header: &SegmentHeader) -> Option<Checkpoint> {
        let file = disk.open(&dir.join(CHECKPOINT_FILE), FileMode::Read).ok()?;
        let size = file.size().ok().filter(|size| *size <= MAX_BYTES)?;
        let mut bytes = vec![0_u8; usize::try_from(size).ok()?];
        let read = file.read_at(&mut bytes, 0).ok()?;
        Checkpoint::decode(&bytes[..read], header).ok()
    }

    fn encode(&self) -> Vec<u8> {
        let narrow = |len: usize| u32::try_from(len).expect("within MAX_BYTES");
        let (index, producers) = (self.index.encode(self.nonce), self.producers.encode());
        let position = u32::try_from(self.marker_position).expect("segments are below 4 GiB");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + index.len() + producers.len() + 4);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.segment.base.to_le_bytes());
        bytes.extend_from_slice(&self.segment.epoch.to_le_bytes());
        bytes.extend_from_slice(&position.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&self.log_start.to_le_bytes());
        bytes.extend_from_slice(&self.last_append_time.as_millis().to_le_bytes());
        bytes.extend_from_slice(&narrow(index.len()).to_le_bytes());
        bytes.extend_from_slice(&narrow(producers.len()).to_le_bytes());
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        debug_assert!(bytes.len() == HEAD_BYTES);
        bytes.extend_from_slice(&index);
        bytes.extend_from_slice(&producers);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], header: &SegmentHeader) -> std::result::Result<Checkpoint, Fault> {
        let truncated = Fault::Truncated { what: "checkpoint" };
        let (bytes, crc) = bytes.split_last_chunk::<4>().ok_or(truncated.clone())?;
        let (found, expected) = (crc32fast::hash(bytes), u32::from_le_bytes(*crc));
        if found != expected {
            return Err(Fault::Checksum { what: "checkpoint", found, expected });
        }
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(truncated.clone())?;
        let u32_at = |at: usize| {
            u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes of the head"))
        };
        let u64_at = |at: usize| {
            u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes of the head"))
        };
        if u32_at(0) != MAGIC || u32_at(4) != VERSION {
            return Err(Fault::Magic { found: u32_at(0), expected: MAGIC });
        }
        let segment = SegmentName { base: u64_at(8), epoch: u32_at(16) };
        let nonce = u64_at(24);
        if segment != header.name || nonce != header.nonce {
            return Err(Fault::Field { field: "segment", value: nonce.cast_signed() });
        }
        let index_bytes = u32_at(56) as usize;
        let (index, producers) = rest.split_at_checked(index_bytes).ok_or(truncated.clone())?;
        if producers.len() != u32_at(60) as usize {
            return Err(truncated);
        }
        let data_start = u64::from(header.data_start);
        Ok(Checkpoint {
            segment,
            nonce,
            marker_position: u64::from(u32_at(20)),
            end: u64_at(32),
            log_start: u64_at(40),
            last_append_time: Timestamp::from_millis(u64_at(48).cast_signed()),
            index: SegmentIndex::decode(index, segment.base, data_start, nonce)?,
            producers: ProducerState::decode(producers)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BatchHeader;
    use crate::segment::{FIRST_DATA_START, PartitionId};

    const NONCE: u64 = 0x1122_3344_5566_7788;
    const SEGMENT: SegmentName = SegmentName { base: 1000, epoch: 3 };

    /// Up to the index, which has golden bytes of its own.
    const GOLDEN_HEAD: [&[u8]; 12] = [
        b"LCKP",
        b"\x01\0\0\0",                       // version
        b"\xe8\x03\0\0\0\0\0\0",             // base
        b"\x03\0\0\0",                       // epoch
        b"\0\x50\0\0",                       // marker position
        b"\x88\x77\x66\x55\x44\x33\x22\x11", // nonce
        b"\xf2\x03\0\0\0\0\0\0",             // end
        b"\x28\0\0\0\0\0\0\0",               // log_start
        b"\xd0\xc9\x80\xf3\x3b\x01\0\0",     // last append time
        b"\x38\0\0\0",                       // index length
        b"\x28\0\0\0",                       // producers length
        b"\0\0\0\0\0\0\0\0",
    ];
    const GOLDEN_PRODUCERS: [&[u8]; 8] = [
        b"\x01\0\0\0",           // count
        b"\x09\0\0\0\0\0\0\0",   // id
        b"\x01\0",               // epoch
        b"\x01\0",               // batches
        b"\x05\0\0\0\0\0\0\0",   // last append time
        b"\0\0\0\0",             // base sequence
        b"\x0a\0\0\0",           // record count
        b"\xe8\x03\0\0\0\0\0\0", // base offset
    ];

    fn header() -> SegmentHeader {
        SegmentHeader {
            id: PartitionId { topic_id: 7, topic: "orders".to_owned(), partition: 0 },
            name: SEGMENT,
            log_start: 40,
            durable_end: 990,
            predecessor: None,
            nonce: NONCE,
            producers_length: 0,
            producers_crc: crc32fast::hash(&[]),
            data_start: FIRST_DATA_START,
            created: Timestamp::from_millis(0),
        }
    }

    fn checkpoint() -> Checkpoint {
        let mut producers = ProducerState::default();
        let batch = BatchHeader {
            producer_id: 9,
            producer_epoch: 1,
            record_count: 10,
            base_offset: 1000,
            append_time: Timestamp::from_millis(5),
            ..BatchHeader::default()
        };
        producers.note(&batch, 10);
        Checkpoint {
            segment: SEGMENT,
            nonce: NONCE,
            marker_position: 0x5000,
            end: 1010,
            log_start: 40,
            last_append_time: Timestamp::from_millis(1_357_000_002_000),
            index: SegmentIndex::new(1000, u64::from(FIRST_DATA_START)),
            producers,
        }
    }

    #[test]
    fn the_bytes_are_the_golden_ones_and_give_the_checkpoint_again() {
        let bytes = checkpoint().encode();
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        assert_eq!(head, GOLDEN_HEAD.concat());
        let (index, rest) = rest.split_at(0x38);
        assert_eq!(index, checkpoint().index.encode(NONCE));
        let (producers, crc) = rest.split_at(0x28);
        assert_eq!(producers, GOLDEN_PRODUCERS.concat());
        assert_eq!(crc, crc32fast::hash(&bytes[..bytes.len() - 4]).to_le_bytes());
        assert_eq!(Checkpoint::decode(&bytes, &header()), Ok(checkpoint()));
    }

    #[test]
    fn a_flipped_byte_and_a_missing_one_are_refused() {
        let bytes = checkpoint().encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(Checkpoint::decode(&bad, &header()).is_err(), "byte {at}");
            assert!(Checkpoint::decode(&bytes[..at], &header()).is_err(), "cut at {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Checkpoint::decode(&longer, &header()).is_err(), "a byte too many");
    }

    #[test]
    fn the_checkpoint_of_another_segment_or_version_is_refused() {
        let bytes = checkpoint().encode();
        for other in [
            SegmentHeader { nonce: NONCE + 1, ..header() },
            SegmentHeader { name: SegmentName { base: 1000, epoch: 4 }, ..header() },
        ] {
            assert!(Checkpoint::decode(&bytes, &other).is_err());
        }
        let mut newer = bytes;
        newer[4] = 2;
        let body = newer.len() - 4;
        let crc = crc32fast::hash(&newer[..body]);
        newer[body..].copy_from_slice(&crc.to_le_bytes());
        assert!(Checkpoint::decode(&newer, &header()).is_err());
    }
}
