//! Recovery: what of a partition is there, what is cut, what is damaged, and where appends go on.
//!
//! The rule that tells a cut from damage: bad bytes above all that is proven to have been synced
//! are where the log ends; bad bytes below it are damage, which is isolated, and the log goes on
//! behind it. What was synced is told by the log itself: every batch header, marker and segment
//! header carries the `durable_end` that was known when it was written.
//!
//! Recovery overwrites nothing. After an unclean stop the next append begins a new segment with a
//! higher epoch, whose header says where its predecessor ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append::Phase;
use super::chain::{Chain, Link};
use super::checkpoint::Checkpoint;
use super::pending::Pending;
use super::producer_state::ProducerState;
use super::walk::{Last, Spot, Walk};
use super::{Access, Ends, PartitionContext};
use crate::clock::Timestamp;
use crate::disk::FileMode;
use crate::error::{Corruption, Error, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::{BatchView, MAGIC, MarkerKind};
use crate::segment::{
    HEADER_BYTES, PartitionId, Predecessor, Segment, SegmentDir, SegmentEnd, SegmentIndex,
    SegmentScan,
};

/// What opening a partition has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The partition's directory.
    pub path: PathBuf,
    /// Whether it was closed in order, so that nothing had to be found out.
    pub clean: bool,
    /// The oldest offset that is kept.
    pub log_start: Offset,
    /// What the log proves to have been synced.
    pub durable_end: Offset,
    /// The offset of the next record.
    pub end: Offset,
    /// Where the log was cut, if it ended in bytes that are no batch.
    pub cut: Option<Cut>,
    /// Records that can't be read any more, though they were synced. They are isolated: reading
    /// them tells what is wrong, all else can be read, and appends go on.
    pub damage: Vec<Corruption>,
    /// Bytes that can't be read and held no record: the copy of a header, a marker.
    pub skipped: Vec<Corruption>,
    /// Files of segments that an unclean stop has left behind; they are no part of the log.
    pub hidden: Vec<PathBuf>,
    /// Files that have the name of a segment and the header of none, newer than the log's end.
    pub unborn: Vec<Corruption>,
    /// Files that are not the engine's.
    pub strays: Vec<PathBuf>,
    /// Whether the end can't be proven, so that the partition takes no writes.
    pub end_unproven: bool,
    /// How many bytes were walked.
    pub walked_bytes: u64,
}

/// Where recovery has ended the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// Where in it the bad bytes begin.
    pub position: u64,
    /// The offset that would have come next: the end of the log.
    pub offset: Offset,
    /// What is wrong there.
    pub fault: Fault,
    /// Nothing proves that what was cut had been synced; nothing proves that it had not.
    pub possibly_acknowledged: bool,
}

impl RecoveryReport {
    /// Whether somebody should look at it.
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        self.end_unproven || !self.damage.is_empty()
    }
}

/// A partition as recovered.
pub(super) struct Recovered {
    pub(super) report: RecoveryReport,
    pub(super) ends: Ends,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) phase: Phase,
    pub(super) epoch: u32,
    pub(super) epoch_max: u32,
    pub(super) last_append_time: Timestamp,
    pub(super) producers: ProducerState,
    pub(super) pending: Vec<Pending>,
    /// Files to be removed: left from work that was not finished.
    pub(super) leftovers: Vec<PathBuf>,
}

struct Recovery<'a> {
    context: &'a PartitionContext,
    dir: &'a Path,
    place: SegmentDir,
    report: RecoveryReport,
}

