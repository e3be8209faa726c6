//! Server: the real group, with a store below it and requests that wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::membership::{Action as Asks, Event as Told, Failure};
use log_core::StartFrom;
use log_core::protocol::groups::{HeartbeatV1, HeldV1, JoinGroupReplyV1, JoinGroupV1, MemberV1};
use log_core::protocol::{ErrorCode, Refusal};
use log_server::groups::group::{
    Action, Answer, Change, Commit, Event, Group, GroupRules, Owner, Place, Position, RequestId,
    Subscription, TopicLine,
};

use super::broken::Broken;
use super::process::{Request, id_of};
use super::store::Store;
use super::world::Times;

/// Who asked what.
#[derive(Debug, Clone)]
enum Asked {
    Join { call: u64 },
    Heartbeat { call: u64, owner: Owner, seen: u64, wait: Duration, holds: Vec<HeldV1> },
    Release { place: Place, epoch: u64, cursor: Option<u64> },
    Leave { call: u64 },
    Commit { place: Place, epoch: u64, cursor: u64 },
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From {
    pub(crate) process: usize,
    pub(crate) connection: u64,
}

/// A heartbeat that waits for a change.
#[derive(Debug, Clone)]
struct Parked {
    from: From,
    call: u64,
    owner: Owner,
    until: Duration,
    holds: Vec<HeldV1>,
}

#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) group: Option<Group>,
    pub(crate) store: Store,
    pub(crate) topics: Vec<TopicLine>,
    times: Times,
    asked: BTreeMap<RequestId, (From, Asked)>,
    parked: Vec<Parked>,
    starts: u64,
    /// Grants that were taken by force.
    pub(crate) forced: BTreeSet<(Place, u64)>,
    /// Those of them that no restart has brought back.
    void: BTreeSet<(Place, u64)>,
    /// The greatest position that was acknowledged under each grant.
    pub(crate) acknowledged: BTreeMap<(Place, u64), u64>,
    epochs: BTreeMap<Place, u64>,
    pub(crate) outbox: Vec<(From, Told)>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    broken: Option<Broken>,
    pub(crate) violation: Option<String>,
}

impl Server {
    pub(crate) fn new(times: Times, topics: Vec<TopicLine>, broken: Option<Broken>) -> Server {
        Server {
            group: None,
            store: Store::default(),
            topics,
            times,
            asked: BTreeMap::new(),
            parked: Vec::new(),
            starts: 0,
            forced: BTreeSet::new(),
            void: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            epochs: BTreeMap::new(),
            outbox: Vec::new(),
            counts: BTreeMap::new(),
            broken,
            violation: None,
        }
    }

    fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// All that what comes next depends on.
    pub(crate) fn describe(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        write!(text, "{:?}{:?}{:?}{:?}", self.group, self.store, self.asked, self.parked)?;
        write!(text, "{:?}{:?}", self.forced, self.acknowledged)
    }

    pub(crate) fn start(&mut self, now: Duration) {
        self.starts += 1;
        let short = self.is(Broken::RestartCountsShort);
        let repeats = self.is(Broken::RestartRepeatsEpochs);
        let rules = GroupRules {
            join_window: self.times.join_window,
            session_timeout: if short { self.times.session / 4 } else { self.times.session },
            drain_timeout: self.times.drain,
            retry_after: self.times.retry_after,
            members_max: 8,
            grants_max_bytes: usize::MAX,
            epoch_floor: if repeats { 0 } else { self.starts * 1_000_000 },
        };
        let mut entries = self.store.entries();
        for entry in &mut entries {
            if self.is(Broken::RestartForgetsOwners) || repeats {
                entry.grant = None;
            }
        }
        let written = |line: &&TopicLine| entries.iter().any(|e| e.place.topic_id == line.id);
        let topics: Vec<TopicLine> = self.topics.iter().filter(written).cloned().collect();
        self.group = Some(Group::restored(rules, &topics, entries, now));
        self.void.clear();
        self.tell(Event::TopicsChanged { topics: self.topics.clone() }, now);
    }

    /// The process dies; of what was not durable, the first `kept` writes are.
    pub(crate) fn crash(&mut self, kept: usize) {
        self.count("restarts");
        self.store.crash(kept);
        (self.group, self.parked) = (None, Vec::new());
        self.asked.clear();
    }

