//! The client of the event log.

pub mod consumer;
