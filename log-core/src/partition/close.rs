//! Rest and close: markers by which the log itself tells how far it was synced.

use std::time::Duration;

use super::append::{Phase, Writer};
use super::checkpoint::Checkpoint;
use super::{Partition, Shared};
use crate::config::FlushPolicy;
use crate::error::{Error, Result};
use crate::record::{MARKER_BYTES, MarkerKind};
use crate::segment::SegmentName;

/// How long nothing must have been appended before a marker tells what is durable.
const IDLE_AFTER_SYNC: Duration = Duration::from_secs(1);
const IDLE_AFTER_ELSE: Duration = Duration::from_secs(30);

impl Partition {
    /// Syncs everything, marks the log as cleanly closed, and takes no more appends. Reading goes
    /// on. Closing twice is fine.
    ///
    /// # Errors
    /// `SyncFailed`, `DiskFull`, `Io`: nothing that was acknowledged is lost, the next open looks
    /// at the log as after a crash.
    pub fn close(&self) -> Result<()> {
        let shared = &*self.0;
        let outcome = shared.close();
        shared.release_all(&Error::Closed { what: "store" });
        outcome
    }

    /// Takes no more appends and writes nothing more: what the partition is in is being removed.
    #[doc(hidden)]
    pub fn stop(&self) {
        let mut writer = self.0.writer.lock();
        writer.phase = Phase::Refused(Error::Closed { what: "topic" });
        drop(writer);
        self.0.set_closed();
        self.0.release_all(&Error::Closed { what: "topic" });
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.set_closed();
        let closed = Phase::Refused(Error::Closed { what: "store" });
        let outcome = match &writer.phase {
            // Nothing was appended since the last clean stop; or nothing may be written.
            Phase::Resting(_) | Phase::Refused(_) => Ok(None),
            Phase::Active(_) | Phase::Detached(_) => self.mark_closed(&mut writer).map(Some),
        };
        writer.phase = closed;
        drop(writer);
        let Some(checkpoint) = outcome? else { return Ok(()) };
        // It only saves time: that it can't be written harms nothing.
        let _ = checkpoint.store(&*self.context.disk, &self.dir);
        Ok(())
    }

    fn mark_closed(&self, writer: &mut Writer) -> Result<Checkpoint> {
        // The marker vouches for what was synced before it, so that comes first; and where there
        // is no room for the marker, this much is done.
        self.sync_now()?;
        let now = self.context.clock.now().max(writer.last_append_time);
        let way = self.write_way(&writer.config);
        self.make_room(writer, MARKER_BYTES, way, now)?;
        if self.flush.segments() > 1 {
            self.seal()?;
        }
        let Phase::Active(active) = &writer.phase else { unreachable!("make_room made it so") };
        let segment = std::sync::Arc::clone(active.segment());
        let marker_position = active.position();
        let index = segment.with_index(Clone::clone)?;
        let header = segment.header().map_err(|_| Error::Closed { what: "partition" })?;
        let checkpoint = Checkpoint {
            segment: SegmentName { base: header.name.base, epoch: header.name.epoch },
            nonce: header.nonce,
            marker_position,
            end: writer.end,
            log_start: self.ends.log_start(),
            last_append_time: writer.last_append_time,
            index,
            producers: writer.producers.clone(),
        };
        self.append_marker(writer, MarkerKind::Close)?;
        self.sync_now()?;
        Ok(checkpoint)
    }

    /// Has a marker tell what is durable, if nothing was appended for a while: until then, the
    /// last batches are not proven to have been synced by anything that is in the log.
    pub(super) fn mark_idle(&self) -> Result<bool> {
        let (end, after) = {
            let writer = self.writer.lock();
            if !writer.unproven || !matches!(writer.phase, Phase::Active(_)) {
                return Ok(false);
            }
            let after = match writer.config.flush {
                FlushPolicy::Sync => IDLE_AFTER_SYNC,
                FlushPolicy::Interval { .. } | FlushPolicy::Os => IDLE_AFTER_ELSE,
            };
            (writer.end, after)
        };
        let now = self.context.clock.monotonic();
        let since = {
            let mut quiet = self.quiet.lock();
            let seen = quiet.filter(|(seen, _)| *seen == end).map_or(now, |(_, since)| since);
            *quiet = Some((end, seen));
            seen
        };
        if now.saturating_sub(since) < after {
            return Ok(false);
        }
        self.sync_now()?;
        let mut writer = self.writer.lock();
        if writer.end != end || !matches!(writer.phase, Phase::Active(_)) {
            return Ok(false);
        }
        self.append_marker(&mut writer, MarkerKind::Idle)?;
        writer.unproven = false;
        drop(writer);
        self.sync_now()?;
        Ok(true)
    }
}
