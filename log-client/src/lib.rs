//! The client of the event log.

mod admin;
mod backoff;
mod client;
mod config;
mod connection;
pub mod consumer;
mod error;
mod link;
mod producer;

pub use admin::{Admin, ResetRun, TopicDescription};
pub use backoff::{Backoff, BackoffPolicy};
pub use client::Client;
pub use config::ClientConfig;
pub use consumer::{
    CommitMode, Consumer, ConsumerBuilder, ConsumerEvent, ConsumerHandle, ConsumerRecord,
};
pub use error::{Error, Result};
pub use log_core::protocol::groups::{
    GroupLineV1 as GroupLine, GroupMemberV1 as GroupMember, GroupPartitionV1 as GroupPartition,
    GroupV1 as Group,
};
pub use log_core::protocol::metrics::{MetricV1 as Metric, MetricsReplyV1 as Metrics};
pub use log_core::protocol::offsets::{
    CommittedV1 as Committed, PositionV1 as Position, ResetV1 as Reset,
    ResolveOffsetReplyV1 as ResolvedOffset,
};
pub use log_core::protocol::produce::Acks;
pub use log_core::protocol::topics::{PartitionEndsV1 as PartitionEnds, TopicLineV1 as TopicLine};
pub use producer::{
    Appended, Delivery, IN_FLIGHT_LIMIT, Producer, ProducerBuilder, ProducerConfig,
};
