//! Sender: what a producer's handles and tasks share. Records go in, batches go out where they
//! become ready: in the call that sends, or in the connection's task when a reply makes room.
//!
//! `state` is taken before a connection's own lock, and never held over an `.await`; outcomes are
//! told after it was let go.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use log_core::clock::{Clock, SystemClock};
use log_core::protocol::RequestKind;
use log_core::protocol::produce::{Acks, PRODUCE_VERSION, ProduceHead, Produced};
use log_core::{Record, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::accumulator::{Accumulator, room_for};
use super::config::ProducerConfig;
use super::lane::{Answer, Identity, Lane, Settled};
use super::outcome::{Delivery, Outcome};
use super::topic::{Line, Topic};
use crate::admin::TopicDescription;
use crate::backoff::Backoff;
use crate::connection::{self, Connection};
use crate::error::{Error, Result};
use crate::link::Link;

/// The wire's number of a produce, and its version.
pub(crate) const PRODUCE: (u16, u16) = (RequestKind::Produce as u16, PRODUCE_VERSION);

/// What a producer's handles and tasks share.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) config: ProducerConfig,
    /// For produces alone.
    pub(crate) link: Arc<Link>,
    /// For looking at topics.
    pub(crate) control: Arc<Link>,
    clock: SystemClock,
    state: Mutex<State>,
    /// Something is to be done earlier than the timer's task has planned.
    pub(crate) earlier: Notify,
    /// There is no connection.
    pub(crate) disconnected: Notify,
    /// A topic must be looked at anew.
    pub(crate) stale: Notify,
    /// Bytes of the buffer were given back.
    pub(crate) room: Notify,
}

#[derive(Debug)]
struct State {
    names: HashMap<String, usize>,
    topics: Vec<Topic>,
    /// Bytes of records that wait for their outcome.
    buffered: usize,
    /// Produces of this connection without an answer.
    in_flight: usize,
    /// The lines that wait for the server's limit of them, in turn.
    throttled: VecDeque<(usize, u32)>,
    connection: Option<Connection>,
    /// When the timer's task looks next.
    planned: Instant,
    closed: bool,
    /// Ended under the lock, to be told after it.
    ended: Vec<Settled>,
}

/// What to send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sent<'a> {
    /// One record, gathered with others.
    One(&'a Record<'a>),
    /// A batch of its own.
    Whole(&'a [Record<'a>]),
}

/// What came of an attempt to put something into the buffer.
pub(crate) enum Put {
    Done(Delivery),
    /// There is no room now.
    Full,
    /// The topic must be looked at first.
    UnknownTopic,
    /// The topic does not take it, unless it was changed meanwhile.
    Illegal(Error),
}

impl<'a> Sent<'a> {
    fn records(self) -> &'a [Record<'a>] {
        match self {
            Sent::One(record) => std::slice::from_ref(record),
            Sent::Whole(records) => records,
        }
    }

    fn room(self) -> usize {
        self.records().iter().map(room_for).sum()
    }

    fn key(self) -> Option<&'a [u8]> {
        self.records().first().and_then(|record| record.key)
    }
}

impl State {
    /// Whether one more produce may wait for its answer.
    fn has_slot(&self, connection: &Connection) -> bool {
        let most = connection.hello().produce_in_flight_max.max(1);
        self.in_flight < usize::try_from(most).unwrap_or(usize::MAX)
    }
}

