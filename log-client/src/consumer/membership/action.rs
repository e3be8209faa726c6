//! Action: what a member is to do.

use std::time::Duration;

use log_core::protocol::Refusal;
use log_core::protocol::groups::{
    GrantV1, HeartbeatV1, JoinGroupV1, LeaveGroupV1, ReleasePartitionV1,
};

use super::event::PartitionId;

/// Why a partition is not the member's any more, without a release of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The server has taken it away: a session or a drain took too long, or its topic is gone.
    Taken,
    /// A record was in hand for longer than the processing timeout.
    ProcessingTimeout,
    /// The membership ended with an error.
    Stopped,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this, and say how it ended with this number.
    Join(u64, JoinGroupV1),
    /// Send this, and say how it ended with this number.
    Heartbeat(u64, HeartbeatV1),
    /// Send this, and say how it ended.
    Release(ReleasePartitionV1),
    /// Send this, and say how it ended with this number.
    Leave(u64, LeaveGroupV1),
    /// Read this from now on.
    Assign(GrantV1),
    /// Stop fetching it, hand over nothing more, and say when nothing is in hand. At the deadline
    /// comes `Expire`.
    Drain(PartitionId, u64, Duration),
    /// The time is up: say `Drained` now, with what is done.
    Expire(PartitionId, u64),
    /// It was released; the next owner starts where that said.
    Released(PartitionId, u64),
    /// It is not the member's any more; what is in hand will be handed over elsewhere.
    Lose(PartitionId, u64, LostReason),
    /// A record was in hand for too long, of something held or released already: the member leaves,
    /// and joins again when the user has `Returned`.
    Overdue,
    /// A drain was ended by force before its release arrived; the release was not taken.
    Forced(PartitionId, u64),
    /// The membership is over: as asked, or for this reason, for good.
    End(Option<Refusal>),
}
