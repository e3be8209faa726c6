//! Restore: a group as it was written, after a restart. Each recorded owner counts as alive for one
//! session timeout: it may commit and release at once, and nothing of it goes to others before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::membership::Member;
use super::slot::{Held, Hold, Released, Revoke, Slot, Why};
use super::{Group, GroupRules, NewGrant, Owner, Place, Position, TopicLine};

/// What was written for a partition.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The partition.
    pub place: Place,
    /// Where the group stood.
    pub position: Position,
    /// The last grant.
    pub grant: Option<NewGrant>,
}

impl Group {
    /// A group as it was written. `topics` are those that the entries are of.
    #[must_use]
    pub fn restored(
        rules: GroupRules,
        topics: &[TopicLine],
        entries: Vec<Entry>,
        now: Duration,
    ) -> Group {
        let mut group = Group::new(rules);
        let mut names = BTreeMap::new();
        for line in topics {
            group.note_topic(&line.name, line.id);
            names.insert(line.id, line);
        }
        for entry in entries {
            let Some(line) = names.get(&entry.place.topic_id) else { continue };
            group.restore_entry(line, entry);
        }
        group.restore_members(now);
        for name in group.topics.keys().cloned().collect::<Vec<_>>() {
            let topic = group.topics.get_mut(&name).expect("it was listed");
            let line = topics.iter().find(|line| line.name == name).expect("it came from there");
            topic.partitions = line.partitions;
        }
        // Nobody is there to be told.
        group.changed.clear();
        group
    }

    fn restore_entry(&mut self, line: &TopicLine, entry: Entry) {
        let mut slot = Slot::new(Arc::clone(&line.name));
        slot.position = Some(entry.position);
        let mut owner = None;
        if let Some(grant) = entry.grant {
            slot.epoch = grant.epoch;
            self.last_epoch = self.last_epoch.max(grant.epoch);
            // One that was granted something has read the topic: what is new in it starts at 0.
            self.topics.get_mut(&line.name).expect("it was noted").begun = true;
            match grant.owner {
                Some(who) => owner = Some((who, grant.epoch)),
                None => slot.released = Some(Released { owner: None, epoch: grant.epoch }),
            }
        }
        self.slots.insert(entry.place, slot);
        if let Some((owner, epoch)) = owner {
            let held = Held { owner, epoch, revoke: None, absent_until: None };
            self.set_hold(entry.place, Hold::Held(held));
        }
    }

    fn restore_members(&mut self, now: Duration) {
        let (session, drain) = (self.rules.session_timeout, self.rules.drain_timeout);
        let end = now.saturating_add(session);
        let owners: Vec<Owner> = self.holdings.keys().cloned().collect();
        for owner in &owners {
            // Runs of a member come in their order: the newest stays.
            let member = Member::restored(owner.incarnation, session, drain, now);
            self.members.insert(Arc::clone(&owner.member), member);
            self.wake_at(end);
        }
        for owner in owners {
            if self.members[&owner.member].incarnation == owner.incarnation {
                continue;
            }
            for place in self.places_of(&owner) {
                let slot = self.slots.get_mut(&place).expect("holdings are slots");
                slot.kept_for = Some(Arc::clone(&owner.member));
                slot.held_mut().expect("holdings are held").revoke = Some(Revoke {
                    deadline: end,
                    unaware_until: end,
                    acknowledged: false,
                    why: Why::Superseded,
                });
            }
        }
    }
}
