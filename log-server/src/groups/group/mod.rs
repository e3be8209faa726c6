//! Group: who of a consumer group may read what, and from where. A pure state machine: it is told
//! what happened and when, and says what to do. No I/O, no clock, no locks.
//!
//! - `event`: what it is told, and what it says.
//! - `membership`: who is a member: join, heartbeat, leave, the end of a session.
//! - `slot`: a partition of the group, and where it is between two owners.
//! - `release`, `commit`, `reset`: what members and operators ask for partitions.
//! - `deal`: who shall have which partition; grants; positions to begin with.
//! - `written`: how a write ended, and what follows.
//! - `restore`: what is known after a restart.
//!
//! What must not be forgotten is written before it counts: an action [`Action::Write`] asks for it,
//! and [`Event::Written`] says how it ended. Writes are to be made in the order of the actions.

mod commit;
mod deal;
mod event;
mod membership;
mod release;
mod reset;
mod restore;
mod slot;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use log_core::Offset;
use log_core::protocol::groups::{GrantV1, HeartbeatReplyV1};
use log_core::protocol::offsets::PositionV1;
use log_core::protocol::{ErrorCode, Refusal};

use membership::{Member, Past};
use reset::Resets;
use slot::{Hold, Pending, Slot, Why};

pub use event::{
    Action, Answer, Change, Commit, Event, Forced, NewGrant, NewPosition, Owner, Place, Position,
    RequestId, Subscription, Token, TopicLine,
};
pub use membership::Standing;
pub use release::stale_topic;
pub use restore::Entry;
pub use slot::SlotView;

/// The bytes of a grant in the reply to a heartbeat, without the topic's name and the ranges.
pub const GRANT_BYTES: usize = 61;

/// What holds for all groups.
#[derive(Debug, Clone)]
pub struct GroupRules {
    /// How long the first member of an empty group waits for others before anything is dealt.
    pub join_window: Duration,
    /// The session timeout of those of whom none is known: owners that were recorded before a
    /// restart.
    pub session_timeout: Duration,
    /// The drain timeout of those.
    pub drain_timeout: Duration,
    /// How long until what could not be written is tried again.
    pub retry_after: Duration,
    /// The most members of a group.
    pub members_max: usize,
    /// The most bytes that what a member holds may take in the reply to its heartbeat, ranges not
    /// counted: it is granted nothing beyond that.
    pub grants_max_bytes: usize,
    /// Epochs and versions are greater than this.
    pub epoch_floor: u64,
}

/// A consumer group.
#[derive(Debug, Clone)]
pub struct Group {
    rules: GroupRules,
    members: BTreeMap<Arc<str>, Member>,
    past: Past,
    topics: BTreeMap<Arc<str>, Topic>,
    slots: BTreeMap<Place, Slot>,
    /// What each owner has, what it is just releasing included.
    holdings: BTreeMap<Owner, BTreeSet<Place>>,
    pending: BTreeMap<Token, Pending>,
    resets: Resets,
    /// Until then, nothing is dealt.
    window: Option<Duration>,
    last_epoch: u64,
    last_version: u64,
    last_token: Token,
    forced: u64,
    /// Nothing becomes due before this.
    wake: Duration,
    // What one event has led to so far.
    actions: Vec<Action>,
    changed: BTreeSet<Arc<str>>,
    ready: BTreeSet<Place>,
    must_plan: bool,
}

/// A topic that the group reads, or has read.
#[derive(Debug, Clone)]
struct Topic {
    id: u128,
    partitions: u32,
    /// Whether a member has subscribed to it before: what is added since starts at 0.
    begun: bool,
}

/// A member as it is told to others.
#[derive(Debug)]
pub struct MemberView<'a> {
    /// Its id.
    pub member: &'a str,
    /// Which run of it.
    pub incarnation: u64,
    /// What it reads.
    pub topics: &'a BTreeSet<Arc<str>>,
    /// Where in its life it is.
    pub standing: Standing,
    /// The connection it was last heard on.
    pub connection: u64,
    /// When that was.
    pub heard: Duration,
    /// How long a record has been in its hands.
    pub processing: Duration,
    /// When it counts as gone.
    pub session_timeout: Duration,
}

impl Group {
    /// A group of which nothing is known.
    #[must_use]
    pub fn new(rules: GroupRules) -> Group {
        let floor = rules.epoch_floor;
        Group {
            rules,
            members: BTreeMap::new(),
            past: Past::default(),
            topics: BTreeMap::new(),
            slots: BTreeMap::new(),
            holdings: BTreeMap::new(),
            pending: BTreeMap::new(),
            resets: Resets::default(),
            window: None,
            last_epoch: floor,
            last_version: floor,
            last_token: 0,
            forced: 0,
            wake: Duration::MAX,
            actions: Vec::new(),
            changed: BTreeSet::new(),
            ready: BTreeSet::new(),
            must_plan: false,
        }
    }

