//! Owned: a partition that is read: where fetching stands, what is buffered, what is handed over.
//!
//! tracker.frontier() <= what is buffered <= position. What is buffered is dropped, and replies on
//! their way are void, once the partition is revoked or sought in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log_core::protocol::offsets::PositionV1;
use log_core::{Fault, Offset, OffsetRange};

use super::committer::Tracker;
use super::event::TopicPartition;
use super::membership::PartitionId;
use super::record::{ConsumerRecord, Damage, OpenBatch, OpenLimits, Records, Source, open_batches};
use super::settings::CommitMode;
use super::stop::Stop;

/// Batches as they were fetched.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) from: Offset,
    pub(super) next: Offset,
}

/// The front of a chunk, its batches checked and opened.
#[derive(Debug)]
pub(super) struct Run {
    batches: Arc<[OpenBatch]>,
    damage: Option<Damage>,
    /// How much of what is buffered it was.
    bytes: usize,
    /// What is to be opened when it has ended.
    rest: Option<Chunk>,
    next: Offset,
    decoded: std::vec::IntoIter<ConsumerRecord>,
    /// The first batch that is not decoded.
    undecoded: usize,
}

impl Run {
    pub(super) fn open(chunk: &Chunk, limits: OpenLimits) -> Run {
        let opened = open_batches(&chunk.bytes, chunk.from, chunk.next, limits);
        let bytes = chunk.bytes.len() - opened.rest.len();
        let rest = Chunk { bytes: opened.rest, from: opened.at, next: chunk.next };
        let rest = (!rest.bytes.is_empty()).then_some(rest);
        Run {
            batches: Arc::from(opened.batches),
            damage: opened.damage,
            bytes,
            next: rest.as_ref().map_or(chunk.next, |rest| rest.from),
            rest,
            decoded: Vec::new().into_iter(),
            undecoded: 0,
        }
    }

    /// Up to where it can be handed over.
    fn end(&self) -> Offset {
        self.damage.as_ref().map_or(self.next, |damage| damage.offsets.start)
    }
}

/// What a partition has for the user.
#[derive(Debug)]
pub(super) enum Found<T> {
    Ready(T),
    /// This is to be opened, away from any lock, and given back to `opened`.
    Closed(Chunk),
    /// Nothing more can be read.
    Stopped(Stop),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) topic: Arc<str>,
    pub(super) source: Source,
    pub(super) epoch: u64,
    pub(super) tracker: Tracker,
    /// The next offset to fetch.
    pub(super) position: Offset,
    /// Grows with each seek.
    pub(super) generation: u64,
    /// A fetch asks for it.
    pub(super) fetching: bool,
    pub(super) paused: bool,
    /// Stands still after an error.
    pub(super) halted: bool,
    pub(super) draining: bool,
    /// A commit of it is on its way.
    pub(super) committing: bool,
    /// Records of it are done that are not handed over before their commit.
    pub(super) withholds: bool,
    /// Not fetched before this.
    pub(super) not_before: Duration,
    ready: VecDeque<Chunk>,
    /// Why nothing more is fetched.
    stop: Option<Stop>,
    run: Option<Run>,
    buffered: usize,
    /// Something that was buffered has gone since this was asked.
    freed: bool,
}

impl Owned {
    pub(super) fn new(
        topic: Arc<str>,
        source: Source,
        epoch: u64,
        start: &PositionV1,
        max_ahead: u64,
    ) -> Owned {
        let tracker = Tracker::new(start, max_ahead);
        Owned {
            position: tracker.prefix(),
            topic,
            source,
            epoch,
            tracker,
            generation: 0,
            fetching: false,
            paused: false,
            halted: false,
            draining: false,
            committing: false,
            withholds: false,
            not_before: Duration::ZERO,
            ready: VecDeque::new(),
            stop: None,
            run: None,
            buffered: 0,
            freed: false,
        }
    }

    pub(super) fn id(&self) -> PartitionId {
        self.source.id
    }

    pub(super) fn named(&self) -> TopicPartition {
        TopicPartition { topic: Arc::clone(&self.topic), partition: self.source.id.partition }
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffered
    }

