//! SegmentHeader: the first pages of a segment's file, written twice.
//!
//! ```text
//! page 0 and page 1, the same bytes, 4096 each:
//! | magic 4 | version 2 | length 2 | compatible 4 | incompatible 4 |
//! | topic id 16 | partition 4 | epoch 4 | base offset 8 | log_start 8 | durable_end 8 |
//! | predecessor: base 8, epoch 4, where it ends 4 | nonce 8 |
//! | producers: position 4, length 4, crc 4 | data start 4 | created 8 |
//! | name length 2 | topic name | zeros … | crc 4 |
//! then, if there are producers to remember: their table; then, at data start, the first batch
//! ```
//! One destroyed page or torn sector leaves the other copy. A header is never written again.

use crate::clock::Timestamp;
use crate::error::{Error, Fault, Result};
use crate::offset::Offset;
use crate::segment::SegmentName;

use crate::disk::DiskFile;

/// The length of one copy of the header.
pub(super) const HEADER_PAGE_BYTES: usize = 4096;
/// Where the table of producers, or else the first batch, begins.
pub const HEADER_BYTES: usize = 2 * HEADER_PAGE_BYTES;
/// The same, as headers say it.
pub const FIRST_DATA_START: u32 = 8192;
const _: () = assert!(FIRST_DATA_START as usize == HEADER_BYTES);
/// The newest version of the segment format that this release reads, and the one it writes.
pub const SEGMENT_VERSION: u16 = 1;

const MAGIC: u32 = 0x4745_534C; // "LSEG"
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + size_of::<u32>();
const LENGTH_AT: usize = VERSION_AT + size_of::<u16>();
const COMPATIBLE_AT: usize = LENGTH_AT + size_of::<u16>();
const INCOMPATIBLE_AT: usize = COMPATIBLE_AT + size_of::<u32>();
const TOPIC_ID_AT: usize = INCOMPATIBLE_AT + size_of::<u32>();
const PARTITION_AT: usize = TOPIC_ID_AT + size_of::<u128>();
const EPOCH_AT: usize = PARTITION_AT + size_of::<u32>();
const BASE_AT: usize = EPOCH_AT + size_of::<u32>();
const LOG_START_AT: usize = BASE_AT + size_of::<u64>();
const DURABLE_END_AT: usize = LOG_START_AT + size_of::<u64>();
const PREDECESSOR_BASE_AT: usize = DURABLE_END_AT + size_of::<u64>();
const PREDECESSOR_EPOCH_AT: usize = PREDECESSOR_BASE_AT + size_of::<u64>();
const PREDECESSOR_END_AT: usize = PREDECESSOR_EPOCH_AT + size_of::<u32>();
const NONCE_AT: usize = PREDECESSOR_END_AT + size_of::<u32>();
const PRODUCERS_POSITION_AT: usize = NONCE_AT + size_of::<u64>();
const PRODUCERS_LENGTH_AT: usize = PRODUCERS_POSITION_AT + size_of::<u32>();
const PRODUCERS_CRC_AT: usize = PRODUCERS_LENGTH_AT + size_of::<u32>();
const DATA_START_AT: usize = PRODUCERS_CRC_AT + size_of::<u32>();
const CREATED_AT: usize = DATA_START_AT + size_of::<u32>();
const NAME_LENGTH_AT: usize = CREATED_AT + size_of::<i64>();
const NAME_AT: usize = NAME_LENGTH_AT + size_of::<u16>();
const CRC_AT: usize = HEADER_PAGE_BYTES - size_of::<u32>();
const _: () = assert!(NAME_AT == 114 && NAME_AT + crate::name::NAME_MAX_BYTES <= CRC_AT);

/// Which partition a segment belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionId {
    /// The topic's random id.
    pub topic_id: u128,
    /// The topic's name when the segment was begun: for people.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
}

/// The segment before this one, and where its part of the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predecessor {
    /// Its name.
    pub name: SegmentName,
    /// The position in its file where its last batch ends; what lies beyond is no part of the log.
    pub end_position: u32,
}

/// What the header of a segment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Which partition.
    pub id: PartitionId,
    /// Base offset and epoch, as in the file's name.
    pub name: SegmentName,
    /// The partition's `log_start` when the segment was begun.
    pub log_start: Offset,
    /// What was known to be synced when the segment was begun.
    pub durable_end: Offset,
    /// The segment before; none for the first one of a partition.
    pub predecessor: Option<Predecessor>,
    /// Random: part of the seed of every header checksum in the file.
    pub nonce: u64,
    /// How long the table of producers is.
    pub producers_length: u32,
    /// The table's checksum.
    pub producers_crc: u32,
    /// Where the first batch begins.
    pub data_start: u32,
    /// When the segment was begun.
    pub created: Timestamp,
}

