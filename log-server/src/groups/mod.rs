//! Groups: who reads what for a consumer group, and how far it has come.
//!
//! - `group` decides, `assignor` deals: both are pure.
//! - `Coordinator`, here, keeps all groups, tells them what happens, and does what they say.
//! - `membership`, `offsets`, `survey`: what peers ask for.
//! - `cell`, `member_grants`: a group with those who wait for it; `lane`: where it may block.
//!
//! A group's lock is held for a decision, never over I/O. What a group wants written goes, in the
//! order of its decisions, to one thread, and the outcome comes back as an event.

pub mod assignor;
mod cell;
pub mod group;
mod lane;
mod limits;
mod load;
mod member_grants;
mod membership;
mod offsets;
mod survey;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use log_core::clock::Clock;
use log_core::protocol::fetch::GroupReader;
use log_core::protocol::{CONTROL_LIMIT_BYTES, ErrorCode, Refusal};
use log_core::store::{EntryChange, Grant, GroupOffsets, NewPosition};
use log_core::{GroupName, Store, TopicName};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use cell::{Cell, CellState, Phase};
use group::{Action, Answer, Change, Event, Group, GroupRules, Owner, TopicLine};
use lane::Lane;
use member_grants::Told;

pub use limits::GroupLimits;
pub(crate) use member_grants::{MemberGrants, WaitingForChange};

use crate::context::Peer;

/// The most that grants may take in the reply to a heartbeat: all of it but for its head.
const GRANTS_MAX_BYTES: usize = CONTROL_LIMIT_BYTES - 64;

/// Keeps the groups of a server.
#[derive(Debug)]
pub(crate) struct Coordinator {
    me: Weak<Coordinator>,
    store: Store,
    offsets: GroupOffsets,
    clock: Arc<dyn Clock>,
    limits: GroupLimits,
    state: RwLock<State>,
    groups: RwLock<HashMap<GroupName, Arc<Cell>>>,
    /// The groups that were spoken to on a connection.
    connections: Mutex<HashMap<u64, HashSet<GroupName>>>,
    /// Epochs of new groups are greater, so that those of a deleted group do not come again.
    epoch_floor: AtomicU64,
    /// The store's version of the topics that groups know.
    topics_version: AtomicU64,
    deadlines: Mutex<BinaryHeap<Reverse<(Duration, GroupName)>>>,
    wake: Notify,
    writes: Lane,
    searches: Lane,
}

/// Whether what was committed is known.
#[derive(Debug, Clone)]
enum State {
    Loading,
    Ready,
    /// Nobody knows who holds what.
    Unusable(Refusal),
    Stopping,
}

