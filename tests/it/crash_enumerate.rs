//! A short fixed script, with the power off at every call to the disk in turn, and with every call
//! failing in turn: nothing promised is lost, errors have types, and what goes away heals.
//!
//! `LOG_CRASH_STATES`, if set, has more seeds looked at.

use std::env;
use std::time::Duration;

use log_core::clock::Clock;
use log_core::config::FlushPolicy;
use log_core::disk::{Call, CrashMode, Disk, Failure, FaultyDisk};
use log_core::error::{Error, Result as LogResult};
use log_core::partition::Partition;
use log_core::record::{BatchBuilder, Codec, Record};

use crate::support::oracle::{Batch, Oracle, Planned, Stop};
use crate::support::{Bench, POLICIES, tell};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Appends records of these lengths, and waits as the policy says.
    Append(&'static [usize]),
    /// Appends without waiting.
    Write(usize),
    /// Appends a producer's batch.
    Produce(u64),
    Sync,
    /// Gives the background its turn.
    Pending,
    /// Gives up all but the last of what can be read.
    Trim,
    /// Time passes, and the partition is maintained.
    Rest(u64),
    Close,
    Kill,
}

const SCRIPT: [Step; 26] = [
    Step::Append(&[100]),
    Step::Write(300),
    Step::Write(5_000),
    Step::Sync,
    Step::Produce(4),
    Step::Append(&[20_000, 20_000]),
    Step::Rest(300),
    // A roll.
    Step::Append(&[30_000, 100]),
    Step::Write(50),
    Step::Pending,
    Step::Close,
    Step::Append(&[200, 10]),
    Step::Write(60_000),
    Step::Trim,
    Step::Pending,
    Step::Rest(40_000),
    Step::Write(700),
    Step::Kill,
    Step::Append(&[64]),
    Step::Produce(4),
    Step::Write(40_000),
    Step::Write(30_000),
    Step::Pending,
    Step::Rest(1_500),
    Step::Append(&[10]),
    Step::Close,
];

/// A run of the script.
struct Life {
    bench: Bench,
    partition: Option<Partition>,
    oracle: Oracle,
    /// Errors that were met.
    met: Vec<Error>,
}

impl Life {
    fn new(flush: FlushPolicy, stores: bool) -> Life {
        let bench = Bench::new(flush);
        bench.disk.set_can_store_into_maps(stores);
        let mut oracle = Oracle::default();
        oracle.policy_is(flush);
        Life { bench, partition: None, oracle, met: Vec::new() }
    }

    /// Runs the script; with `stop`, only up to the first error.
    fn run(&mut self, stop: bool) {
        for step in SCRIPT {
            if let Err(error) = self.step(step) {
                self.met.push(error);
                if stop {
                    return;
                }
            }
            if let Some(partition) = &self.partition {
                self.oracle.observe(partition).unwrap_or_else(|why| panic!("{step:?}: {why}"));
            }
        }
    }

    fn partition(&mut self) -> LogResult<Partition> {
        if self.partition.is_none() {
            let partition = self.bench.open()?;
            let ends = partition.ends();
            assert!(ends.end >= self.oracle.end(), "{ends:?}, {:?}", partition.recovery_report());
            // What was written, and told as failed, may be there after a restart.
            if ends.end > self.oracle.end() {
                let batch = self.oracle.in_flight.take().expect("a batch with an unknown outcome");
                self.oracle.push(&batch, self.bench.clock.monotonic());
            }
            self.oracle.tried_start = self.oracle.tried_start.max(self.oracle.told_start);
            self.partition = Some(partition);
        }
        Ok(self.partition.clone().expect("it was just opened"))
    }

    fn step(&mut self, step: Step) -> LogResult<()> {
        let partition = self.partition()?;
        match step {
            Step::Append(lens) => self.append(&partition, lens, true),
            Step::Write(len) => self.append(&partition, &[len], false),
            Step::Produce(producer) => self.produce(&partition, producer),
            Step::Sync => {
                partition.sync()?;
                self.oracle.floor = self.oracle.end();
                Ok(())
            }
            Step::Pending => {
                self.bench.background.run_pending();
                Ok(())
            }
            Step::Trim => {
                let to = partition.readable_end().saturating_sub(1).max(self.oracle.told_start);
                self.oracle.tried_start = to;
                partition.trim(to)?;
                self.oracle.told_start = to;
                Ok(())
            }
            Step::Rest(millis) => {
                self.bench.clock.advance(Duration::from_millis(millis));
                partition.maintain().map(|_| ())
            }
            Step::Close => {
                let outcome = partition.close();
                if outcome.is_ok() {
                    self.oracle.floor = self.oracle.end();
                }
                self.partition = None;
                outcome
            }
            Step::Kill => {
                // The next process is on the same disk, so that calls are counted on.
                self.partition = None;
                Ok(())
            }
        }
    }

