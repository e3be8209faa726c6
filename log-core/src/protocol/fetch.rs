//! Fetch: batches from many partitions, waited for if there are none.
//!
//! ```text
//! request body | max bytes 4 | min bytes 4 | max wait 4 | count 4 |
//!              | incarnation 8 | group length 2 | member length 2 | zero 4 | group | member |
//!              then `count` times
//!              | topic id 16 | partition 4 | max bytes 4 | from 8 | epoch 8 |
//! reply body   | server time 8 | count 4 | zero 4 |
//!              then `count` times
//!              | topic id 16 | partition 4 | code 2 | zero 2 | from 8 | next 8 |
//!              | log start 8 | readable end 8 | length 4 | zero 4 |
//!              then, in the same order, `length` bytes for each
//! ```
//! What follows for a partition are whole batches as they are stored (the first may begin before
//! `from`); with a code other than 0, a `Refusal`. Without a group, both lengths are 0, and so are
//! incarnation and epochs. No partition is there twice.

use bytes::{Buf, Bytes};

use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::Offset;

/// The version of request and reply.
pub const FETCH_VERSION: u16 = 1;
/// The most partitions of one fetch.
pub const FETCH_PARTITIONS_MAX: usize = 10_000;

const REQUEST_HEAD_BYTES: usize = 32;
const REQUEST_ENTRY_BYTES: usize = 40;
const REPLY_HEAD_BYTES: usize = 16;
/// The bytes of a partition's entry in a reply, without its batches.
pub const REPLY_ENTRY_BYTES: usize = 64;

/// Asks for batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The most bytes of batches in the reply; it holds one batch at least, whatever its size.
    pub max_bytes: u32,
    /// The reply waits until so many bytes are there, or something is wrong, …
    pub min_bytes: u32,
    /// … or so many milliseconds have passed.
    pub max_wait: u32,
    /// Who reads, if it reads what a group has granted it.
    pub reader: Option<GroupReader>,
    /// What to read: each partition once.
    pub partitions: Vec<FetchPartition>,
}

/// Who reads for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReader {
    /// The group.
    pub group: String,
    /// The member's id.
    pub member: String,
    /// Which run of it.
    pub incarnation: u64,
}

/// One partition of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPartition {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The most bytes from it, but one batch at least.
    pub max_bytes: u32,
    /// The offset to read from.
    pub from: Offset,
    /// The epoch of the grant; 0 without a group.
    pub epoch: u64,
}

/// What a fetch found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchReply {
    /// The server's wall clock.
    pub server_time: Timestamp,
    /// The partitions that have something to tell, in the request's order; all, if none has.
    pub partitions: Vec<FetchedPartition>,
}

/// One partition of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The number of an `ErrorCode`: 0, or `bytes` are a `Refusal`.
    pub code: u16,
    /// The offset that was asked for.
    pub from: Offset,
    /// The offset to ask for next.
    pub next: Offset,
    /// The oldest offset that is left.
    pub log_start: Offset,
    /// One past the newest record that can be read.
    pub readable_end: Offset,
    /// Whole batches, or a refusal.
    pub bytes: Bytes,
}

impl FetchRequest {
    /// The request's body.
    ///
    /// # Panics
    /// If names are longer, or partitions more, than the limits for them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let none = GroupReader { group: String::new(), member: String::new(), incarnation: 0 };
        let reader = self.reader.as_ref().unwrap_or(&none);
        let count = u32::try_from(self.partitions.len()).expect("partitions are limited");
        let name_length = |name: &str| u16::try_from(name.len()).expect("names are limited");
        let mut body = Vec::with_capacity(128 + self.partitions.len() * REQUEST_ENTRY_BYTES);
        for number in [self.max_bytes, self.min_bytes, self.max_wait, count] {
            body.extend(number.to_le_bytes());
        }
        body.extend(reader.incarnation.to_le_bytes());
        body.extend(name_length(&reader.group).to_le_bytes());
        body.extend(name_length(&reader.member).to_le_bytes());
        body.extend([0; 4]);
        body.extend(reader.group.as_bytes());
        body.extend(reader.member.as_bytes());
        for entry in &self.partitions {
            body.extend(entry.topic_id.to_le_bytes());
            body.extend(entry.partition.to_le_bytes());
            body.extend(entry.max_bytes.to_le_bytes());
            body.extend(entry.from.to_le_bytes());
            body.extend(entry.epoch.to_le_bytes());
        }
        body
    }

    /// The request that a body stands for.
    ///
    /// # Errors
    /// `Truncated`; `Field` for more than [`FETCH_PARTITIONS_MAX`] partitions, or bytes that must
    /// be zero; `Structure` for bytes that are left over, names that are no text, a member of no
    /// group, or a partition that is there twice.
    pub fn decode(mut body: &[u8]) -> Result<FetchRequest, Fault> {
        let what = "fetch request";
        if body.len() < REQUEST_HEAD_BYTES {
            return Err(Fault::Truncated { what });
        }
        let (max_bytes, min_bytes) = (body.get_u32_le(), body.get_u32_le());
        let (max_wait, count) = (body.get_u32_le(), body.get_u32_le());
        let incarnation = body.get_u64_le();
        let (group_length, member_length) = (body.get_u16_le(), body.get_u16_le());
        zero(body.get_u32_le())?;
        let group = text(&mut body, group_length)?;
        let member = text(&mut body, member_length)?;
        if group.is_empty() && (!member.is_empty() || incarnation != 0) {
            return Err(Fault::Structure { what: "a member of no group".to_owned() });
        }
        let reader = (!group.is_empty()).then_some(GroupReader { group, member, incarnation });
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > FETCH_PARTITIONS_MAX {
            let value = i64::try_from(count).unwrap_or(i64::MAX);
            return Err(Fault::Field { field: "fetch partitions", value });
        }
        let expected = count * REQUEST_ENTRY_BYTES;
        if body.len() < expected {
            return Err(Fault::Truncated { what });
        }
        if body.len() > expected {
            return Err(Fault::Structure { what: "bytes are left over".to_owned() });
        }
        let mut partitions = Vec::with_capacity(count);
        while !body.is_empty() {
            partitions.push(FetchPartition {
                topic_id: body.get_u128_le(),
                partition: body.get_u32_le(),
                max_bytes: body.get_u32_le(),
                from: body.get_u64_le(),
                epoch: body.get_u64_le(),
            });
        }
        refuse_repeats(&partitions)?;
        Ok(FetchRequest { max_bytes, min_bytes, max_wait, reader, partitions })
    }
}