/// Finds out what is there. It changes nothing on disk.
pub(super) fn recover(
    context: &PartitionContext,
    dir: &Path,
    id: &PartitionId,
    producers_max: usize,
    access: Access,
) -> Result<Recovered> {
    let place = context.segment_dir(dir);
    let report = RecoveryReport { path: dir.to_path_buf(), ..RecoveryReport::default() };
    let mut recovery = Recovery { context, dir, place, report };
    let mut chain = Chain::read(&*context.disk, dir, id)?;
    recovery.report_files(&chain);
    if chain.links.is_empty() {
        return Ok(recovery.nothing_left(chain));
    }
    let checkpoint = recovery.checkpoint(&chain);
    let mut walk = Walk::new(&*context.disk, dir, &chain, producers_max);
    walk.run(&chain, checkpoint.as_ref(), None)?;
    if let Some(spot) = first_cut(&walk, &chain) {
        // The walk again, up to the cut: index and producers must know nothing of what follows.
        let (link, position) = (spot.link, spot.bad.position);
        recovery.report_cut(&chain, &spot);
        let durable = walk.durable;
        walk = Walk::new(&*context.disk, dir, &chain, producers_max);
        walk.durable = durable;
        // A segment without a header can't be what the next one goes on from.
        let lost = chain.links[link].header.is_err() && link > 0;
        let cut_off = chain.links.split_off(if lost { link } else { link + 1 });
        recovery.hide(&cut_off);
        let checkpoint = checkpoint.as_ref().filter(|_| cut_off.is_empty());
        walk.run(&chain, checkpoint, (!lost).then_some((link, position)))?;
        walk.last = Last::Records;
    }
    let left_behind = chain.forget_below(walk.log_start);
    let files = left_behind.iter().map(|link| dir.join(link.name.log_file()));
    recovery.report.hidden.extend(files);
    recovery.finish(&chain, walk, access)
}

/// The first bad bytes that nothing proves to have been synced, and that may have held records.
fn first_cut(walk: &Walk<'_>, chain: &Chain) -> Option<Spot> {
    let unproven = |spot: &&Spot| {
        spot.bad.offset >= walk.durable && spot.loses_records() && !chain.had_header(spot.link)
    };
    walk.spots.iter().find(unproven).cloned()
}