    fn append(&mut self, partition: &Partition, lens: &[usize], wait: bool) -> LogResult<()> {
        let records: Vec<Planned> = lens.iter().map(|len| self.oracle.plan(*len)).collect();
        let values: Vec<_> = records.iter().map(|record| (record.value(), record.key())).collect();
        let stored: Vec<_> = values
            .iter()
            .map(|(value, key)| Record { key: key.as_deref(), ..Record::new(value) })
            .collect();
        let outcome = if wait { partition.append(&stored) } else { partition.write(&stored, None) };
        let waited = wait && self.bench.config.flush == FlushPolicy::Sync;
        self.appended(partition, Batch { records, producer: None }, outcome.map(|_| waited))
    }

    fn produce(&mut self, partition: &Partition, producer: u64) -> LogResult<()> {
        let sequence = self.oracle.next_sequence(producer);
        let record = self.oracle.plan(90);
        let mut builder = BatchBuilder::new(Codec::None).with_producer(producer, 0, sequence);
        let (value, key) = (record.value(), record.key());
        let stored = Record { key: key.as_deref(), ..Record::new(&value) };
        builder.push(&stored, self.bench.clock.now()).expect("fits");
        let outcome = partition.append_batch(&builder.finish().expect("a record"));
        let waited = self.bench.config.flush == FlushPolicy::Sync;
        let batch = Batch { records: vec![record], producer: Some((producer, sequence)) };
        self.appended(partition, batch, outcome.map(|_| waited))
    }

    fn appended(
        &mut self,
        partition: &Partition,
        batch: Batch,
        outcome: LogResult<bool>,
    ) -> LogResult<()> {
        let written = partition.ends().end > self.oracle.end();
        assert!(written || outcome.is_err());
        if written {
            self.oracle.in_flight = None;
            self.oracle.push(&batch, self.bench.clock.monotonic());
            if matches!(outcome, Ok(true)) {
                self.oracle.floor = self.oracle.end();
            }
        } else if self.oracle.in_flight.is_none() {
            self.oracle.in_flight = Some(batch);
        }
        outcome.map(|_| ())
    }

    /// Opens what a stop has left, and judges it; appends go on there.
    fn judge(&self, disk: FaultyDisk, stop: Stop, story: &str) {
        let bench = self.bench.next(disk);
        let partition = bench.open().unwrap_or_else(|error| panic!("{story}: {error}"));
        let mut oracle = self.oracle.clone();
        oracle.tried_start = oracle.tried_start.max(oracle.told_start);
        oracle
            .judge(&partition, stop, bench.config.flush)
            .unwrap_or_else(|why| panic!("{story}: {why}\n{:?}", partition.recovery_report()));
        let appended = partition.append(&[Record::new(b"goes on")]);
        let appended = appended.unwrap_or_else(|error| panic!("{story}: {error}"));
        assert_eq!(appended.base_offset, oracle.end(), "{story}");
    }
}

/// Whether all combinations are wanted, and not one of them in turn.
fn thorough() -> bool {
    env::var("LOG_CRASH_STATES").is_ok()
}

/// The call numbers of a run without faults, on a disk that has made the partition.
fn calls_of_script(flush: FlushPolicy, stores: bool) -> (u64, u64) {
    let mut life = Life::new(flush, stores);
    let first = life.bench.disk.calls();
    life.run(true);
    assert!(life.met.is_empty(), "{:?}", life.met);
    (first, life.bench.disk.calls())
}

