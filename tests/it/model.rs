//! Model: random operations on a partition, reopening among them, each compared with what a plain
//! vector of records answers.
//!
//! `LOG_SEEDS` says how many seeds are run, of 10,000 operations each; `LOG_SEED` replays one.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use log_core::clock::{Clock, Timestamp};
use log_core::config::RetentionPolicy;
use log_core::error::Error;
use log_core::offset::StartFrom;
use log_core::partition::{Appended, Partition};
use log_core::record::{BatchBuilder, Codec, Header, Record, RecordView};

use crate::support::{Bench, POLICIES, Random, SEGMENT_BYTES, replayed_seed, setting, tell};

type Bytes = Option<Vec<u8>>;

/// A record as it must come back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    key: Bytes,
    value: Bytes,
    headers: Vec<(String, Bytes)>,
    timestamp: i64,
}

/// What a producer has sent.
#[derive(Debug, Default)]
struct Producer {
    epoch: u16,
    next_sequence: u32,
    /// Sequence, records, first offset.
    sent: Vec<(u32, Vec<Kept>, u64)>,
}

/// The log as a vector.
#[derive(Debug, Default)]
struct ReferenceLog {
    records: Vec<Kept>,
    /// The offset after each batch.
    batch_ends: Vec<u64>,
    log_start: u64,
    producers: BTreeMap<u64, Producer>,
}

impl ReferenceLog {
    fn end(&self) -> u64 {
        self.records.len() as u64
    }

    fn at(&self, offset: u64) -> &Kept {
        &self.records[usize::try_from(offset).expect("short")]
    }

    fn push(&mut self, records: Vec<Kept>) {
        self.records.extend(records);
        self.batch_ends.push(self.end());
    }

    fn first_since(&self, time: i64, readable_end: u64) -> Option<u64> {
        (self.log_start..readable_end).find(|offset| self.at(*offset).timestamp >= time)
    }
}

struct World {
    bench: Bench,
    partition: Partition,
    log: ReferenceLog,
    random: Random,
    done: BTreeMap<&'static str, u64>,
}

