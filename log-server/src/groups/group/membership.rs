//! Membership: who is in the group: join, heartbeat, leave, and the end of a session.
//!
//! A member id comes with an incarnation, and incarnations are ordered: a newer one fences the
//! older for good. What the older has it may still release and commit until its lease ends; only
//! then, or when it had left, goes it to the newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::groups::HeldV1;
use log_core::protocol::{ErrorCode, Refusal};

use super::slot::{Hold, Revoke, Why};
use super::{Action, Group, MemberView, Owner, Place, Subscription, fenced};

/// How long a run of a member that has gone is remembered, so that a late join of it is told apart.
const PAST_KEPT: Duration = Duration::from_secs(3600);
/// And how many of them.
const PAST_MAX: usize = 4096;

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) incarnation: u64,
    pub(super) topics: BTreeSet<Arc<str>>,
    pub(super) standing: Standing,
    pub(super) connection: u64,
    pub(super) heard: Duration,
    pub(super) processing: Duration,
    pub(super) session_timeout: Duration,
    pub(super) drain_timeout: Duration,
    processing_timeout: Duration,
    /// A record is in its hands for too long: it gets nothing new.
    pub(super) stuck: bool,
    pub(super) version: u64,
}

/// Where in its life a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It reads.
    Active,
    /// It gives back all that it has, and goes then.
    Leaving,
    /// It has gone; what it has is kept for its next run.
    Kept {
        /// So long.
        until: Duration,
    },
    /// It was recorded as an owner before a restart, and has not been heard of since.
    Restored,
}

/// Runs of members that are gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    runs: BTreeMap<Arc<str>, Run>,
}

#[derive(Debug, Clone)]
struct Run {
    incarnation: u64,
    left: bool,
    ended: Duration,
}

/// What a heartbeat says.
pub(super) struct Heard {
    pub(super) connection: u64,
    pub(super) holds: Vec<HeldV1>,
    pub(super) seen_version: u64,
    pub(super) processing: Duration,
}

impl Member {
    /// An owner of whom no more is known than that.
    pub(super) fn restored(
        incarnation: u64,
        session_timeout: Duration,
        drain_timeout: Duration,
        now: Duration,
    ) -> Member {
        Member {
            incarnation,
            topics: BTreeSet::new(),
            standing: Standing::Restored,
            connection: 0,
            heard: now,
            processing: Duration::ZERO,
            session_timeout,
            drain_timeout,
            processing_timeout: Duration::MAX,
            stuck: false,
            version: 0,
        }
    }

    /// Whether it may hold something when it is heard of no more.
    pub(super) fn lease_end(&self) -> Duration {
        match self.standing {
            Standing::Kept { until } => until,
            _ => self.heard.saturating_add(self.session_timeout),
        }
    }

    /// Whether its heartbeats count.
    pub(super) fn speaks(&self) -> bool {
        matches!(self.standing, Standing::Active | Standing::Leaving)
    }

    /// Whether it can be given something.
    pub(super) fn reads(&self, topic: &str) -> bool {
        self.standing == Standing::Active && !self.stuck && self.topics.contains(topic)
    }

    pub(super) fn view<'a>(&'a self, id: &'a str) -> MemberView<'a> {
        MemberView {
            member: id,
            incarnation: self.incarnation,
            topics: &self.topics,
            standing: self.standing,
            connection: self.connection,
            heard: self.heard,
            processing: self.processing,
            session_timeout: self.session_timeout,
        }
    }
}

impl Past {
    pub(super) fn incarnation(&self, member: &str) -> Option<u64> {
        self.runs.get(member).map(|run| run.incarnation)
    }

    fn has_left(&self, owner: &Owner) -> bool {
        let run = self.runs.get(&owner.member);
        run.is_some_and(|run| run.incarnation == owner.incarnation && run.left)
    }

    fn note(&mut self, owner: &Owner, left: bool, ended: Duration) {
        let run = Run { incarnation: owner.incarnation, left, ended };
        self.runs.insert(Arc::clone(&owner.member), run);
        if self.runs.len() > PAST_MAX {
            let oldest = self.runs.iter().min_by_key(|(_, run)| run.ended);
            let oldest = oldest.map(|(id, _)| Arc::clone(id));
            self.runs.remove(&oldest.expect("there are more than none"));
        }
    }

    pub(super) fn forget(&mut self, now: Duration) {
        self.runs.retain(|_, run| now < run.ended.saturating_add(PAST_KEPT));
    }
}

