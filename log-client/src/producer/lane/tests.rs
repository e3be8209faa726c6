//! A lane against a server that judges numbers as a partition does, over a network that loses,
//! delays and cuts.

use std::collections::{HashMap, HashSet, VecDeque};

use log_core::record::BatchView;
use log_core::{Codec, Record, Timestamp};

use super::*;
use crate::backoff::BackoffPolicy;
use crate::producer::accumulator::encode;
use crate::producer::outcome::Outcome;

const TIMEOUT: Duration = Duration::from_secs(10);
const REMEMBERED: usize = 5;

fn policy() -> BackoffPolicy {
    BackoffPolicy { first: Duration::from_millis(10), most: Duration::from_millis(100) }
}

fn lane(seed: u64) -> Lane {
    let identity = Identity { producer_id: 1 + seed, epoch: 0, next_sequence: 0 };
    Lane::new(Some(identity), 5, TIMEOUT, Backoff::with_seed(policy(), seed))
}

/// A batch of `count` records, each of which says which batch it is in.
fn batch(name: u64, count: u32, began: Instant) -> Batch {
    let value = name.to_le_bytes();
    let records = vec![Record::new(&value); count as usize];
    let bytes = encode(&records, Codec::None, Timestamp::from_millis(1)).unwrap();
    Batch { bytes, count, outcome: Outcome::new(0), began, reserved: 1 }
}

fn name_of(bytes: &[u8]) -> u64 {
    let (view, _) = BatchView::parse(bytes).unwrap();
    let body = view.open(1_000_000).unwrap();
    let record = body.records().next().unwrap().unwrap();
    u64::from_le_bytes(record.value.unwrap().try_into().unwrap())
}

#[derive(Default)]
struct Partition {
    /// The batches in log order.
    log: Vec<u64>,
    end: u64,
    /// By producer: its epoch, and the last batches as sequence, count, offset.
    producers: HashMap<u64, (u16, VecDeque<(u32, u32, u64)>)>,
}

impl Partition {
    fn append(&mut self, bytes: &[u8]) -> Answer {
        let (view, _) = BatchView::parse(bytes).unwrap();
        let header = view.header;
        let (sequence, count) = (header.base_sequence, header.record_count);
        let refuse = |code| Answer::Refused(Refusal::new(code, format!("{code:?}")));
        let known = self.producers.entry(header.producer_id).or_default();
        if header.producer_epoch < known.0 {
            return refuse(ErrorCode::ProducerFenced);
        }
        let fresh = header.producer_epoch > known.0 || known.1.is_empty();
        if fresh && sequence != 0 {
            return refuse(ErrorCode::ProducerUnknown);
        }
        if fresh {
            *known = (header.producer_epoch, VecDeque::new());
        } else {
            let (last, length, _) = *known.1.back().unwrap();
            let same = known.1.iter().find(|(first, many, _)| (*first, *many) == (sequence, count));
            if let Some((_, _, offset)) = same {
                return appended(*offset, count, true);
            }
            let expected = last.wrapping_add(length);
            if sequence != expected {
                let gap = sequence.wrapping_sub(expected) < 1 << 31;
                let code = if gap { ErrorCode::SequenceGap } else { ErrorCode::ProducerUnknown };
                return refuse(code);
            }
        }
        if known.1.len() == REMEMBERED {
            known.1.pop_front();
        }
        let offset = self.end;
        known.1.push_back((sequence, count, offset));
        self.log.push(name_of(bytes));
        self.end += u64::from(count);
        appended(offset, count, false)
    }
}

fn appended(base_offset: u64, count: u32, duplicate: bool) -> Answer {
    let append_time = Timestamp::from_millis(1);
    Answer::Appended(Produced {
        base_offset,
        end: base_offset + u64::from(count),
        append_time,
        duplicate,
    })
}

