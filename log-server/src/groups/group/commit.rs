//! Commit: a group's next offset to read, under a grant, or for a group without members.

use std::sync::Arc;

use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::Moves;

use super::slot::{Hold, Part, Pending, Slot};
use super::{Answer, Change, Commit, Group, NewPosition, Owner, Place, Position, RequestId};

impl Group {
    /// Each part succeeds or fails by itself; those that are fine are written together.
    pub(super) fn commit(
        &mut self,
        request: RequestId,
        owner: Option<Owner>,
        commits: Vec<Commit>,
    ) {
        if owner.is_none() && !self.members.is_empty() {
            return self.answer(request, Answer::Refused(in_use()));
        }
        let mut outcomes = Vec::with_capacity(commits.len());
        let (mut parts, mut changes) = (Vec::new(), Vec::new());
        for (index, commit) in commits.into_iter().enumerate() {
            let checked = match &owner {
                Some(owner) => self.check_commit(owner, &commit),
                None => self.check_outside(&commit),
            };
            if checked.is_ok() {
                let Commit { topic, place, position, metadata, .. } = commit;
                parts.push(Part { index, place, position: position.clone() });
                let position = Some(NewPosition { position, metadata, moves: Moves::Forward });
                changes.push(Change { topic, place, position, grant: None });
            }
            outcomes.push(checked.err());
        }
        if parts.is_empty() {
            return self.answer(request, Answer::Each(outcomes));
        }
        let places: Vec<Place> = parts.iter().map(|part| part.place).collect();
        let token = self.write(changes, Pending::Commit { request, outcomes, parts });
        for place in places {
            self.slots.get_mut(&place).expect("it was checked").commits.insert(token);
        }
    }

    fn check_commit(&self, owner: &Owner, commit: &Commit) -> Result<(), Refusal> {
        match self.slots.get(&commit.place) {
            Some(slot) if slot.is_granted(owner, commit.epoch) => not_back(slot, &commit.position),
            _ => Err(self.refuse_grant(owner, commit.place)),
        }
    }

    fn check_outside(&mut self, commit: &Commit) -> Result<(), Refusal> {
        let topic = Arc::clone(&commit.topic);
        self.refuse_stale(&topic, commit.place.topic_id)?;
        self.note_topic(&topic, commit.place.topic_id);
        let slot = self.slots.entry(commit.place).or_insert_with(|| Slot::new(topic));
        match slot.hold {
            Hold::Free if slot.reset.is_none() => not_back(slot, &commit.position),
            _ => Err(in_use()),
        }
    }
}

/// Refuses a position before the one that is committed.
pub(super) fn not_back(slot: &Slot, position: &Position) -> Result<(), Refusal> {
    match &slot.position {
        Some(committed) if position.offset < committed.offset => {
            let numbers = [committed.offset, position.offset];
            let text = format!("{} is committed; {} would go back", numbers[0], numbers[1]);
            Err(Refusal::new(ErrorCode::OffsetWentBack, text).with_numbers(&numbers))
        }
        _ => Ok(()),
    }
}

pub(super) fn in_use() -> Refusal {
    Refusal::new(ErrorCode::GroupInUse, "the group has members, or had a moment ago")
}
