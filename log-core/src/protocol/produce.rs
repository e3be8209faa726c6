//! Produce: one batch for one partition, as its producer has made it.
//!
//! ```text
//! request body  | topic id 16 | partition 4 | acks 1 | zero 3 | expected end 8 | batch |
//! reply body    | base offset 8 | end 8 | append time 8 | duplicate 1 | zero 7 |
//! ```
//! An expected end of 2^64-1 means any. With acks `none` there is no reply at all.

use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::Offset;

/// The version of request and reply.
pub const PRODUCE_VERSION: u16 = 1;

const PARTITION_AT: usize = size_of::<u128>();
const ACKS_AT: usize = PARTITION_AT + size_of::<u32>();
const EXPECTED_END_AT: usize = ACKS_AT + 4;
/// The bytes before the batch.
pub const PRODUCE_HEAD_BYTES: usize = EXPECTED_END_AT + size_of::<u64>();
const _: () = assert!(PRODUCE_HEAD_BYTES == 32);

/// The bytes of a reply's body.
pub const PRODUCED_BYTES: usize = 32;

const ANY_END: u64 = u64::MAX;

/// When a produce is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Acks {
    /// As the topic's flush policy acknowledges.
    #[default]
    Policy = 0,
    /// Never: nothing is known of what became of it.
    None = 1,
    /// When it is written: it survives the death of the server's process.
    Written = 2,
    /// When it is on disk: it survives the death of the machine.
    Synced = 3,
}

/// What stands before the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceHead {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// When it is answered.
    pub acks: Acks,
    /// Where the partition must end, if that matters.
    pub expected_end: Option<Offset>,
}

impl ProduceHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PRODUCE_HEAD_BYTES] {
        let mut bytes = [0; PRODUCE_HEAD_BYTES];
        bytes[..PARTITION_AT].copy_from_slice(&self.topic_id.to_le_bytes());
        bytes[PARTITION_AT..ACKS_AT].copy_from_slice(&self.partition.to_le_bytes());
        bytes[ACKS_AT] = self.acks as u8;
        let expected_end = self.expected_end.unwrap_or(ANY_END);
        bytes[EXPECTED_END_AT..].copy_from_slice(&expected_end.to_le_bytes());
        bytes
    }

    /// The head and the batch of a request's body.
    ///
    /// # Errors
    /// `Truncated`; `Field` for acks that are not known, or bytes that must be zero.
    pub fn decode(body: &[u8]) -> Result<(ProduceHead, &[u8]), Fault> {
        let Some((head, batch)) = body.split_first_chunk::<PRODUCE_HEAD_BYTES>() else {
            return Err(Fault::Truncated { what: "produce request" });
        };
        let acks = match head[ACKS_AT] {
            0 => Acks::Policy,
            1 => Acks::None,
            2 => Acks::Written,
            3 => Acks::Synced,
            other => return Err(Fault::Field { field: "acks", value: i64::from(other) }),
        };
        if let Some(odd) = head[ACKS_AT + 1..EXPECTED_END_AT].iter().find(|byte| **byte != 0) {
            return Err(Fault::Field { field: "zero", value: i64::from(*odd) });
        }
        let expected_end = u64_at(head, EXPECTED_END_AT);
        let decoded = ProduceHead {
            topic_id: u128::from_le_bytes(*chunk(head, 0)),
            partition: u32::from_le_bytes(*chunk(head, PARTITION_AT)),
            acks,
            expected_end: (expected_end != ANY_END).then_some(expected_end),
        };
        Ok((decoded, batch))
    }
}

/// What a produce has done: the body of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// When the partition took it.
    pub append_time: Timestamp,
    /// Whether it was there already: nothing was added.
    pub duplicate: bool,
}

impl Produced {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PRODUCED_BYTES] {
        let mut bytes = [0; PRODUCED_BYTES];
        bytes[..8].copy_from_slice(&self.base_offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.end.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.append_time.as_millis().to_le_bytes());
        bytes[24] = u8::from(self.duplicate);
        bytes
    }

    /// What a reply's body says.
    ///
    /// # Errors
    /// `Truncated`; `Structure` for bytes that are left over; `Field` for a `duplicate` that is
    /// neither 0 nor 1, or bytes that must be zero.
    pub fn decode(body: &[u8]) -> Result<Produced, Fault> {
        let Some((bytes, rest)) = body.split_first_chunk::<PRODUCED_BYTES>() else {
            return Err(Fault::Truncated { what: "produce reply" });
        };
        if !rest.is_empty() {
            return Err(Fault::Structure { what: "bytes are left over".to_owned() });
        }
        if bytes[24] > 1 {
            return Err(Fault::Field { field: "duplicate", value: i64::from(bytes[24]) });
        }
        if let Some(odd) = bytes[25..].iter().find(|byte| **byte != 0) {
            return Err(Fault::Field { field: "zero", value: i64::from(*odd) });
        }
        Ok(Produced {
            base_offset: u64_at(bytes, 0),
            end: u64_at(bytes, 8),
            append_time: Timestamp::from_millis(i64::from_le_bytes(*chunk(bytes, 16))),
            duplicate: bytes[24] != 0,
        })
    }
}

fn u64_at<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    u64::from_le_bytes(*chunk(bytes, at))
}

fn chunk<const N: usize, const LEN: usize>(bytes: &[u8; LEN], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("inside the head")
}