/// A header as it was found.
#[derive(Debug)]
pub struct HeaderFound {
    /// What it says.
    pub header: SegmentHeader,
    /// What is wrong with one of its copies, if something is.
    pub damaged_copy: Option<(u64, Fault)>,
}

impl SegmentHeader {
    /// The seed of the header checksums: bytes of another partition or segment never match.
    #[must_use]
    pub fn seed(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.id.topic_id.to_le_bytes());
        hasher.update(&self.id.partition.to_le_bytes());
        hasher.update(&self.nonce.to_le_bytes());
        hasher.finalize()
    }

    /// Both copies.
    ///
    /// # Panics
    /// If the topic's name is over its limit, which whoever parsed it has checked.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0_u8; HEADER_PAGE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(MAGIC_AT, &MAGIC.to_le_bytes());
        put(VERSION_AT, &SEGMENT_VERSION.to_le_bytes());
        put(LENGTH_AT, &u16::try_from(HEADER_PAGE_BYTES).expect("4096").to_le_bytes());
        put(TOPIC_ID_AT, &self.id.topic_id.to_le_bytes());
        put(PARTITION_AT, &self.id.partition.to_le_bytes());
        put(EPOCH_AT, &self.name.epoch.to_le_bytes());
        put(BASE_AT, &self.name.base.to_le_bytes());
        put(LOG_START_AT, &self.log_start.to_le_bytes());
        put(DURABLE_END_AT, &self.durable_end.to_le_bytes());
        if let Some(predecessor) = self.predecessor {
            put(PREDECESSOR_BASE_AT, &predecessor.name.base.to_le_bytes());
            put(PREDECESSOR_EPOCH_AT, &predecessor.name.epoch.to_le_bytes());
            put(PREDECESSOR_END_AT, &predecessor.end_position.to_le_bytes());
        }
        put(NONCE_AT, &self.nonce.to_le_bytes());
        put(PRODUCERS_POSITION_AT, &FIRST_DATA_START.to_le_bytes());
        put(PRODUCERS_LENGTH_AT, &self.producers_length.to_le_bytes());
        put(PRODUCERS_CRC_AT, &self.producers_crc.to_le_bytes());
        put(DATA_START_AT, &self.data_start.to_le_bytes());
        put(CREATED_AT, &self.created.as_millis().to_le_bytes());
        let name = self.id.topic.as_bytes();
        let length = u16::try_from(name.len()).expect("names are checked when they are parsed");
        put(NAME_LENGTH_AT, &length.to_le_bytes());
        put(NAME_AT, name);
        let crc = crc32fast::hash(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        page.extend_from_within(..);
        page
    }

    /// Reads the header of a file, from whichever copy is whole.
    ///
    /// # Errors
    /// `Io` if the file can't be read; `NewerFormat`. `Ok(Err(..))` says what is wrong with the
    /// first copy where both are damaged.
    pub fn read(file: &dyn DiskFile) -> Result<std::result::Result<HeaderFound, Fault>> {
        let mut bytes = vec![0_u8; HEADER_BYTES];
        let read = file.read_at(&mut bytes, 0)?;
        let mut faults = Vec::new();
        let mut found = None;
        for (copy, page) in bytes.chunks_exact(HEADER_PAGE_BYTES).enumerate() {
            let position = copy * HEADER_PAGE_BYTES;
            if read < position + HEADER_PAGE_BYTES {
                let (actual, expected) = (read as u64, HEADER_BYTES as u64);
                faults.push((position as u64, Fault::FileShort { actual, expected }));
                continue;
            }
            match check_page(page) {
                Ok(()) if found.is_none() => found = Some(SegmentHeader::decode(page, file)?),
                Ok(()) => {}
                Err(fault) => faults.push((position as u64, fault)),
            }
        }
        let first = faults.into_iter().next();
        Ok(match (found, first) {
            (Some(Ok(header)), damaged_copy) => Ok(HeaderFound { header, damaged_copy }),
            (Some(Err(fault)), _) | (None, Some((_, fault))) => Err(fault),
            (None, None) => Err(Fault::Truncated { what: "segment header" }),
        })
    }

    fn decode(
        page: &[u8],
        file: &dyn DiskFile,
    ) -> Result<std::result::Result<SegmentHeader, Fault>> {
        let version = u16::from_le_bytes(array(page, VERSION_AT));
        let incompatible = u32::from_le_bytes(array(page, INCOMPATIBLE_AT));
        if version > SEGMENT_VERSION || incompatible != 0 {
            let found = if incompatible != 0 { incompatible } else { u32::from(version) };
            let supported = u32::from(SEGMENT_VERSION);
            return Err(Error::NewerFormat { path: file.path(), found, supported });
        }
        let name_length = usize::from(u16::from_le_bytes(array(page, NAME_LENGTH_AT)));
        let data_start = u32::from_le_bytes(array(page, DATA_START_AT));
        let producers_length = u32::from_le_bytes(array(page, PRODUCERS_LENGTH_AT));
        let producers_end = u64::from(producers_length) + HEADER_BYTES as u64;
        if name_length > crate::name::NAME_MAX_BYTES || u64::from(data_start) < producers_end {
            let value = i64::from(data_start);
            return Ok(Err(Fault::Field { field: "segment header's data start", value }));
        }
        let topic = String::from_utf8_lossy(&page[NAME_AT..NAME_AT + name_length]).into_owned();
        let end_position = u32::from_le_bytes(array(page, PREDECESSOR_END_AT));
        let predecessor = (end_position != 0).then(|| Predecessor {
            name: SegmentName {
                base: u64::from_le_bytes(array(page, PREDECESSOR_BASE_AT)),
                epoch: u32::from_le_bytes(array(page, PREDECESSOR_EPOCH_AT)),
            },
            end_position,
        });
        Ok(Ok(SegmentHeader {
            id: PartitionId {
                topic_id: u128::from_le_bytes(array(page, TOPIC_ID_AT)),
                topic,
                partition: u32::from_le_bytes(array(page, PARTITION_AT)),
            },
            name: SegmentName {
                base: u64::from_le_bytes(array(page, BASE_AT)),
                epoch: u32::from_le_bytes(array(page, EPOCH_AT)),
            },
            log_start: u64::from_le_bytes(array(page, LOG_START_AT)),
            durable_end: u64::from_le_bytes(array(page, DURABLE_END_AT)),
            predecessor,
            nonce: u64::from_le_bytes(array(page, NONCE_AT)),
            producers_length,
            producers_crc: u32::from_le_bytes(array(page, PRODUCERS_CRC_AT)),
            data_start,
            created: Timestamp::from_millis(i64::from_le_bytes(array(page, CREATED_AT))),
        }))
    }
}

