//! Event: what happens to a member.

use std::time::Duration;

use log_core::protocol::groups::{HeartbeatReplyV1, JoinGroupReplyV1, MemberV1};
use log_core::protocol::offsets::{PositionV1, StartV1};
use log_core::protocol::{ErrorCode, Refusal};

/// A partition, by its topic's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition's number.
    pub partition: u32,
}

/// Who joins, and how.
#[derive(Debug, Clone)]
pub struct MembershipConfig {
    /// Who.
    pub member: MemberV1,
    /// What it reads.
    pub topics: Vec<String>,
    /// Where partitions start for which nothing is committed.
    pub start: StartV1,
    /// It counts as gone when nothing is heard of it for so long.
    pub session_timeout: Duration,
    /// How long a drain may take.
    pub drain_timeout: Duration,
    /// How long a record may be in hand.
    pub processing_timeout: Duration,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server refused.
    Refused(Refusal),
    /// No answer came.
    NoAnswer,
}

impl Failure {
    pub(super) fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Failure::Refused(refusal) if refusal.error_code() == Some(code))
    }

    pub(super) fn is_unknown_member(&self) -> bool {
        self.is(ErrorCode::UnknownMember) || self.is(ErrorCode::UnknownGroup)
    }

    /// The refusal, if asking again is of no use.
    pub(super) fn into_final(self) -> Option<Refusal> {
        match self {
            Failure::Refused(refusal) if !refusal.is_retriable() => Some(refusal),
            _ => None,
        }
    }
}

/// What happens to a member.
#[derive(Debug, Clone)]
pub enum Event {
    /// A deadline may have come; the first one makes it join.
    Tick,
    /// The answer to a join.
    Joined(u64, JoinGroupReplyV1),
    /// A join that failed.
    JoinFailed(u64, Failure),
    /// The answer to a heartbeat.
    HeartbeatAnswered(u64, HeartbeatReplyV1),
    /// A heartbeat that failed.
    HeartbeatFailed(u64, Failure),
    /// Something hints that the server has news: a fetch or a commit was refused.
    Suspect,
    /// Of a draining partition, nothing is in hand any more, or its time is up; the release is to
    /// say this.
    Drained(PartitionId, u64, Option<PositionV1>),
    /// A release is durable.
    Released(PartitionId, u64),
    /// A release failed.
    ReleaseFailed(PartitionId, u64, Failure),
    /// Since when the oldest record has been in hand.
    InHand(Option<Duration>),
    /// The user has come back for more, after the processing limit was passed.
    Returned,
    /// The user leaves: after a drain, or with what is held kept for so long.
    Leave {
        /// For how long; none drains.
        keep: Option<Duration>,
    },
    /// The answer to a leave.
    Left(u64),
    /// A leave that failed.
    LeaveFailed(u64, Failure),
}