impl Group {
    pub(super) fn join(
        &mut self,
        owner: &Owner,
        wanted: Subscription,
        now: Duration,
    ) -> Result<(), Refusal> {
        self.refuse_join(owner)?;
        match self.members.get(&owner.member).map(|member| member.incarnation) {
            Some(present) if present < owner.incarnation => {
                let older = Owner { member: Arc::clone(&owner.member), incarnation: present };
                self.fence(&older, owner.incarnation);
            }
            Some(_) => {}
            None => self.refuse_too_many(now)?,
        }
        self.begin_topics(&wanted);
        self.last_version += 1;
        let member = Member {
            incarnation: owner.incarnation,
            topics: wanted.names,
            standing: Standing::Active,
            connection: wanted.connection,
            heard: now,
            processing: Duration::ZERO,
            session_timeout: wanted.session_timeout,
            drain_timeout: wanted.drain_timeout,
            processing_timeout: wanted.processing_timeout,
            stuck: false,
            version: self.last_version,
        };
        self.wake_at(member.lease_end());
        self.members.insert(Arc::clone(&owner.member), member);
        self.changed.insert(Arc::clone(&owner.member));
        self.must_plan = true;
        Ok(())
    }

    fn refuse_join(&self, owner: &Owner) -> Result<(), Refusal> {
        if let Some(newest) = self.newest(&owner.member)
            && newest > owner.incarnation
        {
            return Err(fenced(owner, newest));
        }
        let present = self.members.get(&owner.member);
        let same = present.filter(|member| member.incarnation == owner.incarnation);
        let is_going = same.is_some_and(|member| {
            matches!(member.standing, Standing::Leaving | Standing::Kept { .. })
        });
        if is_going || self.past.has_left(owner) {
            // A join that comes after the leave that followed it would make a member of nobody.
            let member = owner.member.escape_debug();
            let text = format!("this incarnation of member {member} has left");
            let number = [owner.incarnation];
            return Err(Refusal::new(ErrorCode::Fenced, text).with_numbers(&number));
        }
        Ok(())
    }

    fn refuse_too_many(&mut self, now: Duration) -> Result<(), Refusal> {
        let limit = self.rules.members_max;
        if self.members.len() >= limit {
            let text = format!("the group has {limit} members, which is the limit");
            return Err(Refusal::new(ErrorCode::LimitReached, text));
        }
        if self.members.is_empty() && !self.rules.join_window.is_zero() {
            let window = now.saturating_add(self.rules.join_window);
            self.window = Some(window);
            self.wake_at(window);
        }
        Ok(())
    }

    /// Ends a run for a newer one. What it has stays its own until its lease ends.
    fn fence(&mut self, older: &Owner, newest: u64) {
        let Some(member) = self.members.remove(&older.member) else { return };
        let is_gone = matches!(member.standing, Standing::Kept { .. });
        let lease_end = member.lease_end();
        for place in self.places_of(older) {
            let slot = self.slots.get_mut(&place).expect("holdings are slots");
            slot.kept_for = Some(Arc::clone(&older.member));
            if is_gone {
                self.give_up(place);
                continue;
            }
            let revoke = Revoke {
                deadline: lease_end,
                unaware_until: lease_end,
                acknowledged: false,
                why: Why::Superseded,
            };
            let held = self.slots.get_mut(&place).and_then(|slot| slot.held_mut());
            held.expect("it is among its holdings").revoke = Some(revoke);
            self.wake_at(lease_end);
        }
        self.actions.push(Action::Gone { owner: older.clone(), why: fenced(older, newest) });
    }

    pub(super) fn heartbeat(
        &mut self,
        owner: &Owner,
        heard: &Heard,
        now: Duration,
    ) -> Result<(), Refusal> {
        self.member(owner)?;
        let member = self.members.get_mut(&owner.member).expect("it was found");
        member.heard = now;
        member.connection = heard.connection;
        member.processing = heard.processing;
        let has_acted = heard.seen_version == member.version;
        let absent_until = now.saturating_add(member.session_timeout);
        let is_stuck = heard.processing > member.processing_timeout;
        let was_stuck = std::mem::replace(&mut member.stuck, is_stuck);
        let holds: BTreeMap<Place, &HeldV1> =
            heard.holds.iter().map(|held| (place_of(held), held)).collect();
        for place in self.places_of(owner) {
            let slot = self.slots.get_mut(&place).expect("holdings are slots");
            let held = slot.held_mut().expect("holdings are held");
            match holds.get(&place).filter(|said| said.epoch == held.epoch) {
                Some(said) => {
                    held.absent_until = None;
                    if let Some(revoke) = held.revoke.as_mut().filter(|_| said.draining) {
                        revoke.acknowledged = true;
                        let due = revoke.due();
                        self.wake_at(due);
                    }
                }
                None if has_acted => {
                    let until = *held.absent_until.get_or_insert(absent_until);
                    self.wake_at(until);
                }
                None => {}
            }
        }
        if is_stuck != was_stuck {
            self.must_plan = true;
        }
        if is_stuck {
            self.take_back_at_once(owner, now);
        }
        if now >= self.wake {
            self.expire(now);
        }
        Ok(())
    }

    /// A record is in a member's hands for too long: nothing of it drains while that lasts. It is
    /// taken as soon as the member knows that it is, or its lease ends.
    fn take_back_at_once(&mut self, owner: &Owner, now: Duration) {
        for place in self.places_of(owner) {
            self.revoke(place, Duration::ZERO, Why::Processing, now);
        }
    }