    /// What a release persists of what is done; none: what is committed stays as it is.
    pub(super) fn to_release(&self, mode: CommitMode) -> Option<PositionV1> {
        let releases = mode != CommitMode::Manual && !self.withholds;
        releases.then(|| self.tracker.final_position())
    }

    /// Whether it has room for a fetch, and may be fetched.
    pub(super) fn wants_fetch(&self, partition_bytes: usize, now: Duration) -> bool {
        let stands = self.paused || self.halted || self.draining || self.fetching;
        !stands
            && self.stop.is_none()
            && self.not_before <= now
            && self.buffered < partition_bytes
            && self.position < self.tracker.limit()
    }

    /// Takes what a fetch has brought.
    pub(super) fn fetched(&mut self, chunk: Chunk) {
        self.position = chunk.next;
        if !chunk.bytes.is_empty() {
            self.buffered += chunk.bytes.len();
            self.ready.push_back(chunk);
        } else if !self.has_buffered() {
            // Nothing is there up to the next offset.
            self.pass(chunk.next);
        }
    }

    /// Fetches nothing more; why, counts when all that is buffered is handed over.
    pub(super) fn stop(&mut self, stop: Stop) {
        self.stop = Some(stop);
    }

    /// Takes back a chunk that was opened.
    pub(super) fn opened(&mut self, run: Run) {
        self.run = Some(run);
    }

    /// Drops what is buffered.
    pub(super) fn drop_buffered(&mut self) {
        self.ready.clear();
        self.stop = None;
        self.run = None;
        self.buffered = 0;
        // What is under way is void; it must not keep a fetch from where reading goes on.
        self.fetching = false;
        self.generation += 1;
        self.position = self.tracker.frontier();
    }

    /// Reads on from `to`.
    pub(super) fn seek(&mut self, to: Offset) {
        self.tracker.seek(to);
        self.drop_buffered();
        self.position = to;
        self.halted = false;
    }

    /// Reads on from `to`, which is behind what was lost; or before it, if the log has lost its end.
    pub(super) fn jump(&mut self, to: Offset) {
        if to >= self.tracker.frontier() {
            self.seek(to);
        } else {
            self.tracker.restart(to);
            self.drop_buffered();
        }
    }

    /// Whether a chunk of it is open.
    pub(super) fn has_open(&self) -> bool {
        self.run.is_some()
    }

    /// Whether something that was buffered has gone since this was asked last.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// A chunk that is being opened counts, too: it is in neither place then.
    fn has_buffered(&self) -> bool {
        self.buffered > 0
    }

    /// There is nothing to hand over below `to`.
    fn pass(&mut self, to: Offset) {
        if to > self.tracker.frontier() {
            self.tracker.seek(to);
        }
    }

    fn end_run(&mut self) -> Option<Damage> {
        let run = self.run.take()?;
        self.buffered = self.buffered.saturating_sub(run.bytes);
        self.freed = true;
        if let Some(rest) = run.rest {
            self.ready.push_front(rest);
        }
        match run.damage {
            Some(damage) => Some(damage),
            None => {
                self.pass(run.next);
                None
            }
        }
    }

    /// The next record, which is in the user's hands then.
    pub(super) fn take_record(&mut self, now: Duration) -> Found<ConsumerRecord> {
        loop {
            let Some(run) = &mut self.run else { return self.next_chunk() };
            let (frontier, limit) = (self.tracker.frontier(), self.tracker.limit());
            if let Some(record) = run.decoded.as_slice().first() {
                let offset = record.offset;
                let wanted = offset >= frontier && self.tracker.settled(offset).is_none();
                if wanted && offset >= limit {
                    return Found::Nothing;
                }
                let Some(record) = run.decoded.next().filter(|_| wanted) else { continue };
                self.tracker.hand_over(OffsetRange::new(offset, offset.saturating_add(1)), now);
                return Found::Ready(record);
            }
            if let Some(batch) = run.batches.get(run.undecoded) {
                run.undecoded += 1;
                if batch.offsets().end <= frontier {
                    continue;
                }
                match batch.decode(&self.topic, self.source) {
                    Ok(records) => run.decoded = records.into_iter(),
                    Err(fault) => return self.malformed(fault),
                }
            } else if let Some(damage) = self.end_run() {
                return Found::Stopped(Stop::Damaged(damage));
            }
        }
    }

