//! GroupOffsets: the next offset to read, for each group and partition, kept in the topic
//! `__offsets`.
//!
//! - A commit is durable when it is answered. What others see is durable, always.
//! - It never goes back, but for a reset, and never lies past what can be read.
//! - It may lie below the oldest record: reading there tells so, and the reader decides.
//! - Entries belong to a topic's id: a topic that is deleted and made anew has none.
//! - One past the end of its partition (a topic without sync has lost a suffix) is moved
//!   back to the end when the store is opened, before anything can be appended; it says from where.
//! - The log of commits is bounded: when it has grown far over what is alive, all that is alive is
//!   written again, and what comes before is trimmed.

mod replay;
mod snapshot;
mod state;
mod stored;
mod write;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use self::state::{Place, Shown, State};
use self::write::{Move, Written};

pub(super) use self::write::offsets_config;
use super::{Shared, Store, TopicShared};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::Offset;

/// A handle to what groups have committed; clones share it. It keeps the store open.
#[derive(Clone)]
pub struct GroupOffsets {
    store: Store,
}

/// What a group commits for one partition: the next offset to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetCommit<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// Its id, if it was noted when reading began: a topic that was made anew is told apart.
    pub topic_id: Option<u128>,
    /// The partition.
    pub partition: u32,
    /// The next offset to read.
    pub offset: Offset,
    /// A text that is kept with it, up to [`COMMIT_METADATA_LIMIT_BYTES`](crate::config::COMMIT_METADATA_LIMIT_BYTES).
    pub metadata: &'a str,
}

impl<'a> OffsetCommit<'a> {
    /// One without an id and without metadata.
    #[must_use]
    pub fn new(topic: &'a TopicName, partition: u32, offset: Offset) -> OffsetCommit<'a> {
        OffsetCommit { topic, topic_id: None, partition, offset, metadata: "" }
    }
}

/// What a group has committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: Offset,
    /// What was committed, if the log has lost records since and ends before it: `offset` is where
    /// the log ended then. Records after it were never read.
    pub clamped_from: Option<Offset>,
    /// The text that was kept with it.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub committed_at: Timestamp,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCommitted {
    /// The group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: u32,
    /// What it has committed there.
    pub committed: Committed,
}

/// What all handles share.
#[derive(Debug, Default)]
pub(super) struct OffsetsShared {
    /// Held while records are written, so that the log has the order of the state; never while
    /// their sync is waited for.
    state: Mutex<State>,
    /// Held by the one that makes a snapshot. Taken before `state`.
    snapshot: Mutex<()>,
}

impl GroupOffsets {
    pub(super) fn new(store: Store) -> GroupOffsets {
        GroupOffsets { store }
    }

    /// Commits the next offset to read, durably.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`].
    pub fn commit(
        &self,
        group: &GroupName,
        topic: &TopicName,
        partition: u32,
        offset: Offset,
    ) -> Result<()> {
        self.commit_all(group, &[OffsetCommit::new(topic, partition, offset)])
    }