fn check_page(page: &[u8]) -> std::result::Result<(), Fault> {
    let magic = u32::from_le_bytes(array(page, MAGIC_AT));
    if magic != MAGIC {
        return Err(Fault::Magic { found: magic, expected: MAGIC });
    }
    let (found, expected) = (crc32fast::hash(&page[..CRC_AT]), array(page, CRC_AT));
    let expected = u32::from_le_bytes(expected);
    if found != expected {
        return Err(Fault::Checksum { what: "segment header", found, expected });
    }
    Ok(())
}

/// The `N` bytes at a place that is known to be in the page.
fn array<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    page[at..at + N].try_into().expect("a slice of N bytes")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, FaultyDisk, FileMode};

    /// The front of a page; what follows, but for the checksum, is zero.
    const GOLDEN_FRONT: [&[u8]; 22] = [
        b"LSEG",
        b"\x01\0",                                                           // version
        b"\0\x10",                                                           // length
        b"\0\0\0\0",                                                         // compatible
        b"\0\0\0\0",                                                         // incompatible
        b"\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01\x00", // topic id
        b"\x03\0\0\0",                                                       // partition
        b"\x02\0\0\0",                                                       // epoch
        b"\xe8\x03\0\0\0\0\0\0",                                             // base offset
        b"\x28\0\0\0\0\0\0\0",                                               // log_start
        b"\xde\x03\0\0\0\0\0\0",                                             // durable_end
        b"\xf4\x01\0\0\0\0\0\0",                                             // predecessor: base
        b"\x01\0\0\0",                                                       // epoch
        b"\0\x80\0\0",                                                       // where it ends
        b"\x88\x77\x66\x55\x44\x33\x22\x11",                                 // nonce
        b"\0\x20\0\0",                                                       // producers: position
        b"\x2c\0\0\0",                                                       // length
        b"\xef\xbe\xad\xde",                                                 // crc
        b"\0\x30\0\0",                                                       // data start
        b"\0\xc2\x80\xf3\x3b\x01\0\0",                                       // created
        b"\x06\0",                                                           // name length
        b"orders",
    ];
    const GOLDEN_CRC: u32 = 0x00b0_141a;
    const GOLDEN_SEED: u32 = 0xac1d_9e43;

    fn header() -> SegmentHeader {
        SegmentHeader {
            id: PartitionId {
                topic_id: 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
                topic: "orders".to_owned(),
                partition: 3,
            },
            name: SegmentName { base: 1000, epoch: 2 },
            log_start: 40,
            durable_end: 990,
            predecessor: Some(Predecessor {
                name: SegmentName { base: 500, epoch: 1 },
                end_position: 0x8000,
            }),
            nonce: 0x1122_3344_5566_7788,
            producers_length: 44,
            producers_crc: 0xdead_beef,
            data_start: 0x3000,
            created: Timestamp::from_millis(1_357_000_000_000),
        }
    }

    fn file(bytes: &[u8]) -> Arc<dyn DiskFile> {
        let file = FaultyDisk::new().open(Path::new("segment"), FileMode::Create).unwrap();
        file.write_at(bytes, 0).unwrap();
        file
    }

    fn read(bytes: &[u8]) -> std::result::Result<HeaderFound, Fault> {
        SegmentHeader::read(&*file(bytes)).unwrap()
    }

    #[test]
    fn the_bytes_are_the_golden_ones_twice_and_give_the_header_again() {
        let bytes = header().encode();
        let (first, second) = bytes.split_at(HEADER_PAGE_BYTES);
        assert_eq!(first, second);
        let front = GOLDEN_FRONT.concat();
        assert_eq!(first[..front.len()], front);
        assert!(first[front.len()..CRC_AT].iter().all(|byte| *byte == 0));
        assert_eq!(first[CRC_AT..], GOLDEN_CRC.to_le_bytes());
        assert_eq!(header().seed(), GOLDEN_SEED);
        let found = read(&bytes).unwrap();
        assert_eq!((found.header, found.damaged_copy), (header(), None));
        let alone = SegmentHeader { predecessor: None, ..header() };
        assert_eq!(read(&alone.encode()).unwrap().header, alone);
    }

    #[test]
    fn a_flipped_byte_in_one_copy_is_told_and_in_both_refused() {
        let file = file(&header().encode());
        let flip = |at: usize| {
            let mut byte = [0];
            file.read_at(&mut byte, at as u64).unwrap();
            file.write_at(&[byte[0] ^ 0x40], at as u64).unwrap();
        };
        for at in 0..HEADER_PAGE_BYTES {
            flip(at);
            let found = SegmentHeader::read(&*file).unwrap().unwrap();
            assert_eq!(found.header, header(), "byte {at}");
            assert!(matches!(found.damaged_copy, Some((0, _))), "byte {at}");
            flip(at + HEADER_PAGE_BYTES);
            assert!(SegmentHeader::read(&*file).unwrap().is_err(), "byte {at} of both");
            flip(at);
            let found = SegmentHeader::read(&*file).unwrap().unwrap();
            assert!(matches!(found.damaged_copy, Some((4096, _))), "byte {at} of the second");
            flip(at + HEADER_PAGE_BYTES);
        }
    }

    #[test]
    fn a_file_that_ends_within_the_second_copy_has_the_first_and_a_shorter_one_has_none() {
        let bytes = header().encode();
        for cut in (0..HEADER_BYTES).step_by(97).chain([4095, 4096, 8191]) {
            match read(&bytes[..cut]) {
                Err(fault) => {
                    assert!(cut < HEADER_PAGE_BYTES, "cut at {cut}: {fault}");
                }
                Ok(found) => {
                    assert!(cut >= HEADER_PAGE_BYTES, "cut at {cut}");
                    assert_eq!(found.header, header());
                    let told = matches!(found.damaged_copy, Some((4096, Fault::FileShort { .. })));
                    assert!(told, "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_newer_version_and_features_that_must_be_understood_are_refused_by_name() {
        for (at, byte) in [(VERSION_AT, 2), (INCOMPATIBLE_AT, 1)] {
            let mut page = header().encode()[..HEADER_PAGE_BYTES].to_vec();
            page[at] = byte;
            let crc = crc32fast::hash(&page[..CRC_AT]);
            page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            let read = SegmentHeader::read(&*file(&page.repeat(2)));
            assert!(matches!(read, Err(Error::NewerFormat { supported: 1, .. })), "{read:?}");
        }
    }
}
