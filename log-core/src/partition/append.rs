//! Appending: an offset is assigned, the batch is stored and published; the segment rolls if full.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::flush::sync_failed;
use super::producer_state::{ProducerState, Verdict};
use super::{Partition, Shared};
use crate::clock::Timestamp;
use crate::config::{FlushPolicy, TopicConfig};
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::record::{
    BatchHeader, BatchLimits, MARKER_BYTES, Marker, MarkerKind, Record, Stamp, check_records,
    encode_into, stamp, verify_produced,
};
use crate::segment::{ActiveSegment, Predecessor, Segment, Spare, WriteWay};

/// The highest base offset of a batch: any number of records may follow.
const OFFSET_MAX: Offset = u64::MAX - 2 * u32::MAX as u64;

/// How often an append that may not block looks whether the one before it is done: a few
/// microseconds, in which most are.
const TRY_LOCK_SPINS: usize = 64;

/// What an append has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// When the partition took it. Of a duplicate: when the repeat came.
    pub append_time: Timestamp,
    /// Whether it had been appended before: nothing was added, this tells where it is.
    pub duplicate: bool,
}

/// What only the appender changes; guarded by the writer's lock.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) config: Arc<TopicConfig>,
    pub(super) phase: Phase,
    /// The offset of the next record.
    pub(super) end: Offset,
    /// The epoch of the active segment.
    pub(super) epoch: u32,
    /// The highest epoch of any file: a new one is above it.
    pub(super) epoch_max: u32,
    pub(super) last_append_time: Timestamp,
    pub(super) producers: ProducerState,
    /// Whether something was appended since the last marker told what was durable.
    pub(super) unproven: bool,
}

/// Where the next append goes.
#[derive(Debug)]
pub(super) enum Phase {
    /// Into this segment.
    Active(ActiveSegment),
    /// Into this one, which was closed cleanly, after a marker that says so.
    Resting(Arc<Segment>),
    /// Into a new segment with a new epoch: this one, if there is one, ends at a proven place, and
    /// what follows in its file is no part of the log.
    Detached(Option<Predecessor>),
    /// Nowhere: the partition takes no writes, for this reason.
    Refused(Error),
}

