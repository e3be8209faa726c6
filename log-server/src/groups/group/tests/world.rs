//! World: the group between clients, a network and a store, all driven by one seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use log_core::StartFrom;
use log_core::protocol::groups::HeartbeatReplyV1;
use log_core::protocol::{ErrorCode, Refusal};

use super::client::{Client, ClientState};
use super::ms;
use super::store::Store;
use crate::groups::group::{
    Action, Answer, Commit, Event, Group, GroupRules, Place, Position, RequestId, Subscription,
    TopicLine,
};

/// How far time goes at once.
const STEP: Duration = ms_const(10);
pub(super) const SESSION: Duration = ms_const(1_000);
const DRAIN: Duration = ms_const(600);
const PROCESSING: Duration = ms_const(800);

const fn ms_const(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Chaos {
    pub(super) loss: bool,
    pub(super) restarts: bool,
    pub(super) failures: bool,
}

/// What has happened.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) forced: u64,
    pub(super) releases: u64,
    pub(super) commits: u64,
    pub(super) refused: u64,
    pub(super) fenced: u64,
    pub(super) restarts: u64,
    pub(super) resets: u64,
    pub(super) handed_over: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.forced += other.forced;
        self.releases += other.releases;
        self.commits += other.commits;
        self.refused += other.refused;
        self.fenced += other.fenced;
        self.restarts += other.restarts;
        self.resets += other.resets;
        self.handed_over += other.handed_over;
    }

    pub(super) fn check(&self, chaos: Chaos) {
        let all = [self.forced, self.releases, self.commits, self.fenced, self.resets];
        assert!(all.iter().all(|count| *count > 0) && self.handed_over > 1_000, "{self:?}");
        assert!(!chaos.restarts || self.restarts > 0 && self.refused > 0, "{self:?}");
    }
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    To(usize, Request),
    From(usize, Reply),
}

#[derive(Debug, Clone)]
pub(super) enum Request {
    Join,
    Heartbeat {
        sent: Duration,
        seen: u64,
        holds: Vec<log_core::protocol::groups::HeldV1>,
        processing: Duration,
    },
    Release {
        place: Place,
        epoch: u64,
        cursor: u64,
    },
    Commit {
        place: Place,
        epoch: u64,
        cursor: u64,
    },
    Leave {
        keep: Option<Duration>,
    },
    Closed,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    Joined(Result<(), Refusal>),
    Heartbeat { sent: Duration, reply: Result<HeartbeatReplyV1, Refusal> },
    Released { place: Place, epoch: u64 },
}

#[derive(Debug)]
pub(super) enum Asked {
    Join(usize),
    Heartbeat { client: usize, sent: Duration, seen: u64 },
    Release { client: usize, place: Place, epoch: u64 },
    Commit { place: Place, cursor: u64, resets: u64 },
    Other,
}

pub(super) struct World {
    pub(super) random: u64,
    pub(super) chaos: Chaos,
    pub(super) now: Duration,
    pub(super) wild: bool,
    pub(super) group: Option<Group>,
    pub(super) store: Store,
    pub(super) topics: Vec<TopicLine>,
    pub(super) clients: Vec<Client>,
    pub(super) network: Vec<(Duration, Message)>,
    pub(super) requests: HashMap<RequestId, Asked>,
    pub(super) parked: Vec<(usize, Duration, u64)>,
    pub(super) next_request: RequestId,
    pub(super) wall: u64,
    pub(super) incarnations: u64,
    pub(super) forced: BTreeSet<(Place, u64)>,
    pub(super) epochs: BTreeMap<Place, u64>,
    /// What each partition's durable position was, and how many resets there were.
    pub(super) positions: BTreeMap<Place, (u64, u64)>,
    pub(super) counts: Counts,
}