impl Sender {
    pub(crate) fn new(config: ProducerConfig, link: Arc<Link>, control: Arc<Link>) -> Sender {
        let state = State {
            names: HashMap::new(),
            topics: Vec::new(),
            buffered: 0,
            in_flight: 0,
            throttled: VecDeque::new(),
            connection: None,
            planned: Instant::now(),
            closed: false,
            ended: Vec::new(),
        };
        Sender {
            config,
            link,
            control,
            clock: SystemClock::new(),
            state: Mutex::new(state),
            earlier: Notify::new(),
            disconnected: Notify::new(),
            stale: Notify::new(),
            room: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs `change` under the lock, then tells what has ended.
    fn with_state<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        if state.ended.is_empty() {
            return changed;
        }
        let ended = std::mem::take(&mut state.ended);
        let freed: usize = ended.iter().map(|settled| settled.batch.reserved).sum();
        state.buffered -= freed;
        drop(state);
        for Settled { batch, result } in ended {
            batch.outcome.complete(result);
        }
        self.room.notify_waiters();
        changed
    }

    /// Takes what is to be sent into the buffer, and sends what is ready.
    ///
    /// # Errors
    /// `Closed`; `InvalidArgument` for what can't be sent at all.
    pub(crate) fn put(
        self: &Arc<Self>,
        topic: &str,
        asked: Option<u32>,
        sent: Sent<'_>,
    ) -> Result<Put> {
        let room = sent.room();
        if room > self.config.buffer_max_bytes {
            let limit = self.config.buffer_max_bytes;
            let what = format!("{room} bytes at once do not fit into buffer_max_bytes, {limit}");
            return Err(Error::invalid(what));
        }
        self.with_state(|state| {
            if state.closed {
                return Err(Error::Closed { what: "the producer" });
            }
            let Some(&at) = state.names.get(topic) else { return Ok(Put::UnknownTopic) };
            if state.topics[at].gone {
                return Ok(Put::UnknownTopic);
            }
            if state.buffered + room > self.config.buffer_max_bytes {
                return Ok(Put::Full);
            }
            let topic = &state.topics[at];
            // None is longer than all of them: the usual batch needs no second look.
            let long = topic.is_long(room);
            let check = |one| topic.check(one, if long { room_for(one) } else { room });
            if let Err(error) = sent.records().iter().try_for_each(check) {
                return Ok(Put::Illegal(error));
            }
            let partition = topic.choose(asked, sent.key())?;
            match sent {
                // In a batch with others, what frames a record may be longer.
                Sent::One(record) if !long => {
                    self.gather(state, (at, partition), record, room).map(Put::Done)
                }
                _ => self.put_whole(state, (at, partition), sent.records()),
            }
        })
    }

    fn gather(
        self: &Arc<Self>,
        state: &mut State,
        (at, partition): (usize, u32),
        record: &Record<'_>,
        room: usize,
    ) -> Result<Delivery> {
        let most = self.config.batch_max_bytes.min(state.topics[at].batch_max_bytes());
        let full = self.line(state, at, partition).gathering.is_full_for(room, most);
        if full {
            self.seal(state, at, partition);
        }
        let time = record.timestamp.unwrap_or_else(|| self.clock.now());
        let line = self.line(state, at, partition);
        let begins = line.gathering.began().is_none();
        let delivery = line.gathering.push(record, time, Instant::now)?;
        state.buffered += room;
        if full || begins {
            self.advance(state, at, partition, Instant::now());
        }
        Ok(delivery)
    }

    fn put_whole(
        self: &Arc<Self>,
        state: &mut State,
        (at, partition): (usize, u32),
        records: &[Record<'_>],
    ) -> Result<Put> {
        let (time, now) = (self.clock.now(), Instant::now());
        let codec = self.config.codec;
        let batch = self.line(state, at, partition).gathering.whole(records, codec, time, now)?;
        if let Err(error) = state.topics[at].check_batch(batch.bytes.len()) {
            return Ok(Put::Illegal(error));
        }
        // What was sent before goes before.
        self.seal(state, at, partition);
        state.buffered += batch.reserved;
        let delivery = Delivery::new(Arc::clone(&batch.outcome), 0);
        self.line(state, at, partition).lane.push(batch);
        state.topics[at].turn(partition);
        self.advance(state, at, partition, now);
        Ok(Put::Done(delivery))
    }

    fn line<'a>(&self, state: &'a mut State, at: usize, partition: u32) -> &'a mut Line {
        let config = &self.config;
        // Without answers nothing is known of what arrived, so nothing can be numbered.
        let identity = || (config.acks != Acks::None).then(Identity::random);
        state.topics[at].lines[partition as usize].get_or_insert_with(|| Line {
            gathering: Accumulator::new(partition, config.codec),
            lane: Lane::new(
                identity(),
                config.in_flight_max,
                config.delivery_timeout,
                Backoff::new(self.link.config().backoff),
            ),
            throttled: false,
        })
    }

    /// Ends the gathering of a batch.
    fn seal(&self, state: &mut State, at: usize, partition: u32) {
        let line = self.line(state, at, partition);
        match line.gathering.seal() {
            None => return,
            Some(Ok(batch)) => line.lane.push(batch),
            Some(Err((batch, error))) => state.ended.push(Settled { batch, result: Err(error) }),
        }
        state.topics[at].turn(partition);
    }

