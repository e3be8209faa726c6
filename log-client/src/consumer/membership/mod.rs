//! Membership: the client's side of a group, as a pure state machine.
//!
//! `on(event, now)` returns what is to be done; nothing here waits, sends, or looks at a clock.
//! `now` is the time since some fixed instant. Every call that it asks for ends in one event that
//! says how; events may come late, twice, or after the call was forgotten.
//!
//! - A grant is taken only if its epoch is above any seen for its partition; one that may not be
//!   taken is given back, so that the server can grant the partition anew.
//! - A revoke is never taken back, and its deadline never moves: active, draining, releasing, gone.
//! - Nothing is handed over once a session timeout has passed since the last answered heartbeat was
//!   *sent*.
//! - Only the answer to the newest heartbeat says what is held: an older one may tell of the past.

mod action;
mod ending;
mod event;
mod grants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log_core::Timestamp;
use log_core::protocol::groups::{
    GrantV1, HeartbeatReplyV1, HeartbeatV1, HeldV1, JoinGroupReplyV1, JoinGroupV1, MemberV1,
};
use log_core::protocol::{ErrorCode, Refusal};

pub use action::{Action, LostReason};
pub use event::{Event, Failure, MembershipConfig, PartitionId};
use grants::Grants;

/// How long after a failed call it is made again: doubled each time, up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);
/// The shortest time between two heartbeats of which the first has brought nothing new.
const HEARTBEAT_GAP: Duration = Duration::from_millis(20);
/// The most heartbeats that wait for an answer: the newest, and those that it has overtaken.
const HEARTBEATS_MAX: usize = 4;
/// A drain ends so much before the server's deadline, so that its release arrives before: a tenth
/// of it, and no more than this.
const DRAIN_MARGIN_MAX: Duration = Duration::from_secs(1);
/// By so much at most is an incarnation raised above another; what chance has put into one is less.
const RAISE_SPREAD: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// Not a member; joins at this time.
    Apart { join_at: Duration },
    /// A join is under way.
    Joining { call: u64 },
    /// A member.
    Member,
    /// On the way out.
    Leaving(Leaving),
    /// Left, because a record took too long; joins again when the user has returned.
    Resting,
    /// Over.
    Ended,
}

#[derive(Debug, Clone, PartialEq)]
struct Leaving {
    keep: Option<Duration>,
    /// The call under way.
    call: Option<u64>,
    retry_at: Duration,
    answered: bool,
    /// Over at this time, whatever was answered.
    deadline: Duration,
    /// It joins again afterwards: at once, if the user has returned.
    rejoin: bool,
    returned: bool,
}

#[derive(Debug, Clone)]
struct Heartbeats {
    /// Those without an answer yet, and when each was sent.
    waiting: BTreeMap<u64, Duration>,
    /// The newest, while it waits.
    newest: Option<u64>,
    next_at: Duration,
    /// There is something to say that the newest did not.
    news: bool,
    seen_version: u64,
    last_answered_sent: Option<Duration>,
    every: Duration,
}

/// The client's side of a group.
#[derive(Debug, Clone)]
pub struct Membership {
    config: MembershipConfig,
    phase: Phase,
    session_timeout: Duration,
    heartbeats: Heartbeats,
    grants: Grants,
    calls: u64,
    failures: u32,
    admitted: bool,
    raised: bool,
    in_hand: Option<Duration>,
}

/// The incarnation of a process that starts now: greater than that of one started before.
#[must_use]
pub fn new_incarnation(now: Timestamp, random: u64) -> u64 {
    const MICROS_PER_MILLI: u64 = 1_000;
    const RANDOM_BITS: u32 = 10;
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    // The clock tells milliseconds; which of its microseconds it is, chance says.
    let micros = millis.saturating_mul(MICROS_PER_MILLI) + random % MICROS_PER_MILLI;
    micros << RANDOM_BITS | random >> (u64::BITS - RANDOM_BITS)
}

impl Membership {
    /// A membership that begins with its first `Tick`.
    #[must_use]
    pub fn new(config: MembershipConfig) -> Membership {
        Membership {
            session_timeout: config.session_timeout,
            phase: Phase::Apart { join_at: Duration::ZERO },
            heartbeats: Heartbeats {
                waiting: BTreeMap::new(),
                newest: None,
                next_at: Duration::ZERO,
                news: false,
                seen_version: 0,
                last_answered_sent: None,
                every: config.session_timeout / 3,
            },
            grants: Grants::default(),
            calls: 0,
            failures: 0,
            admitted: false,
            raised: false,
            in_hand: None,
            config,
        }
    }

    /// Who it is; the incarnation may be raised once, before it is first admitted.
    #[must_use]
    pub fn member(&self) -> &MemberV1 {
        &self.config.member
    }

    /// Until when records may be handed over; none: not now.
    #[must_use]
    pub fn lease_until(&self) -> Option<Duration> {
        let sent = self.heartbeats.last_answered_sent?;
        (self.phase == Phase::Member).then_some(sent + self.session_timeout)
    }

