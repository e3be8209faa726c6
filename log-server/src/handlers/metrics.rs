//! Metrics: what the server has counted.

use log_core::protocol::Refusal;
use log_core::protocol::metrics::{MetricsReplyV1, MetricsV1};

use crate::context::{Context, Peer};

/// All numbers.
pub(crate) async fn metrics(
    context: &Context,
    _peer: &Peer,
    _request: MetricsV1,
) -> Result<MetricsReplyV1, Refusal> {
    let up = context.clock.monotonic().saturating_sub(context.started);
    Ok(MetricsReplyV1 {
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
        metrics: context.metrics.report(context.store.metrics()),
    })
}
