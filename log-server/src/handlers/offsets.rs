//! Offsets: commit, fetch, reset.

use log_core::protocol::Refusal;
use log_core::protocol::offsets::{
    CommitOffsetsReplyV1, CommitOffsetsV1, FetchOffsetsReplyV1, FetchOffsetsV1,
    ResetOffsetsReplyV1, ResetOffsetsV1,
};

use crate::context::{Context, Peer};

/// Commits offsets of a group.
pub(crate) async fn commit(
    context: &Context,
    peer: &Peer,
    request: CommitOffsetsV1,
) -> Result<CommitOffsetsReplyV1, Refusal> {
    context.coordinator.commit(peer, request).await
}

/// What a group has committed.
pub(crate) async fn fetch_offsets(
    context: &Context,
    peer: &Peer,
    request: FetchOffsetsV1,
) -> Result<FetchOffsetsReplyV1, Refusal> {
    context.coordinator.fetch_offsets(peer, request).await
}

/// Sets committed offsets, back, too.
pub(crate) async fn reset(
    context: &Context,
    peer: &Peer,
    request: ResetOffsetsV1,
) -> Result<ResetOffsetsReplyV1, Refusal> {
    context.coordinator.reset(peer, request).await
}