    /// Commits for several partitions of a group: all of it or nothing, durably.
    ///
    /// # Errors
    /// `OffsetWentBack`; `OffsetBeyondEnd`; `UnknownTopic`; `StaleTopic`; `UnknownPartition`;
    /// `TooLarge` for metadata, for one commit of very many partitions, or over
    /// `group_offsets_max`; `ReadOnly`; `Closed`; `DiskFull`; `Io`: nothing is committed.
    /// `SyncFailed` if it is unknown.
    pub fn commit_all(&self, group: &GroupName, commits: &[OffsetCommit<'_>]) -> Result<()> {
        self.shared().write_commits(group, commits, Move::Forward)?.wait()
    }

    /// The same without a thread that waits: `then` is called once the outcome is known, at once
    /// or from a background thread.
    pub fn commit_then(
        &self,
        group: &GroupName,
        commits: &[OffsetCommit<'_>],
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        match self.shared().write_commits(group, commits, Move::Forward) {
            Ok(Written { log, end }) => log.when_durable(end, then),
            Err(error) => then(Err(error)),
        }
    }

    /// Sets committed offsets, back, too: records will be read again. All of them or none, durably.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`], but for `OffsetWentBack`.
    pub fn reset(&self, group: &GroupName, commits: &[OffsetCommit<'_>]) -> Result<()> {
        self.shared().write_commits(group, commits, Move::Anywhere)?.wait()
    }

    /// What a group has committed for a partition, if it has.
    ///
    /// # Errors
    /// `UnknownTopic`; `UnknownPartition`; `Corrupt` or `EndUnproven` if what was committed last may
    /// have been lost with damaged bytes of `__offsets`: commit or reset, or see
    /// [`GroupOffsets::accept_loss`].
    pub fn fetch(
        &self,
        group: &GroupName,
        topic: &TopicName,
        partition: u32,
    ) -> Result<Option<Committed>> {
        let topic = self.shared().topic(topic)?;
        topic.check_partition(partition)?;
        let state = self.shared().offsets.settled()?;
        let shown = state.shown(group, (topic.id, partition));
        if let Some(doubt) = &state.doubt
            && shown.is_none_or(|shown| shown.recorded_end <= doubt.sure_from)
        {
            return Err(doubt.error.clone());
        }
        Ok(shown.map(|shown| committed(shown, &topic, partition)))
    }

    /// What a group has committed, by topic and partition.
    ///
    /// # Errors
    /// `Closed`; what kept `__offsets` from being read.
    pub fn list(&self, group: &GroupName) -> Result<Vec<GroupCommitted>> {
        let topics = self.topics_by_id()?;
        let state = self.shared().offsets.settled()?;
        let mut lines: Vec<_> = state
            .shown_of(group)
            .filter_map(|(place, shown)| line(&topics, group, place, shown))
            .collect();
        lines.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(lines)
    }

    /// What all groups have committed.
    ///
    /// # Errors
    /// As [`GroupOffsets::list`].
    pub fn list_all(&self) -> Result<Vec<GroupCommitted>> {
        let mut lines = Vec::new();
        for group in self.groups()? {
            lines.extend(self.list(&group)?);
        }
        Ok(lines)
    }

    /// The groups that have committed something.
    ///
    /// # Errors
    /// As [`GroupOffsets::list`].
    pub fn groups(&self) -> Result<Vec<GroupName>> {
        self.shared().refuse_closed()?;
        Ok(self.shared().offsets.settled()?.groups().cloned().collect())
    }

    /// Forgets what a group has committed for a partition; `false` if that was nothing.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`].
    pub fn delete(&self, group: &GroupName, topic: &TopicName, partition: u32) -> Result<bool> {
        let place = (self.shared().topic(topic)?.id, partition);
        let removed = self.shared().remove_entries(group, |state| {
            state.latest(group, place).map(|_| place).into_iter().collect()
        })?;
        Ok(removed > 0)
    }

    /// Forgets all that a group has committed; returns for how many partitions that was.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`].
    pub fn delete_group(&self, group: &GroupName) -> Result<usize> {
        self.shared().remove_entries(group, |state| state.latest_places(group))
    }

    /// Writes all that is alive again, and trims what comes before. Done by itself when it is due.
    ///
    /// # Errors
    /// `DiskFull`; `Io`; `SyncFailed`: nothing is lost.
    pub fn snapshot(&self) -> Result<()> {
        self.shared().snapshot_offsets()
    }

    /// Why some commits may have been lost, if bytes of `__offsets` can't be read.
    #[must_use]
    pub fn doubt(&self) -> Option<Error> {
        let state = self.shared().offsets.state.lock();
        state.refusal.clone().or_else(|| state.doubt.as_ref().map(|doubt| doubt.error.clone()))
    }

    /// Takes what can be read of `__offsets` for the truth: groups may read again what they had
    /// committed, or start anew where their only commit was lost.
    ///
    /// # Errors
    /// As [`GroupOffsets::snapshot`], which this ends with.
    pub fn accept_loss(&self) -> Result<()> {
        self.shared().offsets.state.lock().doubt = None;
        self.snapshot()
    }

    fn shared(&self) -> &Shared {
        self.store.shared()
    }

    fn topics_by_id(&self) -> Result<Vec<Arc<TopicShared>>> {
        self.shared().refuse_closed()?;
        let mut topics = self.shared().all_topics();
        topics.sort_by_key(|topic| topic.id);
        Ok(topics)
    }
}

impl OffsetsShared {
    /// The state, what has become durable shown.
    fn settled(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if let Some(error) = &state.refusal {
            return Err(error.clone());
        }
        state.settle();
        Ok(state)
    }

    pub(super) fn forget_topic(&self, id: u128) {
        self.state.lock().forget_topic(id);
    }
}

fn committed(shown: &Shown, topic: &TopicShared, partition: u32) -> Committed {
    let commit = &shown.commit;
    let mut found = Committed {
        offset: commit.offset,
        clamped_from: commit.clamped_from,
        metadata: Arc::clone(&commit.metadata),
        committed_at: commit.committed_at,
    };
    // The store was opened with this clamped already; this is for what may come later.
    if let Ok(partition) = topic.partition(partition)
        && commit.offset > partition.ends().end
        && !partition.recovery_report().end_unproven
    {
        found.offset = partition.ends().end;
        found.clamped_from = commit.clamped_from.or(Some(commit.offset));
    }
    found
}

fn line(
    topics: &[Arc<TopicShared>],
    group: &GroupName,
    place: Place,
    shown: &Shown,
) -> Option<GroupCommitted> {
    let (id, partition) = place;
    let topic = &topics[topics.binary_search_by_key(&id, |topic| topic.id).ok()?];
    Some(GroupCommitted {
        group: group.clone(),
        topic: topic.name.clone(),
        partition,
        committed: committed(shown, topic, partition),
    })
}

impl fmt::Debug for GroupOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupOffsets of {:?}", self.store)
    }
}
