//! Write: checks what a group commits, and appends it to `__offsets` in the order of the state.

use std::sync::Arc;

use super::OffsetCommit;
use super::state::{Change, Commit, Place, State};
use super::stored;
use crate::clock::Timestamp;
use crate::config::{COMMIT_METADATA_LIMIT_BYTES, TopicConfig};
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::Offset;
use crate::partition::Partition;
use crate::record::{Record, encoded_len};
use crate::store::Shared;

/// How `__offsets` is kept.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
const BATCH_BYTES: u32 = 1024 * 1024;

/// How a committed offset may move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Forward,
    Anywhere,
}

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
    pub(super) fn write_commits(
        &self,
        group: &GroupName,
        commits: &[OffsetCommit<'_>],
        may_move: Move,
    ) -> Result<Written> {
        let now = self.context.clock.now();
        let mut changes = Vec::with_capacity(commits.len());
        for wanted in commits {
            changes.push(self.change_to(group, wanted, now)?);
        }
        let log = self.offsets_log()?;
        self.write_changes(&log, group, |state| {
            for (wanted, change) in commits.iter().zip(&changes) {
                if may_move == Move::Forward {
                    refuse_going_back(state, group, wanted, change.place)?;
                }
                self.refuse_too_many(state, group, change.place)?;
            }
            Ok(changes)
        })
    }

    /// What a commit means, checked against its partition.
    fn change_to(
        &self,
        group: &GroupName,
        wanted: &OffsetCommit<'_>,
        now: Timestamp,
    ) -> Result<Change> {
        let topic = self.topic(wanted.topic)?;
        if wanted.topic_id.is_some_and(|id| id != topic.id) {
            return Err(Error::StaleTopic(topic.name.clone()));
        }
        let (actual, limit) = (wanted.metadata.len() as u64, COMMIT_METADATA_LIMIT_BYTES as u64);
        if actual > limit {
            return Err(Error::TooLarge { what: "metadata of a commit, bytes", actual, limit });
        }
        let end = topic.partition(wanted.partition)?.readable_end();
        if wanted.offset > end {
            return Err(Error::OffsetBeyondEnd {
                group: group.to_string(),
                topic: topic.name.clone(),
                partition: wanted.partition,
                offset: wanted.offset,
                end,
            });
        }
        let commit = Commit {
            offset: wanted.offset,
            metadata: Arc::from(wanted.metadata),
            committed_at: now,
            clamped_from: None,
        };
        Ok(Change { place: (topic.id, wanted.partition), commit: Some(Arc::new(commit)) })
    }

    fn refuse_too_many(&self, state: &State, group: &GroupName, place: Place) -> Result<()> {
        let (actual, limit) = (state.count() as u64 + 1, self.config.group_offsets_max as u64);
        if actual > limit && state.latest(group, place).is_none() {
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
        entries: impl Iterator<Item = (&'a GroupName, Place, Option<&'a Commit>)>,
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
        record_max_bytes: 64 * 1024,
        ..TopicConfig::default()
    }
}

fn refuse_going_back(
    state: &State,
    group: &GroupName,
    wanted: &OffsetCommit<'_>,
    place: Place,
) -> Result<()> {
    match state.latest(group, place) {
        Some(latest) if wanted.offset < latest.offset => Err(Error::OffsetWentBack {
            group: group.to_string(),
            topic: wanted.topic.clone(),
            partition: wanted.partition,
            committed: latest.offset,
            offset: wanted.offset,
        }),
        _ => Ok(()),
    }
}
