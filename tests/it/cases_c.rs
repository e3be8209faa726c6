//! Cases of area C: retention, trim, and what may go on beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log_core::background::Background;
use log_core::clock::{ManualClock, SystemClock, Timestamp};
use log_core::config::{FlushPolicy, RetentionPolicy, StoreConfig, TopicConfig};
use log_core::disk::{Call, Failure, FaultyDisk};
use log_core::error::Error;
use log_core::offset::StartFrom;
use log_core::partition::Partition;
use log_core::record::Record;
use log_core::store::{OpenMode, Store};

use crate::support::Bench;
use crate::support::log::{append, assert_holds, value};
use crate::support::stores::{DATA, create_store, name, open_store, open_store_at, small};

const MINUTE: Duration = Duration::from_secs(60);

fn settled(bench: &Bench) {
    while bench.background.run_pending() > 0 {}
}

/// Ages are counted from when a record was appended, whatever it says of itself.
#[test]
fn c01_records_from_the_past_and_the_future_expire_as_all_others() {
    let far = [10 * 365 * 86_400_000, 0, i64::MIN, i64::MAX];
    for time in far {
        let mut bench = Bench::new(FlushPolicy::Sync);
        bench.config.retention.max_age = Some(MINUTE);
        let partition = bench.open().expect("opens");
        append(&partition, 0..10, 10_000);
        let strange = Record::new(b"x").with_timestamp(Timestamp::from_millis(time));
        partition.append(&[strange]).expect("appended");
        append(&partition, 11..35, 10_000);
        settled(&bench);
        assert!(partition.segments().len() >= 5);
        assert_eq!(partition.maintain().expect("retention works").removed, []);
        // A step at a time: the clock may jump, ages do not.
        let mut removed = Vec::new();
        for _ in 0..10 {
            bench.clock.advance(MINUTE);
            removed.extend(partition.maintain().expect("retention works").removed);
        }
        let ends: Vec<_> = removed.iter().map(|segment| segment.offsets.end).collect();
        assert!(ends.is_sorted() && removed.len() >= 4, "{time}: {removed:?}");
        assert_eq!(partition.segments().len(), 1);
        assert_holds(&partition, *ends.last().unwrap()..35);
    }
}

#[test]
fn c02_a_second_pass_removes_nothing() {
    let mut bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    append(&partition, 0..60, 10_000);
    settled(&bench);
    bench.clock.advance(MINUTE);
    append(&partition, 60..90, 10_000);
    settled(&bench);
    partition.close().expect("closes");
    bench.config.retention =
        RetentionPolicy { max_age: Some(MINUTE / 2), max_bytes: Some(400_000) };
    let partition = bench.open().expect("opens");
    partition.trim(7).expect("trimmed");
    let first = partition.maintain().expect("retention works").removed;
    assert!(!first.is_empty());
    let ends = partition.ends();
    for _ in 0..3 {
        assert_eq!(partition.maintain().expect("retention works").removed, []);
        assert_eq!(partition.ends(), ends);
    }
    let bench = bench.next(bench.disk.kill());
    let partition = bench.open().expect("opens");
    assert_eq!(partition.maintain().expect("retention works").removed, []);
    assert_eq!(partition.ends().log_start, ends.log_start);
}

#[test]
fn c03_rolls_without_traffic_make_no_files_and_retention_stops_at_batches() {
    let mut bench = Bench::new(FlushPolicy::Sync);
    bench.config.segment_max_age = Some(MINUTE);
    let partition = bench.open().expect("opens");
    append(&partition, 0..5, 100);
    for _ in 0..4 {
        bench.clock.advance(MINUTE * 2);
        partition.maintain().expect("nothing fails");
        settled(&bench);
    }
    assert_eq!(partition.segments().len(), 2, "closed for its age once, then nothing was in it");
    let values: Vec<_> = (5..15).map(|offset| value(offset, 100)).collect();
    let records: Vec<_> = values.iter().map(|value| Record::new(value)).collect();
    assert_eq!(partition.append(&records).expect("appended").base_offset, 5);
    partition.trim(5).expect("trimmed");
    assert_holds(&partition, 5..15);
    partition.trim(9).expect("trimmed");
    assert_holds(&partition, 9..15);
    let bench = bench.next(bench.disk.kill());
    let partition = bench.open().expect("opens");
    assert_holds(&partition, 9..15);
    append(&partition, 15..16, 100);
}

