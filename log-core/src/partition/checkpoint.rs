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
