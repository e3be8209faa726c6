//! Rolling: which segment the next append goes into, and how a new one begins.

use std::sync::Arc;

use super::Shared;
use super::append::{Phase, Writer};
use super::pending::Pending;
use crate::clock::Timestamp;
use crate::config::FlushPolicy;
use crate::error::{Error, Result};
use crate::record::{MARKER_BYTES, Marker, MarkerKind};
use crate::segment::{
    ActiveSegment, HEADER_BYTES, Predecessor, Segment, SegmentHeader, SegmentName, Spare, WriteWay,
};

impl Shared {
    /// After a write that failed half-way: what is in the file behind the end is not known, so the
    /// next append begins a new segment, with a new epoch.
    pub(super) fn abandon(&self, writer: &mut Writer) {
        let phase = std::mem::replace(&mut writer.phase, Phase::Detached(None));
        let Phase::Active(active) = phase else { unreachable!("only an active segment fails") };
        writer.phase = Phase::Detached(Some(predecessor(&active)));
        self.flush.abandon_newest();
        active.seal(writer.end);
    }

    /// Sees to it that there is an active segment with room for `len` bytes, and blocks for them.
    #[inline]
    pub(super) fn make_room(
        &self,
        writer: &mut Writer,
        len: usize,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<()> {
        if let Phase::Active(active) = &writer.phase {
            // The marker that vouches for the successor needs room too.
            if active.room() >= (len + MARKER_BYTES) as u64 && !self.flush.is_latched() {
                // And blocks: on a full disk a marker must still tell what retention gives up.
                let marker = if len == MARKER_BYTES { 0 } else { MARKER_BYTES };
                return active.reserve(len + marker);
            }
            // A segment without records is too small for one large batch: its successor would
            // have its name.
            if active.segment().name().base == writer.end {
                self.abandon(writer);
            }
        }
        self.make_active(writer, len, way, now)
    }

    /// The rarer ways to an active segment.
    #[cold]
    fn make_active(
        &self,
        writer: &mut Writer,
        len: usize,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<()> {
        if let Some(error) = self.flush.failed() {
            return Err(error);
        }
        match &writer.phase {
            Phase::Active(_) => self.roll(writer, len, way, now)?,
            Phase::Resting(segment) => {
                let segment = Arc::clone(segment);
                self.reopen(writer, &segment, way, now)?;
                return self.make_room(writer, len, way, now);
            }
            Phase::Detached(predecessor) => {
                let predecessor = *predecessor;
                self.begin_epoch(writer, predecessor, len, way, now)?;
            }
            Phase::Refused(error) => return Err(error.clone()),
        }
        let Phase::Active(active) = &writer.phase else { unreachable!("it was just made") };
        active.reserve(len)
    }

    /// Goes on with a segment after a clean stop: first a marker says so, and is synced, so that
    /// the old one that told of the stop is never taken for the end again.
    fn reopen(
        &self,
        writer: &mut Writer,
        segment: &Arc<Segment>,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<()> {
        let header = segment.header().expect("a segment to go on with has a header").clone();
        let end = segment.end().expect("it was closed");
        let index = segment.with_index(Clone::clone)?;
        // A limit that was lowered since must still leave room for the marker.
        let map_bytes = writer.config.segment_max_bytes.max(end.position + MARKER_BYTES as u64);
        let place = self.segment_dir();
        let active = ActiveSegment::reopen(&place, header, index, end.position, map_bytes, way)?;
        active.reserve(MARKER_BYTES)?;
        let (reopened, file) = (Arc::clone(active.segment()), Arc::clone(active.file()));
        self.flush.add(Pending::written(Arc::clone(&reopened), file, false));
        {
            let mut segments = self.segments.write();
            let last = segments.last_mut().expect("the segment to go on with is listed");
            *last = reopened;
        }
        writer.phase = Phase::Active(active);
        let marker = Marker { kind: MarkerKind::Open, log_start: self.ends.log_start() };
        self.put_marker(writer, way, now, marker)?;
        self.sync_now()
    }

    /// Closes the active segment and begins the next one.
    pub(super) fn roll(
        &self,
        writer: &mut Writer,
        len: usize,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<()> {
        if self.flush.segments() > 1 {
            // The background job that seals the last one is late.
            self.seal()?;
        }
        let Phase::Active(old) = &writer.phase else { unreachable!("only an active one rolls") };
        let epoch = writer.epoch;
        let next = match self.begin_segment(writer, Some(predecessor(old)), epoch, len, way, now) {
            Ok(next) => next,
            Err(error @ Error::DiskFull { .. }) => return Err(error),
            Err(error) => {
                // There may be a file now that says where the old segment ends.
                self.abandon(writer);
                return Err(error);
            }
        };
        self.publish_segment(writer, next);
        self.context.metrics.segments_rolled.add(1);
        self.seal_soon()
    }

    /// Begins a segment with a new epoch, after an unclean stop or a write that failed. Its header
    /// and its name are durable before anything in it is visible, under every policy.
    fn begin_epoch(
        &self,
        writer: &mut Writer,
        predecessor: Option<Predecessor>,
        len: usize,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<()> {
        if self.flush.segments() > 2 {
            self.seal()?;
        }
        if writer.config.flush == FlushPolicy::Sync && self.flush.holds_read_back() {
            // What this append's acknowledgement would rest on comes first: where that can't be
            // made durable, nothing is appended.
            self.sync_now()?;
        }
        let (actual, limit) = (u64::from(writer.epoch_max), u64::from(u32::MAX));
        let epoch = writer.epoch_max.checked_add(1);
        let epoch = epoch.ok_or(Error::TooLarge { what: "epoch", actual, limit })?;
        let next = match self.begin_segment(writer, predecessor, epoch, len, way, now) {
            Ok(next) => next,
            Err(error @ Error::DiskFull { .. }) => return Err(error),
            Err(error) => {
                // A file with this epoch may be there now.
                writer.epoch_max = epoch;
                return Err(error);
            }
        };
        writer.epoch_max = epoch;
        let synced = next.file().sync().and_then(|()| self.context.disk.sync_dir(&self.dir));
        match synced {
            Ok(()) => {}
            Err(error @ Error::DiskFull { .. }) => return Err(error),
            Err(error) => return Err(self.flush.fail(error)),
        }
        writer.epoch = epoch;
        self.publish_segment(writer, next);
        self.seal_soon()
    }

    fn begin_segment(
        &self,
        writer: &Writer,
        predecessor: Option<Predecessor>,
        epoch: u32,
        len: usize,
        way: WriteWay,
        now: Timestamp,
    ) -> Result<ActiveSegment> {
        let producers = writer.producers.encode();
        let data_start = HEADER_BYTES + producers.len();
        let narrow = |len: usize| u32::try_from(len).expect("producers_max keeps it small");
        let header = SegmentHeader {
            id: self.id.clone(),
            name: SegmentName { base: writer.end, epoch },
            log_start: self.ends.log_start(),
            durable_end: self.ends.durable(),
            predecessor,
            nonce: random()?,
            producers_length: narrow(producers.len()),
            producers_crc: crc32fast::hash(&producers),
            data_start: narrow(data_start),
            created: now,
        };
        let least = (data_start + len + MARKER_BYTES) as u64;
        // Held until the spare has its final name: two of them would share one file.
        let mut slot = self.spare.lock();
        let small = producers.len() as u64 * 4 <= writer.config.segment_max_bytes;
        let fits = |spare: &Spare| small && spare.map_bytes() >= least;
        let spare = match slot.take().filter(fits) {
            Some(spare) => spare,
            None => {
                // The table of producers does not count against what a segment may hold.
                let map_bytes = writer.config.segment_max_bytes + producers.len() as u64;
                let map_bytes = map_bytes.max(least);
                Spare::create(&self.segment_dir(), map_bytes, way, len as u64)?
            }
        };
        ActiveSegment::create(&self.segment_dir(), header, &producers, spare, len)
    }

    /// Makes a new segment the active one: readers find it, and syncs cover it, from here on.
    fn publish_segment(&self, writer: &mut Writer, next: ActiveSegment) {
        let (segment, file) = (Arc::clone(next.segment()), Arc::clone(next.file()));
        // The old one has its end before anybody can find its successor, and seal it.
        if let Phase::Active(old) = std::mem::replace(&mut writer.phase, Phase::Active(next)) {
            old.seal(writer.end);
        }
        self.flush.add(Pending::written(Arc::clone(&segment), file, true));
        self.segments.write().push(segment);
    }
}

fn predecessor(active: &ActiveSegment) -> Predecessor {
    let end_position = u32::try_from(active.position()).expect("segments are below 4 GiB");
    Predecessor { name: active.segment().name(), end_position }
}

/// A number that no other segment has.
pub(super) fn random() -> Result<u64> {
    getrandom::u64().map_err(|_| Error::Io {
        action: "take random bytes for",
        path: "a new segment".into(),
        source: Arc::new(std::io::ErrorKind::Unsupported.into()),
    })
}