impl Coordinator {
    /// Keeps the groups of `store`. It reads what was committed on a thread of its own; until then
    /// all is answered with `Loading`.
    ///
    /// # Panics
    /// If the operating system has no thread left.
    pub(crate) fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        limits: GroupLimits,
    ) -> Arc<Coordinator> {
        let floor = u64::try_from(clock.now().as_millis()).unwrap_or(0);
        let coordinator = Arc::new_cyclic(|me| Coordinator {
            me: me.clone(),
            offsets: store.group_offsets(),
            store,
            clock,
            limits,
            state: RwLock::new(State::Loading),
            groups: RwLock::default(),
            connections: Mutex::default(),
            epoch_floor: AtomicU64::new(floor),
            topics_version: AtomicU64::new(0),
            deadlines: Mutex::default(),
            wake: Notify::new(),
            writes: Lane::start("group-writes"),
            searches: Lane::start("group-searches"),
        });
        let loading = Arc::clone(&coordinator);
        coordinator.searches.push(move || loading.load());
        coordinator
    }

    /// What a member may fetch.
    ///
    /// # Errors
    /// `UnknownGroup`; `UnknownMember`; `Fenced`; `Loading`.
    pub(crate) fn reader(&self, reader: &GroupReader) -> Result<Arc<MemberGrants>, Refusal> {
        let cell = self.cell(&group_name(&reader.group)?)?;
        let owner = owner(&reader.member, reader.incarnation);
        let state = cell.state.lock();
        state.group.check_member(&owner)?;
        match state.sessions.get(&owner) {
            Some(session) => Ok(Arc::clone(&session.grants)),
            None => Err(Refusal::new(ErrorCode::UnknownMember, "join the group first")),
        }
    }

    /// A connection is gone: those who were leaving on it are gone with it.
    pub(crate) fn connection_closed(&self, peer: &Peer) {
        let groups = self.connections.lock().remove(&peer.id).unwrap_or_default();
        for cell in groups.iter().filter_map(|name| self.cell(name).ok()) {
            self.tell(&cell, Event::ConnectionClosed { connection: peer.id });
        }
    }

    /// Topics were made or removed, or have more partitions.
    pub(crate) fn topics_changed(&self) {
        self.topics_version.store(self.store.topics_version(), Ordering::SeqCst);
        let cells: Vec<Arc<Cell>> = self.groups.read().values().cloned().collect();
        for cell in cells {
            let mut told = Told::default();
            let mut state = cell.state.lock();
            let mut names: BTreeSet<Arc<str>> = state.group.topics().cloned().collect();
            names.extend(state.group.members().flat_map(|member| member.topics.iter().cloned()));
            let topics = self.lines(&names);
            self.apply(&cell, &mut state, Event::TopicsChanged { topics }, &mut told);
            drop(state);
            told.tell();
        }
    }

    /// Sees to it that changes are noticed that nobody has told of: whoever embeds the server has
    /// the store at hand.
    fn notice_topics(&self) {
        let now = self.store.topics_version();
        if self.topics_version.swap(now, Ordering::SeqCst) != now
            && let Some(me) = self.me.upgrade()
        {
            self.searches.push(move || me.topics_changed());
        }
    }

    /// Does what becomes due, until it is stopped.
    pub(crate) async fn run(&self) {
        while !self.is_stopping() {
            let woken = self.wake.notified();
            match self.tick() {
                Some(due) => {
                    let left = due.saturating_sub(self.clock.monotonic());
                    // An early look does no harm, and deadlines are in milliseconds.
                    let left = left.max(Duration::from_millis(1));
                    let _ = tokio::time::timeout(left, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Does what is due; returns when something is due next.
    pub(crate) fn tick(&self) -> Option<Duration> {
        loop {
            let now = self.clock.monotonic();
            let mut deadlines = self.deadlines.lock();
            let Reverse((due, _)) = deadlines.peek()?;
            if *due > now {
                return Some(*due);
            }
            let Reverse((due, name)) = deadlines.pop()?;
            drop(deadlines);
            let Some(cell) = self.groups.read().get(&name).cloned() else { continue };
            let mut state = cell.state.lock();
            // One that was armed anew since has another entry.
            if state.armed == due {
                state.armed = Duration::MAX;
                drop(state);
                self.tell(&cell, Event::Tick);
            }
        }
    }

    /// Answers nothing more, and waits until what was to be written is, for `timeout` at the
    /// longest.
    pub(crate) fn stop(&self, timeout: Duration) {
        let deadline = self.clock.monotonic().saturating_add(timeout);
        let left = || deadline.saturating_sub(self.clock.monotonic());
        *self.state.write() = State::Stopping;
        self.wake.notify_one();
        let cells: Vec<Arc<Cell>> = self.groups.read().values().cloned().collect();
        for cell in &cells {
            cell.state.lock().end_sessions();
        }
        // What searches find is not written any more: they may end when they like.
        if !self.writes.stop(left()) {
            tracing::warn!("what groups have decided was not written in time");
        }
        self.searches.stop(left());
        for cell in &cells {
            cell.state.lock().drop_requests();
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(*self.state.read(), State::Stopping)
    }

    fn refuse_unready(&self) -> Result<(), Refusal> {
        match &*self.state.read() {
            State::Ready => Ok(()),
            State::Loading => {
                let text = "what groups have committed is still being read; try again";
                Err(Refusal::new(ErrorCode::Loading, text))
            }
            State::Unusable(refusal) => Err(refusal.clone()),
            State::Stopping => Err(stopping()),
        }
    }

    /// A group that is there.
    fn cell(&self, name: &GroupName) -> Result<Arc<Cell>, Refusal> {
        self.refuse_unready()?;
        let cell = self.groups.read().get(name).cloned();
        cell.ok_or_else(|| {
            Refusal::new(ErrorCode::UnknownGroup, format!("there is no group {name}"))
        })
    }

    /// A group, made if it is missing.
    fn cell_or_new(&self, name: &GroupName) -> Result<Arc<Cell>, Refusal> {
        self.refuse_unready()?;
        let mut groups = self.groups.write();
        if let Some(cell) = groups.get(name) {
            return Ok(Arc::clone(cell));
        }
        let limit = self.limits.groups_max;
        if groups.len() >= limit {
            let text = format!("there are {limit} groups, which is the limit");
            return Err(Refusal::new(ErrorCode::LimitReached, text));
        }
        let cell = Cell::new(name.clone(), Group::new(self.rules()));
        groups.insert(name.clone(), Arc::clone(&cell));
        Ok(cell)
    }

    fn rules(&self) -> GroupRules {
        GroupRules {
            join_window: self.limits.join_window,
            session_timeout: self.limits.restart_timeout,
            drain_timeout: self.limits.restart_timeout,
            retry_after: self.limits.retry_after,
            members_max: self.limits.members_max,
            grants_max_bytes: GRANTS_MAX_BYTES,
            epoch_floor: self.epoch_floor.load(Ordering::SeqCst),
        }
    }

    /// Forgets a group in which nothing ever was.
    fn forget_if_empty(&self, cell: &Arc<Cell>) {
        let mut groups = self.groups.write();
        let mut state = cell.state.lock();
        if state.phase == Phase::There && state.is_empty() {
            state.phase = Phase::Gone;
            groups.remove(&cell.name);
        }
    }

    /// What there is of a topic.
    fn line(&self, name: &Arc<str>) -> Option<TopicLine> {
        let topic = self.store.topic(&TopicName::parse(name).ok()?).ok()?;
        let partitions = topic.partition_count();
        Some(TopicLine { name: Arc::clone(name), id: topic.id(), partitions })
    }

    /// What there is of each of them. Looked at under a group's lock, it is not older than what the
    /// group knows: a later change is told to it later.
    fn lines(&self, names: &BTreeSet<Arc<str>>) -> Vec<TopicLine> {
        names.iter().filter_map(|name| self.line(name)).collect()
    }

    /// Notes that a connection speaks for a group.
    fn note_connection(&self, peer: &Peer, name: &GroupName) {
        let mut connections = self.connections.lock();
        let groups = connections.entry(peer.id).or_default();
        if !groups.contains(name) {
            groups.insert(name.clone());
        }
    }

    /// Tells a group what has happened.
    fn tell(&self, cell: &Arc<Cell>, event: Event) {
        let mut told = Told::default();
        let mut state = cell.state.lock();
        self.apply(cell, &mut state, event, &mut told);
        drop(state);
        told.tell();
    }

    /// Asks a group something, and waits for the answer.
    async fn ask(
        &self,
        cell: &Arc<Cell>,
        event: impl FnOnce(group::RequestId) -> Event,
    ) -> Result<Answer, Refusal> {
        let answer = {
            let mut told = Told::default();
            let mut state = lock_there(cell)?;
            let (request, answer) = state.request();
            self.apply(cell, &mut state, event(request), &mut told);
            drop(state);
            told.tell();
            answer
        };
        match answer.await.map_err(|_| stopping())? {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    /// Tells a group what has happened, and does what it says.
    fn apply(&self, cell: &Arc<Cell>, state: &mut CellState, event: Event, told: &mut Told) {
        let now = self.clock.monotonic();
        for action in state.group.on(event, now) {
            self.act(cell, state, action, told);
        }
        let Some(next) = state.group.next_deadline().filter(|next| *next < state.armed) else {
            return;
        };
        state.armed = next;
        let mut deadlines = self.deadlines.lock();
        let is_first = deadlines.peek().is_none_or(|Reverse((first, _))| next < *first);
        deadlines.push(Reverse((next, cell.name.clone())));
        if is_first {
            self.wake.notify_one();
        }
    }

    fn act(&self, cell: &Arc<Cell>, state: &mut CellState, action: Action, told: &mut Told) {
        let name = &cell.name;
        match action {
            Action::Write { token, changes } => self.write(cell, token, changes),
            Action::Resolve { token, start, places } => {
                let (Some(me), cell) = (self.me.upgrade(), Arc::clone(cell)) else { return };
                self.searches.push(move || {
                    let mut found = Vec::with_capacity(places.len());
                    for place in places {
                        // A search may read much, and nobody waits for it any more.
                        if me.is_stopping() {
                            return;
                        }
                        found.push((place, me.resolve(&cell, place, start)));
                    }
                    me.tell(&cell, Event::Resolved { token, found });
                });
            }
            Action::Answer { request, answer } => state.answer(request, answer),
            Action::Changed { owner } => {
                let readable = state.group.readable(&owner);
                if let Some(session) = state.sessions.get(&owner) {
                    session.grants.set(readable, told);
                }
            }
            Action::Gone { owner, why } => {
                let (member, incarnation) = (owner.member.escape_debug(), owner.incarnation);
                tracing::info!(group = %name, %member, incarnation, "a member is gone: {why}");
                if let Some(session) = state.sessions.remove(&owner) {
                    session.grants.end(why, told);
                }
            }
            Action::Forced(forced) => {
                let (topic, partition) = (&forced.topic, forced.place.partition);
                let (member, epoch) = (forced.owner.member.escape_debug(), forced.epoch);
                tracing::warn!(
                    group = %name, %topic, partition, %member,
                    incarnation = forced.owner.incarnation, epoch,
                    "a partition was taken by force: {}; records may be handed over twice",
                    forced.why
                );
            }
        }
    }

    fn write(&self, cell: &Arc<Cell>, token: group::Token, changes: Vec<Change>) {
        let (Some(me), cell) = (self.me.upgrade(), Arc::clone(cell)) else { return };
        self.writes.push(move || {
            let parsed: Result<Vec<TopicName>, _> =
                changes.iter().map(|change| TopicName::parse_any(&change.topic)).collect();
            let (offsets, name) = (me.offsets.clone(), cell.name.clone());
            let then = move |outcome: log_core::Result<()>| {
                if let Err(error) = &outcome {
                    tracing::warn!(group = %cell.name, "what it decided was not written: {error}");
                }
                let outcome = outcome.map_err(|error| Refusal::from(&error));
                me.tell(&cell, Event::Written { token, outcome });
            };
            match &parsed {
                Ok(topics) => {
                    let pairs = changes.iter().zip(topics);
                    let entries: Vec<EntryChange<'_>> =
                        pairs.map(|(change, topic)| entry_change(change, topic)).collect();
                    offsets.write_then(&name, &entries, then);
                }
                Err(error) => then(Err(error.clone())),
            }
        });
    }
}

/// A lock on a group that is there, and stays.
fn lock_there(cell: &Cell) -> Result<MutexGuard<'_, CellState>, Refusal> {
    let state = cell.state.lock();
    if state.phase == Phase::There {
        return Ok(state);
    }
    let text = format!("group {} is being deleted; try again", cell.name);
    Err(Refusal::new(ErrorCode::Loading, text))
}

fn entry_change<'a>(change: &'a Change, topic: &'a TopicName) -> EntryChange<'a> {
    let position = change.position.as_ref().map(|new| NewPosition {
        offset: new.position.offset,
        settled: &new.position.settled,
        metadata: &new.metadata,
        moves: new.moves,
    });
    let stored = |owner: &Owner| log_core::Owner {
        member: Arc::clone(&owner.member),
        incarnation: owner.incarnation,
    };
    let grant = change.grant.as_ref();
    EntryChange {
        topic,
        topic_id: Some(change.place.topic_id),
        partition: change.place.partition,
        position,
        grant: grant.map(|g| Grant { epoch: g.epoch, owner: g.owner.as_ref().map(stored) }),
    }
}

fn stopping() -> Refusal {
    Refusal::new(ErrorCode::Stopping, "the server is stopping")
}

fn group_name(raw: &str) -> Result<GroupName, Refusal> {
    GroupName::parse(raw).map_err(|error| Refusal::from(&error))
}

fn owner(member: &str, incarnation: u64) -> Owner {
    Owner { member: Arc::from(member), incarnation }
}
