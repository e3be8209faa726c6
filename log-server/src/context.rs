//! Context: what all connections of a server share; Peer: who is at the other end of one.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::groups::Coordinator;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) coordinator: Arc<Coordinator>,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The connection: no other of this server has, or had, the same.
    pub(crate) id: u64,
    /// What it calls itself; not proven.
    pub(crate) client_id: String,
    /// Where it connects from.
    pub(crate) address: SocketAddr,
}
