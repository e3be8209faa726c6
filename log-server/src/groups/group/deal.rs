//! Deal: who shall have which partition; grants, and the positions that they begin with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log_core::StartFrom;
use log_core::protocol::Refusal;
use log_core::store::Moves;

use super::release::stale_topic;
use super::slot::{Hold, Pending, Revoke, Slot, Why};
use super::{
    Action, Change, Group, NewGrant, NewPosition, Offset, Owner, Place, Position, Standing,
    Subscription, Token, Topic, TopicLine,
};
use crate::groups::assignor::assign;

/// The most partitions of one write of grants.
const GRANTS_AT_ONCE: usize = 1_000;

impl Group {
    /// Makes room for the partitions of what a member reads. Where nothing is committed, they start
    /// where it says if the group reads the topic for the first time, else at 0.
    pub(super) fn begin_topics(&mut self, wanted: &Subscription) {
        for line in &wanted.topics {
            self.note_topic(&line.name, line.id);
            let topic = self.topics.get_mut(&line.name).expect("it was noted");
            topic.partitions = topic.partitions.max(line.partitions);
            let start = if topic.begun { StartFrom::Offset(0) } else { wanted.start };
            topic.begun = true;
            self.add_slots(line, start);
        }
    }

    /// Takes note of a topic's id; what is known under another one is of a topic that is gone.
    pub(super) fn note_topic(&mut self, name: &Arc<str>, id: u128) {
        if self.topics.get(name).is_some_and(|topic| topic.id != id) {
            self.forget_topic(name);
        }
        let new = Topic { id, partitions: 0, begun: false };
        self.topics.entry(Arc::clone(name)).or_insert(new);
    }

    /// Refuses an id that is not the one under which the group knows the topic. Only what has just
    /// looked at the topics says that another topic has its name now.
    pub(super) fn refuse_stale(&self, name: &str, id: u128) -> Result<(), Refusal> {
        match self.topics.get(name) {
            Some(topic) if topic.id != id => Err(stale_topic(name)),
            _ => Ok(()),
        }
    }

    fn add_slots(&mut self, line: &TopicLine, start: StartFrom) {
        for partition in 0..line.partitions {
            let place = Place { topic_id: line.id, partition };
            let new = || Slot::new(Arc::clone(&line.name));
            let slot = self.slots.entry(place).or_insert_with(new);
            if slot.position.is_none() && slot.start.is_none() {
                slot.start = Some(start);
            }
            self.ready.insert(place);
        }
    }

    pub(super) fn topics_changed(&mut self, lines: Vec<TopicLine>) {
        let mut there: BTreeMap<Arc<str>, TopicLine> = BTreeMap::new();
        for line in lines {
            there.insert(Arc::clone(&line.name), line);
        }
        for name in self.topics.keys().cloned().collect::<Vec<_>>() {
            let id = self.topics[&name].id;
            if there.get(&name).is_none_or(|line| line.id != id) {
                self.forget_topic(&name);
            }
        }
        for line in there.values() {
            // Of a topic that was made anew, nobody has said where to start but for the old one.
            let is_read = self.members.values().any(|member| member.topics.contains(&line.name));
            if is_read || self.topics.get(&line.name).is_some_and(|topic| topic.begun) {
                self.note_topic(&line.name, line.id);
                let topic = self.topics.get_mut(&line.name).expect("it was noted");
                topic.partitions = topic.partitions.max(line.partitions);
                topic.begun = true;
                self.add_slots(line, StartFrom::Offset(0));
            }
        }
        self.must_plan = true;
    }

    /// Grants of a topic that is gone are void.
    fn forget_topic(&mut self, name: &Arc<str>) {
        let Some(topic) = self.topics.remove(name) else { return };
        let first = Place { topic_id: topic.id, partition: 0 };
        let last = Place { topic_id: topic.id, partition: u32::MAX };
        let places: Vec<Place> = self.slots.range(first..=last).map(|(place, _)| *place).collect();
        for place in places {
            self.set_hold(place, Hold::Free);
            self.ready.remove(&place);
            let slot = self.slots.remove(&place).expect("it was listed");
            if let Some(reset) = slot.reset {
                self.reset_ended(reset.request, place, Some(stale_topic(name)));
            }
        }
        self.must_plan = true;
    }

