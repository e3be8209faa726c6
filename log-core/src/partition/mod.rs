//! Partition: one log. Appends get an offset, readers see what is published, a sync makes it last.
//!
//! What belongs to it stands in files of its own:
//! - writing: `append`, `producer_state` (repeats and gaps), `roll` (which segment is next), `bounds`
//!   (where it begins and ends), `close` (markers that prove);
//! - making it last: `flush` (group commit), `pending` (segments with unsynced bytes);
//! - reading: `read`, `tail` (waiting readers);
//! - opening: `recovery` (what is found out), `chain` (which files make up the log), `walk` (what is
//!   in them), `checkpoint` (a shortcut after a clean stop);
//! - `retention` and trim, and `check` (looking at every byte).
//!
//! Locks, in the order in which they are taken: `writer`, the flush state, then `segments` and the
//! small ones. Callbacks run with none of them held.

mod append;
mod bounds;
mod chain;
mod check;
mod checkpoint;
mod close;
mod flush;
mod pending;
mod producer_state;
mod read;
mod recovery;
mod retention;
mod roll;
mod tail;
mod walk;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::background::Background;
use crate::clock::Clock;
use crate::config::{FlushPolicy, TopicConfig};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::offset::Offset;
use crate::record::BatchLimits;
use crate::segment::{
    ActiveSegment, FIRST_DATA_START, HEADER_BYTES, Segment, SegmentDir, SegmentHeader, SegmentName,
    Spare, WriteWay,
};

use append::{Phase, Writer};
use bounds::Bounds;
use flush::{Flush, Unsynced};
use retention::AgeClock;
use tail::Tail;

pub use crate::segment::ReadAhead;
pub use append::Appended;
pub use bounds::Ends;
pub use check::{CheckReport, SegmentDescription};
pub use read::{Batches, Fetched};
pub use recovery::{Cut, RecoveryReport};
pub use retention::RemovedSegment;
pub use tail::WaitingReader;

pub use crate::segment::PartitionId;
#[doc(hidden)]
pub use crate::segment::SealedMaps;

/// What a partition shares with the others of its store.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct PartitionContext {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where work goes that may block.
    pub background: Background,
    /// The cap on maps of sealed segments.
    pub maps: Arc<SealedMaps>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// How long a leader of a group commit waits for followers.
    pub linger: Duration,
}

/// What a partition is opened for.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To append and read.
    ReadWrite,
    /// To read alone: nothing is written, not even by recovery.
    ReadOnly,
}

/// What one pass of maintenance has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintained {
    /// The segments that retention has removed.
    pub removed: Vec<RemovedSegment>,
    /// Whether the active segment was closed for its age.
    pub rolled: bool,
    /// Whether a marker was written because nothing was appended for a while.
    pub marked: bool,
}

/// One partition of a topic: a handle, clones are the same partition.
#[derive(Debug, Clone)]
pub struct Partition(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    me: Weak<Shared>,
    context: PartitionContext,
    id: PartitionId,
    dir: PathBuf,
    access: Access,
    config: RwLock<Arc<TopicConfig>>,
    /// The kind of the flush policy: what the hot paths look at.
    policy: AtomicU8,
    stores_into_maps: bool,
    closed: AtomicBool,
    ends: Bounds,
    writer: Mutex<Writer>,
    flush: Flush,
    unsynced: Unsynced,
    tail: Tail,
    /// The oldest first; the last may be the active one.
    segments: RwLock<Vec<Arc<Segment>>>,
    spare: Mutex<Option<Spare>>,
    removing: Mutex<()>,
    hidden: Mutex<Vec<SegmentName>>,
    age_clock: AgeClock,
    /// Where the partition ended, and since when it was seen not to move.
    quiet: Mutex<Option<(Offset, Duration)>>,
    report: recovery::RecoveryReport,
}

const POLICY_SYNC: u8 = 0;
const POLICY_INTERVAL: u8 = 1;
const POLICY_OS: u8 = 2;