    pub(crate) fn tell(&mut self, event: Event, now: Duration) {
        let Some(group) = &mut self.group else { return };
        for action in group.on(event, now) {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action, now: Duration) {
        match action {
            Action::Write { token, changes } => {
                self.check_write(&changes);
                let early = self.is_told_early(&changes);
                let changes = self.rewritten(changes);
                let written = self.store.write(token, &changes);
                if early && written.is_ok() {
                    self.store.note_told();
                }
                if early || written.is_err() {
                    self.tell(Event::Written { token, outcome: written }, now);
                }
            }
            Action::Resolve { token, places, .. } => {
                let found = places.into_iter().map(|place| (place, Ok(0))).collect();
                self.tell(Event::Resolved { token, found }, now);
            }
            Action::Answer { request, answer } => self.answer(request, answer, now),
            Action::Changed { owner } => self.wake(&owner, now),
            Action::Gone { owner, why } => {
                let (gone, left) = self.parted(|parked| parked.owner == owner);
                self.parked = left;
                for parked in gone {
                    let failed = Told::HeartbeatFailed(parked.call, Failure::Refused(why.clone()));
                    self.outbox.push((parked.from, failed));
                }
            }
            Action::Forced(forced) => {
                self.count("forced");
                self.void.insert((forced.place, forced.epoch));
                if !self.is(Broken::ForceUntold) {
                    self.forced.insert((forced.place, forced.epoch));
                }
            }
        }
    }

    fn is_told_early(&self, changes: &[Change]) -> bool {
        let grants = changes.iter().filter_map(|change| change.grant.as_ref());
        match self.broken {
            Some(Broken::GrantToldEarly) => grants.into_iter().any(|grant| grant.owner.is_some()),
            Some(Broken::ReleaseAnsweredEarly) => {
                grants.into_iter().any(|grant| grant.owner.is_none())
            }
            Some(Broken::CommitAnsweredEarly) => changes.iter().all(|c| c.grant.is_none()),
            _ => false,
        }
    }

    fn rewritten(&self, mut changes: Vec<Change>) -> Vec<Change> {
        for change in &mut changes {
            let released = change.grant.as_ref().is_some_and(|grant| grant.owner.is_none());
            if released && self.is(Broken::ReleaseWithoutPosition) {
                change.position = None;
            }
        }
        changes
    }

    /// No epoch is given twice.
    fn check_write(&mut self, changes: &[Change]) {
        for change in changes {
            let Some(grant) = change.grant.as_ref().filter(|grant| grant.owner.is_some()) else {
                continue;
            };
            let before = self.epochs.insert(change.place, grant.epoch);
            if before >= Some(grant.epoch) {
                self.violation = Some(format!("{:?}: {before:?}, then {grant:?}", change.place));
            }
        }
    }

    fn parted(&mut self, is_it: impl Fn(&Parked) -> bool) -> (Vec<Parked>, Vec<Parked>) {
        std::mem::take(&mut self.parked).into_iter().partition(is_it)
    }

    fn wake(&mut self, owner: &Owner, now: Duration) {
        let (woken, left) = self.parted(|parked| parked.owner == *owner);
        self.parked = left;
        woken.into_iter().for_each(|parked| self.reply(parked, now));
    }

    /// What is due: heartbeats that have waited for long enough; and the group's own clock.
    pub(crate) fn wake_due(&mut self, now: Duration, tick: bool) {
        let (due, left) = self.parted(|parked| parked.until <= now);
        self.parked = left;
        due.into_iter().for_each(|parked| self.reply(parked, now));
        let deadline = self.group.as_ref().and_then(Group::next_deadline);
        if tick && deadline.is_some_and(|at| at <= now) {
            self.tell(Event::Tick, now);
        }
    }

    /// The next write becomes durable.
    pub(crate) fn sync(&mut self, count: usize, reversed: bool, now: Duration) {
        let mut tokens: Vec<_> = (0..count).filter_map(|_| self.store.sync()).collect();
        // Their outcomes are told in any order.
        if reversed {
            tokens.reverse();
        }
        for token in tokens {
            self.tell(Event::Written { token, outcome: Ok(()) }, now);
        }
    }

    /// A sync fails.
    pub(crate) fn latch(&mut self, now: Duration) {
        for token in self.store.latch() {
            let outcome = Err(Refusal::new(ErrorCode::OutcomeUnknown, "model"));
            self.tell(Event::Written { token, outcome }, now);
        }
    }

    fn reply(&mut self, parked: Parked, now: Duration) {
        let Some(group) = &self.group else { return };
        let event = match group.reply(&parked.owner, now) {
            Ok(mut reply) => {
                for grant in &mut reply.grants {
                    let acknowledged = parked.holds.iter().any(|held| {
                        (held.topic_id, held.partition) == (grant.topic_id, grant.partition)
                            && held.epoch == grant.epoch
                            && held.draining
                    });
                    if acknowledged && self.is(Broken::RevokeTakenBack) {
                        grant.revoked_for = None;
                    }
                }
                Told::HeartbeatAnswered(parked.call, reply)
            }
            Err(refusal) => Told::HeartbeatFailed(parked.call, Failure::Refused(refusal)),
        };
        self.outbox.push((parked.from, event));
    }

    fn answer(&mut self, request: RequestId, answer: Answer, now: Duration) {
        let Some((from, asked)) = self.asked.remove(&request) else { return };
        let outcome = match &answer {
            Answer::Refused(refusal) => Err(Failure::Refused(refusal.clone())),
            _ => Ok(()),
        };
        let event = match (asked, outcome) {
            (Asked::Join { call }, Ok(())) => Told::Joined(call, self.joined()),
            (Asked::Join { call }, Err(why)) => Told::JoinFailed(call, why),
            (Asked::Heartbeat { call, .. }, Err(why)) => Told::HeartbeatFailed(call, why),
            (Asked::Heartbeat { call, owner, seen, wait, holds }, Ok(())) => {
                let group = self.group.as_ref().expect("it has answered");
                let version = group.reply(&owner, now).map(|reply| reply.version);
                let until = now + wait.min(self.times.session / 3);
                let parked = Parked { from, call, owner, until, holds };
                if version == Ok(seen) {
                    self.parked.push(parked);
                } else {
                    self.reply(parked, now);
                }
                return;
            }
            (Asked::Release { place, epoch, cursor }, Ok(())) => {
                self.count("releases");
                self.acknowledge(place, epoch, cursor);
                Told::Released(id_of(place), epoch)
            }
            (Asked::Release { place, epoch, .. }, Err(why)) => {
                Told::ReleaseFailed(id_of(place), epoch, why)
            }
            (Asked::Leave { call }, Ok(())) => Told::Left(call),
            (Asked::Leave { call }, Err(why)) => Told::LeaveFailed(call, why),
            (Asked::Commit { place, epoch, cursor }, _) => {
                let Answer::Each(outcomes) = answer else { return };
                if outcomes[0].is_none() {
                    self.count("commits");
                    self.acknowledge(place, epoch, Some(cursor));
                    return;
                }
                self.count("commits refused");
                Told::Suspect
            }
        };
        self.outbox.push((from, event));
    }

    fn acknowledge(&mut self, place: Place, epoch: u64, cursor: Option<u64>) {
        let Some(cursor) = cursor else { return };
        let most = self.acknowledged.entry((place, epoch)).or_default();
        *most = (*most).max(cursor);
    }

    fn joined(&self) -> JoinGroupReplyV1 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("it is short");
        JoinGroupReplyV1 {
            heartbeat_every: millis(self.times.session / 3),
            session_timeout: millis(self.times.session),
        }
    }

