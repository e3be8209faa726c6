//! Groups: who reads what. Without members, there are no grants.

use std::sync::Arc;

use log_core::protocol::fetch::GroupReader;
use log_core::protocol::{ErrorCode, Refusal};

use crate::context::Peer;

/// Keeps the groups of a server.
#[derive(Debug)]
pub(crate) struct Coordinator {}

/// What a member may read.
#[derive(Debug)]
pub(crate) struct MemberGrants {}

impl Coordinator {
    pub(crate) fn new() -> Arc<Coordinator> {
        Arc::new(Coordinator {})
    }

    pub(crate) fn reader(&self, reader: &GroupReader) -> Result<Arc<MemberGrants>, Refusal> {
        let what = format!("there is no group {}", reader.group);
        Err(Refusal::new(ErrorCode::UnknownGroup, what))
    }

    pub(crate) fn connection_closed(&self, _peer: &Peer) {}

    pub(crate) fn topics_changed(&self) {}

    pub(crate) async fn run(&self) {}

    pub(crate) fn stop(&self) {}
}

impl MemberGrants {
    pub(crate) fn check(&self, _topic: u128, _partition: u32, _epoch: u64) -> Result<(), Refusal> {
        Ok(())
    }

    pub(crate) fn when_changed(&self, _then: impl FnOnce() + Send + 'static) {}
}
