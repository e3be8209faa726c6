//! Load: the groups as they were written, when the server starts; and where partitions start.

use std::collections::BTreeMap;
use std::sync::Arc;

use log_core::protocol::Refusal;
use log_core::store::GroupCommitted;
use log_core::{GroupName, Offset, StartFrom};

use super::cell::Cell;
use super::group::{Entry, Event, Group, NewGrant, Owner, Place, Position, TopicLine};
use super::{Coordinator, State};

impl Coordinator {
    /// Reads who held what, and how far groups have come.
    pub(super) fn load(&self) {
        let lines = match self.offsets.list_all() {
            Ok(lines) => lines,
            Err(error) => {
                tracing::error!("what groups have committed can't be read: {error}");
                *self.state.write() = State::Unusable(Refusal::from(&error));
                return;
            }
        };
        let mut by_group: BTreeMap<GroupName, Vec<GroupCommitted>> = BTreeMap::new();
        for line in lines {
            by_group.entry(line.group.clone()).or_default().push(line);
        }
        tracing::info!("{} groups have committed something", by_group.len());
        let mut cells = Vec::with_capacity(by_group.len());
        for (name, lines) in by_group {
            let group = self.restore(&lines);
            cells.push(Cell::new(name, group));
        }
        let mut groups = self.groups.write();
        groups.extend(cells.iter().map(|cell| (cell.name.clone(), Arc::clone(cell))));
        drop(groups);
        let mut state = self.state.write();
        if matches!(*state, State::Loading) {
            *state = State::Ready;
        }
        drop(state);
        // Arms their deadlines; and a topic may have changed meanwhile.
        cells.iter().for_each(|cell| self.tell(cell, Event::Tick));
        self.topics_changed();
    }

    fn restore(&self, lines: &[GroupCommitted]) -> Group {
        let mut topics: BTreeMap<Arc<str>, TopicLine> = BTreeMap::new();
        let mut entries = Vec::with_capacity(lines.len());
        for line in lines {
            let name: Arc<str> = Arc::from(line.topic.as_str());
            let known = || TopicLine { name: Arc::clone(&name), id: line.topic_id, partitions: 0 };
            let topic = topics.entry(Arc::clone(&name)).or_insert_with(|| {
                self.line(&name).filter(|found| found.id == line.topic_id).unwrap_or_else(known)
            });
            if let Some(committed) = line.committed.clamped_from {
                let (group, topic, partition) = (&line.group, &name, line.partition);
                tracing::warn!(%group, %topic, partition, committed, goes_on_from = line.committed.offset,
                    "the log has lost records that the group had read: it goes on where the log ended");
            }
            if topic.id == line.topic_id {
                entries.push(entry(line));
            }
        }
        let topics: Vec<TopicLine> = topics.into_values().collect();
        Group::restored(self.rules(), &topics, entries, self.clock.monotonic())
    }

    /// The offset that a way of starting means now. An offset past the end means the end.
    pub(super) fn resolve(
        &self,
        cell: &Cell,
        place: Place,
        start: StartFrom,
    ) -> Result<Offset, Refusal> {
        let partition = self.store.topic_by_id(place.topic_id);
        let partition = partition.and_then(|topic| topic.partition(place.partition));
        let found = partition.and_then(|partition| match start {
            StartFrom::Offset(offset) => Ok(offset.min(partition.readable_end())),
            start => partition.resolve(start),
        });
        found.map_err(|error| {
            let (group, partition) = (&cell.name, place.partition);
            tracing::warn!(%group, partition, "where to start could not be found out: {error}");
            Refusal::from(&error)
        })
    }
}

fn entry(line: &GroupCommitted) -> Entry {
    let committed = &line.committed;
    let owner = |owner: &log_core::Owner| Owner {
        member: Arc::clone(&owner.member),
        incarnation: owner.incarnation,
    };
    Entry {
        place: Place { topic_id: line.topic_id, partition: line.partition },
        position: Position { offset: committed.offset, settled: Arc::clone(&committed.settled) },
        grant: committed
            .grant
            .as_ref()
            .map(|grant| NewGrant { epoch: grant.epoch, owner: grant.owner.as_ref().map(owner) }),
    }
}
