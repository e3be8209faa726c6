//! Survey: groups as they are told to people: describe, list; and delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log_core::clock::Timestamp;
use log_core::protocol::groups::{
    DeleteGroupV1, DescribeGroupV1, GroupLineV1, GroupMemberV1, GroupPartitionV1, GroupV1,
    ListGroupsReplyV1, ListGroupsV1,
};
use log_core::protocol::offsets::PositionV1;
use log_core::protocol::topics::DoneV1;
use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::GroupCommitted;
use log_core::{Partition, Store, TopicName};
use tokio::sync::oneshot;

use super::cell::{Cell, CellState, Phase};
use super::group::{MemberView, Owner, Place, Standing};
use super::offsets::refused;
use super::{Coordinator, group_name, lock_there, stopping};
use crate::context::Peer;
use crate::engine;

impl Coordinator {
    /// A group with its members, its partitions, and how far it is behind.
    ///
    /// # Errors
    /// `UnknownGroup`; `Loading`; `Stopping`.
    pub(crate) async fn describe(
        &self,
        _peer: &Peer,
        request: DescribeGroupV1,
    ) -> Result<GroupV1, Refusal> {
        let name = group_name(&request.group)?;
        let cell = self.cell(&name)?;
        let (members, places, forced) = {
            let state = cell.state.lock();
            (self.members_of(&state), places_of(&state), state.group.forced())
        };
        let (store, offsets, now) = (self.store.clone(), self.offsets.clone(), self.clock.now());
        // The time that it is behind is read from the log.
        let surveyed = engine::blocking(move || {
            let committed = offsets.list(&name).map_err(refused)?;
            Ok(survey(&store, places, committed, now))
        });
        let partitions = surveyed.await?;
        Ok(GroupV1 { group: request.group, members, partitions, forced })
    }

    fn members_of(&self, state: &CellState) -> Vec<GroupMemberV1> {
        let now = self.clock.monotonic();
        let described = |member: MemberView<'_>| {
            let owner = Owner { member: Arc::from(member.member), incarnation: member.incarnation };
            let peer = state.sessions.get(&owner).map(|session| &session.peer);
            let millis = |duration: std::time::Duration| {
                u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
            };
            GroupMemberV1 {
                member: member.member.to_owned(),
                incarnation: member.incarnation,
                client_id: peer.map(|peer| peer.client_id.clone()).unwrap_or_default(),
                address: peer.map(|peer| peer.address.to_string()).unwrap_or_default(),
                topics: member.topics.iter().map(ToString::to_string).collect(),
                leaving: matches!(member.standing, Standing::Leaving | Standing::Kept { .. }),
                heard: millis(now.saturating_sub(member.heard)),
                processing: millis(member.processing),
            }
        };
        state.group.members().map(described).collect()
    }

    /// The groups there are.
    ///
    /// # Errors
    /// `Loading`; `Stopping`.
    pub(crate) async fn list(
        &self,
        _peer: &Peer,
        _request: ListGroupsV1,
    ) -> Result<ListGroupsReplyV1, Refusal> {
        self.refuse_unready()?;
        let cells: Vec<Arc<Cell>> = self.groups.read().values().cloned().collect();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let line = |cell: &Arc<Cell>| {
            let state = cell.state.lock();
            let committed = state.group.slots().filter(|(_, slot)| slot.position.is_some());
            GroupLineV1 {
                group: cell.name.as_str().to_owned(),
                members: count(state.group.members().count()),
                partitions: count(committed.count()),
            }
        };
        let mut groups: Vec<GroupLineV1> = cells.iter().map(line).collect();
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(ListGroupsReplyV1 { groups })
    }

    /// Forgets a group, and what it has committed.
    ///
    /// # Errors
    /// `UnknownGroup`; `GroupInUse`; what kept it from being written.
    pub(crate) async fn delete(
        &self,
        _peer: &Peer,
        request: DeleteGroupV1,
    ) -> Result<DoneV1, Refusal> {
        let cell = self.cell(&group_name(&request.group)?)?;
        {
            let mut state = lock_there(&cell)?;
            if !state.group.is_unused() {
                let text = format!("group {} has members, or had a moment ago", cell.name);
                return Err(Refusal::new(ErrorCode::GroupInUse, text));
            }
            state.phase = Phase::Going;
        }
        let (sender, outcome) = oneshot::channel();
        let Some(me) = self.me.upgrade() else { return Err(stopping()) };
        self.writes.push(move || {
            // Who has asked may be gone; the group goes all the same.
            let _ = sender.send(me.forget(&cell));
        });
        outcome.await.map_err(|_| stopping())??;
        tracing::info!(group = %request.group, "deleted");
        Ok(DoneV1 {})
    }

    fn forget(&self, cell: &Arc<Cell>) -> Result<(), Refusal> {
        let removed = self.offsets.delete_group(&cell.name);
        let mut groups = self.groups.write();
        let mut state = cell.state.lock();
        match removed {
            Ok(_) => {
                state.phase = Phase::Gone;
                self.epoch_floor.fetch_max(state.group.last_epoch(), Ordering::SeqCst);
                groups.remove(&cell.name);
                Ok(())
            }
            Err(error) => {
                state.phase = Phase::There;
                Err(refused(error))
            }
        }
    }
}

/// What is known of the partitions of a group beside what it has committed.
type Places = BTreeMap<Place, GroupPartitionV1>;

fn places_of(state: &CellState) -> Places {
    let described = state.group.slots().map(|(place, slot)| {
        let partition = GroupPartitionV1 {
            topic: slot.topic.to_string(),
            topic_id: place.topic_id,
            partition: place.partition,
            owner: slot.owner.map(|owner| owner.member.to_string()),
            epoch: slot.epoch,
            revoking: slot.revoking,
            committed: None,
            committed_at: None,
            log_start: 0,
            end: 0,
            lag_time: None,
            refusal: None,
        };
        (place, partition)
    });
    described.collect()
}

fn survey(
    store: &Store,
    mut places: Places,
    committed: Vec<GroupCommitted>,
    now: Timestamp,
) -> Vec<GroupPartitionV1> {
    for line in committed {
        let place = Place { topic_id: line.topic_id, partition: line.partition };
        let Some(partition) = places.get_mut(&place) else { continue };
        let (offset, settled) = (line.committed.offset, &line.committed.settled);
        partition.committed = Some(PositionV1::with_settled(offset, settled));
        partition.committed_at = Some(line.committed.committed_at.as_millis());
    }
    let mut partitions: Vec<GroupPartitionV1> = places.into_values().collect();
    for partition in &mut partitions {
        let found = TopicName::parse_any(&partition.topic)
            .and_then(|name| store.topic(&name))
            .and_then(|topic| topic.partition(partition.partition));
        let measured = found.and_then(|log| measure(&log, partition, now));
        partition.refusal = measured.err().map(refused);
    }
    partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    partitions
}

/// How far a group is behind.
fn measure(
    log: &Partition,
    partition: &mut GroupPartitionV1,
    now: Timestamp,
) -> log_core::Result<()> {
    partition.log_start = log.ends().log_start;
    partition.end = log.readable_end();
    let Some(committed) = &partition.committed else { return Ok(()) };
    let next = committed.offset.max(partition.log_start);
    if next >= partition.end {
        return Ok(());
    }
    let stamped = log.visit(next, |record| record.timestamp)?;
    let behind = stamped.map(|stamped| now.saturating_since(stamped).as_millis());
    partition.lag_time = behind.map(|behind| u64::try_from(behind).unwrap_or(u64::MAX));
    Ok(())
}
