//! Chance: a world in which a seed decides what happens when, and what goes wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::membership::Event;
use log_core::protocol::offsets::PositionV1;
use log_server::groups::group::{Place, TopicLine};

use super::broken::Broken;
use super::process::{Request, Running, id_of};
use super::server::From;
use super::world::{Parcel, Times, World};
use crate::support::{Random, replayed_seed, tell};

/// How far time goes at once.
const STEP: Duration = Duration::from_millis(10);

/// What may go wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chaos {
    pub(crate) loss: bool,
    pub(crate) restarts: bool,
    pub(crate) failures: bool,
}

pub(crate) struct Chance {
    pub(crate) world: World,
    random: Random,
    chaos: Chaos,
    wild: bool,
    network: Vec<(Duration, Parcel)>,
    started: u64,
    /// Writes take long to become durable.
    slow: bool,
    /// What happens is told: one seed is replayed.
    is_told: bool,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Chance {
    pub(crate) fn new(seed: u64, chaos: Chaos, broken: Option<Broken>) -> Chance {
        let mut random = Random::new(seed);
        let line = |name: &str, id, partitions| TopicLine { name: Arc::from(name), id, partitions };
        let times = Times {
            session: ms(1_000),
            drain: ms(random.pick(&[100, 600])),
            processing: ms(800),
            retry_after: ms(100),
            join_window: ms(random.below(3) * 100),
        };
        let mut world = World::new(times, vec![line("a", 1, 5), line("b", 2, 2)], broken);
        world.server.start(world.now);
        let is_told = replayed_seed().is_some();
        Chance {
            world,
            random,
            chaos,
            wild: true,
            network: Vec::new(),
            started: 0,
            slow: false,
            is_told,
        }
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.random.below(odds) == 0
    }

    /// Lets a seed do its worst, and then lets all come to rest.
    pub(crate) fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.disturb();
            self.step()?;
        }
        self.settle()
    }

    fn step(&mut self) -> Result<(), String> {
        self.world.now += STEP;
        let now = self.world.now;
        let syncs = if self.slow { self.one_in(40) } else { self.one_in(2) };
        if syncs {
            let (count, reversed) = (self.random.below(4), self.one_in(2));
            self.world.server.sync(usize::try_from(count).expect("small"), reversed, now);
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.network).into_iter().partition(|(at, _)| *at <= now);
        self.network = later;
        for (_, parcel) in due {
            if self.is_told {
                tell(&format!("{now:?} {parcel:?}"));
            }
            self.world.deliver(parcel);
        }
        // The clock's tick is late at times.
        let tick = !self.one_in(4);
        self.world.server.wake_due(now, tick);
        for number in 0..self.world.processes.len() {
            self.step_process(number);
        }
        for parcel in self.world.sent() {
            self.send(parcel);
        }
        self.world.check().map_err(|text| format!("{text}, at {now:?}"))
    }

    fn send(&mut self, parcel: Parcel) {
        let lossy = self.wild && self.chaos.loss;
        let is_commit = matches!(parcel, Parcel::Up(_, Request::Commit { .. }));
        if lossy && self.one_in(10) {
            return;
        }
        let copies = if lossy && self.one_in(10) { 2 } else { 1 };
        for _ in 0..copies {
            let (lossy, longest) =
                (lossy && self.one_in(10), if is_commit { 3_000 } else { 1_500 });
            let late = if lossy { self.random.below(longest) } else { self.random.below(20) };
            self.network.push((self.world.now + ms(late), parcel.clone()));
        }
    }

    fn step_process(&mut self, number: usize) {
        let now = self.world.now;
        let (slow, short) = (self.wild && self.one_in(60), ms(self.random.below(60)));
        let takes = if slow { ms(self.random.below(2_500)) } else { short };
        let commits = self.one_in(10);
        let process = &mut self.world.processes[number];
        if !process.alive {
            return;
        }
        for (place, running) in process.running.clone() {
            if running.until > now {
                continue;
            }
            process.running.remove(&place);
            let hand = process.hands.get_mut(&place);
            if let Some(hand) = hand.filter(|hand| hand.epoch == running.epoch) {
                hand.cursor += 1;
            }
        }
        if process.overdue && process.running.is_empty() {
            process.overdue = false;
            process.on(Event::Returned, now);
        }
        if process.running.is_empty()
            && let Some(keep) = process.keeps.take()
        {
            process.on(Event::Leave { keep: Some(keep) }, now);
        }
        let places: Vec<Place> = process.hands.keys().copied().collect();
        for place in places {
            let Some(hand) = process.hands.get(&place) else { continue };
            let (epoch, cursor, draining) = (hand.epoch, hand.cursor, hand.draining);
            let is_running = process.running.contains_key(&place);
            let may = process.keeps.is_none() && process.may_hand_over(place, now);
            if !is_running && may {
                let running = Running { epoch, since: now, until: now + takes };
                process.running.insert(place, running);
                self.world.server.count("handed over");
            } else if draining && !is_running {
                let done = Event::Drained(id_of(place), epoch, Some(PositionV1::at(cursor)));
                process.on(done, now);
            }
            if commits && process.runs() {
                let owner = process.owner();
                process.outbox.push(Request::Commit { owner, place, epoch, cursor });
            }
        }
        process.wake(now);
    }

    fn start_process(&mut self) {
        let member = self.random.pick(&["m0", "m1", "m2", "m3"]);
        let topics = if self.one_in(3) { vec!["a"] } else { vec!["a", "b"] };
        self.started += 1;
        // Now and then the clock of the new process is behind.
        let behind = if self.wild && self.one_in(8) { 50_500 } else { 0 };
        let shared = self.world.broken == Some(Broken::IncarnationShared);
        let started = if shared { self.started / 3 } else { self.started };
        let incarnation = 1_000_000 + started * 1_001 - behind;
        self.world.start_process(member, incarnation, topics);
    }

    fn disturb(&mut self) {
        let now = self.world.now;
        self.slow ^= self.one_in(if self.slow { 20 } else { 200 });
        let processes = self.world.processes.iter().enumerate();
        let running: Vec<usize> =
            processes.filter(|(_, process)| process.runs()).map(|(number, _)| number).collect();
        if running.len() < 2 || running.len() < 6 && self.one_in(60) {
            self.start_process();
        }
        if !running.is_empty() && self.one_in(80) {
            let number = self.random.pick(&running);
            self.disturb_process(number);
        }
        if self.one_in(500) && self.world.server.topics[0].partitions < 8 {
            self.world.server.topics[0].partitions += 1;
            let topics = self.world.server.topics.clone();
            self.world.server.tell(log_server::groups::group::Event::TopicsChanged { topics }, now);
        }
        if self.chaos.restarts && self.one_in(150) && self.world.server.group.is_some() {
            let kept = self.random.below(4);
            self.world.server.crash(usize::try_from(kept).expect("small"));
        }
        if self.world.server.group.is_none() && self.one_in(20) {
            self.world.server.start(now);
        }
        if self.chaos.failures && self.one_in(80) {
            self.world.server.store.full ^= true;
        }
        if self.chaos.failures && self.world.server.group.is_some() && self.one_in(400) {
            self.world.server.latch(now);
        }
    }

    fn disturb_process(&mut self, number: usize) {
        let now = self.world.now;
        let what = self.random.below(5);
        let keep = ms(self.random.below(2_000));
        let process = &mut self.world.processes[number];
        match what {
            0 => {
                process.alive = false;
                let from = From { process: number, connection: process.connection };
                self.network.push((now + ms(30), Parcel::Up(from, Request::Closed)));
            }
            1 => process.on(Event::Leave { keep: None }, now),
            2 => process.keeps = Some(keep),
            3 => process.on(Event::Suspect, now),
            _ => {
                let closed = self.world.close_connection(number);
                let at = now + ms(self.random.below(100));
                self.network.push((at, closed));
            }
        }
    }

    /// Without disturbance, all comes to rest: every partition with one owner, balanced.
    fn settle(&mut self) -> Result<(), String> {
        (self.wild, self.slow) = (false, false);
        if self.world.server.store.latched {
            self.world.server.crash(0);
        }
        self.world.server.store.full = false;
        if self.world.server.group.is_none() {
            self.world.server.start(self.world.now);
        }
        self.start_process();
        for _ in 0..1_500 {
            self.step()?;
        }
        let before = self.world.hands()?;
        for _ in 0..300 {
            self.step()?;
            if self.world.hands()? != before {
                return Err("members that keep their partitions stop".into());
            }
        }
        self.check_balance(&before)
    }

    fn check_balance(&self, hands: &BTreeMap<Place, usize>) -> Result<(), String> {
        let world = &self.world;
        for line in &world.server.topics {
            let processes = world.processes.iter().enumerate();
            let readers = processes
                .filter(|(_, process)| process.runs() && process.topics.contains(&&*line.name));
            let count = |reader: usize| {
                let its = |(place, owner): &(&Place, &usize)| {
                    place.topic_id == line.id && **owner == reader
                };
                hands.iter().filter(its).count()
            };
            let counts: Vec<usize> = readers.map(|(number, _)| count(number)).collect();
            let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
                continue;
            };
            let all: usize = counts.iter().sum();
            if all != line.partitions as usize || most - least > 1 {
                let running: Vec<_> = world.processes.iter().filter(|p| p.runs()).collect();
                let (name, of) = (&line.name, line.partitions);
                let server = (&world.server.group, &world.server.store);
                return Err(format!("{name}: {counts:?} of {of}; {running:#?} {server:?}"));
            }
        }
        Ok(())
    }
}
