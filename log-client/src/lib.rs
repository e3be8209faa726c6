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
//! The members of a group share the partitions of their topics. One that joins waits until another
//! has released what it gets, and starts where that one has ended; what a member that dies had in
//! hand is read again by the next. What `next` has handed over is done when `next` is called again,
//! and is committed every now and then: at least once, each record in its partition's order.
//!
//! ```
//! # use log_client::{Client, Record};
//! # use log_core::{StartFrom, TopicConfig};
//! # let dir = tempfile::tempdir()?;
//! # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let client = Client::connect(server.address().to_string()).await?;
//! # client.admin().create_topic("orders", 1, &TopicConfig::default()).await?;
//! # let producer = client.producer().build()?;
//! # for value in ["placed", "paid", "sent"] {
//! #     producer.send_and_wait("orders", &Record::new(value.as_bytes())).await?;
//! # }
//! let group = client.consumer().group("billing").topics(["orders"]).start(StartFrom::Earliest);
//! let mut consumer = group.build().await?;
//! let first = consumer.next().await?.ok_or("it was stopped")?;
//! assert_eq!((first.offset, first.value.as_deref()), (0, Some(b"placed".as_slice())));
//! consumer.next().await?;
//! // Commits what is done, and gives the partitions back: the next member starts behind it.
//! consumer.close().await?;
//! assert_eq!(client.admin().committed_offsets("billing", None).await?[0].position.offset, 2);
//!
//! // Alone, from any place, as an audit does it.
//! let mut audit = client.consumer().assign([("orders", 0, StartFrom::Offset(1))]).build().await?;
//! assert_eq!(audit.next().await?.ok_or("it was stopped")?.offset, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ConsumerHandle`] pauses, seeks, marks records as done out of order, and tells of
//! [`ConsumerEvent`]s: which partitions came, which have to be given back by when, which are lost.
//!
//! # Looking after it
//!
//! ```
//! # use log_client::{Client, Record, ResetRun};
//! # use log_core::{StartFrom, TopicConfig};
//! # let dir = tempfile::tempdir()?;
//! # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let client = Client::connect(server.address().to_string()).await?;
//! let admin = client.admin();
//! admin.create_topic("orders", 2, &TopicConfig::default()).await?;
//! admin.add_partitions("orders", 4).await?;
//! assert_eq!(admin.describe_topic("orders").await?.partitions.len(), 4);
//! # let producer = client.producer().build()?;
//! # producer.send_to("orders", 0, &Record::new(b"placed")).await?.await?;
//! admin.commit_offset("billing", "orders", 0, 1).await?;
//! // A dry run tells what would be done; the same call without it does it.
//! let (to, run) = (StartFrom::Earliest, ResetRun::Dry);
//! let would = admin.reset_offsets("billing", "orders", &[0], to, run).await?;
//! assert_eq!((would[0].from, &would[0].to), (Some(1), &Ok(0)));
//! admin.trim_partition("orders", 0, 1).await?;
//! admin.delete_group("billing").await?;
//! admin.delete_topic("orders").await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
