//! Crash model: random work on a disk that lies, power cuts anywhere, and an oracle outside.
//!
//! `LOG_CRASH_STATES` says how many states of a crashed disk are looked at, `LOG_SEED` replays one.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use log_core::config::{FlushPolicy, RetentionPolicy};
use log_core::disk::{CrashMode, FaultyDisk};
use log_core::error::Result as LogResult;
use log_core::partition::{Appended, Partition};
use log_core::record::{BatchBuilder, Codec, Record};

use crate::support::oracle::{Batch, Oracle, Planned, Stop};
use crate::support::{Bench, POLICIES, Random, SEGMENT_BYTES, replayed_seed, setting, tell};

const MODES: [CrashMode; 9] = [
    CrashMode::Random,
    CrashMode::Random,
    CrashMode::Random,
    CrashMode::Random,
    CrashMode::LoseAll,
    CrashMode::KeepAll,
    CrashMode::LoseData,
    CrashMode::LoseSizes,
    CrashMode::LoseNames,
];

/// What was looked at.
#[derive(Default)]
struct Counts {
    states: u64,
    by_policy: [u64; 3],
    stops: u64,
    in_recovery: u64,
    cuts: u64,
    hidden: u64,
    rolls: u64,
    removed: u64,
    duplicates: u64,
}

/// A partition, the disk it is on, and what is known of it from outside.
struct World {
    bench: Bench,
    partition: Partition,
    oracle: Oracle,
    random: Random,
    /// From this call on the power is off.
    off_at: Option<u64>,
    /// What was done, for the report of a failure.
    story: Vec<String>,
}

#[test]
fn crash_states_lose_nothing_promised_and_revive_nothing() {
    let mut counts = Counts::default();
    if let Some(seed) = replayed_seed() {
        run(seed, &mut counts);
        return;
    }
    let wanted = setting("LOG_CRASH_STATES", 2_000);
    let mut seed = 0;
    while counts.states < wanted {
        run(seed, &mut counts);
        seed += 1;
    }
    let Counts { states, by_policy: [sync, os, interval], stops, in_recovery, .. } = counts;
    let Counts { cuts, hidden, rolls, removed, duplicates, .. } = counts;
    tell(&format!(
        "crash model: {seed} seeds, {states} crash states ({sync} Sync, {os} Os, {interval} \
         Interval), {stops} other stops, {in_recovery} crashes in recovery; {cuts} cut logs, \
         {hidden} files hidden, {rolls} segments, {removed} removed, {duplicates} duplicates"
    ));
}