    /// Seals what has waited long enough, sends what may be sent, plans what is left.
    fn advance(self: &Arc<Self>, state: &mut State, at: usize, partition: u32, now: Instant) {
        let linger = self.config.linger;
        let line = self.line(state, at, partition);
        let due = match line.gathering.due(linger) {
            None => false,
            Some(_) if linger.is_zero() => line.lane.is_calm(),
            Some(due) => due <= now,
        };
        if due {
            self.seal(state, at, partition);
        }
        self.send_ready(state, at, partition, now);
        let line = self.line(state, at, partition);
        if line.lane.is_stale() {
            self.stale.notify_one();
        }
        let wake = line.next_wake(&self.config, now);
        if let Some(wake) = wake.filter(|wake| *wake < state.planned) {
            state.planned = wake;
            self.earlier.notify_one();
        }
    }

    fn send_ready(self: &Arc<Self>, state: &mut State, at: usize, partition: u32, now: Instant) {
        while let Some(connection) = state.connection.clone() {
            if connection.is_over() {
                state.connection = None;
                break;
            }
            if !state.has_slot(&connection) {
                let line = self.line(state, at, partition);
                if !std::mem::replace(&mut line.throttled, true) {
                    state.throttled.push_back((at, partition));
                }
                return;
            }
            let topic_id = state.topics[at].id;
            let lane = &mut self.line(state, at, partition).lane;
            let Some(outbound) = lane.take(now) else { return };
            let acks = self.config.acks;
            let head = ProduceHead { topic_id, partition, acks, expected_end: None }.encode();
            let (ticket, body) = (outbound.ticket, (head.as_slice(), &outbound.bytes));
            let sender = Arc::clone(self);
            let on_answer = move |answer| sender.on_answer((at, partition), ticket, answer);
            let sent = if acks == Acks::None {
                connection.tell(PRODUCE, body, Box::new(on_answer))
            } else {
                connection.request(PRODUCE, body, Box::new(on_answer)).map(|()| false)
            };
            let lane = &mut self.line(state, at, partition).lane;
            let ended = match sent {
                Ok(true) => lane.answered(ticket, Answer::Told, now),
                Ok(false) => {
                    state.in_flight += 1;
                    continue;
                }
                Err(Error::Refused(refusal)) => {
                    lane.answered(ticket, Answer::Refused(refusal), now)
                }
                Err(why) => lane.answered(ticket, Answer::Lost { sent: false, why }, now),
            };
            state.ended.extend(ended);
        }
        if !self.line(state, at, partition).lane.is_idle() {
            self.disconnected.notify_one();
        }
    }

    /// Takes the answer to a produce. Called by the connection's task.
    fn on_answer(
        self: &Arc<Self>,
        (at, partition): (usize, u32),
        ticket: u64,
        answer: connection::Answer,
    ) {
        let answer = understood(answer, self.config.acks);
        let now = Instant::now();
        self.with_state(|state| {
            state.in_flight -= 1;
            let ended = self.line(state, at, partition).lane.answered(ticket, answer, now);
            state.ended.extend(ended);
            // The slot goes to whoever has waited longest, and not back to who had it.
            self.advance_throttled(state, now);
            self.advance(state, at, partition, now);
        });
    }

    fn advance_throttled(self: &Arc<Self>, state: &mut State, now: Instant) {
        // Whoever has more to send than there are slots waits behind the others then.
        for _ in 0..state.throttled.len() {
            let free = state.connection.as_ref().is_some_and(|one| state.has_slot(one));
            if !free {
                return;
            }
            let Some((at, partition)) = state.throttled.pop_front() else { return };
            self.line(state, at, partition).throttled = false;
            self.advance(state, at, partition, now);
        }
    }

    fn advance_all(self: &Arc<Self>, state: &mut State, now: Instant) {
        for (at, partition) in lines(state) {
            self.advance(state, at, partition, now);
        }
    }

