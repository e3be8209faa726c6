//! Hello: the first request of a connection; who speaks, and what the server knows and allows.

use serde::{Deserialize, Serialize};

use super::{Call, RequestKind};

/// The most bytes of a frame before the hello was answered.
pub const HELLO_LIMIT_BYTES: usize = 1024;
/// The longest client id, in bytes.
pub const CLIENT_ID_MAX_BYTES: usize = 200;

/// The first request. Its version 1 is understood by every server to come. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloV1 {
    /// A name for logs and metrics; not proven.
    pub client_id: String,
    /// The client's software and its version, for logs.
    pub software: String,
}

/// Versions of a request that the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsV1 {
    /// The number of the request's kind.
    pub kind: u16,
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

/// What answers a hello. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReplyV1 {
    /// The server's version, for people.
    pub server_version: String,
    /// Random, made when the server starts: a client sees that it was restarted.
    pub boot_id: u64,
    /// The server's wall clock, in milliseconds.
    pub server_time: i64,
    /// What it answers; what is not listed, it refuses.
    pub versions: Vec<VersionsV1>,
    /// The most bytes that may follow the length of a frame, either way.
    pub frame_max_bytes: u32,
    /// The most produce requests of a connection that may wait for their reply.
    pub produce_in_flight_max: u32,
    /// The most fetches of a connection that may wait for their reply.
    pub fetch_in_flight_max: u32,
    /// Ways to authenticate; none is asked for yet.
    pub authentication: Vec<String>,
}

impl Call for HelloV1 {
    const KIND: RequestKind = RequestKind::Hello;
    type Reply = HelloReplyV1;
}