fn refuse_repeats(partitions: &[FetchPartition]) -> Result<(), Fault> {
    let mut places: Vec<_> = partitions.iter().map(|e| (e.topic_id, e.partition)).collect();
    places.sort_unstable();
    if places.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Fault::Structure { what: "a partition is there twice".to_owned() });
    }
    Ok(())
}

fn zero(number: u32) -> Result<(), Fault> {
    match number {
        0 => Ok(()),
        odd => Err(Fault::Field { field: "zero", value: i64::from(odd) }),
    }
}

fn text(body: &mut &[u8], length: u16) -> Result<String, Fault> {
    let length = usize::from(length);
    if body.len() < length {
        return Err(Fault::Truncated { what: "fetch request" });
    }
    let (text, rest) = body.split_at(length);
    *body = rest;
    let text = std::str::from_utf8(text);
    text.map(str::to_owned).map_err(|error| Fault::Structure { what: error.to_string() })
}

impl FetchReply {
    /// How long the body is, batches included.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        let batches: usize = self.partitions.iter().map(|entry| entry.bytes.len()).sum();
        REPLY_HEAD_BYTES + self.partitions.len() * REPLY_ENTRY_BYTES + batches
    }

    /// The body up to the batches, which follow as they are.
    ///
    /// # Panics
    /// If there are more partitions, or more bytes of one, than a frame can hold.
    #[must_use]
    pub fn encode_head(&self) -> Vec<u8> {
        let entries = self.partitions.len() * REPLY_ENTRY_BYTES;
        let mut head = Vec::with_capacity(REPLY_HEAD_BYTES + entries);
        head.extend(self.server_time.as_millis().to_le_bytes());
        let count = u32::try_from(self.partitions.len()).expect("partitions are limited");
        head.extend(count.to_le_bytes());
        head.extend([0; 4]);
        for entry in &self.partitions {
            head.extend(entry.topic_id.to_le_bytes());
            head.extend(entry.partition.to_le_bytes());
            head.extend(entry.code.to_le_bytes());
            head.extend([0; 2]);
            for number in [entry.from, entry.next, entry.log_start, entry.readable_end] {
                head.extend(number.to_le_bytes());
            }
            let length = u32::try_from(entry.bytes.len()).expect("frames are limited");
            head.extend(length.to_le_bytes());
            head.extend([0; 4]);
        }
        head
    }

    /// The reply that a body stands for; batches share its memory.
    ///
    /// # Errors
    /// `Truncated`; `Structure` for bytes that are left over; `Field` for bytes that must be zero.
    pub fn decode(mut body: Bytes) -> Result<FetchReply, Fault> {
        let what = "fetch reply";
        if body.len() < REPLY_HEAD_BYTES {
            return Err(Fault::Truncated { what });
        }
        let server_time = Timestamp::from_millis(body.get_i64_le());
        let count = usize::try_from(body.get_u32_le()).unwrap_or(usize::MAX);
        zero(body.get_u32_le())?;
        if count > FETCH_PARTITIONS_MAX || body.len() < count * REPLY_ENTRY_BYTES {
            return Err(Fault::Truncated { what });
        }
        let mut entries = body.split_to(count * REPLY_ENTRY_BYTES);
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            let (topic_id, partition) = (entries.get_u128_le(), entries.get_u32_le());
            let code = entries.get_u16_le();
            zero(u32::from(entries.get_u16_le()))?;
            let (from, next) = (entries.get_u64_le(), entries.get_u64_le());
            let (log_start, readable_end) = (entries.get_u64_le(), entries.get_u64_le());
            let length = usize::try_from(entries.get_u32_le()).unwrap_or(usize::MAX);
            zero(entries.get_u32_le())?;
            if body.len() < length {
                return Err(Fault::Truncated { what });
            }
            let bytes = body.split_to(length);
            partitions.push(FetchedPartition {
                topic_id,
                partition,
                code,
                from,
                next,
                log_start,
                readable_end,
                bytes,
            });
        }
        if !body.is_empty() {
            return Err(Fault::Structure { what: "bytes are left over".to_owned() });
        }
        Ok(FetchReply { server_time, partitions })
    }
}