fn run(seed: u64, counts: &mut Counts) {
    let mut world = World::new(seed);
    // A panic of the engine is told with the story, too.
    let lived = panic::catch_unwind(AssertUnwindSafe(|| world.live_and_die(counts)));
    let outcome = lived.unwrap_or_else(|_| Err("the engine panicked (see above)".into()));
    if let Err(why) = outcome {
        let story = world.story.join("\n  ");
        panic!("{why}\nLOG_SEED={seed} replays it:\n  {story}");
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let flush = random.pick(&POLICIES);
        let bench = Bench::new(flush);
        bench.disk.set_can_store_into_maps(!random.percent(20));
        let partition = bench.open().expect("a disk without faults");
        let mut oracle = Oracle::default();
        oracle.policy_is(flush);
        let story = vec![format!("created, {flush:?}")];
        World { bench, partition, oracle, random, off_at: None, story }
    }

    fn flush(&self) -> FlushPolicy {
        self.bench.config.flush
    }

    fn live_and_die(&mut self, counts: &mut Counts) -> Result<(), String> {
        for _ in 0..self.random.between(2, 6) {
            self.live(counts)?;
            counts.rolls += self.partition.segments().len() as u64;
            match self.random.below(10) {
                0..2 if self.off_at.is_none() => self.close(counts)?,
                2..4 if self.off_at.is_none() => self.end(Stop::Kill, counts)?,
                _ => self.end(Stop::PowerCut, counts)?,
            }
        }
        Ok(())
    }

    fn live(&mut self, counts: &mut Counts) -> Result<(), String> {
        self.off_at = None;
        if self.random.percent(50) {
            let at = self.bench.disk.calls() + self.random.below(60);
            self.bench.disk.power_off_at(at);
            self.off_at = Some(at);
            self.story.push(format!("the power goes off at call {at}"));
        }
        for _ in 0..self.random.between(1, 40) {
            self.step(counts)?;
            self.oracle.observe(&self.partition)?;
            if self.is_off() {
                break;
            }
        }
        Ok(())
    }

    fn is_off(&self) -> bool {
        self.off_at.is_some_and(|at| self.bench.disk.calls() > at)
    }

    fn step(&mut self, counts: &mut Counts) -> Result<(), String> {
        match self.random.below(100) {
            0..35 => self.append(false),
            35..45 => self.append(true),
            45..60 => self.append_prepared(),
            60..65 => self.append_again(counts),
            65..68 => self.sync(),
            68..72 => self.wait(),
            72..78 => self.trim(counts),
            78..86 => self.maintain(counts),
            86..96 => {
                self.story.push("run_pending".into());
                self.bench.background.run_pending();
                Ok(())
            }
            _ => self.alter(),
        }
    }

    /// What an error means: nothing, if the power is off.
    fn fine<T>(&self, outcome: LogResult<T>) -> Result<Option<T>, String> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.is_off() => Ok(None),
            Err(error) => Err(format!("an error without a fault: {error}")),
        }
    }

    fn plan_batch(&mut self) -> Batch {
        let count = if self.random.percent(70) { 1 } else { self.random.between(2, 6) };
        let mut records = Vec::new();
        for _ in 0..count {
            let len = match self.random.below(100) {
                0..70 => self.random.between(8, 400),
                70..97 => self.random.between(400, 6_000),
                97..99 => self.random.between(6_000, 30_000),
                _ => self.random.between(50_000, 70_000),
            };
            records.push(self.oracle.plan(usize::try_from(len).expect("small")));
        }
        Batch { records, producer: None }
    }

    fn append(&mut self, wait: bool) -> Result<(), String> {
        let batch = self.plan_batch();
        let (values, keys) = bytes_of(&batch.records);
        let records: Vec<Record<'_>> = values
            .iter()
            .zip(&keys)
            .map(|(value, key)| Record { key: key.as_deref(), ..Record::new(value) })
            .collect();
        self.story.push(format!("append {} at {}, wait: {wait}", told(&batch), self.oracle.end()));
        let outcome = if wait {
            self.partition.append(&records)
        } else {
            self.partition.write(&records, None)
        };
        self.appended(&batch, outcome, wait)
    }

    fn append_prepared(&mut self) -> Result<(), String> {
        let mut batch = self.plan_batch();
        let producer = self.random.between(1, 3);
        let sequence = self.oracle.next_sequence(producer);
        batch.producer = Some((producer, sequence));
        let codec = self.random.pick(&[Codec::None, Codec::None, Codec::Lz4, Codec::Zstd]);
        let bytes = self.prepared(&batch, codec);
        let wait = self.random.percent(50);
        let at = self.oracle.end();
        self.story.push(format!("batch {} of {producer} at {at}, wait: {wait}", told(&batch)));
        let outcome = if wait {
            self.partition.append_batch(&bytes)
        } else {
            self.partition.write_batch(&bytes, None)
        };
        self.appended(&batch, outcome, wait)
    }

    fn prepared(&self, batch: &Batch, codec: Codec) -> Vec<u8> {
        use log_core::clock::Clock;
        let (producer, sequence) = batch.producer.expect("a producer's batch");
        let mut builder = BatchBuilder::new(codec).with_producer(producer, 0, sequence);
        let (values, keys) = bytes_of(&batch.records);
        for (value, key) in values.iter().zip(&keys) {
            let record = Record { key: key.as_deref(), ..Record::new(value) };
            builder.push(&record, self.bench.clock.now()).expect("within limits");
        }
        builder.finish().expect("there are records")
    }

    fn appended(
        &mut self,
        batch: &Batch,
        outcome: LogResult<Appended>,
        waited: bool,
    ) -> Result<(), String> {
        use log_core::clock::Clock;
        let base = self.oracle.end();
        let count = batch.records.len() as u64;
        self.oracle.in_flight = None;
        let now = self.bench.clock.monotonic();
        match self.fine(outcome)? {
            Some(appended) => {
                let fits = appended.base_offset == base && appended.end == base + count;
                if !fits || appended.duplicate {
                    return Err(format!("{appended:?} of {count} records at {base}"));
                }
                self.oracle.push(batch, now);
                if waited && self.flush() == FlushPolicy::Sync {
                    self.oracle.floor = appended.end;
                }
            }
            None if self.partition.ends().end > base => self.oracle.push(batch, now),
            None => self.oracle.in_flight = Some(batch.clone()),
        }
        Ok(())
    }

    /// A batch that was appended before comes again: it is answered, not appended.
    fn append_again(&mut self, counts: &mut Counts) -> Result<(), String> {
        let producer = self.random.between(1, 3);
        let remembered = self.oracle.remembered(producer).to_vec();
        if remembered.is_empty() {
            return Ok(());
        }
        let sent = self.random.pick(&remembered);
        let records = self.oracle.records_of(sent);
        let batch = Batch { records, producer: Some((producer, sent.sequence)) };
        let bytes = self.prepared(&batch, Codec::None);
        self.story.push(format!("again {sent:?}"));
        let outcome = self.partition.append_batch(&bytes);
        let Some(appended) = self.fine(outcome)? else { return Ok(()) };
        if !appended.duplicate || appended.base_offset != sent.base {
            return Err(format!("{appended:?} for a repeat of {sent:?}"));
        }
        if self.flush() == FlushPolicy::Sync {
            self.oracle.floor = self.oracle.floor.max(appended.end);
        }
        counts.duplicates += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.story.push("sync".into());
        let outcome = self.partition.sync();
        if self.fine(outcome)?.is_some() {
            self.oracle.floor = self.oracle.end();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), String> {
        let end = self.random.between(self.oracle.told_start, self.oracle.end());
        self.story.push(format!("wait_durable {end}"));
        let outcome = self.partition.wait_durable(end);
        if self.fine(outcome)?.is_some() {
            self.oracle.floor = self.oracle.floor.max(end);
        }
        Ok(())
    }

    fn trim(&mut self, counts: &mut Counts) -> Result<(), String> {
        let to = self.random.between(self.oracle.told_start, self.partition.readable_end());
        self.story.push(format!("trim {to}"));
        self.oracle.tried_start = self.oracle.tried_start.max(to);
        let outcome = self.partition.trim(to);
        if let Some(removed) = self.fine(outcome)? {
            self.oracle.told_start = self.oracle.told_start.max(to);
            counts.removed += removed.len() as u64;
        }
        Ok(())
    }

    fn maintain(&mut self, counts: &mut Counts) -> Result<(), String> {
        use log_core::clock::{Clock, Timestamp};
        let millis = self.random.pick(&[1, 20, 120, 300, 1_500, 40_000]);
        self.bench.clock.advance(Duration::from_millis(millis));
        if self.random.percent(10) {
            let back = self.bench.clock.now().as_millis() - 5_000;
            self.bench.clock.set_wall(Timestamp::from_millis(back));
        }
        self.story.push(format!("{millis} ms later: maintain"));
        // Retention may go as far as there are segments.
        self.oracle.tried_start = self.oracle.end();
        let outcome = self.partition.maintain();
        if let Some(maintained) = self.fine(outcome)? {
            counts.removed += maintained.removed.len() as u64;
        }
        Ok(())
    }

    fn alter(&mut self) -> Result<(), String> {
        let config = &mut self.bench.config;
        if self.random.percent(40) {
            config.flush = self.random.pick(&POLICIES);
        }
        let most = self.random.pick(&[None, Some(100_000), Some(150_000)]);
        let age = self.random.pick(&[None, None, Some(Duration::from_secs(30))]);
        config.retention = RetentionPolicy { max_age: age, max_bytes: most };
        config.segment_max_bytes = self.random.pick(&[SEGMENT_BYTES, 90_000]);
        config.segment_max_age = self.random.pick(&[None, Some(Duration::from_secs(20))]);
        self.story.push(format!(
            "alter to {:?}, {:?}, segments of {} and {:?}",
            config.flush, config.retention, config.segment_max_bytes, config.segment_max_age
        ));
        self.partition.alter(config.clone());
        self.oracle.policy_is(config.flush);
        Ok(())
    }

    fn close(&mut self, counts: &mut Counts) -> Result<(), String> {
        self.story.push("close".into());
        let outcome = self.partition.close();
        self.fine(outcome)?;
        self.oracle.floor = self.oracle.end();
        self.end(Stop::Close, counts)
    }

    /// The process ends; what it leaves is looked at in several ways, and one of them goes on.
    fn end(&mut self, stop: Stop, counts: &mut Counts) -> Result<(), String> {
        let variants = if stop == Stop::PowerCut { 4 } else { 1 };
        let mut left = None;
        for _ in 0..variants {
            let found = if stop == Stop::PowerCut {
                self.crash(&self.bench.disk.clone(), counts)
            } else {
                counts.stops += 1;
                self.story.push(format!("{stop:?}"));
                self.bench.disk.kill()
            };
            left = Some(self.recover(found, stop, counts)?);
        }
        if let Some((bench, partition, oracle)) = left {
            (self.bench, self.partition, self.oracle) = (bench, partition, oracle);
        }
        Ok(())
    }

    fn crash(&mut self, disk: &FaultyDisk, counts: &mut Counts) -> FaultyDisk {
        let (seed, mode) = (self.random.next(), self.random.pick(&MODES));
        self.story.push(format!("power cut: {mode:?} {seed}"));
        counts.states += 1;
        let policy = POLICIES.iter().position(|flush| *flush == self.flush());
        counts.by_policy[policy.expect("one of them")] += 1;
        disk.crash(seed, mode)
    }

    /// Opens what was found, perhaps after crashes while doing so, and judges it.
    fn recover(
        &mut self,
        found: FaultyDisk,
        mut stop: Stop,
        counts: &mut Counts,
    ) -> Result<(Bench, Partition, Oracle), String> {
        let mut oracle = self.oracle.clone();
        let mut bench = self.bench.next(found);
        while self.random.percent(25) {
            let at = self.random.below(40);
            bench.disk.power_off_at(at);
            self.story.push(format!("open, the power goes off at call {at}"));
            if let Ok(partition) = bench.open() {
                oracle.floor = oracle.floor.max(partition.ends().durable_end);
                oracle.told_start = oracle.told_start.max(partition.ends().log_start);
            }
            counts.in_recovery += 1;
            let found = self.crash(&bench.disk, counts);
            bench = bench.next(found);
            stop = Stop::PowerCut;
        }
        self.story.push("open".into());
        let partition = bench.open().map_err(|error| format!("open: {error}"))?;
        let report = partition.recovery_report();
        counts.cuts += u64::from(report.cut.is_some());
        counts.hidden += report.hidden.len() as u64;
        oracle.judge(&partition, stop, bench.config.flush)?;
        self.check_durable_end(&bench, &oracle, counts)?;
        Ok((bench, partition, oracle))
    }

    /// What the partition says is durable is there if everything else goes.
    fn check_durable_end(
        &self,
        bench: &Bench,
        oracle: &Oracle,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let after = bench.next(bench.disk.crash(0, CrashMode::LoseAll));
        counts.states += 1;
        let partition = after.open().map_err(|error| format!("open after LoseAll: {error}"))?;
        let mut oracle = oracle.clone();
        let judged = oracle.judge(&partition, Stop::PowerCut, after.config.flush);
        judged.map_err(|why| format!("if all that was not durable is lost: {why}"))
    }
}

fn bytes_of(records: &[Planned]) -> (Vec<Vec<u8>>, Vec<Option<Vec<u8>>>) {
    records.iter().map(|record| (record.value(), record.key())).unzip()
}

fn told(batch: &Batch) -> String {
    let lens: Vec<_> = batch.records.iter().map(|record| record.len).collect();
    let first = batch.records.first().map_or(0, |record| record.number);
    format!("{lens:?} from number {first}, producer {:?}", batch.producer)
}