impl Recovery<'_> {
    fn report_files(&mut self, chain: &Chain) {
        let path = |file: &String| self.dir.join(file);
        self.report.strays = chain.strays.iter().map(path).collect();
        self.report.skipped.clone_from(&chain.damaged_copies);
        self.report.hidden =
            chain.hidden.iter().map(|name| self.dir.join(name.log_file())).collect();
        let unborn = chain.unborn.iter().map(|(name, fault)| Corruption {
            path: self.dir.join(name.log_file()),
            position: 0,
            offsets: OffsetRange::new(name.base, name.base),
            fault: fault.clone(),
        });
        self.report.unborn = unborn.collect();
    }

    fn hide(&mut self, links: &[Link]) {
        let readable = links.iter().filter(|link| link.header.is_ok());
        let files = readable.map(|link| self.dir.join(link.name.log_file()));
        self.report.hidden.extend(files);
    }

    fn report_cut(&mut self, chain: &Chain, spot: &Spot) {
        self.report.cut = Some(Cut {
            path: self.dir.join(chain.links[spot.link].name.log_file()),
            position: spot.bad.position,
            offset: spot.bad.offset,
            fault: spot.bad.fault.clone(),
            possibly_acknowledged: true,
        });
    }

    fn corruption(
        &self,
        link: &Link,
        position: u64,
        offsets: OffsetRange,
        fault: Fault,
    ) -> Corruption {
        Corruption { path: self.dir.join(link.name.log_file()), position, offsets, fault }
    }

    /// The checkpoint, if it speaks of the last segment and points at a close marker in it. What
    /// follows the marker is walked as always.
    fn checkpoint(&self, chain: &Chain) -> Option<Checkpoint> {
        let last = chain.links.last()?;
        let header = last.header.as_ref().ok()?;
        let found = Checkpoint::load(&*self.context.disk, self.dir, header)?;
        let path = self.dir.join(last.name.log_file());
        let file = self.context.disk.open(&path, FileMode::Read).ok()?;
        let (start, end) = ((found.marker_position, found.end), file.size().ok()?);
        let mut scan = SegmentScan::new(file, header, start, end, true);
        match scan.step().ok()?? {
            crate::segment::Found::Batch { header, .. } if header.is_marker() => Some(found),
            _ => None,
        }
    }

    /// There is no segment with a header that can be read, though a partition has one from the
    /// moment that the catalog lists it: it is lost, and nothing tells how far it went.
    fn nothing_left(mut self, chain: Chain) -> Recovered {
        let at_least = chain.unborn.iter().map(|(name, _)| name.base).max().unwrap_or(0);
        self.report.damage = std::mem::take(&mut self.report.unborn);
        if self.report.damage.is_empty() {
            let (path, offsets) = (self.dir.to_path_buf(), OffsetRange::new(0, 0));
            let fault = Fault::FileMissing;
            self.report.damage.push(Corruption { path, position: 0, offsets, fault });
        }
        let segments = chain
            .unborn
            .iter()
            .map(|(name, fault)| Segment::lost(self.place.clone(), *name, fault.clone(), at_least));
        let segments = segments.collect();
        (self.report.end, self.report.end_unproven) = (at_least, true);
        self.report.durable_end = at_least;
        let path = self.dir.to_path_buf();
        Recovered {
            ends: Ends { log_start: 0, durable_end: at_least, end: at_least },
            segments,
            phase: Phase::Refused(Error::EndUnproven { path, at_least }),
            epoch: chain.epoch_max,
            epoch_max: chain.epoch_max,
            last_append_time: Timestamp::MIN,
            producers: ProducerState::default(),
            pending: Vec::new(),
            leftovers: Vec::new(),
            report: self.report,
        }
    }

    fn finish(mut self, chain: &Chain, walk: Walk<'_>, access: Access) -> Result<Recovered> {
        self.report_spots(chain, &walk);
        let mut end = walk.end;
        // A marker says that a successor was durable, or bytes say that it was written to after
        // its header was durable: it is gone, with whatever it held.
        let successor_lost =
            walk.last == Last::Marker(MarkerKind::Roll) || self.was_written_to(chain)?;
        if walk.durable > end || successor_lost {
            end = end.max(walk.durable);
            self.report.end_unproven = true;
            if successor_lost {
                let lost = std::mem::take(&mut self.report.unborn);
                self.report.damage.extend(lost);
            }
        }
        let (segments, last_end) = self.segments(chain, &walk, end)?;
        let last = chain.links.last().expect("there is a segment");
        let end_position = u32::try_from(last_end).ok().filter(|_| last.header.is_ok());
        let predecessor =
            end_position.map(|end_position| Predecessor { name: last.name, end_position });
        let untouched = walk.last == Last::Nothing && chain.links.len() == 1 && last.name.base == 0;
        let closed = walk.last == Last::Marker(MarkerKind::Close);
        let sound = self.report.cut.is_none()
            && !walk.spots.iter().any(|spot| spot.segment == last.name)
            && self.report.unborn.is_empty();
        self.report.clean = (closed || untouched) && sound && !self.report.end_unproven;
        let phase = match (access, self.report.end_unproven, self.report.clean) {
            (Access::ReadOnly, ..) => Phase::Refused(Error::ReadOnly { path: self.dir.into() }),
            (_, true, _) => {
                let path = self.dir.to_path_buf();
                Phase::Refused(Error::EndUnproven { path, at_least: end })
            }
            (_, _, true) => Phase::Resting(Arc::clone(segments.last().expect("one a link"))),
            _ => Phase::Detached(predecessor),
        };
        let pending = if access == Access::ReadOnly || self.report.clean {
            Vec::new()
        } else {
            self.pending(chain, &walk, &segments)?
        };
        let log_start = walk.log_start.min(end);
        let durable_end = walk.durable.max(log_start).min(end);
        (self.report.log_start, self.report.durable_end) = (log_start, durable_end);
        (self.report.end, self.report.walked_bytes) = (end, walk.bytes);
        self.report.damage.extend(walk.producers_fault);
        self.report.skipped.extend(walk.tables_rebuilt);
        Ok(Recovered {
            ends: Ends { log_start, durable_end, end },
            segments,
            phase,
            epoch: last.name.epoch,
            epoch_max: chain.epoch_max,
            last_append_time: walk.last_append_time,
            producers: walk.producers,
            pending,
            leftovers: chain.leftovers.iter().map(|file| self.dir.join(file)).collect(),
            report: self.report,
        })
    }

    /// Whether a file without a header, newer than the last segment, held batches: one that begins
    /// an epoch gets its first batch only after its header was synced. The table of producers is
    /// written with the header, so other bytes prove nothing.
    fn was_written_to(&self, chain: &Chain) -> Result<bool> {
        let last = chain.links.last().expect("there is a segment");
        for (name, _) in chain.unborn.iter().filter(|(name, _)| name.epoch > last.name.epoch) {
            let path = self.dir.join(name.log_file());
            let file = self.context.disk.open(&path, FileMode::Read)?;
            let mut bytes = vec![0_u8; 1024 * 1024];
            let read = file.read_at(&mut bytes, HEADER_BYTES as u64)?;
            if holds_batch(&bytes[..read], name.epoch) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sorts the bad bytes that were found below the end: damage if they held records.
    fn report_spots(&mut self, chain: &Chain, walk: &Walk<'_>) {
        for spot in &walk.spots {
            let link = chain.links.iter().find(|link| link.name == spot.segment);
            let Some(link) = link else { continue };
            let mut offsets = spot.offsets();
            if spot.next.is_none() {
                offsets.end = walk.durable.max(offsets.start);
            }
            let found = self.corruption(link, spot.bad.position, offsets, spot.bad.fault.clone());
            if offsets.is_empty() {
                self.report.skipped.push(found);
            } else {
                self.report.damage.push(found);
            }
        }
        // Segments that no walk was needed for may be lost all the same.
        for (link, next) in chain.links.iter().zip(chain.links.iter().skip(1)) {
            let told =
                self.report.damage.iter().any(|found| found.path.ends_with(link.name.log_file()));
            if let (Err(fault), false) = (&link.header, told) {
                let start = link.name.base.max(walk.log_start);
                let offsets = OffsetRange::new(start, next.name.base.max(start));
                let found = self.corruption(link, 0, offsets, fault.clone());
                if offsets.is_empty() {
                    self.report.skipped.push(found);
                } else {
                    self.report.damage.push(found);
                }
            }
        }
        let oldest = chain.links.first().expect("there is a segment");
        if oldest.name.base > walk.log_start {
            let offsets = OffsetRange::new(walk.log_start, oldest.name.base);
            let found = self.corruption(oldest, 0, offsets, Fault::FileMissing);
            self.report.damage.push(found);
        }
    }

    /// The segments as readers see them, and where the last one ends in its file.
    fn segments(
        &self,
        chain: &Chain,
        walk: &Walk<'_>,
        end: Offset,
    ) -> Result<(Vec<Arc<Segment>>, u64)> {
        let mut segments = Vec::with_capacity(chain.links.len());
        let mut last_end = 0;
        for (at, link) in chain.links.iter().enumerate() {
            let next = chain.links.get(at + 1);
            let offset = next.map_or(end, |next| next.name.base);
            let header = match &link.header {
                Ok(header) => header.clone(),
                Err(fault) => {
                    let place = self.place.clone();
                    segments.push(Segment::lost(place, link.name, fault.clone(), offset));
                    continue;
                }
            };
            let walked = walk.walked.iter().find(|(name, ..)| *name == link.name);
            let (position, index) = match (walked, link.end_position) {
                (Some((_, position, index)), _) => (*position, Some(index.clone())),
                (None, Some(position)) => (position, None),
                (None, None) => self.find_end(link)?,
            };
            let place = self.place.clone();
            let segment = Segment::sealed(place, header, SegmentEnd { position, offset });
            if let Some(index) = index {
                segment.set_index(index);
            }
            segments.push(segment);
            last_end = position;
        }
        Ok((segments, last_end))
    }

    /// Where the batches of a segment end whose successor's header can't be read.
    fn find_end(&self, link: &Link) -> Result<(u64, Option<SegmentIndex>)> {
        let Ok(header) = &link.header else { return Ok((0, None)) };
        let path = self.dir.join(link.name.log_file());
        let file = self.context.disk.open(&path, FileMode::Read)?;
        let (start, size) = (u64::from(header.data_start), file.size()?);
        let mut index = SegmentIndex::new(header.name.base, start);
        let mut scan = SegmentScan::new(file, header, (start, header.name.base), size, true);
        while let Some(found) = scan.step()? {
            if let crate::segment::Found::Batch { header, position } = found {
                index.add(&header, position);
            }
        }
        Ok((scan.position(), Some(index)))
    }

    /// What was read back and may be in the page cache alone.
    fn pending(
        &self,
        chain: &Chain,
        walk: &Walk<'_>,
        segments: &[Arc<Segment>],
    ) -> Result<Vec<Pending>> {
        let mut pending = Vec::new();
        for (name, end_position, index) in &walk.walked {
            let Some(segment) = segments.iter().find(|segment| segment.name() == *name) else {
                continue;
            };
            let last = chain.links.last().is_some_and(|last| last.name == *name);
            let end = segment.end().expect("it was recovered with an end").offset;
            if end <= walk.durable && !last {
                continue;
            }
            let start = if walk.durable > name.base {
                index.seek(walk.durable.min(end)).position
            } else {
                0
            };
            let file = self.context.disk.open(&segment.path(), FileMode::ReadWrite)?;
            let spots = walk.spots.iter().filter(|spot| spot.segment == *name);
            let ranges = without(start, *end_position, spots);
            pending.push(Pending::read_back(Arc::clone(segment), file, ranges));
        }
        Ok(pending)
    }
}

/// Where the magic number stands in a batch header.
const BATCH_MAGIC_AT: usize = 4;

/// Whether a batch of this epoch stands somewhere in the bytes. Without the segment's header its
/// header's checksum can't be told, but its body's can.
fn holds_batch(bytes: &[u8], epoch: u32) -> bool {
    memchr::memmem::find_iter(bytes, &MAGIC.to_le_bytes()).any(|magic_at| {
        let batch = magic_at.checked_sub(BATCH_MAGIC_AT).map(|at| &bytes[at..]);
        let batch = batch.and_then(|bytes| BatchView::parse(bytes).ok());
        batch.is_some_and(|(batch, _)| batch.header.epoch == epoch && batch.check_body().is_ok())
    })
}

/// The range `[start, end)` without the bad bytes in it: those are left as they are.
fn without<'a>(start: u64, end: u64, spots: impl Iterator<Item = &'a Spot>) -> Vec<(u64, u64)> {
    let (mut ranges, mut at) = (Vec::new(), start);
    for spot in spots {
        if spot.bad.position > at {
            ranges.push((at, spot.bad.position.min(end)));
        }
        at = at.max(spot.bad.end);
    }
    if at < end {
        ranges.push((at, end));
    }
    ranges
}

/// What a new segment says of this one, as its predecessor; nothing if it is lost.
pub(super) fn as_predecessor(segment: &Segment) -> Option<Predecessor> {
    let end = segment.end().filter(|_| segment.header().is_ok())?;
    let end_position = u32::try_from(end.position).ok()?;
    Some(Predecessor { name: segment.name(), end_position })
}