    /// Decides who shall have what, and takes back what somebody else shall have.
    pub(super) fn plan(&mut self, now: Duration) {
        self.must_plan = false;
        let mut loads = BTreeMap::new();
        let mut surplus = Vec::new();
        for (name, topic) in &self.topics {
            let readers = self.members.iter().filter(|(_, member)| member.reads(name));
            let readers: Vec<Arc<str>> = readers.map(|(id, _)| Arc::clone(id)).collect();
            let first = Place { topic_id: topic.id, partition: 0 };
            let last = Place { topic_id: topic.id, partition: u32::MAX };
            let slots = self.slots.range(first..=last).filter(|(_, slot)| !self.is_kept(slot));
            let (places, holders): (Vec<Place>, Vec<_>) =
                slots.map(|(place, slot)| (*place, slot.holder())).unzip();
            for (place, target) in places.into_iter().zip(assign(&holders, &readers, &mut loads)) {
                let slot = self.slots.get_mut(&place).expect("it was listed");
                slot.target = target;
                match &slot.hold {
                    Hold::Held(held) if slot.target.as_ref() != Some(&held.owner.member) => {
                        surplus.push((place, Arc::clone(&held.owner.member)));
                    }
                    _ => {}
                }
                self.ready.insert(place);
            }
        }
        for (place, owner) in surplus {
            let member = self.members.get(&owner);
            let drain = member.map_or(self.rules.drain_timeout, |member| member.drain_timeout);
            self.revoke(place, drain, Why::DrainDeadline, now);
        }
    }

    /// Whether its owner counts as alive, and nobody knows what it wants.
    fn is_kept(&self, slot: &Slot) -> bool {
        let Some(held) = slot.held().filter(|held| held.revoke.is_none()) else { return false };
        self.members.get(&held.owner.member).is_some_and(|member| {
            member.incarnation == held.owner.incarnation
                && matches!(member.standing, Standing::Restored | Standing::Kept { .. })
        })
    }

    /// Takes a grant back, if that is not under way. The deadline is fixed with this.
    pub(super) fn revoke(&mut self, place: Place, drain: Duration, why: Why, now: Duration) {
        let Some(slot) = self.slots.get_mut(&place) else { return };
        let Hold::Held(held) = &mut slot.hold else { return };
        let member = self.members.get(&held.owner.member);
        let member = member.filter(|member| member.incarnation == held.owner.incarnation);
        let is_kept = member.is_some_and(|m| matches!(m.standing, Standing::Kept { .. }));
        if is_kept {
            return self.free(place);
        }
        let deadline = now.saturating_add(drain);
        let due = match &mut held.revoke {
            Some(revoke) if why == Why::Processing && deadline < revoke.deadline => {
                revoke.deadline = deadline;
                revoke.why = why;
                revoke.due()
            }
            Some(_) => return,
            None => {
                // Whatever is heard of it from now on is answered with this.
                let unaware_until = member.map_or(now, super::membership::Member::lease_end);
                let revoke = Revoke { deadline, unaware_until, acknowledged: false, why };
                held.revoke.insert(revoke).due()
            }
        };
        self.changed.insert(Arc::clone(&held.owner.member));
        self.wake_at(due);
    }

    /// Goes on with each partition that may be waiting for something that has happened.
    pub(super) fn deal(&mut self, now: Duration) {
        let mut searches: Vec<(StartFrom, Vec<Place>)> = Vec::new();
        let mut grants = Vec::new();
        for place in std::mem::take(&mut self.ready) {
            let Some(slot) = self.slots.get_mut(&place) else { continue };
            if !matches!(slot.hold, Hold::Free) || !slot.commits.is_empty() {
                continue;
            }
            if let Some(at) = slot.retry_at.filter(|at| now < *at) {
                self.wake_at(at);
                continue;
            }
            slot.retry_at = None;
            if slot.reset.is_some() {
                self.write_reset(place);
            } else if slot.position.is_none() {
                let Some(start) = slot.start else { continue };
                slot.hold = Hold::Fixing;
                let alone = slot.alone;
                match searches.iter_mut().find(|(other, _)| !alone && *other == start) {
                    Some((_, places)) => places.push(place),
                    None => searches.push((start, vec![place])),
                }
            } else if self.window.is_none() {
                grants.extend(self.next_owner(place).map(|owner| (place, owner)));
            }
        }
        self.leave_what_has_no_room(&mut grants, now);
        for (start, places) in searches {
            let token = self.token();
            self.pending.insert(token, Pending::Resolve(places.clone()));
            self.actions.push(Action::Resolve { token, start, places });
        }
        let (alone, together): (Vec<_>, Vec<_>) =
            grants.into_iter().partition(|(place, _)| self.slots[place].alone);
        alone.into_iter().for_each(|grant| self.write_grants(vec![grant]));
        for grants in together.chunks(GRANTS_AT_ONCE) {
            self.write_grants(grants.to_vec());
        }
    }

