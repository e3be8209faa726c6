//! Committed offsets as records of `__offsets`.
//!
//! The key says whose offset it is, the value what was committed, none at all that the entry is
//! gone; the record's timestamp says when. Both begin with a version byte, and a structure as
//! `codec.rs` writes it follows. For a key, the record that comes last counts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::{Commit, Place};
use crate::clock::Timestamp;
use crate::codec;
use crate::error::Fault;
use crate::name::GroupName;
use crate::record::RecordView;

/// The newest version of these records that this release reads, and the one it writes.
pub(super) const OFFSETS_VERSION: u8 = 1;
/// More than a key or a value with metadata at its limit takes.
const LIMIT_BYTES: usize = 16 * 1024;

/// Frozen: a change is a `KeyV2`.
#[derive(Serialize, Deserialize)]
struct KeyV1 {
    group: String,
    topic_id: u128,
    partition: u32,
}

/// Frozen: a change is a `CommitV2`.
#[derive(Serialize, Deserialize)]
struct CommitV1 {
    offset: u64,
    /// The epoch of the partition when it was read; 0 if that was not told.
    epoch: u32,
    metadata: String,
    clamped_from: Option<u64>,
}

/// A record, decoded. `commit` is none if the entry is gone.
pub(super) struct Stored {
    pub(super) group: GroupName,
    pub(super) place: Place,
    pub(super) commit: Option<Commit>,
}

/// Why a record of `__offsets` can't be used.
pub(super) enum Unusable {
    Newer(u8),
    Malformed(Fault),
}

pub(super) fn encode_key(group: &GroupName, place: Place) -> Vec<u8> {
    let (topic_id, partition) = place;
    versioned(codec::encode(&KeyV1 { group: group.as_str().to_owned(), topic_id, partition }))
}

pub(super) fn encode_commit(commit: &Commit) -> Vec<u8> {
    versioned(codec::encode(&CommitV1 {
        offset: commit.offset,
        epoch: 0,
        metadata: commit.metadata.to_string(),
        clamped_from: commit.clamped_from,
    }))
}

pub(super) fn decode(record: &RecordView<'_>) -> Result<Stored, Unusable> {
    let key: KeyV1 = decode_part(record.key.unwrap_or_default())?;
    let group = GroupName::parse(&key.group)
        .map_err(|error| Unusable::Malformed(Fault::Structure { what: error.to_string() }))?;
    let value = record.value.map(decode_part::<CommitV1>).transpose()?;
    let commit = value.map(|value| commit_of(value, record.timestamp));
    Ok(Stored { group, place: (key.topic_id, key.partition), commit })
}

fn commit_of(value: CommitV1, committed_at: Timestamp) -> Commit {
    Commit {
        offset: value.offset,
        metadata: Arc::from(value.metadata),
        committed_at,
        clamped_from: value.clamped_from,
    }
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
        let commit = Commit {
            offset: 77,
            metadata: Arc::from("hi"),
            committed_at: Timestamp::from_millis(9),
            clamped_from: Some(99),
        };
        assert_eq!(encode_commit(&commit), value);
    }
}