    fn malformed(&mut self, fault: Fault) -> Found<ConsumerRecord> {
        let run = self.run.as_ref().expect("the caller has just looked at it");
        let offsets = run.batches[run.undecoded - 1].offsets();
        let start = offsets.start.max(self.tracker.frontier());
        let offsets = OffsetRange::new(start, offsets.end);
        Found::Stopped(Stop::Damaged(Damage { offsets, fault }))
    }

    /// The next run of records, which are in the user's hands then.
    pub(super) fn take_run(&mut self, now: Duration) -> Found<Records> {
        loop {
            let Some(run) = &self.run else { return self.next_chunk() };
            let start = self.tracker.frontier();
            let end = run.end().min(self.tracker.limit());
            if start >= run.end() {
                if let Some(damage) = self.end_run() {
                    return Found::Stopped(Stop::Damaged(damage));
                }
                continue;
            }
            if start >= end {
                return Found::Nothing;
            }
            let offsets = OffsetRange::new(start, end);
            let settled = self.tracker.settled_ranges();
            let within = |range: &OffsetRange| range.start < end && start < range.end;
            let records = Records {
                topic: Arc::clone(&self.topic),
                source: self.source,
                batches: Arc::clone(&run.batches),
                offsets,
                settled: settled.into_iter().filter(within).collect(),
            };
            self.tracker.hand_over(offsets, now);
            let through =
                self.run.as_ref().is_some_and(|run| run.damage.is_none() && end == run.next);
            if through {
                self.end_run();
            }
            return Found::Ready(records);
        }
    }