impl World {
    pub(super) fn new(seed: u64, chaos: Chaos) -> World {
        let line = |name: &str, id, partitions| TopicLine { name: Arc::from(name), id, partitions };
        let mut world = World {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            chaos,
            now: ms(1),
            wild: true,
            group: None,
            store: Store::default(),
            topics: vec![line("a", 1, 5), line("b", 2, 2)],
            clients: Vec::new(),
            network: Vec::new(),
            requests: HashMap::new(),
            parked: Vec::new(),
            next_request: 0,
            wall: 1_000,
            incarnations: 0,
            forced: BTreeSet::new(),
            epochs: BTreeMap::new(),
            positions: BTreeMap::new(),
            counts: Counts::default(),
        };
        world.start_server();
        world
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    pub(super) fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub(super) fn start_server(&mut self) {
        self.wall += 1_000_000;
        let rules = GroupRules {
            join_window: ms(self.below(3) * 100),
            session_timeout: SESSION,
            drain_timeout: DRAIN,
            retry_after: ms(100),
            members_max: 8,
            grants_max_bytes: usize::MAX,
            epoch_floor: self.wall,
        };
        let entries = self.store.entries();
        let with_entries = |line: &&TopicLine| entries.iter().any(|e| e.place.topic_id == line.id);
        let topics: Vec<TopicLine> = self.topics.iter().filter(with_entries).cloned().collect();
        self.group = Some(Group::restored(rules, &topics, entries, self.now));
        let topics = self.topics.clone();
        self.tell(Event::TopicsChanged { topics });
    }

    pub(super) fn crash_server(&mut self) {
        self.counts.restarts += 1;
        let kept = self.below(4);
        self.store.crash(usize::try_from(kept).unwrap());
        (self.group, self.parked) = (None, Vec::new());
        self.requests.clear();
        self.check_positions();
    }

    pub(super) fn tell(&mut self, event: Event) -> Vec<Action> {
        let Some(group) = &mut self.group else { return Vec::new() };
        let actions = group.on(event, self.now);
        for action in actions.clone() {
            self.act(action);
        }
        actions
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Write { token, changes } => {
                let fails = self.wild && self.chaos.failures && self.one_in(12);
                let at = self.now + ms(self.below(40));
                let refused = Err(Refusal::new(ErrorCode::DiskFull, "model"));
                let written = if fails { refused } else { self.store.write(token, &changes, at) };
                if written.is_err() {
                    self.tell(Event::Written { token, outcome: written });
                }
            }
            Action::Resolve { token, start, places } => {
                let found = places.into_iter().map(|place| {
                    let fails = self.wild && self.chaos.failures && self.one_in(9);
                    let refused = Err(Refusal::new(ErrorCode::Corrupt, "model"));
                    let offset = if start == StartFrom::Offset(0) { 0 } else { 100 };
                    (place, if fails { refused } else { Ok(offset) })
                });
                let found = found.collect();
                self.tell(Event::Resolved { token, found });
            }
            Action::Answer { request, answer } => self.answer(request, answer),
            Action::Changed { owner } => {
                let (woken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.parked)
                    .into_iter()
                    .partition(|(client, ..)| self.clients[*client].owner == owner);
                self.parked = left;
                for (client, sent, _) in woken {
                    self.reply_to_heartbeat(client, sent);
                }
            }
            Action::Gone { .. } => {}
            Action::Forced(forced) => {
                self.counts.forced += 1;
                self.forced.insert((forced.place, forced.epoch));
            }
        }
    }

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) {
        let Some(asked) = self.requests.remove(&request) else { return };
        let outcome = match &answer {
            Answer::Refused(refusal) => Err(refusal.clone()),
            _ => Ok(()),
        };
        match asked {
            Asked::Join(client) => self.send(Message::From(client, Reply::Joined(outcome))),
            Asked::Heartbeat { client, sent, seen } => {
                let reply = self.group.as_ref().unwrap();
                let owner = self.clients[client].owner.clone();
                match outcome.and_then(|()| reply.reply(&owner, self.now)) {
                    Ok(reply) if reply.version == seen => self.parked.push((client, sent, seen)),
                    reply => {
                        self.send(Message::From(client, Reply::Heartbeat { sent, reply }));
                    }
                }
            }
            Asked::Release { client, place, epoch } => {
                // A refusal is final, too, but for a write that failed.
                if outcome.as_ref().is_err_and(Refusal::is_retriable) {
                    return;
                }
                self.counts.releases += u64::from(outcome.is_ok());
                self.send(Message::From(client, Reply::Released { place, epoch }));
            }
            Asked::Commit { place, cursor, resets } => {
                let Answer::Each(outcomes) = answer else { return };
                if outcomes[0].is_some() {
                    self.counts.refused += 1;
                } else if resets == self.store.durable(place).resets {
                    self.counts.commits += 1;
                    let position = self.store.durable(place).position.unwrap();
                    assert!(position.offset >= cursor, "{place:?}: a commit of {cursor} is lost");
                }
            }
            Asked::Other => {}
        }
    }

    pub(super) fn reply_to_heartbeat(&mut self, client: usize, sent: Duration) {
        let owner = self.clients[client].owner.clone();
        let Some(group) = &self.group else { return };
        let reply = group.reply(&owner, self.now);
        self.send(Message::From(client, Reply::Heartbeat { sent, reply }));
    }

    pub(super) fn send(&mut self, message: Message) {
        let lossy = self.wild && self.chaos.loss;
        if lossy && self.one_in(10) {
            return;
        }
        let copies = if lossy && self.one_in(10) { 2 } else { 1 };
        for _ in 0..copies {
            let late = if lossy && self.one_in(10) { self.below(1_500) } else { self.below(20) };
            self.network.push((self.now + ms(late), message.clone()));
        }
    }

    pub(super) fn deliver(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.network).into_iter().partition(|(at, _)| *at <= self.now);
        self.network = later;
        for (_, message) in due {
            match message {
                Message::To(client, request) => self.request(client, request),
                Message::From(client, reply) => self.reply(client, reply),
            }
        }
    }

    pub(super) fn request(&mut self, client: usize, request: Request) {
        if self.group.is_none() {
            return;
        }
        let owner = self.clients[client].owner.clone();
        let connection = client as u64;
        self.next_request += 1;
        let number = self.next_request;
        match request {
            Request::Join => {
                self.requests.insert(number, Asked::Join(client));
                let subscription = self.subscription(client);
                self.tell(Event::Join { request: number, owner, subscription });
            }
            Request::Heartbeat { sent, seen, holds, processing } => {
                self.requests.insert(number, Asked::Heartbeat { client, sent, seen });
                self.tell(Event::Heartbeat {
                    request: number,
                    owner,
                    connection,
                    holds,
                    seen_version: seen,
                    processing,
                });
            }
            Request::Release { place, epoch, cursor } => {
                self.requests.insert(number, Asked::Release { client, place, epoch });
                let position = Some(Position::at(cursor));
                self.tell(Event::Release { request: number, owner, place, epoch, position });
            }
            Request::Commit { place, epoch, cursor } => {
                let resets = self.store.resets(place);
                self.requests.insert(number, Asked::Commit { place, cursor, resets });
                let line = self.topics.iter().find(|line| line.id == place.topic_id).unwrap();
                let commit = Commit {
                    topic: Arc::clone(&line.name),
                    place,
                    epoch,
                    position: Position::at(cursor),
                    metadata: Arc::from(""),
                };
                let grant = self.store.latest_grant(place).cloned();
                let owner = Some(owner);
                let event =
                    Event::Commit { request: number, owner: owner.clone(), commits: vec![commit] };
                let actions = self.tell(event);
                let is_written = actions.iter().any(|action| {
                    matches!(action, Action::Write { changes, .. }
                        if changes.iter().any(|c| c.place == place && c.grant.is_none()
                            && c.position.as_ref().is_some_and(|p| p.position.offset == cursor)))
                });
                if is_written {
                    let grant = grant.expect("a commit under a grant");
                    let in_force = grant.owner == owner && grant.epoch == epoch;
                    assert!(in_force, "a commit under void epoch {epoch}; {grant:?}");
                }
            }
            Request::Leave { keep } => {
                self.requests.insert(number, Asked::Other);
                self.tell(Event::Leave { request: number, owner, connection, keep });
            }
            Request::Closed => {
                self.tell(Event::ConnectionClosed { connection });
            }
        }
    }

    pub(super) fn subscription(&self, client: usize) -> Subscription {
        let names = self.clients[client].topics.iter().map(|name| Arc::from(*name)).collect();
        let is_there = |line: &&TopicLine| self.clients[client].topics.contains(&&*line.name);
        Subscription {
            connection: client as u64,
            names,
            topics: self.topics.iter().filter(is_there).cloned().collect(),
            start: StartFrom::Latest,
            session_timeout: SESSION,
            drain_timeout: DRAIN,
            processing_timeout: PROCESSING,
        }
    }

    pub(super) fn reply(&mut self, number: usize, reply: Reply) {
        let client = &mut self.clients[number];
        if !client.runs() {
            return;
        }
        let is_fenced = |refusal: &Refusal| refusal.error_code() == Some(ErrorCode::Fenced);
        match reply {
            Reply::Joined(Ok(())) => {
                if client.state == ClientState::Joining {
                    client.state = ClientState::Member;
                    client.asked_at = None;
                }
            }
            Reply::Heartbeat { sent, reply: Ok(reply) } => {
                client.asked_at = None;
                for grant in client.told(reply, sent) {
                    let place = Place { topic_id: grant.topic_id, partition: grant.partition };
                    let newest = self.epochs.entry(place).or_default();
                    *newest = (*newest).max(grant.epoch);
                    let line = self.store.durable(place);
                    if line.grant.is_some_and(|durable| durable.epoch == grant.epoch) {
                        // Nobody commits under a grant before its owner has taken it.
                        let committed = line.position.map(|position| position.offset);
                        assert_eq!(committed, Some(grant.position.offset), "{place:?}");
                    }
                }
            }
            Reply::Joined(Err(refusal)) | Reply::Heartbeat { reply: Err(refusal), .. } => {
                if is_fenced(&refusal) {
                    self.counts.fenced += 1;
                    client.stop();
                } else if refusal.error_code() == Some(ErrorCode::UnknownMember) {
                    client.must_join_again();
                }
            }
            Reply::Released { place, epoch } => {
                if client.held.get(&place).is_some_and(|held| held.epoch == epoch) {
                    client.held.remove(&place);
                }
            }
        }
    }

    pub(super) fn step(&mut self) {
        self.now += STEP;
        let mut tokens = self.store.sync(self.now);
        // Their outcomes are told in any order.
        if self.one_in(2) {
            tokens.reverse();
        }
        for token in tokens {
            self.tell(Event::Written { token, outcome: Ok(()) });
        }
        self.deliver();
        self.answer_parked();
        let due = self.group.as_ref().and_then(Group::next_deadline);
        // The clock's tick is late at times.
        if due.is_some_and(|due| due <= self.now) && !self.one_in(4) {
            self.tell(Event::Tick);
        }
        for client in 0..self.clients.len() {
            self.step_client(client);
        }
        self.check_hands();
        self.check_positions();
    }

    /// A heartbeat waits for a change, but not for ever.
    pub(super) fn answer_parked(&mut self) {
        let now = self.now;
        let (due, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(_, sent, _)| now >= *sent + SESSION / 4);
        self.parked = left;
        due.into_iter().for_each(|(client, sent, _)| self.reply_to_heartbeat(client, sent));
    }

    pub(super) fn run_wild(&mut self, steps: usize) {
        for _ in 0..steps {
            self.disturb();
            self.step();
        }
    }
}
