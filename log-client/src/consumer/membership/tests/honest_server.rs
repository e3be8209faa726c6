//! Two members and a server that keeps its word, over a network that loses, repeats and delays.

use super::*;

const PARTITIONS: u32 = 3;
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
enum Request {
    Join,
    Heartbeat(HeartbeatV1),
    Release(ReleasePartitionV1),
    Leave,
}

#[derive(Debug, Clone)]
enum Message {
    ToServer { from: usize, call: u64, request: Request },
    ToMember { to: usize, event: Event },
}

#[derive(Debug, Clone)]
struct Granted {
    to: usize,
    epoch: u64,
    revoked_until: Option<Duration>,
    acknowledged: bool,
}

#[derive(Debug, Default)]
struct Server {
    heard: BTreeMap<usize, Duration>,
    leaving: BTreeSet<usize>,
    grants: BTreeMap<u32, Granted>,
    epoch: u64,
    version: u64,
}

impl Server {
    fn take(&mut self, from: usize, call: u64, request: Request, now: Duration) -> Event {
        let known = self.heard.contains_key(&from);
        let unknown = refused(ErrorCode::UnknownMember, &[]);
        if known || matches!(request, Request::Join) {
            self.heard.insert(from, now);
        }
        match request {
            Request::Join => {
                self.leaving.remove(&from);
                Event::Joined(call, join_reply())
            }
            Request::Heartbeat(_) if !known => Event::HeartbeatFailed(call, unknown),
            Request::Heartbeat(heartbeat) => {
                for held in heartbeat.holds.iter().filter(|held| held.draining) {
                    if let Some(granted) = self.grants.get_mut(&held.partition) {
                        granted.acknowledged |= granted.epoch == held.epoch;
                    }
                }
                Event::HeartbeatAnswered(call, self.reply(from, now))
            }
            Request::Release(release) => {
                let id = PartitionId { topic_id: 7, partition: release.partition };
                let granted = self.grants.get(&release.partition);
                if granted.is_some_and(|granted| granted.epoch == release.epoch) {
                    self.grants.remove(&release.partition);
                    self.version += 1;
                    Event::Released(id, release.epoch)
                } else {
                    let stale = refused(ErrorCode::StaleGrant, &[]);
                    Event::ReleaseFailed(id, release.epoch, stale)
                }
            }
            Request::Leave => {
                self.leaving.insert(from);
                for granted in self.grants.values_mut().filter(|granted| granted.to == from) {
                    granted.revoked_until.get_or_insert(now + DRAIN);
                }
                self.version += 1;
                Event::Left(call)
            }
        }
    }

    fn reply(&self, to: usize, now: Duration) -> HeartbeatReplyV1 {
        let own = self.grants.iter().filter(|(_, granted)| granted.to == to);
        let grants = own.map(|(partition, granted)| {
            let id = PartitionId { topic_id: 7, partition: *partition };
            let left = granted.revoked_until.map(|until| millis(until.saturating_sub(now)));
            grant(id, granted.epoch, left)
        });
        reply(self.version, grants.collect())
    }

    fn pass_time(&mut self, now: Duration, choice: usize) {
        let gone = |heard: &Duration| *heard + SESSION <= now;
        let heard = self.heard.clone();
        self.grants.retain(|_, granted| {
            let lease_over = heard.get(&granted.to).is_none_or(gone);
            let time_is_up = granted.revoked_until.is_some_and(|until| until <= now);
            !(lease_over || time_is_up && granted.acknowledged)
        });
        self.heard.retain(|_, heard| !gone(heard));
        let fit: Vec<usize> =
            self.heard.keys().copied().filter(|who| !self.leaving.contains(who)).collect();
        for partition in 0..PARTITIONS {
            if !fit.is_empty() && !self.grants.contains_key(&partition) {
                self.epoch += 1;
                self.version += 1;
                let to = fit[choice % fit.len()];
                let granted =
                    Granted { to, epoch: self.epoch, revoked_until: None, acknowledged: false };
                self.grants.insert(partition, granted);
            }
        }
    }
}

struct World {
    server: Server,
    members: Vec<Membership>,
    network: Vec<(Duration, Message)>,
    now: Duration,
}

impl World {
    fn carry_out(&mut self, who: usize, actions: Vec<Action>, delay: Duration) {
        for action in actions {
            let (call, request) = match action {
                Action::Join(call, _) => (call, Request::Join),
                Action::Heartbeat(call, heartbeat) => (call, Request::Heartbeat(heartbeat)),
                Action::Release(release) => (0, Request::Release(release)),
                Action::Leave(call, _) => (call, Request::Leave),
                Action::Expire(id, epoch) => {
                    let drained = Event::Drained(id, epoch, None);
                    self.network.push((self.now, Message::ToMember { to: who, event: drained }));
                    continue;
                }
                _ => continue,
            };
            let message = Message::ToServer { from: who, call, request };
            self.network.push((self.now + delay, message));
        }
    }

