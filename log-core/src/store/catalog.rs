//! Catalog: which topics there are; the one file whose replacement commits a change of topics.
//!
//! ```text
//! | magic 4 | version 4 | body length 4 | crc 4, over the 12 bytes before and the body | body |
//! ```
//! The head stays the same in all versions, so that a newer file is told from a damaged one. The
//! body is the structure `CatalogV1` as `codec.rs` writes it.
//!
//! A topic that is being made or removed is named by a tombstone. Directories that a tombstone
//! names are removed; others that the catalog does not list are only reported.

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::config::{PARTITIONS_LIMIT, TopicConfig, TopicConfigV1};
use crate::error::Fault;
use crate::name::TopicName;

/// The newest version of the catalog that this release reads, and the one it writes.
pub const CATALOG_VERSION: u32 = 1;
/// The largest catalog that is read.
pub(super) const CATALOG_LIMIT_BYTES: usize = 256 * 1024 * 1024;

const MAGIC: u32 = 0x5443_474C; // "LGCT"
const VERSION_AT: usize = size_of::<u32>();
const LENGTH_AT: usize = VERSION_AT + size_of::<u32>();
const CRC_AT: usize = LENGTH_AT + size_of::<u32>();
const BODY_AT: usize = CRC_AT + size_of::<u32>();
const _: () = assert!(BODY_AT == 16);

/// What the store consists of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Catalog {
    pub(super) topics: Vec<TopicEntry>,
    pub(super) tombstones: Vec<Tombstone>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicEntry {
    pub(super) id: u128,
    pub(super) name: TopicName,
    pub(super) partitions: u32,
    pub(super) config: TopicConfig,
}

/// Directories that are to go: a topic's from this partition on; from 0 on, the topic's own, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub(super) id: u128,
    pub(super) name: TopicName,
    pub(super) first_partition: u32,
}

/// What is wrong with a catalog's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreadable {
    Damaged(Fault),
    Newer { version: u32 },
}