/// A lane, its server, and what is between them.
struct World {
    random: Backoff,
    now: Instant,
    lane: Lane,
    partition: Partition,
    /// Sent over the connection there is, not yet seen by the server.
    requests: VecDeque<Outbound>,
    replies: VecDeque<(u64, Answer)>,
    /// Sent over connections that are gone, and still to arrive.
    late: VecDeque<Outbound>,
    sent: u64,
    ended: HashMap<u64, BatchResult>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Backoff::with_seed(policy(), seed),
            now: Instant::now(),
            lane: lane(seed),
            partition: Partition::default(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            late: VecDeque::new(),
            sent: 0,
            ended: HashMap::new(),
        }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.random.next_random() % sides
    }

    fn settle(&mut self, settled: impl IntoIterator<Item = Settled>) {
        for Settled { batch, result } in settled {
            let told = self.ended.insert(name_of(&batch.bytes), result);
            assert!(told.is_none(), "a batch ended twice");
        }
    }

    fn step(&mut self) {
        match self.dice(20) {
            0..=4 => {
                let count = 1 + u32::try_from(self.dice(3)).unwrap();
                self.lane.push(batch(self.sent, count, self.now));
                self.sent += 1;
            }
            5..=9 => self.requests.extend(self.lane.take(self.now)),
            10..=13 => self.serve(true),
            14..=16 => self.deliver(),
            17 => self.cut(),
            18 => {
                if let Some(late) = self.late.pop_front() {
                    self.partition.append(&late.bytes);
                }
            }
            _ => {
                let later = self.dice(4_000);
                self.now += Duration::from_millis(later);
                let ended = self.lane.expire(self.now);
                self.settle(ended);
            }
        }
    }

    /// The server sees a request.
    fn serve(&mut self, may_refuse: bool) {
        let Some(request) = self.requests.pop_front() else { return };
        let dice = if may_refuse { self.dice(12) } else { 9 };
        let refused = |code| Answer::Refused(Refusal::new(code, "no"));
        let answer = match dice {
            0 => refused(ErrorCode::DiskFull),
            1 => refused(ErrorCode::TooLarge),
            // It forgets producers that were idle for long: nothing of theirs is under way.
            2 if self.quiet() => {
                self.partition.producers.clear();
                self.partition.append(&request.bytes)
            }
            _ => self.partition.append(&request.bytes),
        };
        self.replies.push_back((request.ticket, answer));
    }

    /// Whether the server has answered all that it has ever seen.
    fn quiet(&self) -> bool {
        let maybe = self.lane.queue.iter().any(|queued| queued.maybe_appended);
        !maybe && self.late.is_empty() && self.replies.is_empty()
    }

    fn deliver(&mut self) {
        let Some((ticket, answer)) = self.replies.pop_front() else { return };
        let ended = self.lane.answered(ticket, answer, self.now);
        self.settle(ended);
    }

    /// The connection is lost: with the replies, and with some of what was sent, or later.
    fn cut(&mut self) {
        let lost = |sent| Answer::Lost { sent, why: Error::unknown("cut") };
        let answered: Vec<_> = self.replies.drain(..).map(|(ticket, _)| ticket).collect();
        let unseen: Vec<_> = self.requests.drain(..).collect();
        let arriving = usize::try_from(self.dice(6)).unwrap().min(unseen.len());
        let mut ended: Vec<_> = answered.into_iter().map(|ticket| (ticket, lost(true))).collect();
        for (at, request) in unseen.into_iter().enumerate() {
            ended.push((request.ticket, lost(at < arriving)));
            if at < arriving {
                self.late.push_back(request);
            }
        }
        for (ticket, answer) in ended {
            let ended = self.lane.answered(ticket, answer, self.now);
            self.settle(ended);
        }
    }

    fn heal(&mut self) {
        for _ in 0..10_000 {
            if self.lane.is_idle() && self.requests.is_empty() && self.replies.is_empty() {
                break;
            }
            self.now += Duration::from_millis(1);
            self.requests.extend(self.lane.take(self.now));
            self.serve(false);
            self.deliver();
            let ended = self.lane.expire(self.now);
            self.settle(ended);
        }
        while let Some(late) = self.late.pop_front() {
            self.partition.append(&late.bytes);
        }
    }

    /// What a user may rely on.
    fn check(&self, seed: u64) {
        let log = &self.partition.log;
        let there: HashSet<_> = log.iter().copied().collect();
        assert_eq!(self.ended.len() as u64, self.sent, "{seed}: each ends");
        let mut acknowledged: Vec<_> = Vec::new();
        for (name, result) in &self.ended {
            match result {
                Ok(produced) => {
                    assert!(there.contains(name), "{seed}: {name} is lost");
                    acknowledged.push((produced.unwrap().base_offset, *name));
                }
                Err(Error::OutcomeUnknown { .. }) => {}
                Err(error) => assert!(!there.contains(name), "{seed}: {name} is there: {error}"),
            }
        }
        acknowledged.sort_unstable();
        assert!(acknowledged.is_sorted_by_key(|(_, name)| *name), "{seed}: order");
        for (name, result) in &self.ended {
            let times = log.iter().filter(|there| *there == name).count();
            assert!(times <= 1 || result.is_err(), "{seed}: {name} is there {times} times");
        }
    }
}

