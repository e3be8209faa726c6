//! An append-only, partitioned, durable event log, to embed.
//!
//! A [`Store`] is a directory. It has topics; a [`Topic`] has partitions; a [`Partition`] is a log
//! of records, each with an [`Offset`]. Records are appended at the end and read from any offset,
//! again and again. What was acknowledged survives a power cut, unless the topic says otherwise
//! ([`FlushPolicy`]); what the disk damages is found, named and isolated.
//!
//! ```
//! use log_core::{GroupName, OpenMode, Record, Store, StoreConfig, TopicConfig, TopicName};
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let store = Store::open(dir, StoreConfig::default(), OpenMode::CreateIfMissing)?;
//! let name = TopicName::parse("orders")?;
//! let orders = store.create_topic(&name, 4, TopicConfig::default())?;
//!
//! // Records of one key are in one partition, in order. On disk when `append` returns.
//! let (number, placed) = orders.append(&Record::new(b"placed").with_key(b"order-7"))?;
//! let (same, paid) = orders.append(&Record::new(b"paid").with_key(b"order-7"))?;
//! assert_eq!((same, paid.base_offset), (number, placed.base_offset + 1));
//!
//! // Read from an offset, a group of batches at a time.
//! let partition = orders.partition(number)?;
//! let mut seen = Vec::new();
//! let mut next = partition.ends().log_start;
//! while next < partition.readable_end() {
//!     let fetched = partition.read(next, 64 * 1024)?;
//!     fetched.for_each(|record| seen.push(record.value.map(<[u8]>::to_vec)))?;
//!     next = fetched.next;
//! }
//! assert_eq!(seen, [Some(b"placed".to_vec()), Some(b"paid".to_vec())]);
//!
//! // A group keeps how far it has read: the next offset, durably.
//! let billing = GroupName::parse("billing")?;
//! store.group_offsets().commit(&billing, &name, number, next)?;
//! store.close()?;
//!
//! let store = Store::open(dir, StoreConfig::default(), OpenMode::MustExist)?;
//! let committed = store.group_offsets().fetch(&billing, &name, number)?;
//! assert_eq!(committed.map(|committed| committed.offset), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! - *Record*: one event: key, value, headers, timestamp. *Batch*: records that are stored and
//!   checked together, all or none.
//! - *Offset*: a record's number in its partition, from 0. *Position*: a byte's place in a file.
//!   Ends are exclusive: `end` is the offset of the next record.
//! - *Segment*: one file of a partition. The *active* one is written; *sealed* ones never are again.
//!   To *roll* is to begin the next one.
//! - `log_start`, `durable_end`, `end`: the oldest offset left; one past what is known to be on
//!   disk; one past the newest. *Readable end*: where readers stop, which is `durable_end` for a
//!   topic that syncs.
//! - *Flush* hands bytes to the operating system, *sync* has them on the disk.
//! - *Group*: readers that share the work; its *committed offset* is the next one to read.
//!
//! # Map
//!
//! - [`store`]: the directory, the catalog of topics, committed offsets. Start here.
//! - [`partition`]: one log: append, group commit, read, recovery, retention.
//! - [`record`]: records and batches; the one format of disk and wire.
//! - [`disk`], [`clock`], [`background`]: the doors to files, time and threads, which tests replace.
//! - [`config`], [`error`], [`metrics`]: every limit, every failure, every count.
//! - [`protocol`]: what client and server say to each other, as bytes; no part of the engine.
//! - [`name`], [`offset`], [`partitioner`]: names, offsets, key to partition.
//!
//! What is not documented here is the engine's inside: public for its tests and benches, and may
//! change at any time.
//!
//! The engine is synchronous, prints nothing, and never panics on what it reads.

pub mod background;
pub mod clock;
#[doc(hidden)]
pub mod codec;
pub mod config;
pub mod disk;
pub mod error;
pub mod metrics;
pub mod name;
pub mod offset;
pub mod partition;
pub mod partitioner;
pub mod protocol;
pub mod record;
#[doc(hidden)]
pub mod segment;
pub mod store;

// It shows the simulated disk, too.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;

pub use clock::Timestamp;
pub use config::{FlushPolicy, RetentionPolicy, StoreConfig, TopicConfig};
pub use error::{Corruption, Error, Fault, Result};
pub use name::{GroupName, TopicName};
pub use offset::{Offset, OffsetRange, StartFrom};
pub use partition::{Appended, Ends, Fetched, Partition, RecoveryReport};
pub use record::{BatchBuilder, Codec, Header, Record, RecordView};
pub use store::{Committed, GroupOffsets, OffsetCommit, OpenMode, Store, Topic};
pub use store::{EntryChange, Grant, Moves, NewPosition, Owner};
