//! State: what groups have committed, as the log of it says. Plain: no locks, no I/O.
//!
//! A change is `pending` until its record is durable, and only then `shown`. `latest` is what the
//! pending ones lead to: a commit is measured against that, so that order holds among them, too.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::entry::Committed;
use crate::error::{Error, Result};
use crate::name::GroupName;
use crate::offset::Offset;
use crate::partition::Partition;

/// A topic's id, and one of its partitions.
pub(super) type Place = (u128, u32);

/// A commit that is durable, and one past the record of `__offsets` that says so.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) commit: Arc<Committed>,
    pub(super) recorded_end: Offset,
}

/// A change of one entry; none removes it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) place: Place,
    pub(super) commit: Option<Arc<Committed>>,
}

/// Records of `__offsets` that can't be read: entries without a record after them may be older
/// than what was committed.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    pub(super) error: Error,
    /// What was recorded from here on is sure.
    pub(super) sure_from: Offset,
}

#[derive(Debug)]
struct Pending {
    end: Offset,
    group: GroupName,
    changes: Vec<Change>,
}

/// Where a pending change ends, and what it sets.
type Latest = (Offset, Option<Arc<Committed>>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// Partition 0 of `__offsets`, once there is one.
    pub(super) log: Option<Partition>,
    /// Why it could not be read at all.
    pub(super) refusal: Option<Error>,
    pub(super) doubt: Option<Doubt>,
    /// Bytes appended to the log since a snapshot was last begun.
    pub(super) appended_bytes: u64,
    /// Some entry is not as the log says: a snapshot must write it.
    pub(super) unwritten: bool,
    shown: BTreeMap<GroupName, BTreeMap<Place, Shown>>,
    shown_count: usize,
    shown_bytes: u64,
    pending: VecDeque<Pending>,
    latest: HashMap<(GroupName, Place), Latest>,
    /// Topics that were deleted since the store was opened: late commits for them are dropped.
    deleted: HashSet<u128>,
}

impl State {
    /// One that answers everything with this error.
    pub(super) fn refusing(error: Error) -> State {
        State { refusal: Some(error), ..State::default() }
    }

    /// What the last change that was written leads to, durable or not.
    pub(super) fn latest(&self, group: &GroupName, place: Place) -> Option<&Arc<Committed>> {
        if let Some((_, commit)) = self.latest.get(&(group.clone(), place)) {
            return commit.as_ref();
        }
        self.shown(group, place).map(|shown| &shown.commit)
    }

    pub(super) fn shown(&self, group: &GroupName, place: Place) -> Option<&Shown> {
        self.shown.get(group)?.get(&place)
    }

