//! Resolve: the offset that a way of starting means now.

use log_core::protocol::offsets::{ResolveOffsetReplyV1, ResolveOffsetV1};
use log_core::protocol::{ErrorCode, Refusal};
use log_core::{Error, StartFrom};

use crate::context::{Context, Peer};
use crate::engine;

/// Looks it up; on a thread that may wait for the disk, because a time may be far back.
pub(crate) async fn resolve(
    context: &Context,
    _peer: &Peer,
    request: ResolveOffsetV1,
) -> Result<ResolveOffsetReplyV1, Refusal> {
    let start = StartFrom::try_from(request.start);
    let start = start.map_err(|fault| Refusal::new(ErrorCode::Malformed, fault.to_string()))?;
    let refused = |error: Error| engine::refusal_by_id(&error);
    let topic = context.store.topic_by_id(request.topic_id).map_err(refused)?;
    let partition = topic.partition(request.partition).map_err(refused)?;
    let resolved = engine::blocking(move || {
        let offset = partition.resolve(start).map_err(refused)?;
        // The end first: the beginning never passes an end that was seen before it.
        let readable_end = partition.readable_end();
        let log_start = partition.ends().log_start;
        Ok(ResolveOffsetReplyV1 { offset, log_start, readable_end })
    });
    resolved.await
}