#[test]
fn a_partition_answers_as_a_vector_does() {
    let debug = cfg!(debug_assertions) && env::var("LOG_SEEDS").is_err();
    let operations = if debug { 1_500 } else { 10_000 };
    let seeds = match replayed_seed() {
        Some(seed) => seed..seed + 1,
        None => 0..setting("LOG_SEEDS", 2),
    };
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut world = World::new(seed);
        for number in 0..operations {
            world.step(&format!("seed {seed}, operation {number}"));
        }
        world.read_all(&format!("seed {seed}, at the end"));
        for (what, times) in world.done {
            *done.entry(what).or_default() += times;
        }
    }
    tell(&format!("model: {count} seeds of {operations} operations: {done:?}"));
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let bench = Bench::new(random.pick(&POLICIES));
        bench.disk.set_can_store_into_maps(random.percent(70));
        let partition = bench.open().expect("opens");
        World { bench, partition, log: ReferenceLog::default(), random, done: BTreeMap::new() }
    }

    fn step(&mut self, story: &str) {
        let what = match self.random.below(200) {
            0..50 => self.append(story),
            50..80 => self.produce(story),
            80..115 => self.read(story),
            115..145 => self.visit(story),
            145..160 => self.by_time(story),
            160..165 => self.trim(story),
            165..175 => self.maintain(story),
            175..180 => self.sync(story),
            180..190 => {
                self.bench.background.run_pending();
                "turns of the background"
            }
            190..193 => self.alter(),
            193..195 => self.resolve(story),
            _ => self.reopen(story),
        };
        *self.done.entry(what).or_default() += 1;
        let ends = self.partition.ends();
        assert_eq!((ends.log_start, ends.end), (self.log.log_start, self.log.end()), "{story}");
        assert!(ends.log_start <= ends.durable_end && ends.durable_end <= ends.end, "{story}");
    }

    fn some_bytes(&mut self) -> Bytes {
        let len = match self.random.below(100) {
            0..10 => return None,
            10..20 => 0,
            20..85 => self.random.between(1, 60),
            85..99 => self.random.between(60, 3_000),
            _ => self.random.between(3_000, 40_000),
        };
        let first = self.random.next().to_le_bytes();
        let bytes =
            (0..usize::try_from(len).expect("small")).map(|at| first[at % 8] ^ first[at % 3]);
        Some(bytes.collect())
    }

    fn plan(&mut self) -> Vec<Kept> {
        let now = self.bench.clock.now().as_millis();
        let count = if self.random.percent(60) { 1 } else { self.random.between(2, 9) };
        let kept = |world: &mut World| {
            let names = ["a", "", "log.message-id", "ключ", "a"];
            let headers = (0..world.random.below(8).saturating_sub(4))
                .map(|_| (world.random.pick(&names).to_owned(), world.some_bytes()))
                .collect();
            let ago = i64::try_from(world.random.below(5_000)).expect("small");
            let timestamp = if world.random.percent(50) { now } else { now - ago };
            Kept { key: world.some_bytes(), value: world.some_bytes(), headers, timestamp }
        };
        (0..count).map(|_| kept(self)).collect()
    }

    fn append(&mut self, story: &str) -> &'static str {
        let planned = self.plan();
        let headers: Vec<_> = planned.iter().map(headers_of).collect();
        let now = self.bench.clock.now().as_millis();
        let records: Vec<_> = planned
            .iter()
            .zip(&headers)
            .map(|(kept, headers)| {
                let record = record_of(kept, headers);
                // Without a time, it is now.
                let timestamp = record.timestamp.filter(|_| kept.timestamp != now);
                Record { timestamp, ..record }
            })
            .collect();
        let end = self.log.end();
        let outcome = match self.random.below(4) {
            0 => self.partition.append(&records),
            1 => self.partition.write(&records, None),
            2 => self.partition.append_at(&records, end),
            _ => {
                let wrong = self.random.below(end + 10);
                let outcome = self.partition.append_at(&records, wrong);
                if wrong != end {
                    let told = matches!(outcome, Err(Error::EndConflict { expected, actual })
                        if expected == wrong && actual == end);
                    assert!(told, "{story}: {outcome:?}");
                    return "conflicts";
                }
                outcome
            }
        };
        self.appended(outcome.unwrap_or_else(|error| panic!("{story}: {error}")), planned, story);
        "appends"
    }

    fn appended(&mut self, appended: Appended, planned: Vec<Kept>, story: &str) {
        let base = self.log.end();
        self.log.push(planned);
        let fits = appended.base_offset == base && appended.end == self.log.end();
        assert!(fits && !appended.duplicate, "{story}: {appended:?}, base {base}");
    }

    /// A prepared batch: of no producer, the next one of a producer, a repeat, a gap, an old epoch.
    fn produce(&mut self, story: &str) -> &'static str {
        let codec = self.random.pick(&[Codec::None, Codec::Lz4, Codec::Zstd]);
        let id = self.random.below(4);
        if id == 0 {
            let planned = self.plan();
            let batch = self.batch(&planned, codec, (0, 0, 0));
            let appended = self.partition.append_batch(&batch).expect(story);
            self.appended(appended, planned, story);
            return "batches";
        }
        let producer = self.log.producers.entry(id).or_default();
        let (epoch, next) = (producer.epoch, producer.next_sequence);
        match self.random.below(10) {
            0 if next > 0 => self.repeat(id, codec, story),
            1 if next > 0 => {
                let planned = self.plan();
                let batch = self.batch(&planned, codec, (id, epoch, next + 3));
                let outcome = self.partition.append_batch(&batch);
                let told = matches!(outcome, Err(Error::SequenceGap { expected, .. })
                    if expected == next);
                assert!(told, "{story}: {outcome:?}");
                "gaps"
            }
            2 if epoch > 0 && next > 0 => {
                let planned = self.plan();
                let batch = self.batch(&planned, codec, (id, epoch - 1, next));
                let outcome = self.partition.append_batch(&batch);
                assert!(matches!(outcome, Err(Error::ProducerFenced { .. })), "{outcome:?}");
                "fenced"
            }
            new => {
                if new == 3 {
                    let producer = self.log.producers.entry(id).or_default();
                    *producer = Producer { epoch: epoch + 1, ..Producer::default() };
                }
                self.produce_next(id, codec, story)
            }
        }
    }

    fn produce_next(&mut self, id: u64, codec: Codec, story: &str) -> &'static str {
        let planned = self.plan();
        let (epoch, sequence) = {
            let producer = &self.log.producers[&id];
            (producer.epoch, producer.next_sequence)
        };
        let batch = self.batch(&planned, codec, (id, epoch, sequence));
        let appended = self.partition.append_batch(&batch).expect(story);
        let base = self.log.end();
        self.appended(appended, planned.clone(), story);
        let producer = self.log.producers.get_mut(&id).expect("it is there");
        producer.next_sequence += u32::try_from(planned.len()).expect("small");
        producer.sent.push((sequence, planned, base));
        "producers' batches"
    }

    fn repeat(&mut self, id: u64, codec: Codec, story: &str) -> &'static str {
        let producer = &self.log.producers[&id];
        let last: Vec<_> = producer.sent.iter().rev().take(5).collect();
        let at = usize::try_from(self.random.below(last.len() as u64)).expect("an index");
        let (sequence, planned, base) = last[at].clone();
        let batch = self.batch(&planned, codec, (id, producer.epoch, sequence));
        let appended = self.partition.append_batch(&batch).expect(story);
        assert!(appended.duplicate && appended.base_offset == base, "{story}: {appended:?}");
        "repeats"
    }

    fn batch(&self, planned: &[Kept], codec: Codec, producer: (u64, u16, u32)) -> Vec<u8> {
        let (id, epoch, sequence) = producer;
        let mut builder = BatchBuilder::new(codec).with_producer(id, epoch, sequence);
        for kept in planned {
            let headers = headers_of(kept);
            builder.push(&record_of(kept, &headers), self.bench.clock.now()).expect("fits");
        }
        builder.finish().expect("records")
    }

    /// An offset that may be there, or not.
    fn some_offset(&mut self) -> u64 {
        let (start, end) = (self.log.log_start, self.log.end());
        if self.random.percent(5) {
            self.random.below(end + 3)
        } else {
            self.random.between(start, end)
        }
    }

    fn read(&mut self, story: &str) -> &'static str {
        let from = self.some_offset();
        let most = self.random.pick(&[0, 1, 500, 5_000, 100_000]);
        let (readable_end, outcome) =
            (self.partition.readable_end(), self.partition.read(from, most));
        if from < self.log.log_start || from > self.log.end() {
            assert!(matches!(outcome, Err(Error::OffsetOutOfRange { .. })), "{story}: {outcome:?}");
            return "reads out of range";
        }
        let fetched = outcome.unwrap_or_else(|error| panic!("{story}: {error}"));
        if from >= readable_end {
            assert!(fetched.is_empty() && fetched.next == from, "{story}: {fetched:?}");
            return "reads at the end";
        }
        let batches = fetched.batches().count();
        assert!(fetched.bytes.len() <= most || batches == 1, "{story}: over the budget of {most}");
        let whole = self.log.batch_ends.binary_search(&fetched.next).is_ok();
        let on = fetched.next > from && fetched.next <= readable_end;
        assert!(whole && on, "{story}: reads on at {}", fetched.next);
        let mut expected = from;
        let walked = fetched.for_each(|record| {
            assert_eq!(record.offset, expected, "{story}");
            assert_eq!(&kept(&record), self.log.at(expected), "{story}: at {expected}");
            expected += 1;
        });
        walked.unwrap_or_else(|error| panic!("{story}: {error}"));
        assert_eq!(expected, fetched.next, "{story}");
        "reads"
    }

    fn visit(&mut self, story: &str) -> &'static str {
        let offset = self.some_offset();
        let outcome = self.partition.visit(offset, |record| kept(&record));
        if offset < self.log.log_start {
            assert!(matches!(outcome, Err(Error::OffsetOutOfRange { .. })), "{story}: {outcome:?}");
            return "visits out of range";
        }
        let there = offset < self.partition.readable_end();
        let expected = there.then(|| self.log.at(offset));
        assert_eq!(outcome.expect(story).as_ref(), expected, "{story}: at {offset}");
        "visits"
    }

    fn by_time(&mut self, story: &str) -> &'static str {
        let now = self.bench.clock.now().as_millis();
        let ago = i64::try_from(self.random.below(60_000)).expect("small");
        let time = now + 2_000 - ago;
        let found = self.partition.offset_for_time(Timestamp::from_millis(time));
        let expected = self.log.first_since(time, self.partition.readable_end());
        assert_eq!(found.expect(story), expected, "{story}: since {time}, now {now}");
        "reads by time"
    }

    fn resolve(&mut self, story: &str) -> &'static str {
        let resolve = |start| self.partition.resolve(start).expect(story);
        let readable_end = self.partition.readable_end();
        assert_eq!(resolve(StartFrom::Earliest), self.log.log_start, "{story}");
        assert_eq!(resolve(StartFrom::Latest), readable_end, "{story}");
        let late = StartFrom::Time(Timestamp::from_millis(i64::MAX));
        assert_eq!(resolve(late), readable_end, "{story}");
        let past = self.partition.resolve(StartFrom::Offset(self.log.end() + 1));
        assert!(matches!(past, Err(Error::OffsetOutOfRange { .. })), "{story}: {past:?}");
        "starts"
    }

    fn trim(&mut self, story: &str) -> &'static str {
        let readable_end = self.partition.readable_end();
        if self.random.percent(10) {
            let outcome = self.partition.trim(readable_end + 1);
            assert!(matches!(outcome, Err(Error::OffsetOutOfRange { .. })), "{story}: {outcome:?}");
            return "trims past the end";
        }
        let to = self.random.between(self.log.log_start, readable_end);
        let removed = self.partition.trim(to).expect(story);
        self.log.log_start = self.log.log_start.max(to);
        for segment in removed {
            assert!(segment.offsets.end <= to, "{story}: {segment:?} is gone at {to}");
        }
        "trims"
    }

    fn maintain(&mut self, story: &str) -> &'static str {
        let millis = self.random.pick(&[1, 50, 500, 2_000, 31_000]);
        self.bench.clock.advance(Duration::from_millis(millis));
        let maintained = self.partition.maintain().expect(story);
        let log_start = self.partition.ends().log_start;
        let retention = self.bench.config.retention;
        if log_start > self.log.log_start {
            assert!(retention != RetentionPolicy::default(), "{story}: {maintained:?}");
            assert!(self.log.batch_ends.binary_search(&log_start).is_ok(), "{story}");
            let left = self.partition.used_bytes();
            // A segment without records goes with the one before it.
            let enough = retention.max_bytes.is_some_and(|most| left + 20_000 >= most);
            assert!(enough || retention.max_age.is_some(), "{story}: only {left} bytes are left");
            self.log.log_start = log_start;
        }
        "maintenance"
    }

    fn sync(&mut self, story: &str) -> &'static str {
        self.partition.sync().expect(story);
        assert_eq!(self.partition.ends().durable_end, self.log.end(), "{story}");
        "syncs"
    }

    fn alter(&mut self) -> &'static str {
        let config = &mut self.bench.config;
        config.flush = self.random.pick(&POLICIES);
        let max_bytes = self.random.pick(&[None, Some(100_000), Some(300_000)]);
        let max_age = self.random.pick(&[None, None, Some(Duration::from_secs(60))]);
        config.retention = RetentionPolicy { max_age, max_bytes };
        config.segment_max_bytes = self.random.pick(&[SEGMENT_BYTES, 90_000, 130_000]);
        config.segment_max_age = self.random.pick(&[None, Some(Duration::from_secs(20))]);
        config.strict = self.random.percent(50);
        self.partition.alter(config.clone());
        "alterations"
    }

    fn reopen(&mut self, story: &str) -> &'static str {
        let close = self.random.percent(50);
        if close {
            self.partition.close().expect(story);
        }
        self.bench = self.bench.next(self.bench.disk.kill());
        self.partition = self.bench.open().expect(story);
        let report = self.partition.recovery_report();
        assert!(report.damage.is_empty() && report.skipped.is_empty(), "{story}: {report:?}");
        assert!(report.cut.is_none() && (report.clean || !close), "{story}: {report:?}");
        if self.random.percent(20) {
            self.read_all(story);
        }
        if close { "closes" } else { "kills" }
    }

    fn read_all(&self, story: &str) {
        let (mut from, readable_end) = (self.log.log_start, self.partition.readable_end());
        while from < readable_end {
            let fetched = self.partition.read(from, 50_000).expect(story);
            let walked = fetched.for_each(|record| {
                assert_eq!(record.offset, from, "{story}");
                assert_eq!(&kept(&record), self.log.at(from), "{story}: at {from}");
                from += 1;
            });
            walked.unwrap_or_else(|error| panic!("{story}: {error}"));
            assert_eq!(from, fetched.next, "{story}");
        }
        let check = self.partition.check(|_| {}).expect(story);
        assert!(check.is_sound(), "{story}: {check:?}");
    }
}

fn headers_of(kept: &Kept) -> Vec<Header<'_>> {
    kept.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
}

fn record_of<'a>(kept: &'a Kept, headers: &'a [Header<'a>]) -> Record<'a> {
    Record {
        key: kept.key.as_deref(),
        value: kept.value.as_deref(),
        headers,
        timestamp: Some(Timestamp::from_millis(kept.timestamp)),
    }
}

fn kept(record: &RecordView<'_>) -> Kept {
    Kept {
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec)))
            .collect(),
        timestamp: record.timestamp.as_millis(),
    }
}
