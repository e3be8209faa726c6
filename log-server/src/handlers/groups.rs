//! Groups: join, heartbeat, release, leave; describe, list, delete.

use log_core::protocol::Refusal;
use log_core::protocol::groups::{
    DeleteGroupV1, DescribeGroupV1, GroupV1, HeartbeatReplyV1, HeartbeatV1, JoinGroupReplyV1,
    JoinGroupV1, LeaveGroupV1, ListGroupsReplyV1, ListGroupsV1, ReleasePartitionV1,
};
use log_core::protocol::topics::DoneV1;

use crate::context::{Context, Peer};

/// Makes the sender a member.
pub(crate) async fn join(
    context: &Context,
    peer: &Peer,
    request: JoinGroupV1,
) -> Result<JoinGroupReplyV1, Refusal> {
    context.coordinator.join(peer, request).await
}

/// Says what a member should hold, once that is not what it holds.
pub(crate) async fn heartbeat(
    context: &Context,
    peer: &Peer,
    request: HeartbeatV1,
) -> Result<HeartbeatReplyV1, Refusal> {
    context.coordinator.heartbeat(peer, request).await
}

/// Takes a partition back from its owner.
pub(crate) async fn release(
    context: &Context,
    peer: &Peer,
    request: ReleasePartitionV1,
) -> Result<DoneV1, Refusal> {
    context.coordinator.release(peer, request).await
}

/// Ends a membership.
pub(crate) async fn leave(
    context: &Context,
    peer: &Peer,
    request: LeaveGroupV1,
) -> Result<DoneV1, Refusal> {
    context.coordinator.leave(peer, request).await
}

/// One group, with its members and partitions.
pub(crate) async fn describe(
    context: &Context,
    peer: &Peer,
    request: DescribeGroupV1,
) -> Result<GroupV1, Refusal> {
    context.coordinator.describe(peer, request).await
}

/// The groups there are.
pub(crate) async fn list(
    context: &Context,
    peer: &Peer,
    request: ListGroupsV1,
) -> Result<ListGroupsReplyV1, Refusal> {
    context.coordinator.list(peer, request).await
}

/// Forgets a group without members.
pub(crate) async fn delete(
    context: &Context,
    peer: &Peer,
    request: DeleteGroupV1,
) -> Result<DoneV1, Refusal> {
    context.coordinator.delete(peer, request).await
}
