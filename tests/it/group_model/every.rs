//! Every: all that can happen in a small world, in every order, within bounds.
//!
//! One partition; a member that has it, another one, and a second process with the first one's id;
//! messages lost, and as late as can be. Time goes in ticks, and states that were seen are known
//! again by a digest, so that each is looked at once.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::membership::Event;
use log_core::protocol::offsets::PositionV1;
use log_server::groups::group::{Place, TopicLine};

use super::broken::Broken;
use super::process::id_of;
use super::world::{Parcel, Times, World};

const TICK: Duration = Duration::from_secs(1);
const PLACE: Place = Place { topic_id: 1, partition: 0 };

/// How much may happen.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Bounds {
    pub(crate) ticks: u32,
    /// So many messages may be lost; so many are under way at most, and what is more is lost, too.
    pub(crate) losses: u32,
    pub(crate) under_way: usize,
    pub(crate) restarts: u32,
    pub(crate) leaves: u32,
    /// Processes that may start beside the first one.
    pub(crate) starts: usize,
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
enum Move {
    Tick,
    Deliver(usize),
    Lose(usize),
    Sync,
    Start,
    Finish(usize),
    Leave(usize),
    Restart(usize),
}

#[derive(Clone)]
struct State {
    world: World,
    network: Vec<Parcel>,
    left: Bounds,
}

/// A state, and what of it is still to be looked at.
struct Frame {
    state: State,
    moves: Vec<Move>,
    last: Option<Move>,
}

/// Looks at all that can happen; returns how many states there are.
pub(crate) fn explore(
    bounds: Bounds,
    broken: Option<Broken>,
    most: usize,
) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let first = State::first(bounds, broken);
    seen.insert(first.digest());
    let moves = first.moves();
    let mut path = vec![Frame { state: first, moves, last: None }];
    while let Some(frame) = path.last_mut() {
        let Some(next) = frame.moves.pop() else {
            path.pop();
            continue;
        };
        let mut state = frame.state.clone();
        state.go(next);
        if let Err(text) = state.world.check() {
            let story: Vec<String> =
                path.iter().filter_map(|frame| frame.last).map(|m| format!("{m:?}")).collect();
            return Err(format!("{text}, after {} and {next:?}", story.join(", ")));
        }
        if seen.insert(state.digest()) {
            assert!(seen.len() < most, "more than {most} states within {bounds:?}");
            let moves = state.moves();
            path.push(Frame { state, moves, last: Some(next) });
        }
    }
    Ok(seen.len())
}

impl State {
    /// The first member has the partition, and nothing is under way.
    fn first(bounds: Bounds, broken: Option<Broken>) -> State {
        let times = Times {
            session: 2 * TICK,
            drain: TICK,
            processing: 1_000 * TICK,
            retry_after: TICK,
            join_window: Duration::ZERO,
        };
        let topics = vec![TopicLine { name: Arc::from("a"), id: 1, partitions: 1 }];
        let mut world = World::new(times, topics, broken);
        world.server.start(world.now);
        world.start_process("a", 100, vec!["a"]);
        let mut state = State { world, network: Vec::new(), left: bounds };
        while !state.world.processes[0].may_hand_over(PLACE, state.world.now) {
            state.world.now += TICK;
            state.wake();
            state.go(Move::Sync);
            while !state.network.is_empty() {
                state.go(Move::Deliver(0));
            }
        }
        state
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        let parcels = 0..self.network.len();
        if self.left.ticks > 0 {
            moves.push(Move::Tick);
        }
        if self.left.restarts > 0 {
            moves.push(Move::Restart(0));
            if self.world.server.store.is_waiting() {
                moves.push(Move::Restart(9));
            }
        }
        if self.left.losses > 0 {
            moves.extend(parcels.clone().map(Move::Lose));
        }
        for (number, process) in self.world.processes.iter().enumerate() {
            if process.hands.get(&PLACE).is_some_and(|hand| hand.draining) {
                moves.push(Move::Finish(number));
            }
            if self.left.leaves > 0 && process.runs() && process.hands.contains_key(&PLACE) {
                moves.push(Move::Leave(number));
            }
        }
        if self.left.starts > 0 {
            moves.push(Move::Start);
        }
        if self.world.server.store.is_waiting() {
            moves.push(Move::Sync);
        }
        moves.extend(parcels.map(Move::Deliver));
        moves
    }

    fn go(&mut self, next: Move) {
        let now = self.world.now;
        match next {
            Move::Tick => {
                self.left.ticks -= 1;
                self.world.now += TICK;
                self.wake();
            }
            Move::Deliver(at) => {
                let parcel = self.network.remove(at);
                self.world.deliver(parcel);
            }
            Move::Lose(at) => {
                self.left.losses -= 1;
                self.network.remove(at);
            }
            Move::Sync => self.world.server.sync(1, false, now),
            Move::Start => {
                let shared = self.world.broken == Some(Broken::IncarnationShared);
                let newer = if shared { 100 } else { 200 };
                let (member, incarnation) =
                    if self.left.starts == 2 { ("b", 100) } else { ("a", newer) };
                self.left.starts -= 1;
                self.world.start_process(member, incarnation, vec!["a"]);
                let process = self.world.processes.last_mut().expect("it was started");
                process.wake(now);
            }
            Move::Finish(number) => {
                let process = &mut self.world.processes[number];
                let hand = &process.hands[&PLACE];
                let position = Some(PositionV1::at(hand.cursor));
                let done = Event::Drained(id_of(PLACE), hand.epoch, position);
                process.on(done, now);
            }
            Move::Leave(number) => {
                self.left.leaves -= 1;
                self.world.processes[number].on(Event::Leave { keep: None }, now);
            }
            Move::Restart(kept) => {
                self.left.restarts -= 1;
                self.world.server.crash(kept);
                self.world.server.start(now);
            }
        }
        self.network.extend(self.world.sent());
        self.network.truncate(self.left.under_way);
    }

    fn wake(&mut self) {
        let now = self.world.now;
        self.world.server.wake_due(now, true);
        for process in &mut self.world.processes {
            if process.alive {
                process.wake(now);
            }
        }
        self.network.extend(self.world.sent());
        self.network.truncate(self.left.under_way);
    }

    /// What tells it from others; the order of what is under way is not part of it.
    fn digest(&self) -> u64 {
        let mut text = String::with_capacity(16_384);
        self.world.describe(&mut text).expect("a string takes it");
        let mut parcels: Vec<String> =
            self.network.iter().map(|parcel| format!("{parcel:?}")).collect();
        parcels.sort();
        parcels.iter().for_each(|parcel| text.push_str(parcel));
        write!(text, "{:?}", self.left).expect("a string takes it");
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }
}
