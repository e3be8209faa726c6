//! Process: the client's real membership, with handlers that take their time around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::membership::{
    Action, Event, Failure, LostReason, Membership, MembershipConfig, PartitionId,
};
use log_core::protocol::Refusal;
use log_core::protocol::groups::{GrantV1, HeartbeatReplyV1, MemberV1};
use log_core::protocol::offsets::{PositionV1, StartV1};
use log_server::groups::group::{Owner, Place};

use super::broken::Broken;
use super::world::Times;

/// What a process sends.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// A join, heartbeat, release or leave, as the membership wants it.
    Call(Action),
    Commit {
        owner: Owner,
        place: Place,
        epoch: u64,
        cursor: u64,
    },
    /// Its connection is closed.
    Closed,
}

/// A call under way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Join(u64),
    Heartbeat(u64),
    Release(Place, u64),
    Leave(u64),
}

/// A partition in the hands of the user.
#[derive(Debug, Clone)]
pub(crate) struct Hand {
    pub(crate) epoch: u64,
    pub(crate) cursor: u64,
    pub(crate) draining: bool,
}

/// A record that is with its handler.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) epoch: u64,
    pub(crate) since: Duration,
    pub(crate) until: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) member: Arc<str>,
    pub(crate) connection: u64,
    pub(crate) topics: Vec<&'static str>,
    pub(crate) membership: Membership,
    pub(crate) hands: BTreeMap<Place, Hand>,
    pub(crate) running: BTreeMap<Place, Running>,
    pub(crate) calls: BTreeMap<Call, Duration>,
    pub(crate) alive: bool,
    /// What it has given up of its own, handlers or not.
    pub(crate) given_up: BTreeSet<(Place, u64)>,
    /// A record took too long, so that it has left until its user returns.
    pub(crate) overdue: bool,
    /// It hands nothing new over, and leaves with what it holds when nothing is in hand.
    pub(crate) keeps: Option<Duration>,
    pub(crate) outbox: Vec<Request>,
    /// What it has taken since this was looked at.
    pub(crate) taken: Vec<GrantV1>,
    pub(crate) stopped: Option<Refusal>,
    session: Duration,
    answered: Option<Duration>,
    left: Option<Duration>,
    broken: Option<Broken>,
}

pub(crate) fn place_of(id: PartitionId) -> Place {
    Place { topic_id: id.topic_id, partition: id.partition }
}

pub(crate) fn id_of(place: Place) -> PartitionId {
    PartitionId { topic_id: place.topic_id, partition: place.partition }
}

