//! Release: an owner gives a partition back, with its last word on where it stopped.

use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::Moves;

use std::sync::Arc;

use super::commit::not_back;
use super::slot::{Hold, Pending, Slot};
use super::{Answer, Change, Group, NewGrant, NewPosition, Owner, Place, Position, RequestId};

impl Group {
    pub(super) fn release(
        &mut self,
        request: RequestId,
        owner: Owner,
        place: Place,
        epoch: u64,
        position: Option<Position>,
    ) {
        match self.check_release(request, &owner, place, epoch, position.as_ref()) {
            Ok(true) => self.write_release(request, &owner, place, epoch, position),
            Ok(false) => {}
            Err(refusal) => self.answer(request, Answer::Refused(refusal)),
        }
    }

    /// Whether it must be written; `false` if that was seen to.
    fn check_release(
        &mut self,
        request: RequestId,
        owner: &Owner,
        place: Place,
        epoch: u64,
        position: Option<&Position>,
    ) -> Result<bool, Refusal> {
        let refusal = self.refuse_grant(owner, place);
        let Some(slot) = self.slots.get(&place) else { return Err(refusal) };
        if slot.was_released(owner, epoch) {
            self.answer(request, Answer::Done);
            return Ok(false);
        }
        if let Hold::Releasing(held, token) = &slot.hold
            && held.owner == *owner
            && held.epoch == epoch
        {
            if let Some(Pending::Release { waiting, .. }) = self.pending.get_mut(token) {
                waiting.push(request);
            }
            return Ok(false);
        }
        if !slot.is_granted(owner, epoch) {
            return Err(refusal);
        }
        position.map_or(Ok(()), |position| not_back(slot, position))?;
        Ok(true)
    }

    /// Position and release are one record: both are there, or neither.
    fn write_release(
        &mut self,
        request: RequestId,
        owner: &Owner,
        place: Place,
        epoch: u64,
        position: Option<Position>,
    ) {
        let slot = self.slots.get_mut(&place).expect("it was checked");
        let Hold::Held(held) = std::mem::replace(&mut slot.hold, Hold::Free) else {
            unreachable!("it is granted to {owner:?} with epoch {epoch}")
        };
        let new = position.clone().map(|position| NewPosition {
            position,
            metadata: Arc::from(""),
            moves: Moves::Forward,
        });
        let grant = Some(NewGrant { epoch, owner: None });
        let topic = Arc::clone(&slot.topic);
        let pending = Pending::Release { place, position, waiting: vec![request] };
        let token = self.write(vec![Change { topic, place, position: new, grant }], pending);
        // It has the same owner as before, so the holdings stay as they are.
        self.slots.get_mut(&place).expect("it was there").hold = Hold::Releasing(held, token);
    }
}

impl Slot {
    /// Whether this grant ended with a release that is durable: repeating that does no harm.
    fn was_released(&self, owner: &Owner, epoch: u64) -> bool {
        self.released.as_ref().is_some_and(|released| {
            released.epoch == epoch && released.owner.as_ref().is_none_or(|who| who == owner)
        })
    }
}

/// What a request is told about a topic that is deleted meanwhile.
pub fn stale_topic(topic: &str) -> Refusal {
    Refusal::new(ErrorCode::StaleTopic, format!("topic {topic} was deleted"))
}
