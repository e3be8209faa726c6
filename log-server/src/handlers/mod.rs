//! Handlers: what answers requests, a file for each noun of the protocol.

pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod hello;
pub(crate) mod metrics;
pub(crate) mod offsets;
pub(crate) mod produce;
pub(crate) mod resolve;
pub(crate) mod topics;