impl Catalog {
    pub(super) fn topic(&self, name: &TopicName) -> Option<&TopicEntry> {
        self.topics.iter().find(|topic| topic.name == *name)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let body = codec::encode(&CatalogV1::from(self));
        let length = u32::try_from(body.len()).expect("topics_max keeps a catalog small");
        let mut bytes = Vec::with_capacity(BODY_AT + body.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(CATALOG_VERSION.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(checksum(&bytes, &body).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Catalog, Unreadable> {
        let (version, body) = open_envelope(bytes).map_err(Unreadable::Damaged)?;
        if version > CATALOG_VERSION {
            return Err(Unreadable::Newer { version });
        }
        if version == 0 {
            return Err(Unreadable::Damaged(Fault::Unknown { what: "version", found: 0 }));
        }
        let decoded = codec::decode::<CatalogV1>(body, CATALOG_LIMIT_BYTES);
        decoded.and_then(Catalog::try_from).map_err(Unreadable::Damaged)
    }
}

/// Checks what is around the body; returns the version and the body.
fn open_envelope(bytes: &[u8]) -> Result<(u32, &[u8]), Fault> {
    let actual = bytes.len() as u64;
    let Some((head, body)) = bytes.split_at_checked(BODY_AT) else {
        return Err(Fault::FileShort { actual, expected: BODY_AT as u64 });
    };
    let found = u32_at(head, 0);
    if found != MAGIC {
        return Err(Fault::Magic { found, expected: MAGIC });
    }
    let length = u32_at(head, LENGTH_AT);
    let expected = BODY_AT as u64 + u64::from(length);
    if actual < expected {
        return Err(Fault::FileShort { actual, expected });
    }
    if actual > expected {
        return Err(Fault::Field { field: "body length", value: i64::from(length) });
    }
    let (found, expected) = (checksum(&head[..CRC_AT], body), u32_at(head, CRC_AT));
    if found != expected {
        return Err(Fault::Checksum { what: "catalog", found, expected });
    }
    Ok((u32_at(head, VERSION_AT), body))
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let (word, _) = bytes[at..].split_first_chunk().expect("inside the head");
    u32::from_le_bytes(*word)
}

/// Version 1 of the body. Frozen: a change is a `CatalogV2`.
#[derive(Serialize, Deserialize)]
struct CatalogV1 {
    topics: Vec<TopicV1>,
    tombstones: Vec<TombstoneV1>,
}

#[derive(Serialize, Deserialize)]
struct TopicV1 {
    id: u128,
    name: String,
    partitions: u32,
    config: TopicConfigV1,
}

#[derive(Serialize, Deserialize)]
struct TombstoneV1 {
    id: u128,
    name: String,
    first_partition: u32,
}

impl From<&Catalog> for CatalogV1 {
    fn from(catalog: &Catalog) -> CatalogV1 {
        let topic = |topic: &TopicEntry| TopicV1 {
            id: topic.id,
            name: topic.name.as_str().to_owned(),
            partitions: topic.partitions,
            config: TopicConfigV1::from(&topic.config),
        };
        let tombstone = |tombstone: &Tombstone| TombstoneV1 {
            id: tombstone.id,
            name: tombstone.name.as_str().to_owned(),
            first_partition: tombstone.first_partition,
        };
        CatalogV1 {
            topics: catalog.topics.iter().map(topic).collect(),
            tombstones: catalog.tombstones.iter().map(tombstone).collect(),
        }
    }
}

impl TryFrom<CatalogV1> for Catalog {
    type Error = Fault;

    fn try_from(stored: CatalogV1) -> Result<Catalog, Fault> {
        let topic = |topic: TopicV1| {
            if topic.partitions == 0 || topic.partitions > PARTITIONS_LIMIT {
                let value = i64::from(topic.partitions);
                return Err(Fault::Field { field: "number of partitions", value });
            }
            Ok(TopicEntry {
                id: topic.id,
                name: stored_name(&topic.name)?,
                partitions: topic.partitions,
                config: TopicConfig::try_from(topic.config)?,
            })
        };
        let tombstone = |tombstone: TombstoneV1| {
            Ok(Tombstone {
                id: tombstone.id,
                name: stored_name(&tombstone.name)?,
                first_partition: tombstone.first_partition,
            })
        };
        Ok(Catalog {
            topics: stored.topics.into_iter().map(topic).collect::<Result<_, Fault>>()?,
            tombstones: stored.tombstones.into_iter().map(tombstone).collect::<Result<_, _>>()?,
        })
    }
}

/// Names become directories: one that could lead elsewhere is refused, checksum or not.
fn stored_name(raw: &str) -> Result<TopicName, Fault> {
    TopicName::parse_any(raw).map_err(|error| Fault::Structure { what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{FlushPolicy, RetentionPolicy};

    fn sample() -> Catalog {
        let orders = TopicEntry {
            id: 0x0102,
            name: TopicName::parse("a").unwrap(),
            partitions: 3,
            config: TopicConfig {
                flush: FlushPolicy::Interval { every: Duration::from_secs(1), bytes: 65_536 },
                retention: RetentionPolicy { max_age: None, max_bytes: Some(9) },
                segment_max_bytes: 128 << 20,
                ..TopicConfig::default()
            },
        };
        let gone = Tombstone { id: 5, name: TopicName::offsets(), first_partition: 1 };
        Catalog { topics: vec![orders], tombstones: vec![gone] }
    }

    /// The stored form, so that a change of it can't go unnoticed.
    const GOLDEN: &str = concat!(
        "4c4743540100000093000000996224ce", // magic, version, length, crc
        "0100000000000000",                 // one topic
        "020100000000000000000000000000000100000000000000", // id, length of the name
        "61",                               // name
        "03000000",                         // partitions
        "01e8030000000000000000010000000000", // flush
        "00010900000000000000",             // retention
        "000000080000000000",               // segments: bytes, age
        "000010000000800000000004e8030000", // record, batch, expanded, headers
        "001027000000840c2400000000",       // strict, producers, their expiry
        "0100000000000000",                 // one tombstone
        "050000000000000000000000000000000900000000000000", // id, length of the name
        "5f5f6f666673657473",               // name
        "01000000",                         // first partition
    );

    #[test]
    fn bytes_are_what_they_always_were() {
        let hex: String = sample().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Catalog::decode(&sample().encode()), Ok(sample()));
        let empty = Catalog::default();
        assert_eq!(Catalog::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn every_flipped_bit_is_damage() {
        let good = sample().encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = Catalog::decode(&bytes);
            assert!(matches!(found, Err(Unreadable::Damaged(_))), "bit {bit}: {found:?}");
        }
        for len in 0..good.len() {
            let found = Catalog::decode(&good[..len]);
            assert!(matches!(found, Err(Unreadable::Damaged(_))), "length {len}: {found:?}");
        }
    }

    #[test]
    fn zeros_and_a_newer_version_are_told_apart() {
        let zeros = Catalog::decode(&[0; 100]);
        assert!(matches!(zeros, Err(Unreadable::Damaged(Fault::Magic { found: 0, .. }))));
        let mut bytes = sample().encode();
        bytes[VERSION_AT] = 2;
        let crc = checksum(&bytes[..CRC_AT], &bytes[BODY_AT..]);
        bytes[CRC_AT..BODY_AT].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Catalog::decode(&bytes), Err(Unreadable::Newer { version: 2 }));
    }
}
