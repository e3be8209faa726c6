//! Error: one for the crate; its variants are what a caller can act on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::name::TopicName;
use crate::offset::{Offset, OffsetRange};

/// `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, where, and what to do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused or failed a call.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: "open", "sync", …
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },

    /// There is no room on the disk. Nothing was changed; free some space and try again.
    #[error(
        "cannot {action} {}: the disk is full; free some space, then try again", path.display()
    )]
    DiskFull {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
    },

    /// Stored bytes are not what was written.
    #[error("{0}")]
    Corrupt(Corruption),

    /// The offset is not in the partition.
    #[error("offset {offset} is out of range: the partition holds {log_start}..{end}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The oldest offset that is left.
        log_start: Offset,
        /// One past the newest.
        end: Offset,
    },

    /// The partition does not end where the caller expected; nothing was appended.
    #[error("the partition ends at {actual}, not at {expected} as expected")]
    EndConflict {
        /// Where the caller expected the end.
        expected: Offset,
        /// Where it is.
        actual: Offset,
    },

    /// The name breaks the rules for names.
    #[error("illegal {kind} name {name:?}: {why}")]
    IllegalName {
        /// "topic" or "group".
        kind: &'static str,
        /// The name as it came, shortened.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },

    /// A setting makes no sense.
    #[error("illegal value for {setting}: {why}")]
    IllegalConfig {
        /// The setting's name.
        setting: &'static str,
        /// What is wrong with its value, and what it may be.
        why: String,
    },

    /// No topic has this name.
    #[error("topic {0} does not exist; create it first")]
    UnknownTopic(TopicName),

    /// No topic has this id.
    #[error(
        "no topic has the id {0:032x}: it was deleted, or is another store's; look it up by name"
    )]
    UnknownTopicId(u128),

    /// A topic with this name exists.
    #[error("topic {0} exists already")]
    TopicExists(TopicName),

    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}: it has {partitions}")]
    UnknownPartition {
        /// The topic.
        topic: TopicName,
        /// What was asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },

    /// Something is larger than its limit.
    #[error("{what} of {actual} is over the limit of {limit}")]
    TooLarge {
        /// What it is: "record", "batch", …, with its unit.
        what: &'static str,
        /// How large it is.
        actual: u64,
        /// How large it may be.
        limit: u64,
    },

    /// A batch or record that a producer sent does not follow the format; nothing was appended.
    #[error("malformed batch: {0}")]
    Malformed(Fault),

    /// The producer skipped a sequence number: something it sent before is missing.
    #[error(
        "producer {producer_id} sent sequence {actual} where {expected} is next: \
         send what is missing first"
    )]
    SequenceGap {
        /// The producer.
        producer_id: u64,
        /// The next sequence number.
        expected: u32,
        /// What came.
        actual: u32,
    },

    /// The partition remembers nothing of this producer, or not that far back; take a new
    /// producer id and start at sequence 0.
    #[error("producer {producer_id} is unknown here (sequence {sequence}): take a new producer id")]
    ProducerUnknown {
        /// The producer.
        producer_id: u64,
        /// The sequence number that came.
        sequence: u32,
    },

    /// A newer instance of this producer has written; this one must stop.
    #[error("producer {producer_id} epoch {epoch} is fenced off by epoch {current}")]
    ProducerFenced {
        /// The producer.
        producer_id: u64,
        /// The epoch that came.
        epoch: u16,
        /// The epoch in force.
        current: u16,
    },

    /// A sync failed: what was written since the last good one may or may not be on disk. The
    /// partition takes no writes until the store is opened again, which reads the truth.
    #[error(
        "outcome unknown: a sync of {} failed ({source}); open the store again to learn what is \
         on disk",
        path.display()
    )]
    SyncFailed {
        /// The file.
        path: PathBuf,
        /// What the system said, the first time.
        source: Arc<io::Error>,
    },

    /// Recovery could not prove where the partition ends, so appending could use an offset twice.
    #[error(
        "{} takes no writes: its end cannot be proven (it is at least {at_least}); look with \
         `logctl check`, then decide with `logctl repair`",
        path.display()
    )]
    EndUnproven {
        /// The partition's directory.
        path: PathBuf,
        /// An end that is proven to have been reached.
        at_least: Offset,
    },

    /// The store was opened for reading only.
    #[error("{} is open for reading only", path.display())]
    ReadOnly {
        /// The data directory.
        path: PathBuf,
    },

    /// Another process has the data directory open.
    #[error("{} is in use by another process: its LOCK is held", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },

    /// There is no store at this place.
    #[error("there is no store in {}: create one, or check the path", path.display())]
    NoStore {
        /// The data directory.
        path: PathBuf,
    },

    /// A newer release wrote this; this one does not know the format.
    #[error(
        "{} has format version {found}, this release reads up to {supported}: use a newer one",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version, or the feature bits that are not known.
        found: u32,
        /// What this release reads.
        supported: u32,
    },

    /// A committed offset may not go back, except by a reset.
    #[error(
        "group {group} has committed {committed} for {topic}/{partition}, and may not go back to \
         {offset}; use a reset if that is meant"
    )]
    OffsetWentBack {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: u32,
        /// What is committed.
        committed: Offset,
        /// What came.
        offset: Offset,
    },

    /// A group can't commit an offset that is not there yet: what comes after it would be skipped.
    #[error(
        "group {group} can't commit {offset} for {topic}/{partition}: the partition ends at {end}"
    )]
    OffsetBeyondEnd {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: u32,
        /// What came.
        offset: Offset,
        /// One past the newest record that can be read.
        end: Offset,
    },

    /// What a group says it has settled above its committed offset makes no sense.
    #[error("group {group} can't commit these settled ranges for {topic}/{partition}: {why}")]
    IllegalSettled {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: u32,
        /// What is wrong with them.
        why: &'static str,
    },

    /// A grant needs an epoch that was not given before; the owner of one that was may only go.
    #[error(
        "group {group} can't give {topic}/{partition} with epoch {epoch}: epoch {granted} was \
         given; take a higher one"
    )]
    GrantWentBack {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: u32,
        /// The epoch of the last grant.
        granted: u64,
        /// What came.
        epoch: u64,
    },

    /// A group has no position where its partition was to be given to a member.
    #[error(
        "group {group} has no position for {topic}/{partition}: commit where it begins before the \
         partition is given to anybody, or with it"
    )]
    NoPosition {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: u32,
    },

    /// The topic was deleted, and another one has its name now.
    #[error("topic {0} was deleted and made anew: look it up again, and start from its beginning")]
    StaleTopic(TopicName),

    /// The list of topics can't be read, so nothing is opened; the topics' files are untouched.
    #[error(
        "{} is damaged ({fault}): put a backup of it back, or have it made anew from the topics' \
         directories with `logctl repair`",
        path.display()
    )]
    CatalogDamaged {
        /// The catalog's file.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },

    /// The store, or the topic, was closed or deleted while it was in use.
    #[error("{what} is closed")]
    Closed {
        /// "store" or "topic".
        what: &'static str,
    },
}