    /// Whether a record of this grant may be handed over.
    #[must_use]
    pub fn may_hand_over(&self, partition: PartitionId, epoch: u64, now: Duration) -> bool {
        self.lease_until().is_some_and(|until| now < until)
            && self.grants.is_active(partition, epoch)
    }

    /// What it holds, as it would say it.
    #[must_use]
    pub fn holds(&self) -> Vec<HeldV1> {
        self.grants.held()
    }

    /// Whether the server has ever taken it in.
    #[must_use]
    pub fn was_admitted(&self) -> bool {
        self.admitted
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// When it wants a `Tick`; none: only when something happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let own = match &self.phase {
            Phase::Ended => return None,
            Phase::Apart { join_at } => Some(*join_at),
            Phase::Joining { .. } | Phase::Resting => None,
            Phase::Member => self.overdue_at(),
            Phase::Leaving(leaving) => Some(match leaving.call {
                None if !leaving.answered => leaving.retry_at.min(leaving.deadline),
                _ => leaving.deadline,
            }),
        };
        let heartbeat = match self.heartbeats.newest {
            None if self.beats() && self.heartbeats.waiting.len() < HEARTBEATS_MAX => {
                Some(self.heartbeats.next_at)
            }
            _ => None,
        };
        [own, heartbeat, self.grants.deadline(self.may_release())].into_iter().flatten().min()
    }

    /// Takes what has happened; returns what is to be done, in this order.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase == Phase::Ended {
            return actions;
        }
        match event {
            Event::Tick => {}
            Event::Joined(call, reply) => self.joined(call, &reply, now),
            Event::JoinFailed(call, failure) => self.join_failed(call, failure, now, &mut actions),
            Event::HeartbeatAnswered(call, reply) => self.answered(call, reply, now, &mut actions),
            Event::HeartbeatFailed(call, failure) => {
                self.heartbeat_failed(call, failure, now, &mut actions);
            }
            Event::Suspect => self.heartbeats.news = true,
            Event::Drained(partition, epoch, position) => {
                self.grants.drained(partition, epoch, position, now);
            }
            Event::Released(partition, epoch) => {
                if self.grants.remove(partition, epoch) {
                    self.heartbeats.news = true;
                    actions.push(Action::Released(partition, epoch));
                }
            }
            Event::ReleaseFailed(partition, epoch, failure) => {
                self.release_failed(partition, epoch, failure, now, &mut actions);
            }
            Event::InHand(since) => self.in_hand = since,
            Event::Returned => self.returned(now),
            Event::Leave { keep } => self.leave(keep, now, &mut actions),
            Event::Left(call) => self.left(call),
            Event::LeaveFailed(call, failure) => {
                self.leave_failed(call, failure, now, &mut actions);
            }
        }
        self.go_on(now, &mut actions);
        actions
    }

    /// Whatever is due now.
    fn go_on(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if let Phase::Apart { join_at } = self.phase
            && join_at <= now
        {
            self.join(actions);
        }
        if self.overdue_at().is_some_and(|at| at <= now) {
            self.give_everything_up(now, actions);
        }
        self.grants.expire(now, actions);
        self.send_leave(now, actions);
        if self.may_release() {
            self.grants.send_releases(&self.config.member, now, actions);
        }
        self.finish_leaving(now, actions);
        self.beat(now, actions);
    }

    fn join(&mut self, actions: &mut Vec<Action>) {
        let call = self.next_call();
        self.phase = Phase::Joining { call };
        let config = &self.config;
        actions.push(Action::Join(
            call,
            JoinGroupV1 {
                member: config.member.clone(),
                topics: config.topics.clone(),
                start: config.start,
                session_timeout: millis(config.session_timeout),
                drain_timeout: millis(config.drain_timeout),
                processing_timeout: millis(config.processing_timeout),
            },
        ));
    }

    fn joined(&mut self, call: u64, reply: &JoinGroupReplyV1, now: Duration) {
        if self.phase != (Phase::Joining { call }) {
            return;
        }
        self.phase = Phase::Member;
        self.admitted = true;
        self.failures = 0;
        self.session_timeout = Duration::from_millis(reply.session_timeout);
        self.heartbeats.every = Duration::from_millis(reply.heartbeat_every);
        // What was sent before the join can't be told from what another membership was told.
        self.heartbeats.newest = None;
        self.heartbeats.waiting.clear();
        self.heartbeats.next_at = now;
        self.heartbeats.seen_version = 0;
    }

    fn join_failed(
        &mut self,
        call: u64,
        failure: Failure,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.phase != (Phase::Joining { call }) {
            return;
        }
        self.phase = Phase::Apart { join_at: now + self.retry_after() };
        if failure.is_unknown_member() {
            return;
        }
        let fenced = failure.is(ErrorCode::Fenced);
        let Some(refusal) = failure.into_final() else { return };
        // The clock of the process that ran before may have been ahead. Nobody has seen this one
        // yet, so nobody is fenced by it who should not be.
        if let (true, false, false, Some(newer)) =
            (fenced, self.admitted, self.raised, refusal.numbers.first())
        {
            self.raised = true;
            // Another that starts now raises its own above the same: apart by what is random in them.
            let apart = self.config.member.incarnation % RAISE_SPREAD;
            self.config.member.incarnation = newer.saturating_add(1).saturating_add(apart);
            self.phase = Phase::Apart { join_at: now };
            return;
        }
        self.stop(refusal, actions);
    }

    /// Whether heartbeats are sent.
    fn beats(&self) -> bool {
        match &self.phase {
            Phase::Member => true,
            Phase::Leaving(leaving) => leaving.keep.is_none() && !self.grants.is_empty(),
            _ => false,
        }
    }

    fn beat(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let beats = self.beats();
        let heartbeats = &mut self.heartbeats;
        let due = heartbeats.newest.is_none() && heartbeats.next_at <= now;
        let overtakes = heartbeats.newest.is_some() && heartbeats.news;
        if !beats || !(due || overtakes) || heartbeats.waiting.len() >= HEARTBEATS_MAX {
            return;
        }
        heartbeats.news = false;
        self.calls += 1;
        heartbeats.newest = Some(self.calls);
        heartbeats.waiting.insert(self.calls, now);
        let processing = self.in_hand.map_or(0, |since| millis(now.saturating_sub(since)));
        actions.push(Action::Heartbeat(
            self.calls,
            HeartbeatV1 {
                member: self.config.member.clone(),
                holds: self.grants.held(),
                seen_version: heartbeats.seen_version,
                processing,
                max_wait: millis(heartbeats.every),
            },
        ));
    }

    fn answered(
        &mut self,
        call: u64,
        reply: HeartbeatReplyV1,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(sent) = self.heartbeats.waiting.remove(&call) else { return };
        self.failures = 0;
        let is_newest = self.heartbeats.newest == Some(call);
        // An overtaken one does not say what is held. It counts only if it denies nothing: the
        // server may have answered it long after it had begun to take something back.
        if is_newest || self.grants.are_confirmed(&reply.grants) {
            self.heartbeats.last_answered_sent = self.heartbeats.last_answered_sent.max(Some(sent));
        }
        if !is_newest {
            return;
        }
        self.heartbeats.newest = None;
        self.heartbeats.seen_version = reply.version;
        let changed = self.follow(reply.grants, now, actions);
        self.heartbeats.next_at = if changed { now } else { now.max(sent + HEARTBEAT_GAP) };
    }

    fn heartbeat_failed(
        &mut self,
        call: u64,
        failure: Failure,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.heartbeats.waiting.remove(&call).is_none() {
            return;
        }
        if self.heartbeats.newest == Some(call) {
            self.heartbeats.newest = None;
            self.heartbeats.next_at = now + self.retry_after();
        }
        if failure.is_unknown_member() {
            self.forgotten(now);
        } else if let Some(refusal) = failure.into_final()
            && !self.is_of_older_run(&refusal)
        {
            self.stop(refusal, actions);
        }
    }

    /// Whether it was this run that fenced the one that was refused: the member has come back as
    /// a newer one meanwhile.
    fn is_of_older_run(&self, refusal: &Refusal) -> bool {
        let newest = refusal.numbers.first();
        refusal.error_code() == Some(ErrorCode::Fenced)
            && newest.is_some_and(|newest| *newest <= self.config.member.incarnation)
    }

    /// The server knows the member no more. What it holds stays, though nothing is handed over: a
    /// server that was restarted may still count it as the owner. The first heartbeat after the
    /// join tells.
    fn forgotten(&mut self, now: Duration) {
        match &mut self.phase {
            Phase::Member => {
                self.phase = Phase::Apart { join_at: now + self.retry_after() };
                self.heartbeats.last_answered_sent = None;
            }
            Phase::Leaving(leaving) => {
                leaving.answered = true;
                leaving.call = None;
            }
            _ => {}
        }
    }

    /// Takes what the server says that it should hold; returns whether that was new.
    fn follow(&mut self, listed: Vec<GrantV1>, now: Duration, actions: &mut Vec<Action>) -> bool {
        let may_take = self.phase == Phase::Member;
        let mut changed = false;
        let there: BTreeSet<_> = listed.iter().map(|grant| (id_of(grant), grant.epoch)).collect();
        for (partition, epoch) in self.grants.missing_from(&there) {
            self.grants.remove(partition, epoch);
            actions.push(Action::Lose(partition, epoch, LostReason::Taken));
            changed = true;
        }
        for grant in listed {
            changed |= self.grants.follow(grant, may_take, now, actions);
        }
        changed
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn retry_after(&mut self) -> Duration {
        let after = RETRY_FIRST.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        after.min(RETRY_LAST)
    }
}

fn id_of(grant: &GrantV1) -> PartitionId {
    PartitionId { topic_id: grant.topic_id, partition: grant.partition }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
