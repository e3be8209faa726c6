//! Committed offsets as records of `__offsets`.
//!
//! The key says whose offset it is, the value what was committed and who holds the partition, none
//! at all that the entry is gone; the record's timestamp says when it was committed. Both begin
//! with a version byte, and a structure as `codec.rs` writes it follows. For a key, the record that
//! comes last counts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::{Committed, Grant, Owner, check_settled};
use super::state::Place;
use super::write::RECORD_BYTES;
use crate::clock::Timestamp;
use crate::codec;
use crate::config::{COMMIT_METADATA_LIMIT_BYTES, MEMBER_ID_LIMIT_BYTES, SETTLED_RANGES_LIMIT};
use crate::error::Fault;
use crate::name::{GroupName, NAME_MAX_BYTES};
use crate::offset::OffsetRange;
use crate::record::RecordView;

/// The newest version of these records that this release reads, and the one it writes.
pub(super) const OFFSETS_VERSION: u8 = 1;
/// More than a key or a value takes, with everything at its limit.
const LIMIT_BYTES: usize = 32 * 1024;

const SETTLED_LIMIT_BYTES: usize = SETTLED_RANGES_LIMIT * size_of::<RangeV1>();
const TEXT_LIMIT_BYTES: usize = COMMIT_METADATA_LIMIT_BYTES + MEMBER_ID_LIMIT_BYTES;
/// More than what is neither text nor a range takes.
const REST_BYTES: usize = 256;
const _: () = assert!(SETTLED_LIMIT_BYTES + TEXT_LIMIT_BYTES + REST_BYTES <= LIMIT_BYTES);
const _: () = assert!(LIMIT_BYTES + NAME_MAX_BYTES + REST_BYTES <= RECORD_BYTES as usize);

/// Frozen: a change is a `KeyV2`.
#[derive(Serialize, Deserialize)]
struct KeyV1 {
    group: String,
    topic_id: u128,
    partition: u32,
}

/// Frozen, with what is in it: a change is a `CommitV2`.
#[derive(Serialize, Deserialize)]
struct CommitV1 {
    offset: u64,
    /// The epoch of the partition when it was read; 0 if that was not told.
    epoch: u32,
    metadata: String,
    clamped_from: Option<u64>,
    settled: Vec<RangeV1>,
    grant: Option<GrantV1>,
}

#[derive(Serialize, Deserialize)]
struct RangeV1 {
    start: u64,
    end: u64,
}

#[derive(Serialize, Deserialize)]
struct GrantV1 {
    epoch: u64,
    owner: Option<OwnerV1>,
}

#[derive(Serialize, Deserialize)]
struct OwnerV1 {
    member: String,
    incarnation: u64,
}

/// A record, decoded. `commit` is none if the entry is gone.
pub(super) struct Stored {
    pub(super) group: GroupName,
    pub(super) place: Place,
    pub(super) commit: Option<Committed>,
}

/// Why a record of `__offsets` can't be used.
#[derive(Debug)]
pub(super) enum Unusable {
    Newer(u8),
    Malformed(Fault),
}

pub(super) fn encode_key(group: &GroupName, place: Place) -> Vec<u8> {
    let (topic_id, partition) = place;
    versioned(codec::encode(&KeyV1 { group: group.as_str().to_owned(), topic_id, partition }))
}

pub(super) fn encode_commit(commit: &Committed) -> Vec<u8> {
    let settled = commit.settled.iter();
    versioned(codec::encode(&CommitV1 {
        offset: commit.offset,
        epoch: 0,
        metadata: commit.metadata.to_string(),
        clamped_from: commit.clamped_from,
        settled: settled.map(|range| RangeV1 { start: range.start, end: range.end }).collect(),
        grant: commit.grant.as_ref().map(|grant| GrantV1 {
            epoch: grant.epoch,
            owner: grant.owner.as_ref().map(|owner| OwnerV1 {
                member: owner.member.to_string(),
                incarnation: owner.incarnation,
            }),
        }),
    }))
}

pub(super) fn decode(record: &RecordView<'_>) -> Result<Stored, Unusable> {
    decode_parts(record.key.unwrap_or_default(), record.value, record.timestamp)
}

fn decode_parts(key: &[u8], value: Option<&[u8]>, at: Timestamp) -> Result<Stored, Unusable> {
    let key: KeyV1 = decode_part(key)?;
    let group = GroupName::parse(&key.group).map_err(|error| malformed(error.to_string()))?;
    let value = value.map(decode_part::<CommitV1>).transpose()?;
    let commit = value.map(|value| commit_of(value, at)).transpose()?;
    Ok(Stored { group, place: (key.topic_id, key.partition), commit })
}

