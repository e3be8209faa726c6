//! Groups: join, heartbeat, release, leave; describe, list, delete.
//!
//! A member says in each heartbeat all that it holds, and is told all that it should hold. Each
//! grant of a partition has an epoch of its own, which never comes again. A partition that must
//! move is *revoking*: its owner stops fetching it, finishes what is in hand, and releases it with
//! the final offset; nobody else gets it before that, or before the drain deadline.

use serde::{Deserialize, Serialize};

use super::error_code::Refusal;
use super::offsets::{PositionV1, StartV1};
use super::topics::DoneV1;
use super::{Call, RequestKind};
use crate::config::MEMBER_ID_LIMIT_BYTES;

/// The longest member id, in bytes.
pub const MEMBER_ID_MAX_BYTES: usize = MEMBER_ID_LIMIT_BYTES;

/// Who speaks for a group. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberV1 {
    /// The group.
    pub group: String,
    /// The member's id: fixed in its configuration, or made when it started.
    pub member: String,
    /// Which run of that member it is: of two, the greater one is the newer.
    pub incarnation: u64,
}

/// Makes the sender a member. The same incarnation joining again changes its subscription, and
/// does no harm otherwise; a newer one fences the older for good. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGroupV1 {
    /// Who joins.
    pub member: MemberV1,
    /// The topics that it reads, by name.
    pub topics: Vec<String>,
    /// Where partitions start for which the group has nothing committed, when it first subscribes
    /// to their topic. Partitions that are added later start at 0.
    pub start: StartV1,
    /// The member counts as gone when nothing is heard of it for so long; in milliseconds.
    pub session_timeout: u64,
    /// How long it may take to release a partition that is revoked; in milliseconds.
    pub drain_timeout: u64,
    /// How long a record may be in its hands; in milliseconds.
    pub processing_timeout: u64,
}

/// What answers it. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGroupReplyV1 {
    /// The longest time between two heartbeats, in milliseconds; also the longest that one waits.
    pub heartbeat_every: u64,
    /// The session timeout in force, in milliseconds.
    pub session_timeout: u64,
}

/// A partition in the hands of a member. Frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldV1 {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The epoch of the grant.
    pub epoch: u64,
    /// Whether it knows that the partition is revoked: it hands nothing new over.
    pub draining: bool,
}

/// Says what a member holds. Waits for a change, if what it should hold is just that. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatV1 {
    /// Who speaks.
    pub member: MemberV1,
    /// All that it holds.
    pub holds: Vec<HeldV1>,
    /// The version of the last reply that it has acted on; 0 if there was none.
    pub seen_version: u64,
    /// How long the oldest record has been in its hands, in milliseconds; 0 if there is none.
    pub processing: u64,
    /// The longest that the reply may wait, in milliseconds.
    pub max_wait: u64,
}

/// A partition that a member should hold. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantV1 {
    /// The topic's name.
    pub topic: String,
    /// Its id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The epoch of the grant. A member takes a grant only if this is above any it has seen there.
    pub epoch: u64,
    /// Where the grant starts.
    pub position: PositionV1,
    /// If it is revoked: how long until it is taken away by force, in milliseconds.
    pub revoked_for: Option<u64>,
}

/// What answers a heartbeat. What the member holds and is not listed here is lost. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReplyV1 {
    /// Changes whenever `grants` does.
    pub version: u64,
    /// All that the member should hold.
    pub grants: Vec<GrantV1>,
}

/// Gives a partition back. The next owner starts where this says. Answered when it is durable;
/// repeating it does no harm. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePartitionV1 {
    /// Who speaks.
    pub member: MemberV1,
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// The epoch of the grant.
    pub epoch: u64,
    /// The final position; none leaves what was committed last.
    pub position: Option<PositionV1>,
}

/// Ends a membership. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveGroupV1 {
    /// Who speaks.
    pub member: MemberV1,
    /// None: everything it holds is revoked; it drains, releases, and is gone then, or when its
    /// connection closes. Else: it hands nothing over any more, and what it holds is kept for its
    /// next incarnation for so many milliseconds.
    pub keep: Option<u64>,
}

/// One group. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribeGroupV1 {
    /// Its name.
    pub group: String,
}

/// A group with its members and partitions. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupV1 {
    /// Its name.
    pub group: String,
    /// Its members, by id.
    pub members: Vec<GroupMemberV1>,
    /// Its partitions, by topic and number: those that it reads or has committed something for.
    pub partitions: Vec<GroupPartitionV1>,
    /// How many hand-overs were forced since the server started: the old owner had not released.
    pub forced: u64,
}

/// A member of a group. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMemberV1 {
    /// Its id.
    pub member: String,
    /// Which run of it.
    pub incarnation: u64,
    /// The client id of its connection.
    pub client_id: String,
    /// Where it connects from.
    pub address: String,
    /// What it reads.
    pub topics: Vec<String>,
    /// Whether it is leaving.
    pub leaving: bool,
    /// How long ago it was heard of, in milliseconds.
    pub heard: u64,
    /// How long a record has been in its hands, in milliseconds.
    pub processing: u64,
}

/// A partition of a group. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPartitionV1 {
    /// The topic's name.
    pub topic: String,
    /// The topic's id.
    pub topic_id: u128,
    /// The partition.
    pub partition: u32,
    /// Who holds it.
    pub owner: Option<String>,
    /// The epoch of its last grant; 0 if there was none.
    pub epoch: u64,
    /// Whether it is being taken back.
    pub revoking: bool,
    /// What is committed.
    pub committed: Option<PositionV1>,
    /// When that was, in milliseconds since 1970.
    pub committed_at: Option<i64>,
    /// The oldest offset that is left.
    pub log_start: u64,
    /// One past the newest record that can be read.
    pub end: u64,
    /// How long ago the next record to read was stamped, in milliseconds; none if there is none.
    pub lag_time: Option<u64>,
    /// Why the partition can't be read, if it can't.
    pub refusal: Option<Refusal>,
}

/// The groups there are. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListGroupsV1 {}

/// A group in a list. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLineV1 {
    /// Its name.
    pub group: String,
    /// How many members it has.
    pub members: u32,
    /// For how many partitions it has committed something.
    pub partitions: u32,
}

/// What answers it. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListGroupsReplyV1 {
    /// The groups, by name.
    pub groups: Vec<GroupLineV1>,
}

/// Forgets a group without members, and what it has committed. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteGroupV1 {
    /// Its name.
    pub group: String,
}

impl Call for JoinGroupV1 {
    const KIND: RequestKind = RequestKind::JoinGroup;
    type Reply = JoinGroupReplyV1;
}

impl Call for HeartbeatV1 {
    const KIND: RequestKind = RequestKind::Heartbeat;
    type Reply = HeartbeatReplyV1;
}

impl Call for ReleasePartitionV1 {
    const KIND: RequestKind = RequestKind::ReleasePartition;
    type Reply = DoneV1;
}

impl Call for LeaveGroupV1 {
    const KIND: RequestKind = RequestKind::LeaveGroup;
    type Reply = DoneV1;
}

impl Call for DescribeGroupV1 {
    const KIND: RequestKind = RequestKind::DescribeGroup;
    type Reply = GroupV1;
}

impl Call for ListGroupsV1 {
    const KIND: RequestKind = RequestKind::ListGroups;
    type Reply = ListGroupsReplyV1;
}

impl Call for DeleteGroupV1 {
    const KIND: RequestKind = RequestKind::DeleteGroup;
    type Reply = DoneV1;
}
