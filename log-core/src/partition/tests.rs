//! Tests of a partition as a whole, on the simulated disk.

mod large;
mod unblocked;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::{ManualClock, Timestamp};
use crate::disk::{CrashMode, FaultyDisk, OsDisk};
use crate::record::Record;
use crate::segment::SealedMaps;

const DIR: &str = "p";

struct Bench {
    disk: FaultyDisk,
    clock: Arc<ManualClock>,
    context: PartitionContext,
    config: TopicConfig,
}

fn id() -> PartitionId {
    PartitionId { topic_id: 7, topic: "orders".into(), partition: 3 }
}

impl Bench {
    fn new(flush: FlushPolicy) -> Bench {
        let disk = FaultyDisk::default();
        let bench = Bench::on(disk, flush);
        Partition::create(&bench.context, Path::new(DIR), id()).unwrap();
        bench.disk.sync_dir(Path::new("")).unwrap();
        bench
    }

    fn on(disk: FaultyDisk, flush: FlushPolicy) -> Bench {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
        let metrics = Arc::new(Metrics::default());
        let context = PartitionContext {
            disk: Arc::new(disk.clone()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            background: Background::manual(),
            maps: SealedMaps::new(8, Arc::clone(&metrics)),
            metrics,
            linger: Duration::ZERO,
        };
        let config = TopicConfig { flush, segment_max_bytes: 64 * 1024, ..TopicConfig::default() };
        Bench { disk, clock, context, config }
    }

    fn open(&self) -> Partition {
        self.open_as(Access::ReadWrite)
    }

    fn open_as(&self, access: Access) -> Partition {
        Partition::open(&self.context, Path::new(DIR), id(), self.config.clone(), access).unwrap()
    }

    fn after(self, disk: FaultyDisk) -> Bench {
        Bench::on(disk, self.config.flush)
    }
}

/// A bench whose partition is in a real directory.
fn on_disk(segment_max_bytes: u64) -> (tempfile::TempDir, Bench) {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::on(FaultyDisk::default(), FlushPolicy::Sync);
    bench.context.disk = Arc::new(OsDisk);
    bench.config.segment_max_bytes = segment_max_bytes;
    Partition::create(&bench.context, &dir.path().join("p"), id()).unwrap();
    (dir, bench)
}

fn open_in(bench: &Bench, dir: &Path) -> Partition {
    let config = bench.config.clone();
    Partition::open(&bench.context, &dir.join("p"), id(), config, Access::ReadWrite).unwrap()
}

fn append(partition: &Partition, values: std::ops::Range<u64>) {
    for value in values {
        let text = format!("value {value}");
        let appended = partition.append(&[Record::new(text.as_bytes())]).unwrap();
        assert_eq!(appended.base_offset, value);
    }
}

fn values(partition: &Partition) -> Vec<(u64, String)> {
    let (mut from, mut found) = (partition.ends().log_start, Vec::new());
    loop {
        let fetched = partition.read(from, 10_000).unwrap();
        if fetched.is_empty() {
            return found;
        }
        fetched
            .for_each(|record| {
                let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                found.push((record.offset, text));
            })
            .unwrap();
        from = fetched.next;
    }
}

fn expected(range: std::ops::Range<u64>) -> Vec<(u64, String)> {
    range.map(|value| (value, format!("value {value}"))).collect()
}

const POLICIES: [FlushPolicy; 3] = [
    FlushPolicy::Sync,
    FlushPolicy::Os,
    FlushPolicy::Interval { every: Duration::from_secs(1), bytes: 1 << 20 },
];

#[test]
fn what_is_appended_is_read_and_survives_a_clean_stop() {
    for flush in POLICIES {
        let bench = Bench::new(flush);
        let partition = bench.open();
        append(&partition, 0..10);
        assert_eq!(values(&partition), expected(0..10));
        partition.close().unwrap();
        assert!(matches!(partition.append(&[Record::new(b"x")]), Err(Error::Closed { .. })));
        let partition = bench.open();
        let report = partition.recovery_report();
        assert!(report.clean && report.end == 10 && report.durable_end == 10, "{report:?}");
        append(&partition, 10..15);
        partition.close().unwrap();
        let disk = bench.disk.kill();
        let bench = bench.after(disk);
        let partition = bench.open();
        assert!(partition.recovery_report().clean);
        assert_eq!(values(&partition), expected(0..15));
        assert_eq!(partition.segments().len(), 1);
    }
}

#[test]
fn a_killed_process_loses_nothing_and_a_new_epoch_begins() {
    for flush in POLICIES {
        let mut bench = Bench::new(flush);
        for round in 0..4 {
            let partition = bench.open();
            assert_eq!(values(&partition), expected(0..round * 7), "{flush:?}");
            append(&partition, round * 7..round * 7 + 7);
            let disk = bench.disk.kill();
            bench = bench.after(disk);
        }
        let partition = bench.open();
        let report = partition.recovery_report();
        assert!(!report.clean && report.damage.is_empty() && report.cut.is_none(), "{report:?}");
        assert_eq!(partition.segments().len(), 4);
    }
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged_as_synced() {
    for seed in 0..200 {
        let bench = Bench::new(FlushPolicy::Sync);
        let partition = bench.open();
        append(&partition, 0..20);
        for value in 20..25 {
            let text = format!("value {value}");
            partition.write(&[Record::new(text.as_bytes())], None).unwrap();
        }
        let bench = bench.after_crash(seed);
        let partition = bench.open();
        let report = partition.recovery_report();
        assert!(report.damage.is_empty() && !report.end_unproven, "{seed}: {report:?}");
        let end = partition.ends().end;
        assert!((20..=25).contains(&end), "{seed}: {report:?}");
        assert_eq!(values(&partition), expected(0..end), "{seed}");
        append(&partition, end..end + 3);
        let bench = bench.after_crash(seed + 1);
        assert_eq!(values(&bench.open()), expected(0..end + 3));
    }
}

impl Bench {
    fn after_crash(self, seed: u64) -> Bench {
        let disk = self.disk.crash(seed, CrashMode::Random);
        self.after(disk)
    }
}

#[test]
fn segments_roll_are_sealed_and_go_with_retention() {
    for flush in POLICIES {
        let bench = Bench::new(flush);
        let partition = bench.open();
        let value = vec![7_u8; 5_000];
        for _ in 0..100 {
            partition.append(&[Record::new(&value)]).unwrap();
            bench.context.background.run_pending();
        }
        let count = partition.segments().len();
        assert!(count > 8, "{flush:?}: {count}");
        assert_eq!(partition.ends().end, 100);
        let removed = partition.trim(50).unwrap();
        assert!(!removed.is_empty());
        assert!(matches!(partition.read(49, 1), Err(Error::OffsetOutOfRange { .. })));
        let mut from = 50;
        while from < 100 {
            from = partition.read(from, 20_000).unwrap().next;
        }
        let bench = bench.after_crash(1);
        let partition = bench.open();
        assert_eq!(partition.ends().log_start, 50);
        let report = partition.recovery_report();
        assert!(report.damage.is_empty(), "{report:?}");
        let _ = bench.clock;
    }
}

/// A callback for new records, and how often it was called.
fn call_when_readable(partition: &Partition, from: u64) -> Arc<AtomicU32> {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    partition.when_readable(from, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    calls
}

#[test]
fn who_waits_for_records_is_called_once_when_they_can_be_read() {
    for flush in POLICIES {
        let bench = Bench::new(flush);
        let partition = bench.open();
        append(&partition, 0..1);
        let (there, next, later) = (
            call_when_readable(&partition, 0),
            call_when_readable(&partition, 1),
            call_when_readable(&partition, 2),
        );
        let counts = || [&there, &next, &later].map(|calls| calls.load(Ordering::SeqCst));
        assert_eq!(counts(), [1, 0, 0], "{flush:?}: what is there already is told at once");
        partition.write(&[Record::new(b"value 1")], None).unwrap();
        // Under `Sync`, what is only written can't be read.
        let written = if flush == FlushPolicy::Sync { [1, 0, 0] } else { [1, 1, 0] };
        assert_eq!(counts(), written, "{flush:?}");
        partition.wait_durable(2).unwrap();
        bench.context.background.run_pending();
        assert_eq!(counts(), [1, 1, 0], "{flush:?}");
        append(&partition, 2..4);
        bench.context.background.run_pending();
        assert_eq!(counts(), [1, 1, 1], "{flush:?}: once, however much comes");
    }
}

#[test]
fn who_waits_for_records_is_let_go_when_the_partition_closes() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open();
    append(&partition, 0..1);
    assert!(partition.wait_readable(0, Duration::ZERO));
    assert!(!partition.wait_readable(1, Duration::ZERO), "nothing is there yet");
    let calls = call_when_readable(&partition, 1);
    let waiting = {
        let partition = partition.clone();
        std::thread::spawn(move || partition.wait_readable(1, Duration::from_secs(600)))
    };
    partition.close().unwrap();
    assert!(!waiting.join().unwrap(), "closed is not readable");
    bench.context.background.run_pending();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let calls = call_when_readable(&partition, 1);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "closed already");
    assert!(!partition.wait_readable(0, Duration::from_secs(600)));
    // A long poll that asks again and again ends with this.
    assert_eq!(partition.read(0, 1_024).unwrap().next, 1);
    assert!(matches!(partition.read(1, 1_024), Err(Error::Closed { .. })));
}

#[test]
fn who_waits_for_records_no_more_is_not_called() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = bench.open();
    let calls = Arc::new(AtomicU32::new(0));
    let wait = |from| {
        let counted = Arc::clone(&calls);
        partition.when_readable(from, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    };
    let (forgotten, called) = (wait(0).unwrap(), wait(0).unwrap());
    assert!(partition.forget_readable(forgotten));
    append(&partition, 0..1);
    bench.context.background.run_pending();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(!partition.forget_readable(called) && !partition.forget_readable(forgotten));
    assert_eq!(wait(0), None, "there is nothing to forget");
}

#[test]
fn a_thread_that_waits_for_records_wakes_with_the_next_one() {
    for flush in POLICIES {
        let bench = Bench::new(flush);
        let partition = bench.open();
        let waiting = {
            let partition = partition.clone();
            std::thread::spawn(move || partition.wait_readable(0, Duration::from_secs(600)))
        };
        append(&partition, 0..1);
        bench.context.background.run_pending();
        assert!(waiting.join().unwrap(), "{flush:?}");
    }
}

/// A look-up in two steps let retention move the list of segments in between: the read found
/// itself one segment further on, and stepped over records that were kept.
#[test]
fn a_read_that_races_retention_steps_over_nothing() {
    let mut bench = Bench::new(FlushPolicy::Os);
    bench.context.background = Background::threads(2);
    let partition = bench.open();
    let value = vec![7_u8; 20_000];
    let last = 400_u64;
    std::thread::scope(|scope| {
        let trimmer = partition.clone();
        scope.spawn(move || {
            for _ in 0..last {
                trimmer.append(&[Record::new(&value)]).unwrap();
                let end = trimmer.ends().end;
                trimmer.trim(end.saturating_sub(4)).unwrap();
            }
        });
        while partition.ends().end < last {
            let from = partition.ends().end.saturating_sub(4);
            let mut first = None;
            let fetched = match partition.read(from, 1) {
                Ok(fetched) => fetched,
                Err(Error::OffsetOutOfRange { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            fetched.for_each(|record| first = first.or(Some(record.offset))).unwrap();
            assert!(first.is_none_or(|first| first == from), "{from}: {first:?}");
        }
    });
    bench.context.background.close();
}

/// A roll by age failed for want of space, and kept the retention that would have given space from
/// being tried at all.
#[test]
fn retention_goes_on_while_a_full_disk_keeps_a_segment_from_rolling() {
    let mut bench = Bench::new(FlushPolicy::Sync);
    bench.config.segment_max_age = Some(Duration::from_secs(60));
    let partition = bench.open();
    let value = vec![7_u8; 20_000];
    for _ in 0..12 {
        partition.append(&[Record::new(&value)]).unwrap();
        bench.context.background.run_pending();
    }
    let retention = crate::config::RetentionPolicy { max_age: None, max_bytes: Some(70_000) };
    partition.alter(TopicConfig { retention, ..bench.config.clone() });
    bench.clock.advance(Duration::from_secs(600));
    bench.disk.set_capacity(Some(bench.disk.used()));
    let before = partition.used_bytes();
    // Whether the roll finds space depends on what retention has given back before it.
    let _ = partition.maintain();
    assert!(partition.used_bytes() < before && partition.ends().log_start > 0);
    partition.append(&[Record::new(&value)]).unwrap();
}

#[test]
fn a_time_is_found_behind_a_segment_that_is_lost() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open();
    let at = |offset: u64| Timestamp::from_millis(offset.cast_signed() * 10);
    while partition.segments().len() < 3 {
        let offset = partition.ends().end;
        partition.append(&[Record::new(&[0; 1_000]).with_timestamp(at(offset))]).unwrap();
        bench.context.background.run_pending();
    }
    let end = partition.ends().end;
    let lost = partition.segments()[1].clone();
    partition.close().unwrap();
    bench.disk.remove_file(&lost.path).unwrap();

    let partition = bench.open();
    let Err(Error::Corrupt(found)) = partition.offset_for_time(at(end - 1)) else {
        panic!("it may lie in what is lost");
    };
    assert_eq!(found.offsets, lost.offsets);
    let next = found.offsets.end;
    assert_eq!(partition.offset_for_time_from(at(end - 1), next).unwrap(), Some(end - 1));
    assert_eq!(partition.offset_for_time_from(at(0), next).unwrap(), Some(next));
    assert_eq!(partition.offset_for_time_from(at(end), next).unwrap(), None);
    // What lies before it is found as ever, and never before where one looks.
    assert_eq!(partition.offset_for_time(at(3)).unwrap(), Some(3));
    assert_eq!(partition.offset_for_time_from(at(3), 5).unwrap(), Some(5));
    assert_eq!(partition.offset_for_time_from(at(3), end).unwrap(), None);
    let past = partition.offset_for_time_from(at(3), end + 1);
    assert!(matches!(past, Err(Error::OffsetOutOfRange { .. })), "{past:?}");
}