fn commit_of(value: CommitV1, committed_at: Timestamp) -> Result<Committed, Unusable> {
    let settled = value.settled.iter().map(|range| OffsetRange::new(range.start, range.end));
    let settled: Arc<[OffsetRange]> = settled.collect();
    check_settled(value.offset, &settled).map_err(|why| malformed(format!("settled: {why}")))?;
    Ok(Committed {
        offset: value.offset,
        settled,
        clamped_from: value.clamped_from,
        metadata: Arc::from(value.metadata),
        committed_at,
        grant: value.grant.map(|grant| Grant {
            epoch: grant.epoch,
            owner: grant.owner.map(|owner| Owner {
                member: Arc::from(owner.member),
                incarnation: owner.incarnation,
            }),
        }),
    })
}

fn malformed(what: String) -> Unusable {
    Unusable::Malformed(Fault::Structure { what })
}

fn versioned(mut structure: Vec<u8>) -> Vec<u8> {
    structure.insert(0, OFFSETS_VERSION);
    structure
}

fn decode_part<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Unusable> {
    match bytes.split_first() {
        None => Err(Unusable::Malformed(Fault::Truncated { what: "committed offset" })),
        Some((&OFFSETS_VERSION, rest)) => {
            codec::decode(rest, LIMIT_BYTES).map_err(Unusable::Malformed)
        }
        Some((&version, _)) => Err(Unusable::Newer(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(settled: &[(u64, u64)]) -> Committed {
        Committed {
            offset: 77,
            settled: settled.iter().map(|(start, end)| OffsetRange::new(*start, *end)).collect(),
            clamped_from: Some(99),
            metadata: Arc::from("hi"),
            committed_at: Timestamp::from_millis(9),
            grant: Some(Grant {
                epoch: 6,
                owner: Some(Owner { member: Arc::from("m"), incarnation: 8 }),
            }),
        }
    }

    fn decode_again(commit: &Committed) -> Result<Option<Committed>, Unusable> {
        let key = encode_key(&GroupName::parse("g").unwrap(), (5, 3));
        let stored = decode_parts(&key, Some(&encode_commit(commit)), commit.committed_at)?;
        Ok(stored.commit)
    }

    #[test]
    fn bytes_are_what_they_always_were() {
        let group = GroupName::parse("g").unwrap();
        let mut key = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, b'g', 5];
        key.extend([0; 15]);
        key.extend([3, 0, 0, 0]);
        assert_eq!(encode_key(&group, (5, 3)), key);

        let mut value = vec![1, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        value.extend([2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i']);
        value.extend([1, 99, 0, 0, 0, 0, 0, 0, 0]);
        let plain = value.len();
        value.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        value.extend([80, 0, 0, 0, 0, 0, 0, 0, 90, 0, 0, 0, 0, 0, 0, 0]);
        value.extend([1, 6, 0, 0, 0, 0, 0, 0, 0]);
        value.extend([1, 1, 0, 0, 0, 0, 0, 0, 0, b'm', 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode_commit(&commit(&[(80, 90)])), value);

        // Nothing settled, never given to anybody.
        value.truncate(plain);
        value.extend([0; 9]);
        assert_eq!(encode_commit(&Committed { grant: None, ..commit(&[]) }), value);
    }

    #[test]
    fn an_entry_comes_back_as_it_went() {
        let full: Vec<_> =
            (0..SETTLED_RANGES_LIMIT as u64).map(|n| (100 + 2 * n, 101 + 2 * n)).collect();
        for entry in [commit(&[]), commit(&[(80, 90), (95, 96)]), commit(&full)] {
            assert_eq!(decode_again(&entry).unwrap(), Some(entry));
        }
        let largest = Committed {
            metadata: "x".repeat(COMMIT_METADATA_LIMIT_BYTES).into(),
            grant: Some(Grant {
                epoch: u64::MAX,
                owner: Some(Owner {
                    member: "m".repeat(MEMBER_ID_LIMIT_BYTES).into(),
                    incarnation: u64::MAX,
                }),
            }),
            ..commit(&full)
        };
        assert_eq!(decode_again(&largest).unwrap(), Some(largest));
    }

    #[test]
    fn ranges_that_can_not_be_are_refused() {
        for bad in [&[(77, 80)][..], &[(90, 80)], &[(80, 90), (85, 95)], &[(80, 90), (90, 95)]] {
            let refused = decode_again(&commit(bad));
            assert!(matches!(refused, Err(Unusable::Malformed(_))), "{refused:?}");
        }
    }
}
