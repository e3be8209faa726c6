//! Retention and trim: whole sealed segments go, the oldest first, once `log_start` is durable.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::append::Phase;
use super::{Ends, Partition, Shared};
use crate::clock::Timestamp;
use crate::config::RetentionPolicy;
use crate::error::{Error, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::MarkerKind;
use crate::segment::Segment;

/// A segment that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedSegment {
    /// Its file.
    pub path: PathBuf,
    /// The offsets that went with it.
    pub offsets: OffsetRange,
    /// How many bytes were in use.
    pub bytes: u64,
}

/// A wall clock for ages. It follows the real one, but forward at most twice as fast as time
/// passes: a clock that jumps ahead must not empty a topic at once.
#[derive(Debug)]
pub(super) struct AgeClock(Mutex<Option<(Timestamp, Duration)>>);

impl AgeClock {
    pub(super) fn new() -> AgeClock {
        AgeClock(Mutex::new(None))
    }

    /// What time it is, as far as ages are concerned.
    pub(super) fn now(&self, wall: Timestamp, monotonic: Duration) -> Timestamp {
        let mut last = self.0.lock();
        let now = match *last {
            None => wall,
            Some((then, at)) => {
                let passed = monotonic.saturating_sub(at);
                let now = wall.min(then.saturating_add(passed.saturating_mul(2)));
                // A clock that was set back for a while must not slow this one down after.
                *last = Some((now.max(then.saturating_add(passed)), monotonic));
                return now;
            }
        };
        *last = Some((now, monotonic));
        now
    }
}

impl Partition {
    /// Gives up the records below `to`. Whole segments are removed, the oldest first; what is
    /// below `to` in the segment that holds it can't be read any more.
    ///
    /// # Errors
    /// `OffsetOutOfRange` past the readable end; `DiskFull`, `SyncFailed`, `Io`: nothing was
    /// removed that is not below the durable `log_start`.
    pub fn trim(&self, to: Offset) -> Result<Vec<RemovedSegment>> {
        let shared = &*self.0;
        shared.may_write()?;
        let (Ends { log_start, .. }, end) = (self.ends(), self.readable_end());
        if to > end {
            return Err(Error::OffsetOutOfRange { offset: to, log_start, end });
        }
        shared.raise_log_start(to)?;
        shared.remove_segments()
    }
}

impl Shared {
    /// What the retention policy removes now.
    pub(super) fn retain(&self, policy: RetentionPolicy) -> Result<Vec<RemovedSegment>> {
        let keep_from = self.keep_from(policy, self.age_now());
        self.raise_log_start(keep_from)?;
        self.remove_segments()
    }

    /// What time it is, as far as ages are concerned.
    pub(super) fn age_now(&self) -> Timestamp {
        self.age_clock.now(self.context.clock.now(), self.context.clock.monotonic())
    }

    /// The base offset of the oldest segment that stays.
    fn keep_from(&self, policy: RetentionPolicy, now: Timestamp) -> Offset {
        let segments = self.segments.read().clone();
        let mut left: u64 = segments.iter().map(|segment| segment.used_bytes()).sum();
        let mut keep_from = self.ends.log_start();
        for (at, segment) in segments.iter().enumerate() {
            let Some(end) = self.removable(segment) else { break };
            let too_old = policy.max_age.is_some_and(|age| {
                // Of one that can't be read, this much is known: it is older than its successor.
                let begun = || segments.get(at + 1)?.header().ok().map(|header| header.created);
                let last = segment.times().ok().map(|times| times.last_append).or_else(begun);
                last.is_some_and(|last| now.saturating_since(last) > age)
            });
            let without = left.saturating_sub(segment.used_bytes());
            let too_much = policy.max_bytes.is_some_and(|most| without >= most);
            if !too_old && !too_much {
                break;
            }
            left = without;
            keep_from = keep_from.max(end);
        }
        keep_from
    }

    /// Where a segment ends, if nothing is written to it and no sync is due.
    fn removable(&self, segment: &Arc<Segment>) -> Option<Offset> {
        let end = segment.end()?;
        if self.flush.holds(segment) {
            return None;
        }
        // The last one is where appends go on.
        let last = self.segments.read().last().is_some_and(|last| Arc::ptr_eq(last, segment));
        (!last).then_some(end.offset)
    }