#[test]
fn the_power_may_go_off_at_every_call() {
    let (all, seeds) = if thorough() { (true, 12) } else { (false, 1) };
    let modes = [
        CrashMode::LoseAll,
        CrashMode::KeepAll,
        CrashMode::LoseData,
        CrashMode::LoseSizes,
        CrashMode::LoseNames,
    ];
    let mut states = 0;
    for flush in POLICIES {
        for stores in [false, true] {
            if !all && stores == (flush == FlushPolicy::Sync) {
                continue;
            }
            let (first, end) = calls_of_script(flush, stores);
            for off_at in first..=end {
                let mut life = Life::new(flush, stores);
                life.bench.disk.power_off_at(off_at);
                life.run(true);
                let random = (0..seeds).map(|seed| (seed + off_at * 100, CrashMode::Random));
                let turn = usize::try_from(off_at).expect("small") % modes.len();
                let modes = if all { &modes[..] } else { &modes[turn..=turn] };
                for (seed, mode) in random.chain(modes.iter().map(|mode| (0, *mode))) {
                    let story = format!("{flush:?}, {stores}, off at {off_at}, {mode:?} {seed}");
                    life.judge(life.bench.disk.crash(seed, mode), Stop::PowerCut, &story);
                    states += 1;
                }
            }
        }
    }
    tell(&format!("crash enumeration: power off at every call, {states} crash states"));
}

#[test]
fn the_power_may_go_off_while_a_partition_is_made() {
    for off_at in 0..40 {
        let made = |disk: FaultyDisk| {
            let bench = Bench::new(FlushPolicy::Sync);
            bench.next(disk)
        };
        let bench = made(FaultyDisk::new());
        bench.disk.power_off_at(off_at);
        let outcome = bench.create();
        for (seed, mode) in
            [(1, CrashMode::Random), (2, CrashMode::Random), (0, CrashMode::LoseAll)]
        {
            let found = bench.next(bench.disk.crash(seed, mode));
            if outcome.is_ok() {
                let partition = found.open().expect("it was made");
                assert!(partition.recovery_report().clean, "{:?}", partition.recovery_report());
                partition.append(&[Record::new(b"first")]).expect("appended");
            } else if let Ok(partition) = found.open() {
                // Nobody was told that it is there: it is empty, or says that something is wrong.
                assert_eq!(partition.ends().end, 0, "off at {off_at}");
            }
        }
    }
}

const FAILURES: [Failure; 4] = [
    Failure::Io,
    Failure::DiskFull,
    Failure::ShortWrite { bytes: 60 },
    Failure::ShortWrite { bytes: usize::MAX },
];

/// Errors of a disk that fails are told as what they are.
fn assert_typed(life: &Life, story: &str) {
    for error in &life.met {
        let typed =
            matches!(error, Error::Io { .. } | Error::DiskFull { .. } | Error::SyncFailed { .. });
        assert!(typed, "{story}: {error:?}");
    }
}

/// What is left after a disk has failed: as it is, without what was not durable, and without what
/// the page cache alone has.
fn judge_what_is_left(life: &Life, story: &str) {
    let disk = &life.bench.disk;
    life.judge(disk.kill(), Stop::Kill, &format!("{story}, killed"));
    life.judge(disk.crash(0, CrashMode::LoseAll), Stop::PowerCut, &format!("{story}, lost"));
    let dropped = disk.kill();
    dropped.drop_page_cache();
    life.judge(dropped, Stop::PowerCut, &format!("{story}, cache dropped"));
}

#[test]
fn every_call_may_fail_once() {
    let mut failed = 0;
    for flush in POLICIES {
        let stores = flush != FlushPolicy::Sync;
        let (first, end) = calls_of_script(flush, stores);
        for number in first..end {
            let turn = usize::try_from(number).expect("small") % FAILURES.len();
            let failures = if thorough() { &FAILURES[..] } else { &FAILURES[turn..=turn] };
            for failure in failures.iter().copied() {
                let story = format!("{flush:?}: call {number} fails with {failure:?}");
                let mut life = Life::new(flush, stores);
                life.bench.disk.fail_at(number, failure);
                life.run(false);
                assert_typed(&life, &story);
                judge_what_is_left(&life, &story);
                failed += 1;
            }
        }
    }
    tell(&format!("crash enumeration: {failed} calls failed once"));
}

