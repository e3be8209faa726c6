//! Handlers: what answers requests, a file for each noun of the protocol.

pub(crate) mod groups;
pub(crate) mod offsets;
