//! Store: a data directory with its topics, their partitions, and the groups' committed offsets.
//!
//! ```text
//! <data>/LOCK                             exclusive while a writer has it open
//! <data>/catalog                          which topics there are; the only commit point for topics
//! <data>/topics/<topic>-<id>/<partition>/ its segments
//! ```
//! A topic's directories are named by a tombstone in the catalog before they are made and before
//! they are removed, so that a crash leaves nothing that nobody knows.

mod catalog;
mod catalog_file;
mod changes;
mod group_offsets;
mod maintenance;
mod open;
mod parallel;
mod rebuild;
mod sweep;
#[cfg(test)]
mod tests;
mod topic;
mod topics;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use self::catalog_file::CatalogFile;
use self::group_offsets::OffsetsShared;
use self::maintenance::MaintenanceThread;
use self::topic::TopicShared;
use self::topics::Topics;
use crate::background::Background;
use crate::clock::{Clock, SystemClock};
use crate::config::{StoreConfig, TopicConfig};
use crate::disk::{Disk, OsDisk};
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::name::TopicName;
use crate::partition::{Ends, PartitionContext, RecoveryReport};

pub use self::catalog::CATALOG_VERSION;
pub use self::group_offsets::{
    Committed, EntryChange, Grant, GroupCommitted, GroupOffsets, Moves, NewPosition, OffsetCommit,
    Owner,
};
pub use self::maintenance::PartitionMaintenance;
pub use self::rebuild::{Rebuild, RebuiltCatalog};
pub use self::sweep::Leftover;
pub use self::topic::Topic;

/// What is expected of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Open the store, or make one where there is none.
    CreateIfMissing,
    /// Open the store; there must be one.
    MustExist,
    /// Open the store to read it, at rest: without its LOCK, without a write, on read-only media,
    /// too. What a writer does meanwhile may be seen in part.
    ReadOnly,
}

/// A handle to an open store; clones share it, and so do the topics they hand out.
///
/// When the last handle goes without [`Store::close`], threads are stopped and the directory is
/// free again, but the stop counts as unclean: the next opening looks for what was lost.
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

/// Stops what runs when the last handle goes.
struct Running {
    shared: Arc<Shared>,
    maintenance: MaintenanceThread,
}

struct Shared {
    data: PathBuf,
    read_only: bool,
    config: StoreConfig,
    context: PartitionContext,
    /// Held over changes of topics, syncs included. Taken before `topics`.
    catalog: Mutex<CatalogFile>,
    topics: RwLock<Topics>,
    /// How often that has changed, the numbers of partitions with it.
    topics_version: AtomicU64,
    /// Held by the one that removes directories. Taken before `catalog`.
    sweeping: Mutex<()>,
    offsets: OffsetsShared,
    leftovers: Vec<Leftover>,
    closed: AtomicBool,
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// What the opening of a partition found.
#[derive(Debug, Clone)]
pub struct PartitionReport {
    /// Its topic.
    pub topic: TopicName,
    /// Its number.
    pub partition: u32,
    /// What recovery did, or why the partition can't be used; the others can.
    pub outcome: Result<RecoveryReport>,
}

/// A topic at a glance.
#[derive(Debug, Clone)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its id.
    pub id: u128,
    /// How it behaves.
    pub config: TopicConfig,
    /// Where each partition begins and ends, or why it can't be used.
    pub partitions: Vec<Result<Ends>>,
}

impl Store {
    /// Opens the store in `dir`, on the machine's disk and clocks.
    ///
    /// # Errors
    /// `NoStore`; `Locked`; `CatalogDamaged`; `NewerFormat`; `IllegalConfig`; `Io`; `DiskFull`. A
    /// partition that is damaged is no error here: see [`Store::reports`].
    pub fn open(dir: impl AsRef<Path>, config: StoreConfig, mode: OpenMode) -> Result<Store> {
        config.check()?;
        let background = Background::threads(config.background_threads_max);
        Store::open_with(
            dir,
            config,
            mode,
            Arc::new(OsDisk),
            Arc::new(SystemClock::new()),
            background,
        )
    }