#[test]
fn calls_may_fail_for_good_and_heal() {
    let kinds = [
        (Call::Write, Failure::DiskFull),
        (Call::Write, Failure::Io),
        (Call::Allocate, Failure::DiskFull),
        (Call::Rename, Failure::Io),
        (Call::Open, Failure::DiskFull),
        (Call::Map, Failure::Io),
        (Call::Read, Failure::Io),
        (Call::RemoveFile, Failure::Io),
        (Call::Sync, Failure::Io),
        (Call::Sync, Failure::DiskFull),
        (Call::SyncDir, Failure::Io),
    ];
    let mut failed = 0;
    for flush in POLICIES {
        let mut clean = Life::new(flush, true);
        let begun: Vec<_> =
            kinds.iter().map(|(kind, _)| clean.bench.disk.calls_of(*kind)).collect();
        clean.run(true);
        for ((kind, failure), begun) in kinds.into_iter().zip(begun) {
            let step = if thorough() { 1 } else { 2 };
            for number in (begun..clean.bench.disk.calls_of(kind)).step_by(step) {
                let story = format!("{flush:?}: from {kind:?} {number} on: {failure:?}");
                let mut life = Life::new(flush, true);
                life.bench.disk.fail_calls(kind, number, u64::MAX, failure);
                life.run(false);
                assert_typed(&life, &story);
                life.bench.disk.stop_failing();
                heals(&mut life, &story);
                judge_what_is_left(&life, &story);
                failed += 1;
            }
        }
    }
    tell(&format!("crash enumeration: {failed} calls failed for good, then healed"));
}

/// Once the disk is well again, appends go on without a restart, unless a sync has failed.
fn heals(life: &mut Life, story: &str) {
    let partition = life.partition().unwrap_or_else(|error| panic!("{story}: {error}"));
    let latched = matches!(partition.refusal(), Some(Error::SyncFailed { .. }));
    let outcome = life.step(Step::Append(&[77]));
    match outcome {
        Ok(()) => assert!(!latched, "{story}: appended in spite of a failed sync"),
        Err(Error::SyncFailed { .. }) => assert!(latched, "{story}"),
        Err(error) => panic!("{story}: it does not heal: {error}"),
    }
}

#[test]
fn a_failed_sync_latches_one_partition_and_promises_nothing() {
    for flush in POLICIES {
        let mut life = Life::new(flush, true);
        life.step(Step::Append(&[100, 200])).expect("no faults");
        life.step(Step::Sync).expect("no faults");
        let other = other_partition(&life.bench);
        life.step(Step::Write(300)).expect("written");
        let disk = life.bench.disk.clone();
        disk.fail_calls(Call::Sync, disk.calls_of(Call::Sync), 1, Failure::Io);
        let partition = life.partition().expect("open");
        let failed = partition.sync();
        assert!(matches!(failed, Err(Error::SyncFailed { .. })), "{failed:?}");
        for refused in [
            life.step(Step::Append(&[10])),
            life.step(Step::Write(10)),
            life.step(Step::Produce(3)),
            life.step(Step::Sync),
            life.step(Step::Trim),
            partition.wait_durable(3),
        ] {
            assert!(matches!(refused, Err(Error::SyncFailed { .. })), "{flush:?}: {refused:?}");
        }
        assert_eq!(partition.ends().durable_end, 2, "{flush:?}");
        let seen = partition.visit(1, |record| record.value.map(<[u8]>::len));
        assert_eq!(seen.expect("readable"), Some(Some(200)));
        other.append(&[Record::new(b"fine")]).expect("the other one goes on");
        other.sync().expect("the other one goes on");
        assert!(partition.close().is_err() || flush == FlushPolicy::Os, "{flush:?}");
        judge_what_is_left(&life, &format!("{flush:?}: a failed sync"));
        // What is served as durable after a restart is on the platter.
        let next = life.bench.next(disk.kill());
        let partition = next.open().expect("opens");
        let durable_end = partition.ends().durable_end;
        next.disk.drop_page_cache();
        let after = next.next(next.disk.crash(0, CrashMode::LoseAll));
        let partition = after.open().expect("opens");
        assert!(partition.ends().end >= durable_end, "{flush:?}: {durable_end} was a lie");
    }
}

fn other_partition(bench: &Bench) -> Partition {
    use log_core::partition::{Access, PartitionId};
    let (dir, id) = (std::path::Path::new("/q"), crate::support::id());
    let id = PartitionId { partition: id.partition + 1, ..id };
    Partition::create(&bench.context, dir, id.clone()).expect("made");
    bench.disk.sync_dir(std::path::Path::new("/")).expect("synced");
    Partition::open(&bench.context, dir, id, bench.config.clone(), Access::ReadWrite)
        .expect("opens")
}
