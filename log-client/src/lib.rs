//! The client of the event log.
//!
//! A [`Client`] knows a server. From it come an [`Admin`] for topics, groups and offsets, a
//! [`Producer`] that sends records, and a [`Consumer`] that reads them, each with a connection of
//! its own. It runs on the tokio runtime that it finds, and has no threads.
//!
//! ```
//! use log_client::{Client, Record};
//! use log_core::TopicConfig;
//!
//! # let dir = tempfile::tempdir()?;
//! # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
//! # let address = server.address().to_string();
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let client = Client::connect(address).await?;
//! client.admin().create_topic("orders", 4, &TopicConfig::default()).await?;
//!
//! let producer = client.producer().build()?;
//! // Waits for room in the buffer; the delivery tells when it is on disk, and where.
//! let placed = producer.send("orders", &Record::new(b"placed").with_key(b"order-7")).await?;
//! let paid = producer.send("orders", &Record::new(b"paid").with_key(b"order-7")).await?;
//! let (placed, paid) = (placed.await?, paid.await?);
//! assert_eq!(paid.partition, placed.partition);
//! assert!(paid.offset > placed.offset);
//! producer.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a call ends with
//!
//! Every call ends once and within its time: in what it asked for, in an error that says that
//! nothing was changed, or in [`Error::OutcomeUnknown`]. What is harmless to repeat is repeated
//! over reconnects, and while the server refuses for the time being; what is not, only if the
//! server has surely not seen it.
//!
//! # Sending
//!
//! Records are gathered into batches: an idle partition's is sent at once, in the call that sends;
//! while one is under way, the next one gathers. Batches are numbered, so that each is appended
//! once and in order over retries, reconnects and restarts of the server. For many records at
//! once there is [`Producer::send_batch`], all or none of them; and an append that depends on
//! nobody else having written is conditional:
//!
//! ```
//! # use log_client::{Client, Record};
//! # use log_core::{TopicConfig, protocol::ErrorCode};
//! # let dir = tempfile::tempdir()?;
//! # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let client = Client::connect(server.address().to_string()).await?;
//! # client.admin().create_topic("account", 1, &TopicConfig::default()).await?;
//! let producer = client.producer().build()?;
//! let opened = producer.append_at("account", 0, &[Record::new(b"opened")], 0).await?;
//! assert_eq!(opened.offset, Some(0));
//! let late = producer.append_at("account", 0, &[Record::new(b"opened")], 0).await;
//! assert_eq!(late.unwrap_err().code(), Some(ErrorCode::EndConflict));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading
//!
//! A [`Consumer`] is a member of a group, which shares the partitions of its topics; or reads
//! partitions of its own; or all that is appended from now on. What it has handed over is done once
//! it is asked for more, and committed then, each second: at least once. Marks in any order, and at
//! most once, are [`CommitMode`]s. Its page has examples of each.
//!
//! ```
//! # use log_client::{Client, Record};
//! # use log_core::{StartFrom, TopicConfig};
//! # let dir = tempfile::tempdir()?;
//! # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let client = Client::connect(server.address().to_string()).await?;
//! # client.admin().create_topic("orders", 4, &TopicConfig::default()).await?;
//! # client.producer().build()?.send_and_wait("orders", &Record::new(b"placed")).await?;
//! let builder = client.consumer().group("billing").topics(["orders"]).start(StartFrom::Earliest);
//! let mut consumer = builder.build().await?;
//! let stop = consumer.handle();
//! while let Some(record) = consumer.next().await? {
//!     println!("{}/{}: {:?}", record.partition, record.offset, record.value);
//!     stop.stop(); // Enough; from anywhere, as where a signal is waited for.
//! }
//! // Commits, and gives the partitions back. An error tells that the last may not be committed.
//! consumer.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What happens beside that is told by [`ConsumerHandle::next_event`]: which partitions are assigned
//! and revoked, what was skipped, and [`ConsumerEvent::CommitFailed`].
//!
//! # Looking after it
//!
//! An [`Admin`] makes, alters and removes topics, tells where partitions begin and end, how far groups
//! are, and sends them elsewhere. Its page has examples.

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
pub use log_core::Record;
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

// It shows all three crates.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