    /// The same, on a disk, a clock and threads of the caller's choice. Without threads, nothing
    /// happens by itself: see [`Store::maintain`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        dir: impl AsRef<Path>,
        config: StoreConfig,
        mode: OpenMode,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        background: Background,
    ) -> Result<Store> {
        config.check()?;
        let shared = open::open(dir.as_ref(), config, mode, disk, clock, background.clone());
        let shared = Arc::new(shared.inspect_err(|_| background.close())?);
        let maintenance = MaintenanceThread::start(&shared);
        Ok(Store { running: Arc::new(Running { shared, maintenance }) })
    }

    /// Makes a topic, durably, and hands it out. Where it fails, nothing is left of it.
    ///
    /// # Errors
    /// `TopicExists`; `IllegalName` for a reserved one; `IllegalConfig`; `TooLarge` if there are
    /// `topics_max` already; `ReadOnly`; `Closed`; `Io`; `DiskFull`; `SyncFailed` if it is unknown
    /// whether the topic will be there when the store is opened again.
    pub fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        config: TopicConfig,
    ) -> Result<Topic> {
        changes::refuse_reserved(name)?;
        let shared = self.shared().create_topic(name, partitions, config)?;
        Ok(self.hand_out(shared))
    }

    /// A topic.
    ///
    /// # Errors
    /// `UnknownTopic`; `Closed`.
    pub fn topic(&self, name: &TopicName) -> Result<Topic> {
        self.shared().topic(name).map(|shared| self.hand_out(shared))
    }

    /// The topic that has this id, as long as it is there: a topic of the same name that is made
    /// after it has another one.
    ///
    /// # Errors
    /// `UnknownTopicId`; `Closed`.
    pub fn topic_by_id(&self, id: u128) -> Result<Topic> {
        self.shared().topic_by_id(id).map(|shared| self.hand_out(shared))
    }

    /// The topics, by name, without the engine's own.
    #[must_use]
    pub fn topics(&self) -> Vec<Topic> {
        let mut topics = self.all_topics();
        topics.retain(|topic| !topic.name().is_reserved());
        topics
    }

    /// The topics, by name, and the engine's own with them.
    #[must_use]
    pub fn all_topics(&self) -> Vec<Topic> {
        let topics = self.shared().all_topics();
        topics.into_iter().map(|shared| self.hand_out(shared)).collect()
    }

    /// Another number after each change of which topics there are, or how many partitions they
    /// have: a cheap look, for those who keep something that follows from that.
    #[must_use]
    pub fn topics_version(&self) -> u64 {
        self.shared().topics_version.load(Ordering::Acquire)
    }

    /// A topic at a glance.
    ///
    /// # Errors
    /// As [`Store::topic`].
    pub fn describe(&self, name: &TopicName) -> Result<TopicDescription> {
        let topic = self.shared().topic(name)?;
        let slots = topic.slots().into_iter();
        Ok(TopicDescription {
            name: topic.name.clone(),
            id: topic.id,
            config: topic.config(),
            partitions: slots.map(|slot| slot.map(|partition| partition.ends())).collect(),
        })
    }

    /// Removes a topic with all that is in it, and what groups have committed for it. It is gone
    /// when this returns; files that could not be removed yet are removed later.
    ///
    /// # Errors
    /// `UnknownTopic`; `IllegalName` for a reserved one; `ReadOnly`; `Closed`; `Io`; `DiskFull`;
    /// `SyncFailed` if it is unknown whether it will be there when the store is opened again.
    pub fn delete_topic(&self, name: &TopicName) -> Result<()> {
        changes::refuse_reserved(name)?;
        self.shared().delete_topic(name)
    }

    /// Gives a topic more partitions, up to `total`. Records of a key may go to another partition
    /// from then on.
    ///
    /// # Errors
    /// `UnknownTopic`; `IllegalConfig` if it has more already, or `total` is over the limit;
    /// `IllegalName` for a reserved one; `ReadOnly`; `Closed`; `Io`; `DiskFull`; `SyncFailed` if it
    /// is unknown whether they will be there when the store is opened again.
    pub fn add_partitions(&self, name: &TopicName, total: u32) -> Result<()> {
        changes::refuse_reserved(name)?;
        self.shared().add_partitions(name, total)
    }

    /// Makes a topic behave otherwise, from now on.
    ///
    /// # Errors
    /// `UnknownTopic`; `IllegalConfig`; `IllegalName` for a reserved one; `ReadOnly`; `Closed`;
    /// `Io`; `DiskFull`; `SyncFailed` if it is unknown how it will behave when the store is opened
    /// again.
    pub fn alter_topic(&self, name: &TopicName, config: TopicConfig) -> Result<()> {
        changes::refuse_reserved(name)?;
        self.shared().alter_topic(name, config)
    }

    /// What the groups have committed.
    #[must_use]
    pub fn group_offsets(&self) -> GroupOffsets {
        GroupOffsets::new(self.clone())
    }

    /// What the opening of each partition found, the engine's own with them.
    #[must_use]
    pub fn reports(&self) -> Vec<PartitionReport> {
        let mut reports = Vec::new();
        for topic in self.shared().all_topics() {
            for (partition, slot) in (0..).zip(topic.slots()) {
                let outcome = slot.map(|partition| partition.recovery_report().clone());
                reports.push(PartitionReport { topic: topic.name.clone(), partition, outcome });
            }
        }
        reports
    }

    /// What was found beside the topics when the store was opened, and left alone.
    #[must_use]
    pub fn leftovers(&self) -> &[Leftover] {
        &self.shared().leftovers
    }

    /// What the store has done since it was opened.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared().context.metrics
    }

    /// The limits it was opened with.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.shared().config
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.shared().data
    }

    /// Does now what is due: retention, rolls by age, idle markers, removal of files of deleted
    /// topics, snapshots of committed offsets. A thread does it all the time, if the store has
    /// threads. Returns what happened to partitions; nothing stops at a failure.
    #[must_use]
    pub fn maintain(&self) -> Vec<PartitionMaintenance> {
        self.shared().maintain_all()
    }

    /// Closes the store: waits for what is under way, syncs, marks the stop as clean, frees the
    /// directory. Further use of any handle answers `Closed`. A second call does nothing.
    ///
    /// # Errors
    /// The first failure; all partitions are tried, and the directory is freed, all the same.
    pub fn close(&self) -> Result<()> {
        self.running.maintenance.stop();
        self.shared().close()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.running.shared
    }

    fn hand_out(&self, shared: Arc<TopicShared>) -> Topic {
        Topic { shared, store: self.clone() }
    }
}

