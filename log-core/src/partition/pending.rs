//! Pending: a segment whose bytes are not all known to be on disk, and how they get there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::record::{Marker, MarkerKind, Stamp, stamp};
use crate::segment::{Segment, seed_at};

/// How much is written again at a time: a multiple of the largest pieces in which kernels keep
/// files in memory, which begin at multiples of their length.
const STEP: u64 = 4 * 1024 * 1024;

/// A segment with bytes that a power cut may take.
#[derive(Debug)]
pub(super) struct Pending {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Whether the directory was synced since the file was made.
    entry_durable: AtomicBool,
    /// Whether bytes that are no part of the log follow its end: nothing is written there.
    abandoned: AtomicBool,
    /// Bytes that were read back after an unclean stop. They may exist in the page cache alone,
    /// clean, where no sync would write them: so they are written again first.
    read_back: Mutex<Vec<(u64, u64)>>,
}

/// Why bytes did not become durable.
#[derive(Debug)]
pub(super) enum SyncFault {
    /// The sync failed: what is on disk is not known, and a later success would prove nothing.
    Final(Error),
    /// Something before the sync failed: it can be tried again.
    Passing(Error),
}

impl Pending {
    /// A segment that was just begun, or goes on after a clean stop.
    pub(super) fn written(segment: Arc<Segment>, file: Arc<dyn DiskFile>, new: bool) -> Pending {
        Pending {
            segment,
            file,
            entry_durable: AtomicBool::new(!new),
            abandoned: AtomicBool::new(false),
            read_back: Mutex::new(Vec::new()),
        }
    }

    /// A segment of which `ranges` were read back after an unclean stop.
    pub(super) fn read_back(
        segment: Arc<Segment>,
        file: Arc<dyn DiskFile>,
        ranges: Vec<(u64, u64)>,
    ) -> Pending {
        Pending {
            segment,
            file,
            entry_durable: AtomicBool::new(false),
            abandoned: AtomicBool::new(true),
            read_back: Mutex::new(ranges),
        }
    }

    /// See [`super::flush::Flush::abandon_newest`].
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether some of it was read back after an unclean stop and not synced since.
    pub(super) fn is_read_back(&self) -> bool {
        !self.read_back.lock().is_empty()
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Makes durable what was written to the segment before this call.
    pub(super) fn make_durable(
        &self,
        disk: &dyn Disk,
        dir: &Path,
    ) -> std::result::Result<(), SyncFault> {
        let mut read_back = self.read_back.lock();
        self.write_again(&read_back).map_err(SyncFault::Passing)?;
        self.file.sync().map_err(SyncFault::Final)?;
        if !self.entry_durable.load(Ordering::Acquire) {
            disk.sync_dir(dir).map_err(SyncFault::Final)?;
            self.entry_durable.store(true, Ordering::Release);
        }
        read_back.clear();
        Ok(())
    }

    /// Writes ranges again, the same bytes in the same place. The page cache lets go of them
    /// first: after a write that failed, ext4 goes on with pages that it believes to have their
    /// blocks, while the disk still has those as never written. A sync of what is written into
    /// such a page succeeds, and when the page goes, it reads as zeros.
    fn write_again(&self, ranges: &[(u64, u64)]) -> Result<()> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(()) };
        let mut block = first.0 / STEP * STEP;
        while block < last.1 {
            // All that is wanted of a block is in memory before the cache lets go of it.
            let mut pieces = Vec::new();
            for (start, end) in ranges {
                let (start, end) = (block.max(*start), (block + STEP).min(*end));
                if start < end {
                    pieces.push((start, self.read_piece(start, end)?));
                }
            }
            if !pieces.is_empty() {
                self.file.forget(block, STEP);
            }
            for (start, bytes) in pieces {
                self.file.write_at(&bytes, start)?;
            }
            block += STEP;
        }
        Ok(())
    }

    fn read_piece(&self, start: u64, end: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end - start).expect("at most a step")];
        let read = self.file.read_at(&mut bytes, start)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes and syncs the marker that says: the successor of this segment, its header and its
    /// name, are durable. From then on, a successor that is missing is damage, not a cut.
    pub(super) fn vouch_for_successor(
        &self,
        log_start: Offset,
        durable_end: Offset,
    ) -> std::result::Result<(), SyncFault> {
        let (Ok(header), Some(end)) = (self.segment.header(), self.segment.end()) else {
            return Ok(());
        };
        if self.abandoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut bytes = Marker { kind: MarkerKind::Roll, log_start }.encode();
        let fields = Stamp {
            base_offset: end.offset,
            append_time: header.created,
            durable_end,
            epoch: header.name.epoch,
        };
        stamp(&mut bytes, fields, seed_at(header.seed(), end.position));
        self.file.write_at(&bytes, end.position).map_err(SyncFault::Passing)?;
        self.file.sync().map_err(SyncFault::Final)
    }
}