impl Partition {
    /// Appends records as one batch, and returns when it is acknowledged as the topic's policy
    /// says.
    ///
    /// # Errors
    /// `TooLarge`, `Malformed` if there are no records; `DiskFull`; `SyncFailed` if the outcome is
    /// unknown; `EndUnproven`, `ReadOnly`, `Closed`; `Io`.
    pub fn append(&self, records: &[Record<'_>]) -> Result<Appended> {
        self.acknowledge(self.write(records, None))
    }

    /// Appends records if the partition ends at `expected_end`; else as [`Partition::append`].
    ///
    /// # Errors
    /// `EndConflict` tells where it ends; else as [`Partition::append`].
    pub fn append_at(&self, records: &[Record<'_>], expected_end: Offset) -> Result<Appended> {
        self.acknowledge(self.write(records, Some(expected_end)))
    }

    /// Appends a batch that a `BatchBuilder` has made, as it is; else as [`Partition::append`].
    ///
    /// # Errors
    /// As [`Partition::append`], and `SequenceGap`, `ProducerUnknown`, `ProducerFenced`.
    pub fn append_batch(&self, batch: &[u8]) -> Result<Appended> {
        self.acknowledge(self.write_batch(batch, None))
    }

    /// Appends records without waiting for durability: see [`Partition::wait_durable`] and
    /// [`Partition::when_durable`].
    ///
    /// # Errors
    /// As [`Partition::append_at`].
    #[inline]
    pub fn write(&self, records: &[Record<'_>], expected_end: Option<Offset>) -> Result<Appended> {
        let shared = &*self.0;
        let now = shared.context.clock.now();
        let mut writer = shared.writer.lock();
        let limits = writer.limits();
        let len = check_records(records, now, &limits)?;
        writer.expect_end(expected_end)?;
        let appended =
            shared.append_to(&mut writer, len, now, |out| encode_into(out, records, now));
        drop(writer);
        shared.appended(appended)
    }

    /// Appends a batch without waiting for durability.
    ///
    /// # Errors
    /// As [`Partition::append_batch`], and `EndConflict`.
    pub fn write_batch(&self, batch: &[u8], expected_end: Option<Offset>) -> Result<Appended> {
        let shared = &*self.0;
        let header = verify_produced(batch, &shared.config().limits())?;
        let now = shared.context.clock.now();
        let mut writer = shared.writer.lock();
        if let Some(duplicate) = writer.answer(&header, expected_end, now)? {
            return Ok(duplicate);
        }
        let appended =
            shared.append_to(&mut writer, batch.len(), now, |out| copy(out, batch, header));
        drop(writer);
        shared.appended(appended)
    }

    /// The same where nothing may block, as on a thread that serves many connections: `None`, and
    /// nothing is done, if it would take more than to copy the batch to a place that is ready for
    /// it. [`Partition::write_batch`], on a thread that may block, is for that then: it waits for
    /// other appends, a new segment, space, a sync that is late, or tells why it can't.
    ///
    /// # Errors
    /// As [`Partition::write_batch`].
    pub fn try_write_batch(
        &self,
        batch: &[u8],
        expected_end: Option<Offset>,
    ) -> Option<Result<Appended>> {
        let shared = &*self.0;
        // Before the batch is verified: who comes back with it has that done again.
        let ready = shared.try_writer().is_some_and(|writer| shared.is_ready(&writer, batch.len()));
        if !ready {
            return None;
        }
        let header = match verify_produced(batch, &shared.config().limits()) {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        let now = shared.context.clock.now();
        let mut writer = shared.try_writer()?;
        if let Some(answer) = writer.answer(&header, expected_end, now).transpose() {
            return Some(answer);
        }
        if !shared.is_ready(&writer, batch.len()) {
            return None;
        }
        match shared.admission(&writer.config, batch.len()) {
            Admission::Free => {}
            Admission::AndSyncSoon => shared.sync_soon(),
            Admission::AfterSync | Admission::SyncedItself => return None,
        }
        let appended =
            shared.append_ready(&mut writer, batch.len(), now, |out| copy(out, batch, header));
        drop(writer);
        Some(shared.appended(appended))
    }

    /// Waits as the policy says, also for what an answer without an append rests on.
    fn acknowledge(&self, written: Result<Appended>) -> Result<Appended> {
        let rests_on = match &written {
            Ok(appended) => appended.end,
            Err(Error::EndConflict { actual, .. }) => *actual,
            Err(_) => return written,
        };
        if self.0.follows_durable_end() {
            self.0.wait_durable(rests_on)?;
        }
        written
    }
}

impl Shared {
    /// The writer, unless somebody keeps it for longer than an append takes.
    fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        for _ in 0..TRY_LOCK_SPINS {
            if let Some(writer) = self.writer.try_lock() {
                return Some(writer);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether a batch of `len` bytes only needs to be copied: there is an active segment with
    /// room, and its space is ready.
    fn is_ready(&self, writer: &Writer, len: usize) -> bool {
        let Phase::Active(active) = &writer.phase else { return false };
        let with_marker = len + MARKER_BYTES;
        active.is_ready(with_marker, self.write_way(&writer.config)) && !self.flush.is_latched()
    }

    /// Under `Interval`: whether the window of what may be lost would grow past its bounds.
    #[inline]
    fn admission(&self, config: &TopicConfig, len: usize) -> Admission {
        if !self.bounds_loss() {
            return Admission::Free;
        }
        let FlushPolicy::Interval { every, bytes } = config.flush else { return Admission::Free };
        let (unsynced, age) = self.unsynced.window(self.context.clock.monotonic());
        Admission::of((unsynced, bytes), (age, every), len as u64)
    }

    /// Assigns an offset to a batch, stores it and publishes it.
    #[inline]
    fn append_to(
        &self,
        writer: &mut Writer,
        len: usize,
        now: Timestamp,
        fill: impl FnOnce(&mut [u8]) -> BatchHeader,
    ) -> Result<Appended> {
        match self.admission(&writer.config, len) {
            Admission::Free | Admission::SyncedItself => {}
            Admission::AndSyncSoon => self.sync_soon(),
            Admission::AfterSync => self.sync_now()?,
        }
        let way = self.write_way(&writer.config);
        self.make_room(writer, len, way, now.max(writer.last_append_time))?;
        self.append_ready(writer, len, now, fill)
    }

    /// The same where there is room, and nothing to wait for.
    #[inline]
    fn append_ready(
        &self,
        writer: &mut Writer,
        len: usize,
        now: Timestamp,
        fill: impl FnOnce(&mut [u8]) -> BatchHeader,
    ) -> Result<Appended> {
        let now = now.max(writer.last_append_time);
        let way = self.write_way(&writer.config);
        if writer.end > OFFSET_MAX {
            let (actual, limit) = (writer.end, OFFSET_MAX);
            return Err(Error::TooLarge { what: "offset", actual, limit });
        }
        let base_offset = writer.end;
        let header = self.put(writer, len, way, now, fill)?;
        writer.end = header.next_offset();
        writer.last_append_time = now;
        writer.unproven = true;
        writer.producers.note(&header, writer.config.producers_max as usize);
        self.ends.raise_end(writer.end);
        if let FlushPolicy::Interval { bytes, .. } = writer.config.flush {
            self.unsynced.wrote(len as u64, self.context.clock.monotonic());
            if len as u64 > bytes {
                // It is more than may be lost all by itself. It is there, whatever comes of the
                // sync: where that fails, the outcome is unknown.
                self.sync_now().map_err(sync_failed)?;
            }
        }
        Ok(Appended { base_offset, end: writer.end, append_time: now, duplicate: false })
    }

    /// Appends a marker: it takes no offset.
    pub(super) fn append_marker(&self, writer: &mut Writer, kind: MarkerKind) -> Result<()> {
        self.append_marker_with(writer, kind, self.ends.log_start())
    }

    /// Appends a marker that tells a new `log_start`.
    pub(super) fn append_marker_with(
        &self,
        writer: &mut Writer,
        kind: MarkerKind,
        log_start: Offset,
    ) -> Result<()> {
        let now = self.context.clock.now().max(writer.last_append_time);
        let way = self.write_way(&writer.config);
        self.make_room(writer, MARKER_BYTES, way, now)?;
        self.put_marker(writer, way, now, Marker { kind, log_start })
    }

    pub(super) fn put_marker(
        &self,
        writer: &mut Writer,
        way: WriteWay,
        now: Timestamp,
        marker: Marker,
    ) -> Result<()> {
        let bytes = marker.encode();
        self.put(writer, bytes.len(), way, now, |out| {
            out.copy_from_slice(&bytes);
            BatchHeader { record_count: 0, ..decoded(&bytes) }
        })?;
        Ok(())
    }

    /// Stores one batch into the active segment, which has room for it.
    #[inline]
    fn put(
        &self,
        writer: &mut Writer,
        len: usize,
        way: WriteWay,
        now: Timestamp,
        fill: impl FnOnce(&mut [u8]) -> BatchHeader,
    ) -> Result<BatchHeader> {
        let Phase::Active(active) = &mut writer.phase else {
            unreachable!("make_room has made a segment active");
        };
        let fields = Stamp {
            base_offset: writer.end,
            append_time: now,
            durable_end: self.ends.durable(),
            epoch: writer.epoch,
        };
        let seed = active.next_seed();
        let mut stored = BatchHeader::default();
        let outcome = active.append(len, way, |out| {
            stored = fill(out);
            stamp(out, fields, seed);
            (stored.base_offset, stored.append_time) = (fields.base_offset, now);
            stored
        });
        if let Err(error) = outcome {
            self.abandon(writer);
            return Err(error);
        }
        if let Some(prepared) = active.due_preparation(way) {
            self.prepare(&prepared, way, active.room(), active.ahead(), &writer.config);
        }
        Ok(stored)
    }

    /// Has space and pages made ready in the background; and the next segment, if this one is
    /// nearly full.
    #[cold]
    fn prepare(
        &self,
        prepared: &Arc<crate::segment::Prepared>,
        way: WriteWay,
        room: u64,
        ahead: u64,
        config: &TopicConfig,
    ) {
        let (prepared, me) = (Arc::clone(prepared), self.me.clone());
        let next_map = (room < 3 * ahead).then_some(config.segment_max_bytes);
        self.context.background.submit(Box::new(move || {
            // What fails here is met, and told, by the append that needs it.
            let _ = prepared.run(way);
            if let (Some(map_bytes), Some(shared)) = (next_map, me.upgrade()) {
                let mut spare = shared.spare.lock();
                if spare.is_none() {
                    let place = shared.segment_dir();
                    *spare = Spare::create(&place, map_bytes, way, ahead / 2).ok();
                }
            }
        }));
    }

    /// By what way bytes get into the file.
    #[inline]
    pub(super) fn write_way(&self, config: &TopicConfig) -> WriteWay {
        if config.flush == FlushPolicy::Sync || !self.stores_into_maps {
            WriteWay::Write
        } else {
            WriteWay::Store
        }
    }

    /// Tells readers of what was appended, if they may see it already.
    #[inline]
    fn appended(&self, appended: Result<Appended>) -> Result<Appended> {
        if let Ok(appended) = &appended
            && !self.follows_durable_end()
        {
            self.tail.due(appended.end).into_iter().for_each(|then| then());
        }
        appended
    }
}

/// When an append may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// At once.
    Free,
    /// At once, and somebody should sync.
    AndSyncSoon,
    /// Once what was written is synced.
    AfterSync,
    /// At once, but it is more than may be lost: it is synced before it is acknowledged.
    SyncedItself,
}

impl Admission {
    /// What a window says to `len` bytes more: of bytes and of age, how much is used, and how much
    /// there may be.
    fn of(bytes: (u64, u64), age: (Duration, Duration), len: u64) -> Admission {
        let ((unsynced, most), (age, every)) = (bytes, age);
        if unsynced > 0 && (unsynced + len > most || age >= every) {
            Admission::AfterSync
        } else if len > most {
            Admission::SyncedItself
        } else if unsynced >= most / 2 || age >= every / 2 {
            Admission::AndSyncSoon
        } else {
            Admission::Free
        }
    }
}

impl Writer {
    fn limits(&self) -> BatchLimits {
        self.config.limits()
    }

    /// What can be said of a batch that need not, or must not, be appended.
    fn answer(
        &self,
        header: &BatchHeader,
        expected_end: Option<Offset>,
        now: Timestamp,
    ) -> Result<Option<Appended>> {
        if let Verdict::Duplicate(base_offset) = self.producers.judge(header)? {
            let end = base_offset + u64::from(header.record_count);
            return Ok(Some(Appended { base_offset, end, append_time: now, duplicate: true }));
        }
        self.expect_end(expected_end)?;
        Ok(None)
    }

    fn expect_end(&self, expected: Option<Offset>) -> Result<()> {
        match expected {
            Some(expected) if expected != self.end => {
                Err(Error::EndConflict { expected, actual: self.end })
            }
            _ => Ok(()),
        }
    }
}

fn copy(out: &mut [u8], batch: &[u8], header: BatchHeader) -> BatchHeader {
    out.copy_from_slice(batch);
    header
}

fn decoded(marker: &[u8]) -> BatchHeader {
    BatchHeader::decode(marker).expect("a marker that was just encoded")
}
