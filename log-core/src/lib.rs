//! An append-only, partitioned, durable event log.

pub mod background;
pub mod clock;
pub mod config;
pub mod disk;
pub mod error;
pub mod metrics;
pub mod name;
pub mod offset;
pub mod partition;
pub mod partitioner;
pub mod record;
pub mod segment;