impl Process {
    pub(crate) fn new(
        owner: &Owner,
        connection: u64,
        topics: Vec<&'static str>,
        times: &Times,
        broken: Option<Broken>,
    ) -> Process {
        let (member, incarnation) = (owner.member.to_string(), owner.incarnation);
        let membership = Membership::new(MembershipConfig {
            member: MemberV1 { group: "g".into(), member, incarnation },
            topics: topics.iter().map(|name| (*name).to_owned()).collect(),
            start: StartV1 { kind: 0, value: 0 },
            session_timeout: times.session,
            drain_timeout: times.drain,
            processing_timeout: times.processing,
        });
        Process {
            member: Arc::clone(&owner.member),
            connection,
            topics,
            membership,
            hands: BTreeMap::new(),
            running: BTreeMap::new(),
            calls: BTreeMap::new(),
            alive: true,
            given_up: BTreeSet::new(),
            overdue: false,
            keeps: None,
            outbox: Vec::new(),
            taken: Vec::new(),
            stopped: None,
            session: times.session,
            answered: None,
            left: None,
            broken,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        let incarnation = self.membership.member().incarnation;
        Owner { member: Arc::clone(&self.member), incarnation }
    }

    pub(crate) fn runs(&self) -> bool {
        self.alive && !self.membership.is_over()
    }

    /// Whether it would hand a record of this partition to a handler now.
    pub(crate) fn may_hand_over(&self, place: Place, now: Duration) -> bool {
        let Some(hand) = self.hands.get(&place).filter(|_| self.alive) else { return false };
        let has_lease = self.membership.lease_until().is_some_and(|until| now < until);
        match self.broken {
            Some(Broken::LeaseIgnored) => !hand.draining && self.runs(),
            Some(Broken::LeaseFromAnswer) => {
                let until = self.answered.map(|at| at + self.session);
                !hand.draining && has_lease_until(until, now) && self.runs()
            }
            Some(Broken::HandsOverWhileDraining) => has_lease,
            Some(Broken::OldGrantsTaken | Broken::RevokeTakenBack) => has_lease && !hand.draining,
            Some(Broken::HandsOverAfterLeaving) => {
                !hand.draining && (has_lease || has_lease_until(self.left, now))
            }
            _ => self.membership.may_hand_over(id_of(place), hand.epoch, now),
        }
    }

    /// What the session's task does of its own.
    pub(crate) fn wake(&mut self, now: Duration) {
        let oldest = self.running.values().map(|running| running.since).min();
        self.on(Event::InHand(oldest), now);
        let late: Vec<Call> =
            self.calls.iter().filter(|(_, at)| **at <= now).map(|(call, _)| call.clone()).collect();
        late.into_iter().for_each(|call| self.fail(&call, Failure::NoAnswer, now));
        if self.membership.deadline().is_some_and(|at| at <= now) {
            self.on(Event::Tick, now);
        }
    }

    /// A call has no answer.
    pub(crate) fn fail(&mut self, call: &Call, failure: Failure, now: Duration) {
        let event = match call {
            Call::Join(call) => Event::JoinFailed(*call, failure),
            Call::Heartbeat(call) => Event::HeartbeatFailed(*call, failure),
            Call::Release(place, epoch) => Event::ReleaseFailed(id_of(*place), *epoch, failure),
            Call::Leave(call) => Event::LeaveFailed(*call, failure),
        };
        self.told(event, now);
    }

    /// Takes an answer, or that there is none.
    pub(crate) fn told(&mut self, event: Event, now: Duration) {
        let call = match &event {
            Event::Joined(call, _) | Event::JoinFailed(call, _) => Some(Call::Join(*call)),
            Event::HeartbeatAnswered(call, _) | Event::HeartbeatFailed(call, _) => {
                Some(Call::Heartbeat(*call))
            }
            Event::Released(id, epoch) | Event::ReleaseFailed(id, epoch, _) => {
                Some(Call::Release(place_of(*id), *epoch))
            }
            Event::Left(call) | Event::LeaveFailed(call, _) => Some(Call::Leave(*call)),
            _ => None,
        };
        // What nobody waits for any more is told all the same: an answer may be late.
        call.and_then(|call| self.calls.remove(&call));
        let reply = match &event {
            Event::HeartbeatAnswered(_, reply) => Some(reply.clone()),
            _ => None,
        };
        self.on(event, now);
        if let Some(reply) = reply.filter(|_| self.runs()) {
            self.answered = Some(now);
            self.misread(&reply);
        }
    }

    /// What one does with an answer that breaks a rule.
    fn misread(&mut self, reply: &HeartbeatReplyV1) {
        for grant in &reply.grants {
            let place = Place { topic_id: grant.topic_id, partition: grant.partition };
            let (epoch, cursor) = (grant.epoch, grant.position.offset);
            let is_revoked = grant.revoked_for.is_some();
            match self.broken {
                Some(Broken::OldGrantsTaken) if !is_revoked => {
                    self.hands.entry(place).or_insert(Hand { epoch, cursor, draining: false });
                }
                Some(Broken::RevokeTakenBack) if !is_revoked => {
                    if let Some(hand) = self.hands.get_mut(&place) {
                        hand.draining &= hand.epoch != epoch;
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn on(&mut self, event: Event, now: Duration) {
        if let (Event::Leave { keep: Some(_) }, Some(Broken::HandsOverAfterLeaving)) =
            (&event, self.broken)
        {
            self.left = self.membership.lease_until();
        }
        for action in self.membership.on(event, now) {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action, now: Duration) {
        let half = self.session / 2;
        let (call, patience) = match &action {
            Action::Join(call, _) => (Call::Join(*call), half),
            Action::Heartbeat(call, heartbeat) => {
                (Call::Heartbeat(*call), half + Duration::from_millis(heartbeat.max_wait))
            }
            Action::Release(release) => {
                let (topic_id, partition) = (release.topic_id, release.partition);
                (Call::Release(Place { topic_id, partition }, release.epoch), half)
            }
            Action::Leave(call, _) => (Call::Leave(*call), half),
            _ => return self.follow(action, now),
        };
        self.calls.insert(call, now + patience);
        self.outbox.push(Request::Call(action));
    }

    fn follow(&mut self, action: Action, now: Duration) {
        match action {
            Action::Assign(grant) => {
                let place = Place { topic_id: grant.topic_id, partition: grant.partition };
                let (epoch, cursor) = (grant.epoch, grant.position.offset);
                self.hands.insert(place, Hand { epoch, cursor, draining: false });
                self.taken.push(grant);
            }
            Action::Drain(id, epoch, _) => {
                if let Some(hand) = self.hand(id, epoch) {
                    hand.draining = true;
                }
            }
            Action::Expire(id, epoch) => {
                self.given_up.insert((place_of(id), epoch));
                let cursor = self.hand(id, epoch).map(|hand| hand.cursor);
                self.on(Event::Drained(id, epoch, cursor.map(PositionV1::at)), now);
            }
            Action::Lose(id, epoch, reason) => {
                if reason != LostReason::Taken {
                    self.given_up.insert((place_of(id), epoch));
                }
                self.drop_hand(id, epoch);
            }
            Action::Overdue => self.overdue = true,
            Action::Released(id, epoch) | Action::Forced(id, epoch) => self.drop_hand(id, epoch),
            Action::End(why) => {
                if self.left.is_none() {
                    self.hands.clear();
                }
                self.stopped = why;
            }
            _ => {}
        }
    }

    fn hand(&mut self, id: PartitionId, epoch: u64) -> Option<&mut Hand> {
        self.hands.get_mut(&place_of(id)).filter(|hand| hand.epoch == epoch)
    }

    fn drop_hand(&mut self, id: PartitionId, epoch: u64) {
        if self.left.is_none() && self.hand(id, epoch).is_some() {
            self.hands.remove(&place_of(id));
        }
    }
}

fn has_lease_until(until: Option<Duration>, now: Duration) -> bool {
    until.is_some_and(|until| now < until)
}