    /// Leaves for later what the replies to its owner's heartbeats could not name.
    fn leave_what_has_no_room(&mut self, grants: &mut Vec<(Place, Owner)>, now: Duration) {
        let limit = self.rules.grants_max_bytes;
        if grants.is_empty() || self.slots.values().map(Slot::grant_bytes).sum::<usize>() <= limit {
            return;
        }
        let mut named: BTreeMap<Owner, usize> = BTreeMap::new();
        for slot in self.slots.values() {
            if let Some(owner) = slot.owner() {
                *named.entry(owner.clone()).or_default() += slot.grant_bytes();
            }
        }
        let at = now.saturating_add(self.rules.retry_after);
        grants.retain(|(place, owner)| {
            let slot = self.slots.get_mut(place).expect("it is at hand");
            let bytes = named.entry(owner.clone()).or_default();
            let has_room = *bytes + slot.grant_bytes() <= limit;
            if has_room {
                *bytes += slot.grant_bytes();
            } else {
                slot.retry_at = Some(at);
                self.wake = self.wake.min(at);
            }
            has_room
        });
    }

    pub(super) fn next_owner(&self, place: Place) -> Option<Owner> {
        let slot = &self.slots[&place];
        let target = slot.target.as_ref()?;
        let member = self.members.get(target).filter(|member| member.reads(&slot.topic))?;
        Some(Owner { member: Arc::clone(target), incarnation: member.incarnation })
    }

    fn write_reset(&mut self, place: Place) {
        let slot = self.slots.get_mut(&place).expect("it is at hand");
        let reset = slot.reset.take().expect("it was seen");
        slot.hold = Hold::Resetting;
        let (request, position) = (reset.request, Position::at(reset.to));
        let change = new_position(slot, place, position.clone(), Moves::Anywhere);
        self.write(vec![change], Pending::Reset { place, request, position });
    }

    fn write_grants(&mut self, grants: Vec<(Place, Owner)>) {
        let mut changes = Vec::with_capacity(grants.len());
        let mut written = Vec::with_capacity(grants.len());
        for (place, owner) in grants {
            self.last_epoch += 1;
            let slot = self.slots.get_mut(&place).expect("it is at hand");
            slot.epoch = self.last_epoch;
            slot.kept_for = None;
            slot.hold = Hold::Granting(owner.clone());
            let grant = Some(NewGrant { epoch: slot.epoch, owner: Some(owner.clone()) });
            let topic = Arc::clone(&slot.topic);
            changes.push(Change { topic, place, position: None, grant });
            written.push((place, owner, slot.epoch));
        }
        self.write(changes, Pending::Grant(written));
    }

    /// Where partitions start was found; it is written, so that it stays so.
    pub(super) fn resolved(
        &mut self,
        token: Token,
        found: Vec<(Place, Result<Offset, Refusal>)>,
        now: Duration,
    ) {
        let Some(Pending::Resolve(mut places)) = self.pending.remove(&token) else { return };
        let (mut changes, mut written) = (Vec::new(), Vec::new());
        for (place, offset) in found {
            let Ok(offset) = offset else { continue };
            places.retain(|other| *other != place);
            let Some(slot) = self.slots.get_mut(&place) else { continue };
            if slot.reset.is_some() {
                // The reset says where.
                slot.hold = Hold::Free;
                self.ready.insert(place);
                continue;
            }
            let position = Position::at(offset);
            changes.push(new_position(slot, place, position.clone(), Moves::Forward));
            written.push((place, position));
        }
        if !written.is_empty() {
            self.write(changes, Pending::Fix(written));
        }
        self.retry(&places, now);
    }

    /// What could not be done for these is tried again: at once by itself, if it was one of many.
    pub(super) fn retry(&mut self, places: &[Place], now: Duration) {
        for place in places {
            let Some(slot) = self.slots.get_mut(place) else { continue };
            slot.hold = Hold::Free;
            if places.len() == 1 || slot.alone {
                let at = now.saturating_add(self.rules.retry_after);
                slot.retry_at = Some(at);
                self.wake_at(at);
            } else {
                slot.alone = true;
            }
            self.ready.insert(*place);
        }
    }
}

fn new_position(slot: &Slot, place: Place, position: Position, moves: Moves) -> Change {
    let position = Some(NewPosition { position, metadata: Arc::from(""), moves });
    Change { topic: Arc::clone(&slot.topic), place, position, grant: None }
}

impl Slot {
    /// Who has it as far as dealing goes: what is being taken back is nobody's, but for what is
    /// taken from one run of a member for the next.
    fn holder(&self) -> Option<Arc<str>> {
        match &self.hold {
            Hold::Held(held) if held.revoke.is_none() => Some(Arc::clone(&held.owner.member)),
            Hold::Granting(owner) => Some(Arc::clone(&owner.member)),
            _ => self.kept_for.clone(),
        }
    }
}