    /// Takes what a process has sent.
    pub(crate) fn take(&mut self, from: From, request: Request, now: Duration) {
        if self.group.is_none() {
            return;
        }
        let request_id = self.asked.last_key_value().map_or(1, |(last, _)| last + 1);
        match request {
            Request::Closed => {
                let connection = from.connection;
                self.parked.retain(|parked| parked.from.connection != connection);
                self.tell(Event::ConnectionClosed { connection }, now);
            }
            Request::Commit { owner, place, epoch, cursor } => {
                self.asked.insert(request_id, (from, Asked::Commit { place, epoch, cursor }));
                self.commit(request_id, owner, (place, epoch, cursor), now);
            }
            Request::Call(Asks::Join(call, join)) => {
                self.asked.insert(request_id, (from, Asked::Join { call }));
                self.join(request_id, from, &join, now);
            }
            Request::Call(Asks::Heartbeat(call, heartbeat)) => {
                self.heartbeat(request_id, from, call, heartbeat, now);
            }
            Request::Call(Asks::Release(release)) => {
                let (topic_id, partition) = (release.topic_id, release.partition);
                let place = Place { topic_id, partition };
                let (epoch, owner) = (release.epoch, owner_of(&release.member));
                let cursor = release.position.as_ref().map(|position| position.offset);
                self.asked.insert(request_id, (from, Asked::Release { place, epoch, cursor }));
                let position = cursor.map(Position::at);
                let request = request_id;
                self.tell(Event::Release { request, owner, place, epoch, position }, now);
            }
            Request::Call(Asks::Leave(call, leave)) => {
                self.asked.insert(request_id, (from, Asked::Leave { call }));
                let (owner, connection) = (owner_of(&leave.member), from.connection);
                let keep = leave.keep.map(Duration::from_millis);
                let request = request_id;
                self.tell(Event::Leave { request, owner, connection, keep }, now);
            }
            Request::Call(other) => unreachable!("nobody sends {other:?}"),
        }
    }

