//! Offsets: where to start, what is committed; commit, fetch, reset, resolve.

use serde::{Deserialize, Serialize};

use super::error_code::Refusal;
use super::{Call, RequestKind};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::{OffsetRange, StartFrom};

/// Where to start. Frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartV1 {
    /// 0 earliest, 1 latest, 2 offset, 3 time.
    pub kind: u8,
    /// The offset; or the time, in milliseconds since 1970; else 0.
    pub value: i64,
}

impl From<StartFrom> for StartV1 {
    fn from(start: StartFrom) -> StartV1 {
        let (kind, value) = match start {
            StartFrom::Earliest => (0, 0),
            StartFrom::Latest => (1, 0),
            // Offsets are counted in u64; the same bits carry them.
            StartFrom::Offset(offset) => (2, offset.cast_signed()),
            StartFrom::Time(time) => (3, time.as_millis()),
        };
        StartV1 { kind, value }
    }
}

impl TryFrom<StartV1> for StartFrom {
    type Error = Fault;

    fn try_from(start: StartV1) -> Result<StartFrom, Fault> {
        match (start.kind, start.value) {
            (0, 0) => Ok(StartFrom::Earliest),
            (1, 0) => Ok(StartFrom::Latest),
            (2, offset) => Ok(StartFrom::Offset(offset.cast_unsigned())),
            (3, time) => Ok(StartFrom::Time(Timestamp::from_millis(time))),
            (kind, _) => Err(Fault::Field { field: "start", value: i64::from(kind) }),
        }
    }
}

/// Where a group stands in a partition. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionV1 {
    /// The next offset to read.
    pub offset: u64,
    /// Above it, what is settled already: start and exclusive end, sorted, apart.
    pub settled: Vec<(u64, u64)>,
}

impl PositionV1 {
    /// A position with nothing settled above it.
    #[must_use]
    pub fn at(offset: u64) -> PositionV1 {
        PositionV1 { offset, settled: Vec::new() }
    }

    /// A position with these ranges settled above it.
    #[must_use]
    pub fn with_settled(offset: u64, settled: &[OffsetRange]) -> PositionV1 {
        PositionV1 { offset, settled: settled.iter().map(|run| (run.start, run.end)).collect() }
    }

    /// The ranges that are settled above the offset.
    #[must_use]
    pub fn ranges(&self) -> Vec<OffsetRange> {
        self.settled.iter().map(|(start, end)| OffsetRange::new(*start, *end)).collect()
    }
}

/// The offset that a way of starting means now. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveOffsetV1 {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// Where to start.
    pub start: StartV1,
}

/// What answers it. Frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveOffsetReplyV1 {
    /// The offset. A time past the last record means the end.
    pub offset: u64,
    /// The oldest offset that is left.
    pub log_start: u64,
    /// One past the newest record that can be read.
    pub readable_end: u64,
}

/// Commits offsets: of a member for what it holds, or, without one, for a group that has no
/// members. Each partition succeeds or fails by itself. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitOffsetsV1 {
    /// The group.
    pub group: String,
    /// The member's id and incarnation, if one commits for what it holds.
    pub member: Option<(String, u64)>,
    /// What to commit.
    pub commits: Vec<CommitV1>,
}

/// A commit of one partition. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitV1 {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The epoch of the grant; 0 without a member.
    pub epoch: u64,
    /// The next offset to read, and what is settled above it.
    pub position: PositionV1,
    /// A text that is kept with it.
    pub metadata: String,
}

/// What answers [`CommitOffsetsV1`]. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitOffsetsReplyV1 {
    /// For each commit, in their order: none if it is durable, or why it was refused.
    pub outcomes: Vec<Option<Refusal>>,
}

/// What a group has committed. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchOffsetsV1 {
    /// The group.
    pub group: String,
    /// For this topic alone, by name; else for all.
    pub topic: Option<String>,
}

/// A committed offset. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedV1 {
    /// The topic's name.
    pub topic: String,
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// Where the group stands.
    pub position: PositionV1,
    /// What was committed, if the log has lost records since and ends before it.
    pub clamped_from: Option<u64>,
    /// The text that was kept with it.
    pub metadata: String,
    /// When it was committed, in milliseconds since 1970.
    pub committed_at: i64,
}

/// What answers [`FetchOffsetsV1`]. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchOffsetsReplyV1 {
    /// By topic and partition.
    pub committed: Vec<CommittedV1>,
}

/// Sets committed offsets, back, too. Partitions that members hold are revoked first. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOffsetsV1 {
    /// The group.
    pub group: String,
    /// The topic's name.
    pub topic: String,
    /// The partitions; none means all.
    pub partitions: Vec<u32>,
    /// Where to.
    pub to: StartV1,
    /// Whether to tell only what would be done.
    pub dry_run: bool,
}

/// What a reset does to a partition. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetV1 {
    /// The partition.
    pub partition: u32,
    /// What was committed.
    pub from: Option<u64>,
    /// What is committed now, or would be; or why it can't.
    pub to: Result<u64, Refusal>,
}

/// What answers [`ResetOffsetsV1`]. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOffsetsReplyV1 {
    /// By partition.
    pub resets: Vec<ResetV1>,
}

impl Call for ResolveOffsetV1 {
    const KIND: RequestKind = RequestKind::ResolveOffset;
    type Reply = ResolveOffsetReplyV1;
}

impl Call for CommitOffsetsV1 {
    const KIND: RequestKind = RequestKind::CommitOffsets;
    type Reply = CommitOffsetsReplyV1;
}

impl Call for FetchOffsetsV1 {
    const KIND: RequestKind = RequestKind::FetchOffsets;
    type Reply = FetchOffsetsReplyV1;
}

impl Call for ResetOffsetsV1 {
    const KIND: RequestKind = RequestKind::ResetOffsets;
    type Reply = ResetOffsetsReplyV1;
}