#[test]
fn whatever_the_network_does_each_batch_ends_once_in_order_and_truly() {
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.step();
        }
        world.heal();
        world.check(seed);
    }
}

#[test]
fn no_more_than_five_are_under_way_and_answers_make_room() {
    let now = Instant::now();
    let mut lane = lane(1);
    (0..7).for_each(|name| lane.push(batch(name, 2, now)));
    let sent: Vec<_> = std::iter::from_fn(|| lane.take(now)).collect();
    let sequences = |sent: &[Outbound]| -> Vec<u32> {
        let header = |out: &Outbound| BatchHeader::decode(&out.bytes).unwrap();
        sent.iter().map(|out| header(out).base_sequence).collect()
    };
    assert_eq!(sequences(&sent), [0, 2, 4, 6, 8]);
    let settled = lane.answered(sent[0].ticket, appended(0, 2, false), now).unwrap();
    assert_eq!(settled.result.unwrap().unwrap().base_offset, 0);
    let next = lane.take(now).unwrap();
    assert_eq!(sequences(&[next]), [10]);
}

#[test]
fn after_a_cut_all_is_sent_again_in_order_with_the_same_numbers_after_a_wait() {
    let now = Instant::now();
    let mut lane = lane(2);
    (0..3).for_each(|name| lane.push(batch(name, 1, now)));
    let first: Vec<_> = std::iter::from_fn(|| lane.take(now)).collect();
    lane.push(batch(3, 1, now));
    for out in &first {
        let lost = Answer::Lost { sent: true, why: Error::unknown("cut") };
        assert!(lane.answered(out.ticket, lost, now).is_none());
        assert!(lane.take(now).is_none());
    }
    let later = now + policy().most;
    let again: Vec<_> = std::iter::from_fn(|| lane.take(later)).collect();
    let names: Vec<_> = again.iter().map(|out| name_of(&out.bytes)).collect();
    assert_eq!(names, [0, 1, 2, 3]);
    assert_eq!(again[2].bytes, first[2].bytes);
}

#[test]
fn what_took_too_long_is_unknown_only_if_it_may_have_been_appended() {
    let now = Instant::now();
    let mut lane = lane(3);
    lane.push(batch(0, 1, now));
    lane.push(batch(1, 1, now));
    let sent = lane.take(now).unwrap();
    assert_eq!(lane.expire(now + TIMEOUT - Duration::from_millis(1)).len(), 0);
    let ended = lane.expire(now + TIMEOUT);
    assert!(matches!(ended[0].result, Err(Error::OutcomeUnknown { .. })));
    assert!(matches!(ended[1].result, Err(Error::TimedOut { .. })));
    assert!(lane.answered(sent.ticket, appended(0, 1, false), now + TIMEOUT).is_none());
}

#[test]
fn a_deleted_topic_holds_everything_until_it_was_looked_at() {
    let now = Instant::now();
    let mut lane = lane(4);
    lane.push(batch(0, 1, now));
    let sent = lane.take(now).unwrap();
    let stale = Answer::Refused(Refusal::new(ErrorCode::StaleTopic, "deleted"));
    assert!(lane.answered(sent.ticket, stale, now).is_none());
    let later = now + policy().most;
    assert!(lane.is_stale() && lane.take(later).is_none());
    lane.renewed();
    assert_eq!(name_of(&lane.take(later).unwrap().bytes), 0);
}