impl Error {
    /// An I/O error with its place; a full disk gets its own variant.
    #[must_use]
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(source.kind(), StorageFull | QuotaExceeded) {
            return Error::DiskFull { action, path: path.to_path_buf() };
        }
        Error::Io { action, path: path.to_path_buf(), source: Arc::new(source) }
    }

    /// Whether the same call may succeed later without anybody changing the request.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::Locked { .. })
    }
}

/// Bytes on disk that are not what was written: which file, where, which offsets, what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub path: PathBuf,
    /// Where in the file the bad bytes begin.
    pub position: u64,
    /// The offsets that can't be read; a reader may go on at their end.
    pub offsets: OffsetRange,
    /// What is wrong there.
    pub fault: Fault,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt data in {} at byte {}", self.path.display(), self.position)?;
        if !self.offsets.is_empty() {
            write!(f, " (offsets {})", self.offsets)?;
        }
        write!(f, ": {}", self.fault)?;
        if !self.offsets.is_empty() {
            write!(f, "; records from {} on can be read", self.offsets.end)?;
        }
        Ok(())
    }
}

/// What is wrong with some bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file is not there.
    #[error("the file is missing")]
    FileMissing,
    /// The file ends too early.
    #[error("the file ends after {actual} bytes, {expected} are needed")]
    FileShort {
        /// How long it is.
        actual: u64,
        /// How long it must be at least.
        expected: u64,
    },
    /// Bytes end in the middle of something.
    #[error("{what} ends in the middle")]
    Truncated {
        /// What.
        what: &'static str,
    },
    /// The magic number is not there.
    #[error("magic number is {found:08x}, expected {expected:08x}")]
    Magic {
        /// What is there.
        found: u32,
        /// What should be.
        expected: u32,
    },
    /// A checksum does not match.
    #[error("{what} checksum is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// The checksum of the bytes that are there.
        found: u32,
        /// The checksum that is written.
        expected: u32,
    },
    /// A field has a value that it can't have.
    #[error("{field} is {value}, which it can't be")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// Offsets do not follow on those before them.
    #[error("the next offset is {found}, expected {expected}")]
    OffsetJump {
        /// What is there.
        found: Offset,
        /// What should be.
        expected: Offset,
    },
    /// A length, count or size within a record is wrong.
    #[error("record {index} is malformed: {what}")]
    Record {
        /// Which record of the batch, from 0.
        index: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The batch expands to more than it may, or not at all.
    #[error("the batch does not decompress: {what}")]
    Compression {
        /// What is wrong.
        what: String,
    },
    /// The format version, or a feature that must be understood, is not known.
    #[error("{what} {found} is not known to this release")]
    Unknown {
        /// "version", "feature bits", "codec".
        what: &'static str,
        /// What is there.
        found: u32,
    },
    /// A structure does not decode to what it should be.
    #[error("the structure is malformed: {what}")]
    Structure {
        /// What is wrong.
        what: String,
    },
}
