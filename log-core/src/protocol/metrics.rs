//! Metrics: what a server has counted since it started.

use serde::{Deserialize, Serialize};

use super::{Call, RequestKind};

/// Asks for everything. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsV1 {}

/// A number with its name. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricV1 {
    /// Its name, with its unit: `produced_bytes`.
    pub name: String,
    /// Its value now.
    pub value: u64,
}

/// What answers it. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsReplyV1 {
    /// The server's version.
    pub server_version: String,
    /// How long it has been up, in milliseconds.
    pub uptime: u64,
    /// All numbers, sorted by name.
    pub metrics: Vec<MetricV1>,
}

impl Call for MetricsV1 {
    const KIND: RequestKind = RequestKind::Metrics;
    type Reply = MetricsReplyV1;
}
