//! Written: a write has ended, and what it was for goes on.

use std::time::Duration;

use log_core::protocol::Refusal;

use super::slot::{Held, Hold, Part, Pending, Released};
use super::{Answer, Group, Owner, Place, Position, RequestId, Token};

impl Group {
    pub(super) fn written(&mut self, token: Token, outcome: Result<(), Refusal>, now: Duration) {
        let Some(pending) = self.pending.remove(&token) else { return };
        match pending {
            // Answered with `Resolved`, and never written.
            Pending::Resolve(places) => self.retry(&places, now),
            Pending::Fix(fixed) => self.fixed(token, fixed, outcome.is_ok(), now),
            Pending::Grant(grants) => self.granted(grants, outcome.is_ok(), now),
            Pending::Release { place, position, waiting } => {
                self.released(token, place, position, outcome.is_ok(), now);
                for request in waiting {
                    self.answer_outcome(request, outcome.clone());
                }
            }
            Pending::Commit { request, outcomes, parts } => {
                self.committed(token, request, (outcomes, parts), outcome);
            }
            Pending::Reset { place, request, position } => {
                if let Some(slot) = self.slots.get_mut(&place) {
                    slot.hold = Hold::Free;
                    if outcome.is_ok() {
                        slot.apply(token, position);
                    }
                }
                self.ready.insert(place);
                self.reset_ended(request, place, outcome.err());
            }
        }
    }

    fn fixed(
        &mut self,
        token: Token,
        fixed: Vec<(Place, Position)>,
        is_durable: bool,
        now: Duration,
    ) {
        if !is_durable {
            let places: Vec<Place> = fixed.into_iter().map(|(place, _)| place).collect();
            return self.retry(&places, now);
        }
        for (place, position) in fixed {
            let Some(slot) = self.slots.get_mut(&place) else { continue };
            slot.apply(token, position);
            slot.hold = Hold::Free;
            slot.alone = false;
            self.ready.insert(place);
        }
    }

    /// A grant that is durable is told, if its owner is still to have it. Nobody knows of it yet,
    /// so that it can be given to somebody else just so.
    fn granted(&mut self, grants: Vec<(Place, Owner, u64)>, is_durable: bool, now: Duration) {
        if !is_durable {
            let places: Vec<Place> = grants.into_iter().map(|(place, ..)| place).collect();
            return self.retry(&places, now);
        }
        for (place, owner, epoch) in grants {
            let is_wanted = self.slots.contains_key(&place)
                && self.next_owner(place).as_ref() == Some(&owner)
                && self.slots[&place].reset.is_none();
            let Some(slot) = self.slots.get_mut(&place) else { continue };
            slot.alone = false;
            if is_wanted {
                let held = Held { owner, epoch, revoke: None, absent_until: None };
                self.set_hold(place, Hold::Held(held));
            } else {
                self.free(place);
            }
        }
    }

    fn released(
        &mut self,
        token: Token,
        place: Place,
        position: Option<Position>,
        is_durable: bool,
        now: Duration,
    ) {
        let Some(slot) = self.slots.get_mut(&place) else { return };
        let Hold::Releasing(held, _) = &slot.hold else { return };
        let held = held.clone();
        if is_durable {
            if let Some(position) = position {
                slot.apply(token, position);
            }
            slot.released = Some(Released { owner: Some(held.owner), epoch: held.epoch });
            return self.free(place);
        }
        let member = self.members.get(&held.owner.member);
        let is_member = member.is_some_and(|m| m.incarnation == held.owner.incarnation);
        match held.revoke.as_ref().map(|revoke| (revoke.due(), revoke.why)) {
            Some((due, why)) => {
                slot.hold = Hold::Held(held);
                if due <= now { self.force(place, why) } else { self.wake_at(due) }
            }
            None if is_member => {
                slot.hold = Hold::Held(held);
                // It may be planned for another by now.
                self.must_plan = true;
            }
            None => self.free(place),
        }
    }

    fn committed(
        &mut self,
        token: Token,
        request: RequestId,
        (mut outcomes, parts): (Vec<Option<Refusal>>, Vec<Part>),
        outcome: Result<(), Refusal>,
    ) {
        for Part { index, place, position } in parts {
            if let Some(slot) = self.slots.get_mut(&place) {
                slot.commits.remove(&token);
                if outcome.is_ok() {
                    slot.apply(token, position);
                }
                self.ready.insert(place);
            }
            outcomes[index] = outcome.clone().err();
        }
        self.answer(request, Answer::Each(outcomes));
    }
}