    fn next_chunk<T>(&mut self) -> Found<T> {
        match self.ready.pop_front() {
            Some(chunk) => Found::Closed(chunk),
            None => self.stop.take().map_or(Found::Nothing, Found::Stopped),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use log_core::Codec;

    use super::super::record::tests::{LIMITS, batch, source};
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn owned(position: &PositionV1, max_ahead: u64) -> Owned {
        Owned::new(Arc::from("orders"), source(), 1, position, max_ahead)
    }

    pub(in super::super) fn chunk(batches: &[(Offset, u64)]) -> Chunk {
        let bytes: Vec<u8> =
            batches.iter().flat_map(|(at, count)| batch(*at, *count, Codec::None)).collect();
        let (last, count) = batches.last().unwrap();
        Chunk { bytes: Bytes::from(bytes), from: batches[0].0, next: last + count }
    }

    fn take_all(owned: &mut Owned) -> Vec<Offset> {
        let mut seen = Vec::new();
        loop {
            match owned.take_record(NOW) {
                Found::Ready(record) => seen.push(record.offset),
                Found::Closed(chunk) => owned.opened(Run::open(&chunk, LIMITS)),
                Found::Stopped(stop) => panic!("{stop:?}"),
                Found::Nothing => return seen,
            }
        }
    }

    #[test]
    fn what_is_below_the_position_or_settled_is_not_handed_over() {
        let position = PositionV1 { offset: 2, settled: vec![(4, 6)] };
        let mut owned = owned(&position, 100);
        assert_eq!(owned.position, 2);
        owned.fetched(chunk(&[(0, 5), (5, 3)]));
        assert_eq!(take_all(&mut owned), [2, 3, 6, 7]);
        assert_eq!((owned.position, owned.buffered()), (8, 0));
        owned.tracker.finish_all();
        assert_eq!(owned.tracker.to_commit(), Some(PositionV1::at(8)));
    }

    #[test]
    fn nothing_is_handed_over_too_far_ahead() {
        let mut owned = owned(&PositionV1::at(0), 3);
        owned.fetched(chunk(&[(0, 5)]));
        assert_eq!(take_all(&mut owned), [0, 1, 2]);
        assert!(!owned.wants_fetch(1 << 20, NOW));
        owned.tracker.finish(OffsetRange::new(0, 1));
        assert_eq!(take_all(&mut owned), [3]);
        owned.tracker.finish_all();
        let Found::Ready(records) = owned.take_run(NOW) else { panic!("a run is left") };
        assert_eq!(records.offsets(), OffsetRange::new(4, 5));
    }

    #[test]
    fn an_empty_fetch_passes_nothing_that_is_being_opened() {
        let mut owned = owned(&PositionV1::at(0), 100);
        owned.fetched(chunk(&[(0, 3)]));
        let Found::Closed(closed) = owned.take_record(NOW) else { panic!("it is closed") };
        owned.fetched(Chunk { bytes: Bytes::new(), from: 3, next: 3 });
        owned.opened(Run::open(&closed, LIMITS));
        assert_eq!(take_all(&mut owned), [0, 1, 2]);
    }

    #[test]
    fn runs_and_records_mix() {
        let mut owned = owned(&PositionV1::at(0), 100);
        owned.fetched(chunk(&[(0, 4), (4, 4)]));
        let Found::Closed(closed) = owned.take_record(NOW) else { panic!("it is closed") };
        owned.opened(Run::open(&closed, LIMITS));
        assert!(matches!(owned.take_record(NOW), Found::Ready(record) if record.offset == 0));
        let Found::Ready(records) = owned.take_run(NOW) else { panic!("a run is left") };
        let seen: Vec<_> = records.iter().map(|record| record.unwrap().offset).collect();
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(owned.buffered(), 0);
    }

    #[test]
    fn what_expands_is_opened_a_part_at_a_time() {
        let mut bytes = Vec::new();
        for at in 0..6 {
            bytes.extend(batch(at * 50, 50, Codec::Zstd));
        }
        let chunk = Chunk { bytes: Bytes::from(bytes), from: 0, next: 310 };
        let limits = OpenLimits { run_bytes: 1_000, ..LIMITS };
        let mut owned = owned(&PositionV1::at(0), 1_000);
        owned.fetched(chunk);
        let mut seen = Vec::new();
        loop {
            match owned.take_run(NOW) {
                Found::Closed(chunk) => owned.opened(Run::open(&chunk, limits)),
                Found::Ready(records) => {
                    seen.extend(records.iter().map(|record| record.unwrap().offset));
                    assert!(records.batches.len() < 6, "not all at once");
                }
                _ => break,
            }
        }
        assert!(seen.into_iter().eq(0..300));
        assert_eq!((owned.buffered(), owned.tracker.frontier()), (0, 310));
    }

    #[test]
    fn a_seek_makes_what_was_buffered_void() {
        let mut owned = owned(&PositionV1::at(0), 100);
        owned.fetched(chunk(&[(0, 5)]));
        let before = owned.generation;
        owned.fetching = true;
        owned.seek(2);
        assert!(owned.wants_fetch(1 << 20, NOW), "whatever is on its way");
        assert!(owned.generation > before && owned.buffered() == 0);
        assert_eq!(owned.position, 2);
        owned.fetched(chunk(&[(0, 5)]));
        assert_eq!(take_all(&mut owned), [2, 3, 4]);
    }

    #[test]
    fn damage_is_told_after_what_stands_before_it() {
        let mut bad = chunk(&[(0, 2), (2, 2)]);
        let mut bytes = bad.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bad.bytes = Bytes::from(bytes);
        let mut owned = owned(&PositionV1::at(0), 100);
        owned.opened(Run::open(&bad, LIMITS));
        for expected in [0, 1] {
            let found = owned.take_record(NOW);
            assert!(matches!(found, Found::Ready(record) if record.offset == expected));
        }
        let Found::Stopped(Stop::Damaged(damage)) = owned.take_record(NOW) else {
            panic!("it is damaged")
        };
        assert_eq!(damage.offsets, OffsetRange::new(2, 4));
        owned.jump(4);
        assert_eq!(owned.position, 4);
    }
}