impl Shared {
    fn topic(&self, name: &TopicName) -> Result<Arc<TopicShared>> {
        self.refuse_closed()?;
        let found = self.topics.read().named(name).cloned();
        found.ok_or_else(|| Error::UnknownTopic(name.clone()))
    }

    fn topic_by_id(&self, id: u128) -> Result<Arc<TopicShared>> {
        self.refuse_closed()?;
        let found = self.topics.read().with_id(id).cloned();
        found.ok_or(Error::UnknownTopicId(id))
    }

    fn all_topics(&self) -> Vec<Arc<TopicShared>> {
        self.topics.read().all().cloned().collect()
    }

    fn topics_dir(&self) -> PathBuf {
        self.data.join(open::TOPICS_DIR)
    }

    fn disk(&self) -> &dyn Disk {
        &*self.context.disk
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn refuse_closed(&self) -> Result<()> {
        if self.is_closed() { Err(Error::Closed { what: "store" }) } else { Ok(()) }
    }

    /// How many threads open, make or close partitions at once.
    fn parallel(&self) -> usize {
        open::parallel(&self.context.background, &self.config)
    }

    fn close(&self) -> Result<()> {
        {
            // Not held for longer: callbacks that run meanwhile may want it.
            let _catalog = self.catalog.lock();
            if self.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
        }
        let open = self.partitions_in_use();
        let closed = parallel::for_each(&open, self.parallel(), |partition| partition.close());
        self.context.background.close();
        *self.lock.lock() = None;
        closed.into_iter().collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.maintenance.stop();
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Handles of partitions may live on: once the directory is free, they must not write.
        for topic in self.shared.all_topics() {
            topic.stop();
        }
        self.shared.context.background.close();
        *self.shared.lock.lock() = None;
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store {{ data: {} }}", self.shared().data.display())
    }
}