    /// Makes a new `log_start` durable, in the log itself, then visible.
    fn raise_log_start(&self, to: Offset) -> Result<()> {
        if to <= self.ends.log_start() {
            return Ok(());
        }
        {
            let mut writer = self.writer.lock();
            // What is given up must not be needed to prove where the log ends.
            if self.ends.durable() < to {
                self.sync_now()?;
            }
            self.append_marker_with(&mut writer, MarkerKind::Trim, to)?;
        }
        self.sync_now()?;
        self.ends.raise_log_start(to);
        Ok(())
    }

    /// Removes the segments that lie below `log_start`. Each removal is durable before the next:
    /// so what is left is always a suffix.
    pub(super) fn remove_segments(&self) -> Result<Vec<RemovedSegment>> {
        let _one_at_a_time = self.removing.lock();
        let mut removed = Vec::new();
        loop {
            let oldest = self.segments.read().first().cloned();
            let Some(oldest) = oldest else { break };
            match self.removable(&oldest) {
                Some(end) if end <= self.ends.log_start() => {
                    // After an unclean stop the marker may be in the page cache alone.
                    if self.flush.holds_read_back() {
                        self.sync_now()?;
                    }
                    removed.push(self.remove(&oldest, end)?);
                }
                _ => break,
            }
        }
        Ok(removed)
    }

    fn remove(&self, segment: &Arc<Segment>, end: Offset) -> Result<RemovedSegment> {
        let disk = &*self.context.disk;
        for path in [segment.path(), segment.index_path()] {
            match disk.remove_file(&path) {
                Err(error) if !crate::disk::is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        disk.sync_dir(&self.dir)?;
        self.segments.write().retain(|other| !Arc::ptr_eq(other, segment));
        self.context.metrics.segments_removed.add(1);
        Ok(RemovedSegment {
            path: segment.path(),
            offsets: OffsetRange::new(segment.name().base, end),
            bytes: segment.used_bytes(),
        })
    }

    /// Removes the files that an unclean stop has left behind, once the log begins after them.
    pub(super) fn remove_hidden(&self) -> Result<()> {
        let log_start = self.ends.log_start();
        let mut hidden = self.hidden.lock();
        while let Some(at) = hidden.iter().position(|name| name.base < log_start) {
            for file in [hidden[at].log_file(), hidden[at].index_file()] {
                match self.context.disk.remove_file(&self.dir.join(file)) {
                    Err(error) if !crate::disk::is_not_found(&error) => return Err(error),
                    _ => {}
                }
            }
            hidden.swap_remove(at);
        }
        Ok(())
    }

    /// Closes a segment whose first record is older than `max_age`, so that retention gets at it.
    pub(super) fn roll_by_age(&self, max_age: Duration) -> Result<bool> {
        let mut writer = self.writer.lock();
        let Phase::Active(active) = &writer.phase else { return Ok(false) };
        let segment = Arc::clone(active.segment());
        let now = self.context.clock.now();
        let first = segment.times()?.first_append;
        if first.is_none_or(|first| now.saturating_since(first) < max_age) {
            return Ok(false);
        }
        if segment.name().base == writer.end || self.flush.is_latched() {
            return Ok(false);
        }
        let way = self.write_way(&writer.config);
        self.roll(&mut writer, 0, way, now)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_counts_for_little() {
        let clock = AgeClock::new();
        let at = Timestamp::from_millis;
        assert_eq!(clock.now(at(1_000), Duration::ZERO), at(1_000));
        let year = 31_536_000_000;
        assert_eq!(clock.now(at(year), Duration::from_millis(500)), at(2_000));
        assert_eq!(clock.now(at(year), Duration::from_millis(1_000)), at(3_000));
        assert_eq!(clock.now(at(2_500), Duration::from_millis(1_000)), at(2_500));
        // Set back to the epoch for a while, it goes on where it was.
        assert_eq!(clock.now(at(0), Duration::from_millis(2_000)), at(0));
        assert_eq!(clock.now(at(5_000), Duration::from_millis(2_000)), at(4_000));
    }
}