    /// Ends what has taken too long, sends what is due. Returns when to look again.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) -> Instant {
        self.with_state(|state| {
            // Nothing that this finds is earlier than what it returns.
            state.planned = now;
            let timeout = self.config.delivery_timeout;
            // Whatever is begun from now on is not due before that, or says so.
            let mut next = now + timeout;
            for (at, partition) in lines(state) {
                let line = self.line(state, at, partition);
                if line.gathering.due(timeout).is_some_and(|due| due <= now) {
                    self.seal(state, at, partition);
                }
                let ended = self.line(state, at, partition).lane.expire(now);
                state.ended.extend(ended);
                self.advance(state, at, partition, now);
                let wake = self.line(state, at, partition).next_wake(&self.config, now);
                next = wake.map_or(next, |wake| next.min(wake));
            }
            state.planned = next;
            state.planned
        })
    }

    /// Sends over this connection from now on.
    pub(crate) fn connected(self: &Arc<Self>, connection: Connection) {
        self.with_state(|state| {
            state.connection = Some(connection);
            self.advance_all(state, Instant::now());
        });
    }

    /// # Errors
    /// `Closed`, once it was.
    pub(crate) fn check_open(&self) -> Result<()> {
        let closed = self.state.lock().closed;
        if closed { Err(Error::Closed { what: "the producer" }) } else { Ok(()) }
    }

    /// Whether batches can be sent.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().connection.as_ref().is_some_and(|connection| !connection.is_over())
    }

    /// The topics in use, those first that can't be sent to until they are looked at.
    pub(crate) fn topics(&self, only_stale: bool) -> Vec<String> {
        let state = self.state.lock();
        let stale = |topic: &&Topic| topic.lines.iter().flatten().any(|line| line.lane.is_stale());
        let topics = state.topics.iter().filter(|topic| !topic.gone);
        topics.filter(|topic| !only_stale || stale(topic)).map(|topic| topic.name.clone()).collect()
    }

    /// A topic was looked at.
    ///
    /// # Errors
    /// `Protocol` for one without partitions.
    pub(crate) fn learn(self: &Arc<Self>, told: &TopicDescription) -> Result<()> {
        self.with_state(|state| {
            match state.names.get(&told.name) {
                Some(&at) => state.topics[at].renew(told)?,
                None => {
                    state.names.insert(told.name.clone(), state.topics.len());
                    state.topics.push(Topic::new(told)?);
                }
            }
            self.advance_all(state, Instant::now());
            Ok(())
        })
    }

    /// A topic was looked for and is not there: what waits for it ends.
    pub(crate) fn gone(self: &Arc<Self>, topic: &str, error: &Error) {
        self.with_state(|state| {
            let Some(&at) = state.names.get(topic) else { return };
            state.topics[at].gone = true;
            for partition in partitions(&state.topics[at]) {
                self.seal(state, at, partition);
                let ended = self.line(state, at, partition).lane.abort(error);
                state.ended.extend(ended);
            }
        });
    }

    /// Sends all that was gathered; returns what has no outcome yet.
    pub(crate) fn flush(self: &Arc<Self>) -> Vec<Arc<Outcome>> {
        self.with_state(|state| {
            let now = Instant::now();
            for (at, partition) in lines(state) {
                self.seal(state, at, partition);
                self.advance(state, at, partition, now);
            }
            let lines = state.topics.iter().flat_map(|topic| topic.lines.iter().flatten());
            let batches = lines.flat_map(|line| line.lane.batches());
            batches.map(|batch| Arc::clone(&batch.outcome)).collect()
        })
    }

    /// Ends everything: nothing is sent any more.
    pub(crate) fn close(self: &Arc<Self>) {
        let connection = self.with_state(|state| {
            state.closed = true;
            let closed = Error::Closed { what: "the producer" };
            for (at, partition) in lines(state) {
                self.seal(state, at, partition);
                let ended = self.line(state, at, partition).lane.abort(&closed);
                state.ended.extend(ended);
            }
            state.connection.take()
        });
        drop(connection);
        self.link.close();
    }
}

fn partitions(topic: &Topic) -> Vec<u32> {
    let lines = (0..).zip(&topic.lines).filter(|(_, line)| line.is_some());
    lines.map(|(partition, _)| partition).collect()
}

/// Every partition that something was sent to.
fn lines(state: &State) -> Vec<(usize, u32)> {
    let topics = state.topics.iter().enumerate();
    topics.flat_map(|(at, topic)| partitions(topic).into_iter().map(move |one| (at, one))).collect()
}

/// What the answer to a produce means.
fn understood(answer: connection::Answer, acks: Acks) -> Answer {
    let lost = |sent, why| Answer::Lost { sent, why };
    match answer {
        Err(failure) => lost(failure.sent, failure.error),
        Ok(reply) => match reply.accepted() {
            Err(Error::Refused(refusal)) => Answer::Refused(refusal),
            Err(why) => lost(true, why),
            Ok(_) if acks == Acks::None => Answer::Told,
            Ok(body) => match Produced::decode(&body) {
                Ok(produced) => Answer::Appended(produced),
                Err(fault) => lost(true, fault.into()),
            },
        },
    }
}