impl Partition {
    /// Makes the directory of a new partition, and its first segment: both are durable when this
    /// returns, but for the directory's own name, which the caller syncs.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: a part of it may be there.
    #[doc(hidden)]
    pub fn create(context: &PartitionContext, dir: &Path, id: PartitionId) -> Result<()> {
        context.disk.create_dir(dir)?;
        let header = SegmentHeader {
            id,
            name: SegmentName { base: 0, epoch: 1 },
            log_start: 0,
            durable_end: 0,
            predecessor: None,
            nonce: roll::random()?,
            producers_length: 0,
            producers_crc: crc32fast::hash(&[]),
            data_start: FIRST_DATA_START,
            created: context.clock.now(),
        };
        let place = context.segment_dir(dir);
        let spare = Spare::create(&place, HEADER_BYTES as u64, WriteWay::Write, 0)?;
        let segment = ActiveSegment::create(&place, header, &[], spare, 0)?;
        segment.file().sync()?;
        context.disk.sync_dir(dir)
    }

    /// Opens a partition that `Partition::create` has made, finding out what is there.
    ///
    /// # Errors
    /// `Io` if the disk can't be read; `NewerFormat`; `Corrupt` if the segments contradict each
    /// other. Damage to some of the data is no error: it is in the report, and in what reading it
    /// returns.
    #[doc(hidden)]
    pub fn open(
        context: &PartitionContext,
        dir: &Path,
        id: PartitionId,
        config: TopicConfig,
        access: Access,
    ) -> Result<Partition> {
        let producers_max = config.producers_max as usize;
        let found = recovery::recover(context, dir, &id, producers_max, access)?;
        let hidden = found
            .report
            .hidden
            .iter()
            .filter_map(|path| SegmentName::parse_log(path.file_name()?.to_str()?));
        let hidden = Mutex::new(hidden.collect());
        let config = Arc::new(config);
        let shared = Arc::new_cyclic(|me| Shared {
            me: Weak::clone(me),
            context: context.clone(),
            id,
            dir: dir.to_path_buf(),
            access,
            policy: AtomicU8::new(policy_kind(&config, access)),
            stores_into_maps: context.disk.can_store_into_maps(dir),
            closed: AtomicBool::new(false),
            ends: Bounds::new(found.ends),
            writer: Mutex::new(Writer {
                config: Arc::clone(&config),
                phase: found.phase,
                end: found.ends.end,
                epoch: found.epoch,
                epoch_max: found.epoch_max,
                last_append_time: found.last_append_time,
                producers: found.producers,
                unproven: false,
            }),
            config: RwLock::new(config),
            flush: Flush::default(),
            unsynced: Unsynced::default(),
            tail: Tail::default(),
            segments: RwLock::new(found.segments),
            spare: Mutex::new(None),
            removing: Mutex::new(()),
            hidden,
            age_clock: AgeClock::new(),
            quiet: Mutex::new(None),
            report: found.report,
        });
        for pending in found.pending {
            shared.flush.add(pending);
        }
        if access == Access::ReadWrite {
            shared.settle(&found.leftovers);
        }
        Ok(Partition(shared))
    }

    /// Takes over a changed configuration. A topic that is altered to `Sync` lets readers above
    /// `durable_end` wait.
    pub fn alter(&self, config: TopicConfig) {
        let config = Arc::new(config);
        let mut writer = self.0.writer.lock();
        writer.config = Arc::clone(&config);
        self.0.policy.store(policy_kind(&config, self.0.access), Ordering::Release);
        *self.0.config.write() = config;
        drop(writer);
        self.0.tell_readers(self.readable_end());
        if self.0.access == Access::ReadWrite && self.0.ends.durable() < self.0.ends.end() {
            // The new policy may promise more for what was written under the old one.
            self.0.sync_soon();
        }
    }

    /// Which partition this is.
    #[must_use]
    pub fn id(&self) -> &PartitionId {
        &self.0.id
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.dir
    }