    /// Why the newest change of an entry may be lost, if it may.
    pub(super) fn refuse_doubtful(&self, group: &GroupName, place: Place) -> Result<()> {
        let recorded = self.shown(group, place).map_or(0, |shown| shown.recorded_end);
        match &self.doubt {
            Some(doubt) if recorded <= doubt.sure_from => Err(doubt.error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether an entry has a change that is not shown yet.
    pub(super) fn is_pending(&self, group: &GroupName, place: Place) -> bool {
        self.latest.contains_key(&(group.clone(), place))
    }

    /// The entries of a group, or none.
    pub(super) fn shown_of(&self, group: &GroupName) -> impl Iterator<Item = (Place, &Shown)> {
        self.shown.get(group).into_iter().flatten().map(|(place, shown)| (*place, shown))
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.shown.keys()
    }

    /// The places for which a group has an entry, pending changes counted.
    pub(super) fn latest_places(&self, group: &GroupName) -> Vec<Place> {
        let pending = self.latest.iter().filter(|((other, _), _)| other == group);
        let mut places: Vec<Place> = pending.map(|((_, place), _)| *place).collect();
        places.extend(self.shown_of(group).map(|(place, _)| place));
        places.sort_unstable();
        places.dedup();
        places.retain(|place| self.latest(group, *place).is_some());
        places
    }

    /// How many entries there are, pending new ones counted: at most this many.
    pub(super) fn count(&self) -> usize {
        self.shown_count + self.latest.len()
    }

    /// About how many bytes the entries take in the log.
    pub(super) fn live_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// Notes changes whose records end before `end`.
    pub(super) fn wrote(&mut self, end: Offset, group: &GroupName, changes: Vec<Change>) {
        for change in &changes {
            let latest = (end, change.commit.clone());
            self.latest.insert((group.clone(), change.place), latest);
        }
        self.pending.push_back(Pending { end, group: group.clone(), changes });
    }

    /// Shows what has become durable.
    pub(super) fn settle(&mut self) {
        let Some(durable_end) = self.log.as_ref().map(|log| log.ends().durable_end) else { return };
        while let Some(next) = self.pending.pop_front_if(|next| next.end <= durable_end) {
            for Change { place, commit } in next.changes {
                let key = (next.group.clone(), place);
                if self.latest.get(&key).is_some_and(|(end, _)| *end == next.end) {
                    self.latest.remove(&key);
                }
                self.show(&key.0, place, commit, next.end);
            }
        }
    }

    /// Shows an entry as its record, which ends before `recorded_end`, has it.
    pub(super) fn show(
        &mut self,
        group: &GroupName,
        place: Place,
        commit: Option<Arc<Committed>>,
        recorded_end: Offset,
    ) {
        self.hide(group, place);
        let Some(commit) = commit.filter(|_| !self.deleted.contains(&place.0)) else { return };
        self.shown_count += 1;
        self.shown_bytes += commit.stored_bytes(group);
        let entries = self.shown.entry(group.clone()).or_default();
        entries.insert(place, Shown { commit, recorded_end });
    }

    fn hide(&mut self, group: &GroupName, place: Place) {
        let Some(entries) = self.shown.get_mut(group) else { return };
        if let Some(old) = entries.remove(&place) {
            self.shown_count -= 1;
            self.shown_bytes -= old.commit.stored_bytes(group);
        }
        if entries.is_empty() {
            self.shown.remove(group);
        }
    }

    /// Drops what is known of a topic, now and later.
    pub(super) fn forget_topic(&mut self, id: u128) {
        self.deleted.insert(id);
        let all = self.shown.iter().flat_map(|(group, entries)| {
            entries.range((id, 0)..=(id, u32::MAX)).map(|(place, _)| (group.clone(), *place))
        });
        for (group, place) in all.collect::<Vec<_>>() {
            self.hide(&group, place);
        }
    }

    /// The entries after `after`, in order, up to about `max_bytes`; those with a pending change
    /// are left out: their newest record is in the log already.
    pub(super) fn chunk_after(
        &self,
        after: Option<&(GroupName, Place)>,
        max_bytes: u64,
    ) -> Vec<(GroupName, Place, Arc<Committed>)> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        let first = after.map(|(group, _)| group);
        let groups = self.shown.range::<GroupName, _>((bound(first), std::ops::Bound::Unbounded));
        for (group, entries) in groups {
            for (place, shown) in entries {
                let is_behind = after.is_some_and(|(g, p)| g == group && place <= p);
                if is_behind || self.latest.contains_key(&(group.clone(), *place)) {
                    continue;
                }
                bytes += shown.commit.stored_bytes(group);
                chunk.push((group.clone(), *place, Arc::clone(&shown.commit)));
                if bytes >= max_bytes {
                    return chunk;
                }
            }
        }
        chunk
    }

    /// All entries.
    pub(super) fn all_shown(&self) -> impl Iterator<Item = (&GroupName, Place, &Shown)> {
        self.shown.iter().flat_map(|(group, entries)| {
            entries.iter().map(move |(place, shown)| (group, *place, shown))
        })
    }
}

fn bound<T>(first: Option<&T>) -> std::ops::Bound<&T> {
    first.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included)
}
