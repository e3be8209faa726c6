//! Protocol: what client and server say to each other, as bytes. No sockets, no threads.
//!
//! A connection carries frames (`frame`): requests one way, replies the other, each with the
//! correlation id of its request; replies come as they are ready, in any order. The first request
//! is a hello. Produce and fetch are laid out by hand around raw batches (`produce`, `fetch`); all
//! others are a [`Call`]: a structure as `codec.rs` writes it, with a reply of its own.
//!
//! A structure that was released is frozen: a change is a new structure, under the next version
//! of its request. What a peer does not know is answered with an error, and the connection lives.

pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod groups;
pub mod hello;
pub mod metrics;
pub mod offsets;
pub mod produce;
#[cfg(test)]
mod tests;
pub mod topics;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::error::Fault;

pub use error_code::{ErrorCode, Refusal};
pub use frame::{Frame, FrameReader, FrameTooLong, Outgoing, ReplyHead, RequestHead};

/// The port that a server listens on if nothing else is said.
pub const DEFAULT_PORT: u16 = 9190;
/// The most bytes of a control request or its reply: anything but produce and fetch.
pub const CONTROL_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// What a request asks for. The numbers are the wire's and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum RequestKind {
    /// The first request of each connection.
    Hello = 0,
    /// Kept for authentication in steps; no server answers it yet.
    Authenticate = 1,
    /// What the server has counted.
    Metrics = 2,
    /// Appends a batch.
    Produce = 10,
    /// Reads batches, and waits for them.
    Fetch = 11,
    /// The offset that a time, or an end of the log, stands for.
    ResolveOffset = 12,
    /// The topics there are.
    ListTopics = 20,
    /// One topic, with its partitions.
    DescribeTopic = 21,
    /// Makes a topic.
    CreateTopic = 22,
    /// Removes a topic.
    DeleteTopic = 23,
    /// Changes how a topic behaves.
    AlterTopic = 24,
    /// Gives a topic more partitions.
    AddPartitions = 25,
    /// Removes the oldest records of a partition.
    TrimPartition = 26,
    /// Makes the sender a member of a group.
    JoinGroup = 30,
    /// Says what a member holds; answered with what it should hold.
    Heartbeat = 31,
    /// Ends a membership.
    LeaveGroup = 32,
    /// Gives a partition back, with the final offset.
    ReleasePartition = 33,
    /// One group, with its members and partitions.
    DescribeGroup = 34,
    /// The groups there are.
    ListGroups = 35,
    /// Forgets a group and what it has committed.
    DeleteGroup = 36,
    /// Commits offsets of a group.
    CommitOffsets = 40,
    /// What a group has committed.
    FetchOffsets = 41,
    /// Sets committed offsets, back, too.
    ResetOffsets = 42,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [RequestKind; 23] = [
        RequestKind::Hello,
        RequestKind::Authenticate,
        RequestKind::Metrics,
        RequestKind::Produce,
        RequestKind::Fetch,
        RequestKind::ResolveOffset,
        RequestKind::ListTopics,
        RequestKind::DescribeTopic,
        RequestKind::CreateTopic,
        RequestKind::DeleteTopic,
        RequestKind::AlterTopic,
        RequestKind::AddPartitions,
        RequestKind::TrimPartition,
        RequestKind::JoinGroup,
        RequestKind::Heartbeat,
        RequestKind::LeaveGroup,
        RequestKind::ReleasePartition,
        RequestKind::DescribeGroup,
        RequestKind::ListGroups,
        RequestKind::DeleteGroup,
        RequestKind::CommitOffsets,
        RequestKind::FetchOffsets,
        RequestKind::ResetOffsets,
    ];

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The kind with this number, if this release knows it.
    #[must_use]
    pub fn from_number(number: u16) -> Option<RequestKind> {
        RequestKind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// A control request: its structure, and that of its reply.
pub trait Call: Serialize + DeserializeOwned {
    /// What it asks for.
    const KIND: RequestKind;
    /// The version of the structures.
    const VERSION: u16 = 1;
    /// What answers it.
    type Reply: Serialize + DeserializeOwned;
}

/// A control request as a whole frame.
#[must_use]
pub fn encode_call<C: Call>(call: &C, correlation: u32) -> Vec<u8> {
    let head = RequestHead { kind: C::KIND.number(), version: C::VERSION, correlation };
    frame::encode_request(head, &codec::encode(call))
}

/// The reply to a control request as a whole frame.
#[must_use]
pub fn encode_answer<T: Serialize>(answer: &T, correlation: u32) -> Vec<u8> {
    let head = ReplyHead { correlation, code: ErrorCode::Ok.number() };
    frame::encode_reply(head, &codec::encode(answer))
}

/// The structure that is the body of a control request, or of its reply.
///
/// # Errors
/// `Truncated`, `Structure`: the bytes are not that structure, or are more than
/// [`CONTROL_LIMIT_BYTES`].
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    codec::decode(body, CONTROL_LIMIT_BYTES)
}