    /// Takes note of what happened, and says what to do. `now` is monotonic and never goes back.
    #[must_use]
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        // What was due before this counts as done before it, however late the clock's tick is.
        if now >= self.wake {
            self.expire(now);
        }
        match event {
            Event::Join { request, owner, subscription } => {
                let outcome = self.join(&owner, subscription, now);
                self.answer_outcome(request, outcome);
            }
            Event::Heartbeat { request, owner, connection, holds, seen_version, processing } => {
                let heard = membership::Heard { connection, holds, seen_version, processing };
                let outcome = self.heartbeat(&owner, &heard, now);
                self.answer_outcome(request, outcome);
            }
            Event::Leave { request, owner, connection, keep } => {
                let outcome = self.leave(&owner, connection, keep, now);
                self.answer_outcome(request, outcome);
            }
            Event::Release { request, owner, place, epoch, position } => {
                self.release(request, owner, place, epoch, position);
            }
            Event::Commit { request, owner, commits } => self.commit(request, owner, commits),
            Event::Reset { request, to } => self.reset(request, to, now),
            Event::ConnectionClosed { connection } => self.connection_closed(connection, now),
            Event::TopicsChanged { topics } => self.topics_changed(topics),
            Event::Resolved { token, found } => self.resolved(token, found, now),
            Event::Written { token, outcome } => self.written(token, outcome, now),
            Event::Tick => {}
        }
        self.finish(now)
    }

    /// When [`Event::Tick`] should come at the latest, if nothing else comes.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        (self.wake < Duration::MAX).then_some(self.wake)
    }

    /// Refuses one that is no member.
    ///
    /// # Errors
    /// `Fenced`; `UnknownMember`.
    pub fn check_member(&self, owner: &Owner) -> Result<(), Refusal> {
        self.member(owner).map(|_| ())
    }

    /// What a member should hold, as a heartbeat is told it.
    ///
    /// # Errors
    /// `Fenced`; `UnknownMember`.
    pub fn reply(&self, owner: &Owner, now: Duration) -> Result<HeartbeatReplyV1, Refusal> {
        let member = self.member(owner)?;
        let mut grants = Vec::new();
        for place in self.holdings.get(owner).into_iter().flatten() {
            let slot = &self.slots[place];
            let Some(held) = slot.held() else { continue };
            let position = slot.position.clone().unwrap_or_default();
            let left = |revoke: &slot::Revoke| {
                let left = revoke.deadline.saturating_sub(now).as_millis();
                u64::try_from(left).unwrap_or(u64::MAX)
            };
            grants.push(GrantV1 {
                topic: slot.topic.to_string(),
                topic_id: place.topic_id,
                partition: place.partition,
                epoch: held.epoch,
                position: PositionV1::with_settled(position.offset, &position.settled),
                revoked_for: held.revoke.as_ref().map(left),
            });
        }
        Ok(HeartbeatReplyV1 { version: member.version, grants })
    }

    /// What a member may fetch: the epoch of each grant that is not being taken back.
    #[must_use]
    pub fn readable(&self, owner: &Owner) -> HashMap<Place, u64> {
        let places = self.holdings.get(owner).into_iter().flatten();
        let granted = |place: &Place| match &self.slots[place].hold {
            Hold::Held(held) if held.revoke.is_none() => Some((*place, held.epoch)),
            _ => None,
        };
        places.filter_map(granted).collect()
    }

    /// Its members.
    pub fn members(&self) -> impl Iterator<Item = MemberView<'_>> {
        self.members.iter().map(|(id, member)| member.view(id))
    }

    /// Its partitions.
    pub fn slots(&self) -> impl Iterator<Item = (Place, SlotView<'_>)> {
        self.slots.iter().map(|(place, slot)| (*place, slot.view()))
    }

    /// The topics that it reads or has something committed for.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    /// How many hand-overs were forced.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// The greatest epoch that it has given.
    #[must_use]
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// Whether nobody is in it, or may hold something of it, and nothing is under way.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        let resets = self.slots.values().any(|slot| slot.reset.is_some());
        let is_idle = self.pending.is_empty() && !resets;
        self.members.is_empty() && self.holdings.is_empty() && is_idle
    }

    /// The requests whose write is under way.
    #[must_use]
    pub fn written_requests(&self) -> BTreeSet<RequestId> {
        self.pending.values().flat_map(Pending::requests).copied().collect()
    }

    fn member(&self, owner: &Owner) -> Result<&Member, Refusal> {
        let found = self.members.get(&owner.member);
        let current = found.filter(|member| member.incarnation == owner.incarnation);
        match current.filter(|member| member.speaks()) {
            Some(member) => Ok(member),
            None => Err(self.refuse_member(owner)),
        }
    }

    /// What one is told that is no member, or no more.
    fn refuse_member(&self, owner: &Owner) -> Refusal {
        match self.newest(&owner.member) {
            Some(newest) if newest > owner.incarnation => fenced(owner, newest),
            _ => {
                let member = owner.member.escape_debug();
                let text = format!("no member {member} is in this group: join again");
                Refusal::new(ErrorCode::UnknownMember, text)
            }
        }
    }

    /// What one is told whose grant is not the current one.
    fn refuse_grant(&self, owner: &Owner, place: Place) -> Refusal {
        let member = self.members.get(&owner.member);
        if member.is_none_or(|member| member.incarnation != owner.incarnation) {
            return self.refuse_member(owner);
        }
        let epoch = self.slots.get(&place).map_or(0, |slot| slot.epoch);
        let partition = place.partition;
        let text = format!("partition {partition} is no longer granted so; epoch {epoch} is last");
        Refusal::new(ErrorCode::StaleGrant, text).with_numbers(&[epoch])
    }

    /// The newest run of a member that was seen.
    fn newest(&self, member: &str) -> Option<u64> {
        let present = self.members.get(member).map(|member| member.incarnation);
        present.max(self.past.incarnation(member))
    }

    fn finish(&mut self, now: Duration) -> Vec<Action> {
        if self.must_plan && self.window.is_none() {
            self.plan(now);
        }
        self.deal(now);
        for id in std::mem::take(&mut self.changed) {
            let Some(member) = self.members.get_mut(&id) else { continue };
            self.last_version += 1;
            member.version = self.last_version;
            let owner = Owner { member: id, incarnation: member.incarnation };
            self.actions.push(Action::Changed { owner });
        }
        std::mem::take(&mut self.actions)
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        self.actions.push(Action::Answer { request, answer });
    }

    fn answer_outcome(&mut self, request: RequestId, outcome: Result<(), Refusal>) {
        self.answer(request, outcome.map_or_else(Answer::Refused, |()| Answer::Done));
    }

    fn wake_at(&mut self, when: Duration) {
        self.wake = self.wake.min(when);
    }

    fn token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    fn write(&mut self, changes: Vec<Change>, pending: Pending) -> Token {
        let token = self.token();
        self.pending.insert(token, pending);
        self.actions.push(Action::Write { token, changes });
        token
    }

    /// Does what is due.
    fn expire(&mut self, now: Duration) {
        self.wake = Duration::MAX;
        if self.window.is_some_and(|window| now >= window) {
            self.window = None;
            self.must_plan = true;
        }
        self.end_sessions(now);
        self.end_drains(now);
        self.past.forget(now);
        self.wake_at(self.window.unwrap_or(Duration::MAX));
    }

    /// Takes what is due from those who have not released it, and sees to what is due next.
    fn end_drains(&mut self, now: Duration) {
        let mut due = Vec::new();
        let mut wake = self.wake;
        for (place, slot) in &self.slots {
            if slot.retry_at.is_some_and(|at| now >= at) {
                self.ready.insert(*place);
            }
            wake = wake.min(slot.retry_at.filter(|at| *at > now).unwrap_or(Duration::MAX));
            let Hold::Held(held) = &slot.hold else { continue };
            let absent = held.absent_until.unwrap_or(Duration::MAX);
            let forced = held.revoke.as_ref().map_or(Duration::MAX, slot::Revoke::due);
            match absent.min(forced) {
                at if at > now => wake = wake.min(at),
                _ if forced <= now => due.push((*place, held.revoke.as_ref().map(|r| r.why))),
                _ => due.push((*place, None)),
            }
        }
        self.wake = wake;
        for (place, why) in due {
            match why {
                Some(why) => self.force(place, why),
                None => self.free(place),
            }
        }
    }

    /// Takes a partition from an owner that has not released it.
    fn force(&mut self, place: Place, why: Why) {
        let Some(Hold::Held(held)) = self.slots.get(&place).map(|slot| &slot.hold) else { return };
        let (owner, epoch) = (held.owner.clone(), held.epoch);
        let topic = Arc::clone(&self.slots[&place].topic);
        self.forced += 1;
        let why = why.text();
        self.actions.push(Action::Forced(Forced { topic, place, owner, epoch, why }));
        self.free(place);
    }

    fn free(&mut self, place: Place) {
        self.set_hold(place, Hold::Free);
        self.ready.insert(place);
    }

    /// The one way in which a partition changes hands: keeps count of who has what.
    fn set_hold(&mut self, place: Place, hold: Hold) {
        let Some(slot) = self.slots.get_mut(&place) else { return };
        let before = slot.held().map(|held| held.owner.clone());
        slot.hold = hold;
        let after = slot.held().map(|held| held.owner.clone());
        if let Some(owner) = &before
            && let Some(places) = self.holdings.get_mut(owner)
        {
            places.remove(&place);
            if places.is_empty() {
                self.holdings.remove(owner);
            }
        }
        if let Some(owner) = &after {
            self.holdings.entry(owner.clone()).or_default().insert(place);
        }
        for owner in before.into_iter().chain(after) {
            self.changed.insert(Arc::clone(&owner.member));
            self.end_if_drained(&owner);
        }
    }
}

fn fenced(owner: &Owner, newest: u64) -> Refusal {
    let text = format!(
        "a newer incarnation of member {} has joined ({newest}; this is {}): stop",
        owner.member.escape_debug(),
        owner.incarnation
    );
    Refusal::new(ErrorCode::Fenced, text).with_numbers(&[newest])
}
