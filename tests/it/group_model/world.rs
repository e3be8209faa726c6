//! World: processes and a server, what is under way between them, and what must always hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::membership::{Event as Told, Failure};
use log_core::protocol::ErrorCode;
use log_server::groups::group::{Owner, Place, TopicLine};

use super::broken::Broken;
use super::process::{Call, Process, Request};
use super::server::{From, Server};

/// How long things take.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) session: Duration,
    pub(crate) drain: Duration,
    pub(crate) processing: Duration,
    pub(crate) retry_after: Duration,
    pub(crate) join_window: Duration,
}

/// Something on its way.
#[derive(Debug, Clone)]
pub(crate) enum Parcel {
    Up(From, Request),
    Down(From, Told),
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) times: Times,
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    pub(crate) broken: Option<Broken>,
    positions: BTreeMap<Place, u64>,
    connections: u64,
}

impl World {
    pub(crate) fn new(times: Times, topics: Vec<TopicLine>, broken: Option<Broken>) -> World {
        World {
            now: Duration::from_millis(1),
            server: Server::new(times.clone(), topics, broken),
            times,
            processes: Vec::new(),
            broken,
            positions: BTreeMap::new(),
            connections: 0,
        }
    }

    pub(crate) fn start_process(
        &mut self,
        member: &str,
        incarnation: u64,
        topics: Vec<&'static str>,
    ) {
        let owner = Owner { member: Arc::from(member), incarnation };
        self.connections += 1;
        let new = Process::new(&owner, self.connections, topics, &self.times, self.broken);
        self.processes.push(new);
    }

    /// A connection breaks: calls on it have no answer; its process gets another.
    pub(crate) fn close_connection(&mut self, number: usize) -> Parcel {
        let now = self.now;
        let process = &mut self.processes[number];
        let closed = From { process: number, connection: process.connection };
        self.connections += 1;
        process.connection = self.connections;
        let calls: Vec<Call> = process.calls.keys().cloned().collect();
        calls.iter().for_each(|call| process.fail(call, Failure::NoAnswer, now));
        Parcel::Up(closed, Request::Closed)
    }

    /// What was sent since this was last called.
    pub(crate) fn sent(&mut self) -> Vec<Parcel> {
        let mut sent = Vec::new();
        for (number, process) in self.processes.iter_mut().enumerate() {
            let from = From { process: number, connection: process.connection };
            sent.extend(process.outbox.drain(..).map(|request| Parcel::Up(from, request)));
        }
        sent.extend(self.server.outbox.drain(..).map(|(from, told)| Parcel::Down(from, told)));
        sent
    }

    pub(crate) fn deliver(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Up(from, request) => self.server.take(from, request, self.now),
            Parcel::Down(from, told) => {
                let process = &mut self.processes[from.process];
                if process.alive {
                    process.told(told, self.now);
                }
            }
        }
    }

    /// All that what comes next depends on.
    pub(crate) fn describe(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        write!(text, "{:?}{:?}{:?}", self.now, self.processes, self.positions)?;
        self.server.describe(text)
    }

    /// What must hold at any time.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        if let Some(violation) = self.server.violation.take() {
            return Err(violation);
        }
        self.check_hands()?;
        self.check_taken()?;
        self.check_stopped()?;
        for (place, line) in self.server.store.durable() {
            let offset = line.position.as_ref().map_or(0, |position| position.offset);
            let before = self.positions.insert(*place, offset).unwrap_or(0);
            if offset < before {
                return Err(format!("{place:?} went back from {before} to {offset}"));
            }
        }
        Ok(())
    }

    /// Who would hand over what.
    pub(crate) fn hands(&self) -> Result<BTreeMap<Place, usize>, String> {
        let mut hands: BTreeMap<Place, usize> = BTreeMap::new();
        for (number, process) in self.processes.iter().enumerate() {
            for place in process.hands.keys() {
                if !process.may_hand_over(*place, self.now) {
                    continue;
                }
                if let Some(other) = hands.insert(*place, number) {
                    return Err(format!("{place:?} is in two hands: {other} and {number}"));
                }
            }
        }
        Ok(hands)
    }

    /// Nobody hands records of a partition over while another does; and a record that is still
    /// with its handler when another has the partition was taken by force, or given up.
    fn check_hands(&self) -> Result<(), String> {
        let hands = self.hands()?;
        for (number, process) in self.processes.iter().enumerate().filter(|(_, p)| p.alive) {
            for (place, running) in &process.running {
                let grant = (*place, running.epoch);
                let told = self.server.forced.contains(&grant) || process.given_up.contains(&grant);
                if hands.get(place).is_some_and(|other| *other != number) && !told {
                    let epoch = running.epoch;
                    return Err(format!("{place:?} epoch {epoch} was taken, and it is not told"));
                }
            }
        }
        Ok(())
    }

    /// A grant begins where all that was acknowledged before it ends.
    fn check_taken(&mut self) -> Result<(), String> {
        for process in &mut self.processes {
            for grant in process.taken.drain(..) {
                let place = Place { topic_id: grant.topic_id, partition: grant.partition };
                let earlier = self.server.acknowledged.range((place, 0)..(place, grant.epoch));
                let most = earlier.map(|(_, cursor)| *cursor).max().unwrap_or(0);
                if grant.position.offset < most {
                    return Err(format!("{place:?}: {most} was acknowledged; {grant:?}"));
                }
            }
        }
        let store = &self.server.store;
        for ((place, _), cursor) in &self.server.acknowledged {
            let durable = store.durable_offset(*place);
            if durable < *cursor && self.server.group.is_none() {
                return Err(format!("{place:?}: {cursor} was acknowledged, {durable} is there"));
            }
        }
        Ok(())
    }

    /// Only a newer run of the same member fences one.
    fn check_stopped(&mut self) -> Result<(), String> {
        for number in 0..self.processes.len() {
            let Some(why) = self.processes[number].stopped.take() else { continue };
            let owner = self.processes[number].owner();
            let others = self.processes.iter().map(Process::owner);
            let is_newer = |other: Owner| {
                other.member == owner.member && other.incarnation > owner.incarnation
            };
            let is_fenced = why.error_code() == Some(ErrorCode::Fenced);
            if !is_fenced || !others.into_iter().any(is_newer) {
                return Err(format!("{owner:?} is stopped, and is the newest: {why:?}"));
            }
            self.server.count("fenced");
        }
        Ok(())
    }
}
