//! Reset: positions are set, back, too. What is granted is taken back first.

use std::collections::BTreeMap;
use std::sync::Arc;

use log_core::Offset;
use log_core::protocol::{ErrorCode, Refusal};

use std::time::Duration;

use super::slot::{Reset, Slot, Why};
use super::{Answer, Group, Place, RequestId};

/// Requests that wait for several partitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Resets {
    open: BTreeMap<RequestId, OpenReset>,
}

#[derive(Debug, Clone)]
struct OpenReset {
    outcomes: Vec<Option<Refusal>>,
    places: BTreeMap<Place, usize>,
}

impl Group {
    pub(super) fn reset(
        &mut self,
        request: RequestId,
        to: Vec<(Arc<str>, Place, Offset)>,
        now: Duration,
    ) {
        let mut open = OpenReset { outcomes: vec![None; to.len()], places: BTreeMap::new() };
        for (index, (topic, place, to)) in to.into_iter().enumerate() {
            if let Err(stale) = self.refuse_stale(&topic, place.topic_id) {
                open.outcomes[index] = Some(stale);
                continue;
            }
            self.note_topic(&topic, place.topic_id);
            let slot = self.slots.entry(place).or_insert_with(|| Slot::new(topic));
            if slot.reset.is_some() {
                let text = "another reset of this partition is under way";
                open.outcomes[index] = Some(Refusal::new(ErrorCode::GroupInUse, text));
                continue;
            }
            slot.reset = Some(Reset { request, to });
            open.places.insert(place, index);
            let owner = slot.held().map(|held| held.owner.clone());
            let member = owner.and_then(|owner| self.members.get(&owner.member));
            let drain = member.map_or(self.rules.drain_timeout, |member| member.drain_timeout);
            self.revoke(place, drain, Why::DrainDeadline, now);
            self.ready.insert(place);
        }
        if open.places.is_empty() {
            return self.answer(request, Answer::Each(open.outcomes));
        }
        self.resets.open.insert(request, open);
    }

    /// Notes how the reset of a partition ended; the last one answers the request.
    pub(super) fn reset_ended(
        &mut self,
        request: RequestId,
        place: Place,
        refusal: Option<Refusal>,
    ) {
        let Some(open) = self.resets.open.get_mut(&request) else { return };
        let Some(index) = open.places.remove(&place) else { return };
        open.outcomes[index] = refusal;
        if open.places.is_empty()
            && let Some(open) = self.resets.open.remove(&request)
        {
            self.answer(request, Answer::Each(open.outcomes));
        }
    }
}
