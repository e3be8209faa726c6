//! Write: checks what a group commits, and appends it to `__offsets` in the order of the state.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::{Committed, EntryChange};
use super::state::{Change, Place, State};
use super::stored;
use crate::config::TopicConfig;
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::Offset;
use crate::partition::Partition;
use crate::record::{Record, encoded_len};
use crate::store::Shared;

/// How `__offsets` is kept.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
/// Room for a change of all partitions of a large topic: that is one batch.
const BATCH_BYTES: u32 = 8 * 1024 * 1024;
pub(super) const RECORD_BYTES: u32 = 64 * 1024;
/// How much is written at once where it need not be one batch, while commits wait.
pub(super) const CHUNK_BYTES: u64 = 256 * 1024;

/// Records that were written: where to wait for them.
pub(super) struct Written {
    pub(super) log: Partition,
    pub(super) end: Offset,
}

impl Written {
    pub(super) fn wait(self) -> Result<()> {
        self.log.wait_durable(self.end)
    }
}

impl Shared {
    /// Changes entries of a group, all of them or none.
    pub(super) fn write_entries(
        &self,
        group: &GroupName,
        wanted: &[EntryChange<'_>],
    ) -> Result<Written> {
        let now = self.context.clock.now();
        let mut places = Vec::with_capacity(wanted.len());
        for change in wanted {
            places.push(self.place_of(group, change)?);
        }
        let log = self.offsets_log()?;
        self.write_changes(&log, group, |state| {
            // What comes first in this call is there for what comes after it.
            let mut made: HashMap<Place, Arc<Committed>> = HashMap::new();
            let mut changes = Vec::with_capacity(wanted.len());
            let mut count = state.count();
            for (change, place) in wanted.iter().zip(places) {
                let before = made.get(&place).or_else(|| state.latest(group, place));
                if change.position.is_none()
                    && !made.contains_key(&place)
                    && !state.is_pending(group, place)
                {
                    // It would make the old position a new one.
                    state.refuse_doubtful(group, place)?;
                }
                let Some(after) = change.apply(group, before.map(|b| &**b), now)? else { continue };
                if before.is_none() {
                    count += 1;
                    self.refuse_too_many(count)?;
                }
                let after = Arc::new(after);
                made.insert(place, Arc::clone(&after));
                changes.push(Change { place, commit: Some(after) });
            }
            Ok(changes)
        })
    }

    /// Whose entry a change is of, and whether it could be one there.
    fn place_of(&self, group: &GroupName, change: &EntryChange<'_>) -> Result<Place> {
        let topic = self.topic(change.topic)?;
        if change.topic_id.is_some_and(|id| id != topic.id) {
            return Err(Error::StaleTopic(topic.name.clone()));
        }
        let end = match change.position {
            Some(_) => topic.partition(change.partition)?.readable_end(),
            // A partition that can't be read may still be given to somebody, and taken away.
            None => topic.check_partition(change.partition).map(|()| Offset::MAX)?,
        };
        change.check(group, end)?;
        Ok((topic.id, change.partition))
    }

    fn refuse_too_many(&self, count: usize) -> Result<()> {
        let (actual, limit) = (count as u64, self.config.group_offsets_max as u64);
        if actual > limit {
            return Err(Error::TooLarge { what: "number of committed offsets", actual, limit });
        }
        Ok(())
    }

    pub(super) fn remove_entries(
        &self,
        group: &GroupName,
        which: impl FnOnce(&State) -> Vec<Place>,
    ) -> Result<usize> {
        self.refuse_closed()?;
        if self.offsets.settled()?.log.is_none() {
            return Ok(0);
        }
        let mut count = 0;
        let log = self.offsets_log()?;
        let written = self.write_changes(&log, group, |state| {
            let places = which(state);
            count = places.len();
            Ok(places.into_iter().map(|place| Change { place, commit: None }).collect())
        })?;
        written.wait()?;
        Ok(count)
    }

    /// Writes what `decide` decides on, all in one batch, in the order of the state.
    fn write_changes(
        &self,
        log: &Partition,
        group: &GroupName,
        decide: impl FnOnce(&State) -> Result<Vec<Change>>,
    ) -> Result<Written> {
        let mut state = self.offsets.settled()?;
        let changes = decide(&state)?;
        if changes.is_empty() {
            return Ok(Written { log: log.clone(), end: 0 });
        }
        let entries = changes.iter().map(|change| (group, change.place, change.commit.as_deref()));
        let (end, bytes) = self.append_entries(log, entries)?;
        state.appended_bytes += bytes;
        state.wrote(end, group, changes);
        Ok(Written { log: log.clone(), end })
    }

    /// Writes entries as records of one batch; returns its end, and how many bytes it took.
    pub(super) fn append_entries<'a>(
        &self,
        log: &Partition,
        entries: impl Iterator<Item = (&'a GroupName, Place, Option<&'a Committed>)>,
    ) -> Result<(Offset, u64)> {
        let now = self.context.clock.now();
        let mut encoded = Vec::new();
        for (group, place, commit) in entries {
            let at = commit.map_or(now, |commit| commit.committed_at);
            encoded.push((stored::encode_key(group, place), commit.map(stored::encode_commit), at));
        }
        let mut records = Vec::with_capacity(encoded.len());
        for (key, value, at) in &encoded {
            let record = Record { value: value.as_deref(), ..Record::default() };
            records.push(record.with_key(key).with_timestamp(*at));
        }
        let bytes = encoded_len(&records, now) as u64;
        let appended = log.write(&records, None)?;
        Ok((appended.end, bytes))
    }

    /// Partition 0 of `__offsets`, made if it is missing.
    fn offsets_log(&self) -> Result<Partition> {
        if self.read_only {
            return Err(Error::ReadOnly { path: self.data.clone() });
        }
        self.refuse_closed()?;
        if let Some(log) = &self.offsets.settled()?.log {
            return Ok(log.clone());
        }
        // Outside the state's lock: making a topic takes the catalog's.
        let name = TopicName::offsets();
        let topic = match self.create_topic(&name, 1, offsets_config()) {
            Err(Error::TopicExists(_)) => self.topic(&name)?,
            made => made?,
        };
        let log = topic.partition(0)?;
        self.offsets.state.lock().log = Some(log.clone());
        Ok(log)
    }
}

pub(in crate::store) fn offsets_config() -> TopicConfig {
    TopicConfig {
        segment_max_bytes: SEGMENT_BYTES,
        batch_max_bytes: BATCH_BYTES,
        record_max_bytes: RECORD_BYTES,
        ..TopicConfig::default()
    }
}