/// Appends, rolls, retention, trims, checks and a deletion at once, for a while.
#[test]
fn c04_retention_and_checks_beside_appends_lose_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let store = Store::open(home.path(), StoreConfig::default(), OpenMode::CreateIfMissing);
    let store = store.expect("a store");
    let config = TopicConfig {
        retention: RetentionPolicy { max_age: None, max_bytes: Some(300_000) },
        ..small(FlushPolicy::Os)
    };
    let topic = store.create_topic(&name("kept"), 1, config.clone()).expect("made");
    let doomed = store.create_topic(&name("doomed"), 1, config).expect("made");
    let partition = topic.partition(0).expect("there");
    let stop = AtomicBool::new(false);
    let running = || !stop.load(Ordering::Relaxed);
    let appended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while running() {
                drop(store.maintain());
            }
        });
        scope.spawn(|| {
            while running() {
                let to = partition.ends().durable_end.saturating_sub(20);
                partition.trim(to).expect("trimmed");
            }
        });
        scope.spawn(|| {
            while running() {
                // What retention removes meanwhile is missing, and not damaged.
                drop(partition.check(|_| ()));
                drop(partition.offset_for_time(Timestamp::from_millis(0)));
            }
        });
        scope.spawn(|| {
            let partition = doomed.partition(0).expect("there");
            let mut appended = 0;
            loop {
                match partition.append(&[Record::new(&value(appended, 9_000))]) {
                    Ok(_) if appended == 40 => store.delete_topic(&name("doomed")).expect("gone"),
                    Ok(_) => {}
                    Err(error) => {
                        assert!(matches!(error, Error::Closed { .. }), "{error}");
                        return;
                    }
                }
                appended += 1;
            }
        });
        for offset in 0..400 {
            append(&partition, offset..offset + 1, 9_000);
        }
        stop.store(true, Ordering::Relaxed);
        partition.ends().end
    });
    assert_eq!(appended, 400);
    let ends = partition.ends();
    assert_holds(&partition, ends.log_start..400);
    store.close().expect("closes");
    let store = Store::open(home.path(), StoreConfig::default(), OpenMode::MustExist);
    let topic = store.as_ref().expect("opens").topic(&name("kept")).expect("kept");
    assert_holds(&topic.partition(0).expect("there"), ends.log_start..400);
    assert!(store.expect("opens").topic(&name("doomed")).is_err());
}

#[test]
fn c05_a_partition_whose_files_stay_keeps_no_other_from_being_cleaned() {
    let disk = FaultyDisk::new();
    let clock = Arc::new(ManualClock::default());
    let open = |mode| open_store_at(&disk, mode, Arc::clone(&clock) as _).expect("a store");
    let store = open(OpenMode::CreateIfMissing);
    let retention = RetentionPolicy { max_age: None, max_bytes: Some(70_000) };
    let config = TopicConfig { retention, ..small(FlushPolicy::Sync) };
    let topic = store.create_topic(&name("t"), 20, config).expect("made");
    let partitions: Vec<Partition> = topic.partitions().into_iter().flatten().collect();
    for partition in &partitions {
        append(partition, 0..20, 10_000);
    }
    // The first file that is to go stays.
    disk.fail_calls(Call::RemoveFile, disk.calls_of(Call::RemoveFile), 1, Failure::Io);
    let failures = |store: &Store| {
        let all = store.maintain().into_iter();
        let failed = all.filter(|done| done.outcome.is_err());
        failed.map(|done| (done.topic.to_string(), done.partition)).collect::<Vec<_>>()
    };
    let counted = store.metrics().maintenance_failures.value();
    assert_eq!(failures(&store), [("t".to_owned(), 0)]);
    let cleaned = |partition: &Partition| partition.segments().len() <= 2;
    assert_eq!(partitions.iter().filter(|partition| cleaned(partition)).count(), 19);
    assert!(store.metrics().maintenance_failures.value() > counted, "it is counted");
    assert_eq!(failures(&store), []);
    assert!(partitions.iter().all(cleaned), "it is tried again");
    drop((store, topic, partitions));
    let store = open_store(&disk, OpenMode::MustExist).expect("opens");
    assert!(store.reports().iter().all(|report| report.outcome.is_ok()));
}

#[test]
fn c06_a_start_in_the_middle_of_a_batch_hides_what_is_below() {
    let disk = FaultyDisk::new();
    let store = create_store(&disk);
    let topic = store.create_topic(&name("t"), 1, small(FlushPolicy::Sync)).expect("made");
    let partition = topic.partition(0).expect("there");
    for first in (0..60).step_by(10) {
        let values: Vec<_> = (first..first + 10).map(|offset| value(offset, 2_000)).collect();
        let records: Vec<_> = values.iter().map(|value| Record::new(value)).collect();
        partition.append(&records).expect("appended");
    }
    assert!(partition.segments().len() > 1);
    for start in [13, 20, 37, 59, 60] {
        partition.trim(start).expect("trimmed");
        let clock = Arc::new(SystemClock::new());
        let again = disk.kill();
        let (config, background) = (StoreConfig::default(), Background::manual());
        let store =
            Store::open_with(DATA, config, OpenMode::MustExist, Arc::new(again), clock, background);
        let topic = store.expect("opens").topic(&name("t")).expect("there");
        for partition in [&partition, &topic.partition(0).expect("there")] {
            assert_holds(partition, start..60);
            assert_eq!(partition.resolve(StartFrom::Earliest).expect("there"), start);
            let old = partition.offset_for_time(Timestamp::MIN).expect("readable");
            assert_eq!(old, (start < 60).then_some(start));
            let below = partition.read(start - 1, 1_000).map(drop);
            assert!(matches!(below, Err(Error::OffsetOutOfRange { .. })), "{below:?}");
            let below = partition.visit(start - 1, |_| ());
            assert!(matches!(below, Err(Error::OffsetOutOfRange { .. })), "{below:?}");
        }
    }
}
