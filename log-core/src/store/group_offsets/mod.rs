//! GroupOffsets: the next offset to read, for each group and partition, kept in the topic
//! `__offsets`.
//!
//! - An entry, of a group and a partition, says where the group stands, and who holds the
//!   partition for it: see [`EntryChange`].
//! - A commit is durable when it is answered. What others see is durable, always.
//! - It never goes back, but for a reset, and never lies past what can be read.
//! - It may lie below the oldest record: reading there tells so, and the reader decides.
//! - Entries belong to a topic's id: a topic that is deleted and made anew has none.
//! - One past the end of its partition (a topic without sync has lost a suffix) is moved
//!   back to the end when the store is opened, before anything can be appended; it says from where.
//! - The log of commits is bounded: when it has grown far over what is alive, all that is alive is
//!   written again, and what comes before is trimmed.

mod entry;
mod replay;
mod snapshot;
mod state;
mod stored;
mod write;

use std::fmt;

use parking_lot::Mutex;

use self::state::{Place, Shown, State};
use self::write::Written;

pub use self::entry::{Committed, EntryChange, Grant, Moves, NewPosition, OffsetCommit, Owner};
pub(super) use self::write::offsets_config;
use super::{Shared, Store, TopicShared};
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::Offset;

/// A handle to what groups have committed; clones share it. It keeps the store open.
#[derive(Clone)]
pub struct GroupOffsets {
    store: Store,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCommitted {
    /// The group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// Its id.
    pub topic_id: u128,
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

    /// Commits for several partitions of a group: all of it or nothing, durably. Who holds them
    /// stays as it is.
    ///
    /// # Errors
    /// `OffsetWentBack`; `OffsetBeyondEnd`; `UnknownTopic`; `StaleTopic`; `UnknownPartition`;
    /// `IllegalSettled`; `TooLarge` for metadata, for too many settled ranges, for one commit of
    /// very many partitions, or over `group_offsets_max`; `ReadOnly`; `Closed`; `DiskFull`; `Io`:
    /// nothing is committed. `SyncFailed` if it is unknown.
    pub fn commit_all(&self, group: &GroupName, commits: &[OffsetCommit<'_>]) -> Result<()> {
        self.write(group, &changes(commits, Moves::Forward))
    }

    /// The same without a thread that waits: `then` is called once the outcome is known, at once
    /// or from a background thread.
    pub fn commit_then(
        &self,
        group: &GroupName,
        commits: &[OffsetCommit<'_>],
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        self.write_then(group, &changes(commits, Moves::Forward), then);
    }

    /// Sets committed offsets, back, too: records will be read again. All of them or none, durably.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`], but for `OffsetWentBack`.
    pub fn reset(&self, group: &GroupName, commits: &[OffsetCommit<'_>]) -> Result<()> {
        self.write(group, &changes(commits, Moves::Anywhere))
    }

    /// Changes entries of a group, positions and grants: all of it or nothing, durably. Changes of
    /// the same partition are made in their order.
    ///
    /// # Errors
    /// As [`GroupOffsets::commit_all`]; `GrantWentBack`; `NoPosition` for a grant where the group
    /// has no position; for a grant without a position also what [`GroupOffsets::fetch`] says of
    /// an entry that may be lost.
    pub fn write(&self, group: &GroupName, changes: &[EntryChange<'_>]) -> Result<()> {
        self.shared().write_entries(group, changes)?.wait()
    }

    /// The same without a thread that waits for the disk: `then` is called once the outcome is
    /// known, at once or from a background thread. It must not block. What is refused is told at
    /// once. Writing itself may block as [`Partition::write`](crate::Partition::write) may.
    pub fn write_then(
        &self,
        group: &GroupName,
        changes: &[EntryChange<'_>],
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        match self.shared().write_entries(group, changes) {
            Ok(Written { log, end }) => log.when_durable(end, then),
            Err(error) => then(Err(error)),
        }
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
        let place = (topic.id, partition);
        state.refuse_doubtful(group, place)?;
        let shown = state.shown(group, place);
        Ok(shown.map(|shown| within_log(&shown.commit, &topic, partition)))
    }

    /// What a group has committed, by topic and partition.
    ///
    /// # Errors
    /// `Closed`; what kept `__offsets` from being read.
    pub fn list(&self, group: &GroupName) -> Result<Vec<GroupCommitted>> {
        self.shared().refuse_closed()?;
        let state = self.shared().offsets.settled()?;
        let mut lines: Vec<_> = state
            .shown_of(group)
            .filter_map(|(place, shown)| self.line(group, place, shown))
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

    fn line(&self, group: &GroupName, place: Place, shown: &Shown) -> Option<GroupCommitted> {
        let (topic_id, partition) = place;
        let topic = self.shared().topic_by_id(topic_id).ok()?;
        Some(GroupCommitted {
            group: group.clone(),
            topic: topic.name.clone(),
            topic_id,
            partition,
            committed: within_log(&shown.commit, &topic, partition),
        })
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

fn changes<'a>(commits: &[OffsetCommit<'a>], moves: Moves) -> Vec<EntryChange<'a>> {
    commits.iter().map(|commit| commit.change(moves)).collect()
}

/// The store was opened with entries clamped already; this is for what may come later.
fn within_log(committed: &Committed, topic: &TopicShared, partition: u32) -> Committed {
    topic.clamped(committed, partition).unwrap_or_else(|| committed.clone())
}

impl TopicShared {
    /// What an entry becomes if its partition ends before it. Where the end is not known, nothing
    /// is past it.
    fn clamped(&self, committed: &Committed, partition: u32) -> Option<Committed> {
        let partition = self.partition(partition).ok()?;
        let end = (!partition.recovery_report().end_unproven).then(|| partition.ends().end)?;
        committed.clamped_to(end)
    }
}

impl fmt::Debug for GroupOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupOffsets of {:?}", self.store)
    }
}