    /// `fate`: 0 loses, 1 repeats, others deliver.
    fn deliver(&mut self, fate: u8, delay: Duration) {
        let due = self.network.iter().position(|(at, _)| *at <= self.now);
        let Some((_, message)) = due.map(|at| self.network.remove(at)) else { return };
        if fate == 1 {
            self.network.push((self.now + 2 * delay, message.clone()));
        }
        match message {
            Message::ToServer { from, call, request } => {
                let lost = failure_of(call, &request);
                let event = match fate {
                    0 => lost,
                    _ => self.server.take(from, call, request, self.now),
                };
                self.network.push((self.now + delay, Message::ToMember { to: from, event }));
            }
            Message::ToMember { to, event } => {
                let actions = self.members[to].on(event, self.now);
                self.carry_out(to, actions, delay);
            }
        }
    }

    fn tick(&mut self, delay: Duration) {
        for who in 0..self.members.len() {
            let actions = self.members[who].on(Event::Tick, self.now);
            self.carry_out(who, actions, delay);
        }
    }

    fn check(&self) {
        for (who, member) in self.members.iter().enumerate() {
            for held in member.holds() {
                let id = PartitionId { topic_id: held.topic_id, partition: held.partition };
                if member.may_hand_over(id, held.epoch, self.now) {
                    let granted = &self.server.grants.get(&held.partition);
                    let own = granted.is_some_and(|g| g.to == who && g.epoch == held.epoch);
                    assert!(own, "{who} hands over {held:?}; the server: {granted:?}");
                }
            }
        }
    }
}

fn failure_of(call: u64, request: &Request) -> Event {
    let why = Failure::NoAnswer;
    match request {
        Request::Join => Event::JoinFailed(call, why),
        Request::Heartbeat(_) => Event::HeartbeatFailed(call, why),
        Request::Release(release) => {
            let id = PartitionId { topic_id: 7, partition: release.partition };
            Event::ReleaseFailed(id, release.epoch, why)
        }
        Request::Leave => Event::LeaveFailed(call, why),
    }
}

proptest! {
    /// Nobody hands over what the server has given to another; and once the network is good, each
    /// member comes to hold just what the server says.
    #[test]
    fn a_partition_has_one_owner_and_members_settle(
        steps in proptest::collection::vec((0..12_u8, 0..40_u8, 0..700_u64, 0..3_usize), 0..300),
    ) {
        let members = vec![Membership::new(config("a")), Membership::new(config("b"))];
        let mut world =
            World { server: Server::default(), members, network: Vec::new(), now: SECOND };
        for (what, fate, step, choice) in steps {
            let delay = Duration::from_millis(step * u64::from(fate));
            match what {
                0..=6 => world.deliver(fate, delay),
                7 => {
                    let partition = u32::try_from(choice).unwrap();
                    let until = world.now + DRAIN;
                    if let Some(granted) = world.server.grants.get_mut(&partition) {
                        granted.revoked_until.get_or_insert(until);
                        world.server.version += 1;
                    }
                }
                8 => {
                    let since = Some(world.now);
                    let actions = world.members[choice % 2].on(Event::InHand(since), world.now);
                    world.carry_out(choice % 2, actions, delay);
                }
                9 => {
                    let actions = world.members[choice % 2].on(Event::Returned, world.now);
                    world.carry_out(choice % 2, actions, delay);
                }
                _ => world.now += Duration::from_millis(step),
            }
            world.tick(delay);
            world.server.pass_time(world.now, choice);
            world.check();
        }
        for _ in 0..1_500 {
            world.now += Duration::from_millis(50);
            for who in 0..2 {
                for event in [Event::InHand(None), Event::Returned] {
                    let actions = world.members[who].on(event, world.now);
                    world.carry_out(who, actions, Duration::ZERO);
                }
            }
            for _ in 0..20 {
                world.deliver(9, Duration::ZERO);
            }
            world.tick(Duration::ZERO);
            world.server.pass_time(world.now, 1);
            world.check();
        }
        for partition in 0..PARTITIONS {
            let granted = &world.server.grants[&partition];
            let id = PartitionId { topic_id: 7, partition };
            let may = world.members[granted.to].may_hand_over(id, granted.epoch, world.now);
            prop_assert!(may, "{granted:?} {:?}", world.members[granted.to]);
        }
    }
}