    fn join(&mut self, request: RequestId, from: From, join: &JoinGroupV1, now: Duration) {
        let mut owner = owner_of(&join.member);
        let members = self.group.as_ref().into_iter().flat_map(Group::members);
        let there = members.filter(|member| *member.member == *owner.member);
        let present = there.map(|member| member.incarnation).next();
        match present {
            Some(newer) if newer > owner.incarnation && self.is(Broken::LateJoinFences) => {
                owner.incarnation = newer + 1;
            }
            Some(older) if older < owner.incarnation && self.is(Broken::SupersededBeforeLease) => {
                let owner = Owner { member: Arc::clone(&owner.member), incarnation: older };
                let keep = Some(Duration::from_secs(9));
                let connection = 0;
                self.tell(Event::Leave { request: 0, owner, connection, keep }, now);
            }
            _ => {}
        }
        let mut session_timeout = Duration::from_millis(join.session_timeout);
        if self.is(Broken::SessionEndsEarly) {
            session_timeout /= 3;
        } else if self.is(Broken::SessionsEndless) {
            session_timeout *= 1_000;
        }
        let is_wanted = |line: &&TopicLine| join.topics.iter().any(|name| **name == *line.name);
        let subscription = Subscription {
            connection: from.connection,
            names: join.topics.iter().map(|name| Arc::from(name.as_str())).collect(),
            topics: self.topics.iter().filter(is_wanted).cloned().collect(),
            start: StartFrom::Earliest,
            session_timeout,
            drain_timeout: Duration::from_millis(join.drain_timeout),
            processing_timeout: Duration::from_millis(join.processing_timeout),
        };
        self.tell(Event::Join { request, owner, subscription }, now);
    }

    fn heartbeat(
        &mut self,
        request: RequestId,
        from: From,
        call: u64,
        mut heartbeat: HeartbeatV1,
        now: Duration,
    ) {
        let owner = owner_of(&heartbeat.member);
        let (seen, wait) = (heartbeat.seen_version, Duration::from_millis(heartbeat.max_wait));
        let holds = heartbeat.holds.clone();
        if self.is(Broken::ForcedBeforeLease) {
            heartbeat.holds.iter_mut().for_each(|held| held.draining = true);
        }
        let asked = Asked::Heartbeat { call, owner: owner.clone(), seen, wait, holds };
        self.asked.insert(request, (from, asked));
        let event = Event::Heartbeat {
            request,
            owner,
            connection: from.connection,
            holds: heartbeat.holds,
            seen_version: seen,
            processing: Duration::from_millis(heartbeat.processing),
        };
        self.tell(event, now);
    }

    fn commit(
        &mut self,
        request: RequestId,
        owner: Owner,
        (place, epoch, cursor): (Place, u64, u64),
        now: Duration,
    ) {
        let line = self.topics.iter().find(|line| line.id == place.topic_id);
        let commit = Commit {
            topic: Arc::clone(&line.expect("a topic of the model").name),
            place,
            epoch,
            position: Position::at(cursor),
            metadata: Arc::from(""),
        };
        let grant = self.store.latest_grant(place).cloned();
        let owner = Some(owner);
        let in_force = grant.as_ref().is_some_and(|g| g.owner == owner && g.epoch == epoch);
        let in_force = in_force && !self.void.contains(&(place, epoch));
        let group = self.group.as_ref().expect("it runs");
        let before = group.written_requests();
        self.tell(Event::Commit { request, owner, commits: vec![commit] }, now);
        let group = self.group.as_ref().expect("it runs");
        let is_written = group.written_requests().contains(&request);
        assert!(!before.contains(&request), "a request is new");
        if !in_force && (is_written || self.is(Broken::VoidCommitTaken)) {
            let text = format!("{place:?}: a commit under void epoch {epoch} is taken; {grant:?}");
            self.violation = Some(text);
        }
    }
}

fn owner_of(member: &MemberV1) -> Owner {
    Owner { member: Arc::from(member.member.as_str()), incarnation: member.incarnation }
}