    /// Where it begins and ends, and what of it is durable.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.0.ends.all()
    }

    /// Where readers stop: at `durable_end` under `Sync`, so that nobody acts on what a power cut
    /// can take back; else at the end.
    #[must_use]
    pub fn readable_end(&self) -> Offset {
        self.0.readable_end()
    }

    /// Whether an append is acknowledged once it is durable, and readers see it then: under `Sync`.
    #[must_use]
    pub fn acknowledges_durable(&self) -> bool {
        self.0.follows_durable_end()
    }

    /// Whether its topic was deleted, or its store closed: nothing is appended any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// What opening has found.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.0.report
    }

    /// Why the partition takes no writes, if it takes none.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        if let Some(error) = self.0.flush.failed() {
            return Some(error);
        }
        match &self.0.writer.lock().phase {
            Phase::Refused(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Waits until everything below `end` is durable; one sync serves all who wait.
    ///
    /// # Errors
    /// `SyncFailed` if the outcome is unknown; `OffsetOutOfRange` past the end.
    pub fn wait_durable(&self, end: Offset) -> Result<()> {
        if self.0.ends.durable() >= end {
            return Ok(());
        }
        self.0.may_write()?;
        self.0.wait_durable(end)
    }

    /// Calls `then` once everything below `end` is durable, or can't become so: at once, or later
    /// from a background thread. No thread waits for it. It must not block.
    pub fn when_durable(&self, end: Offset, then: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0.may_write() {
            Err(error) if self.0.ends.durable() < end => then(Err(error)),
            _ => self.0.when_durable(end, Box::new(then)),
        }
    }

    /// Syncs what is unsynced, whatever the policy.
    ///
    /// # Errors
    /// `SyncFailed` if the outcome is unknown; `ReadOnly`; `Closed`.
    pub fn sync(&self) -> Result<()> {
        self.0.may_write()?;
        self.0.sync_now()
    }

    /// One pass of what must be done now and then: closing a segment for its age, retention, the
    /// sync of `Interval`, a marker after some time of rest.
    ///
    /// # Errors
    /// What the first of these that failed met; the next pass tries again.
    pub fn maintain(&self) -> Result<Maintained> {
        let shared = &*self.0;
        if shared.access == Access::ReadOnly || shared.is_closed() || self.refusal().is_some() {
            return Ok(Maintained::default());
        }
        let config = shared.config();
        // Each is tried, whatever came of the others: on a full disk nothing may work but what
        // gives space back.
        let synced = shared.sync_if_late(config.flush);
        let removed = shared.retain(config.retention).and_then(|mut removed| {
            removed.extend(shared.remove_segments()?);
            Ok(removed)
        });
        let cleared = shared.remove_hidden();
        let rolled = config.segment_max_age.map(|age| shared.roll_by_age(age));
        let now = shared.age_now();
        shared.writer.lock().producers.expire(now, config.producer_expiry);
        let marked = shared.mark_idle();
        synced.and(cleared)?;
        let (removed, rolled, marked) = (removed?, rolled.transpose()?.unwrap_or(false), marked?);
        Ok(Maintained { removed, rolled, marked })
    }

    /// How often [`Partition::maintain`] should be called at the least, if it matters.
    #[doc(hidden)]
    #[must_use]
    pub fn tick(&self) -> Option<Duration> {
        match self.0.config().flush {
            FlushPolicy::Interval { every, .. } => Some(every / 2),
            FlushPolicy::Sync | FlushPolicy::Os => None,
        }
    }

    /// Lets appends go on in a partition whose end can't be proven: behind everything that is
    /// known to have been acknowledged. What can't be read stays, and is told as corrupt.
    /// Returns where appends go on, or `None` if there is nothing to decide.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `SyncFailed`.
    pub fn repair(&self) -> Result<Option<Offset>> {
        let shared = &*self.0;
        let mut writer = shared.writer.lock();
        let Phase::Refused(Error::EndUnproven { at_least, .. }) = &writer.phase else {
            return Ok(None);
        };
        let at_least = *at_least;
        shared.context.disk.create_dir(&shared.dir)?;
        let segments = shared.segments.read().clone();
        // Segments that are lost are no predecessor: what they held is told as missing.
        let readable = segments.iter().rev().find_map(|segment| recovery::as_predecessor(segment));
        writer.phase = Phase::Detached(readable);
        shared.append_marker(&mut writer, crate::record::MarkerKind::Open)?;
        drop(writer);
        shared.sync_now()?;
        Ok(Some(at_least))
    }
}

impl PartitionContext {
    fn segment_dir(&self, dir: &Path) -> SegmentDir {
        SegmentDir {
            disk: Arc::clone(&self.disk),
            dir: dir.to_path_buf(),
            maps: Arc::clone(&self.maps),
        }
    }
}

impl Shared {
    /// After recovery: removes what was left over, and makes durable what was read back. A disk
    /// that is full, fails, or can't be written keeps nobody from reading: what is left over
    /// harms nothing, and a sync that failed has latched the partition.
    fn settle(&self, leftovers: &[PathBuf]) {
        for path in leftovers {
            let _ = self.context.disk.remove_file(path);
        }
        let os = self.policy.load(Ordering::Acquire) == POLICY_OS;
        // A `log_start` that was told must last, whatever the policy.
        if (!os || self.raised_log_start()) && self.flush.segments() > 0 {
            let _ = self.sync_now();
        }
    }

    /// Whether a marker in the last segment has raised `log_start`, and not its header alone.
    fn raised_log_start(&self) -> bool {
        let last = self.segments.read().last().cloned();
        let header = last.as_ref().and_then(|last| last.header().ok());
        header.is_none_or(|header| self.ends.log_start() > header.log_start)
    }

    /// Under `Interval`: syncs what was written half a window ago, though nothing is appended.
    fn sync_if_late(&self, flush: FlushPolicy) -> Result<()> {
        let FlushPolicy::Interval { every, .. } = flush else { return Ok(()) };
        let (unsynced, age) = self.unsynced.window(self.context.clock.monotonic());
        if unsynced > 0 && age >= every / 2 { self.sync_now() } else { Ok(()) }
    }

    /// Calls the readers' callbacks that are due on a background thread: whoever is here may hold
    /// locks that they want.
    fn tell_readers(&self, readable_end: Offset) {
        let due = self.tail.due(readable_end);
        if !due.is_empty() {
            let tell_all = move || due.into_iter().for_each(|then| then());
            self.context.background.submit(Box::new(tell_all));
        }
    }

    /// Refuses what would write, where nothing may be written any more.
    fn may_write(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly { path: self.dir.clone() });
        }
        if self.is_closed() { Err(Error::Closed { what: "partition" }) } else { Ok(()) }
    }

    fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.config.read())
    }

    fn expanded_max(&self) -> usize {
        self.config.read().batch_max_expanded_bytes as usize
    }

    fn segment_dir(&self) -> SegmentDir {
        self.context.segment_dir(&self.dir)
    }

    /// Whether readers see only what is durable.
    #[inline]
    fn follows_durable_end(&self) -> bool {
        self.policy.load(Ordering::Acquire) == POLICY_SYNC
    }

    /// Whether the loss that a power cut may cause is bounded by waiting.
    #[inline]
    fn bounds_loss(&self) -> bool {
        self.policy.load(Ordering::Relaxed) == POLICY_INTERVAL
    }

    #[inline]
    fn readable_end(&self) -> Offset {
        if self.follows_durable_end() { self.ends.durable() } else { self.ends.end() }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl TopicConfig {
    fn limits(&self) -> BatchLimits {
        BatchLimits {
            record_max_bytes: self.record_max_bytes,
            batch_max_bytes: self.batch_max_bytes,
            expanded_max: self.batch_max_expanded_bytes,
            headers_max: self.headers_max,
            strict: self.strict,
        }
    }
}

/// At rest, readers see all that a recovery would keep: nobody will take it back.
fn policy_kind(config: &TopicConfig, access: Access) -> u8 {
    match (access, config.flush) {
        (Access::ReadOnly, _) | (_, FlushPolicy::Os) => POLICY_OS,
        (_, FlushPolicy::Sync) => POLICY_SYNC,
        (_, FlushPolicy::Interval { .. }) => POLICY_INTERVAL,
    }
}