    pub(super) fn leave(
        &mut self,
        owner: &Owner,
        connection: u64,
        keep: Option<Duration>,
        now: Duration,
    ) -> Result<(), Refusal> {
        let present = self.members.get_mut(&owner.member);
        let Some(member) = present.filter(|member| member.incarnation == owner.incarnation) else {
            return match self.newest(&owner.member) {
                Some(newest) if newest > owner.incarnation => Err(fenced(owner, newest)),
                // Gone already, as it wished.
                _ => Ok(()),
            };
        };
        member.connection = connection;
        match keep {
            _ if matches!(member.standing, Standing::Leaving | Standing::Kept { .. }) => {}
            Some(keep) => {
                let until = now.saturating_add(keep);
                member.standing = Standing::Kept { until };
                self.must_plan = true;
                self.wake_at(until);
                let why = self.refuse_member(owner);
                self.actions.push(Action::Gone { owner: owner.clone(), why });
            }
            None => {
                member.standing = Standing::Leaving;
                let drain_timeout = member.drain_timeout;
                for place in self.places_of(owner) {
                    self.revoke(place, drain_timeout, Why::DrainDeadline, now);
                    // It says with this that it hands nothing new over.
                    let held = self.slots.get_mut(&place).and_then(|slot| slot.held_mut());
                    if let Some(revoke) = held.and_then(|held| held.revoke.as_mut()) {
                        revoke.acknowledged = true;
                        let due = revoke.due();
                        self.wake_at(due);
                    }
                }
                self.must_plan = true;
                self.end_if_drained(owner);
            }
        }
        Ok(())
    }

    /// One that was leaving and whose connection is closed hands nothing over and releases nothing.
    pub(super) fn connection_closed(&mut self, connection: u64, now: Duration) {
        let is_it = |member: &&mut Member| {
            member.connection == connection && member.standing == Standing::Leaving
        };
        let leavers = self.members.iter_mut().filter_map(|(id, member)| {
            is_it(&member)
                .then(|| Owner { member: Arc::clone(id), incarnation: member.incarnation })
        });
        for owner in leavers.collect::<Vec<_>>() {
            self.end(&owner, Some(Why::ConnectionClosed), now);
        }
    }

    /// Ends the sessions that are over.
    pub(super) fn end_sessions(&mut self, now: Duration) {
        let mut over = Vec::new();
        let mut wake = self.wake;
        for (id, member) in &self.members {
            let lease_end = member.lease_end();
            if lease_end > now {
                wake = wake.min(lease_end);
                continue;
            }
            // What was kept was handed over to nobody: nothing is forced.
            let why =
                (!matches!(member.standing, Standing::Kept { .. })).then_some(Why::SessionOver);
            over.push((Owner { member: Arc::clone(id), incarnation: member.incarnation }, why));
        }
        self.wake = wake;
        for (owner, why) in over {
            self.end(&owner, why, now);
        }
    }

    /// A member is gone; what it has is taken from it.
    fn end(&mut self, owner: &Owner, why: Option<Why>, now: Duration) {
        let Some(member) = self.members.remove(&owner.member) else { return };
        let left = member.standing != Standing::Active && member.standing != Standing::Restored;
        self.past.note(owner, left, now);
        for place in self.places_of(owner) {
            match why {
                Some(why) => self.take(place, why, now),
                None => self.give_up(place),
            }
        }
        self.must_plan = true;
        let why = self.refuse_member(owner);
        self.actions.push(Action::Gone { owner: owner.clone(), why });
    }

    /// One that was leaving and has nothing left is gone.
    pub(super) fn end_if_drained(&mut self, owner: &Owner) {
        let member = self.members.get(&owner.member);
        let is_leaving = member.is_some_and(|member| {
            member.incarnation == owner.incarnation && member.standing == Standing::Leaving
        });
        if is_leaving && !self.holdings.contains_key(owner) {
            let heard = self.members.remove(&owner.member).expect("it was found").heard;
            self.past.note(owner, true, heard);
            self.must_plan = true;
            let why = self.refuse_member(owner);
            self.actions.push(Action::Gone { owner: owner.clone(), why });
        }
    }

    /// Forces a hand-over, but lets a release come through that is just written.
    fn take(&mut self, place: Place, why: Why, now: Duration) {
        let slot = self.slots.get_mut(&place).expect("holdings are slots");
        if let Hold::Releasing(held, _) = &mut slot.hold {
            let revoke = Revoke { deadline: now, unaware_until: now, acknowledged: true, why };
            held.revoke = Some(revoke);
            return;
        }
        self.force(place, why);
    }

    /// The same for what its owner has let go of.
    fn give_up(&mut self, place: Place) {
        if matches!(self.slots[&place].hold, Hold::Held(_)) {
            self.free(place);
        }
    }

    pub(super) fn places_of(&self, owner: &Owner) -> Vec<Place> {
        self.holdings.get(owner).into_iter().flatten().copied().collect()
    }
}

fn place_of(held: &HeldV1) -> Place {
    Place { topic_id: held.topic_id, partition: held.partition }
}
