//! Snapshot: bounds the log of commits by writing what is alive again and trimming the rest.
//!
//! Everything below the snapshot's start is durable and shown before it begins, each entry that is
//! shown is written again unless a later change of it is in the log already, and only when all of
//! that is durable is the start trimmed to. So at any moment the log from `log_start` on says all.

use super::state::State;
use super::write::CHUNK_BYTES;
use crate::error::Result;
use crate::name::GroupName;
use crate::store::Shared;

use super::state::Place;

/// The log may grow by this much, whatever is alive.
const GROWTH_MIN_BYTES: u64 = 1024 * 1024;
/// And by this many times what is alive.
const GROWTH_FACTOR: u64 = 4;

impl State {
    fn is_snapshot_due(&self) -> bool {
        let most = GROWTH_MIN_BYTES.max(GROWTH_FACTOR * self.live_bytes());
        // What is in doubt must stay in doubt until somebody decides.
        self.log.is_some() && self.doubt.is_none() && (self.unwritten || self.appended_bytes > most)
    }
}

impl Shared {
    pub(in crate::store) fn snapshot_offsets_if_due(&self) -> Result<()> {
        if self.read_only || self.is_closed() || !self.offsets.state.lock().is_snapshot_due() {
            return Ok(());
        }
        self.snapshot_offsets()
    }

    pub(super) fn snapshot_offsets(&self) -> Result<()> {
        let _snapshot = self.offsets.snapshot.lock();
        let (log, start) = {
            let mut state = self.offsets.settled()?;
            let Some(log) = state.log.clone() else { return Ok(()) };
            if let Some(doubt) = &state.doubt {
                return Err(doubt.error.clone());
            }
            // From here on counts for the next one, also if this one fails: what fails again and
            // again must not fill the disk.
            state.appended_bytes = 0;
            let start = log.ends().end;
            (log, start)
        };
        log.wait_durable(start)?;
        let mut end = start;
        let mut after: Option<(GroupName, Place)> = None;
        loop {
            let mut state = self.offsets.settled()?;
            let chunk = state.chunk_after(after.as_ref(), CHUNK_BYTES);
            let Some((group, place, _)) = chunk.last() else { break };
            after = Some((group.clone(), *place));
            let entries =
                chunk.iter().map(|(group, place, commit)| (group, *place, Some(&**commit)));
            let (written_end, bytes) = self.append_entries(&log, entries)?;
            state.appended_bytes += bytes;
            end = written_end;
        }
        log.wait_durable(end)?;
        log.trim(start)?;
        self.offsets.state.lock().unwritten = false;
        Ok(())
    }
}
