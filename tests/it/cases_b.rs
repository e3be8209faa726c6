//! Cases of area B: indexes, and looking up by time.

use std::path::PathBuf;
use std::time::Duration;

use log_core::clock::{Clock, Timestamp};
use log_core::config::{FlushPolicy, RetentionPolicy, TopicConfig};
use log_core::disk::FaultyDisk;
use log_core::error::Error;
use log_core::offset::StartFrom;
use log_core::partition::Partition;
use log_core::record::{Header, Record};

use crate::support::Bench;
use crate::support::log::{append, assert_holds, offsets, replace, value};

fn indexes(bench: &Bench) -> Vec<PathBuf> {
    bench.files(".index")
}

fn filled(records: u64, len: usize) -> (Bench, Partition) {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    append(&partition, 0..records, len);
    while bench.background.run_pending() > 0 {}
    (bench, partition)
}

/// Appends a record that happened then.
fn at(partition: &Partition, millis: i64) -> u64 {
    let record = Record::new(b"x").with_timestamp(Timestamp::from_millis(millis));
    partition.append(&[record]).expect("appended").base_offset
}

fn first_since(partition: &Partition, millis: i64) -> Option<u64> {
    partition.offset_for_time(Timestamp::from_millis(millis)).expect("it can be read")
}

/// The field that says where the segment ends, and the number of entries, each with a checksum
/// that is right.
#[test]
fn b01_an_index_that_tells_another_end_is_not_followed() {
    let (bench, partition) = filled(150, 1_000);
    partition.close().expect("closes");
    let path = indexes(&bench).swap_remove(0);
    let good = bench.disk.read(&path);
    for field in [16..20, 20..24] {
        let before = u32::from_le_bytes(good[field.clone()].try_into().unwrap());
        for wrong in [before + 1, before - 1, before + 1_000, 0, u32::MAX] {
            let mut bytes = good.clone();
            bytes[field.clone()].copy_from_slice(&wrong.to_le_bytes());
            let crc = crc32fast::hash(&bytes[..48]);
            bytes[48..52].copy_from_slice(&crc.to_le_bytes());
            let bench = bench.next(bench.disk.kill());
            replace(&bench.disk, &path, &bytes);
            let partition = bench.open().expect("opens");
            assert_holds(&partition, 0..150);
            for offset in 0..150 {
                let found = partition.visit(offset, |record| record.offset).expect("readable");
                assert_eq!(found, Some(offset));
            }
        }
    }
}

#[test]
fn b02_going_on_with_a_segment_doubles_nothing_in_its_index() {
    let (bench, partition) = filled(30, 1_000);
    partition.close().expect("closes");
    let checkpoint = || bench.files("/checkpoint").iter().map(|it| bench.disk.read(it).len()).sum();
    let before: usize = checkpoint();
    for round in 0..10 {
        let partition = bench.open().expect("opens");
        assert!(partition.recovery_report().clean);
        append(&partition, 30 + round..31 + round, 1_000);
        partition.close().expect("closes");
        let partition = bench.open().expect("opens");
        assert!(partition.check(|_| ()).expect("readable").is_sound());
        assert_holds(&partition, 0..31 + round);
    }
    // An entry of 16 bytes for about 4 KiB: ten records of 1 kB, and twenty markers.
    assert!(checkpoint() - before <= 6 * 16, "{} after {before}", checkpoint());
    let partition = bench.open().expect("opens");
    append(&partition, 40..70, 1_000);
    while bench.background.run_pending() > 0 {}
    assert!(!indexes(&bench).is_empty());
    assert!(partition.check(|_| ()).expect("readable").is_sound(), "sealed, with its index");
}

#[test]
fn b03_without_what_is_derived_every_byte_is_the_same() {
    const MIB: usize = 1024 * 1024;
    let disk = FaultyDisk::new();
    disk.set_file_capacity(5 * MIB as u64);
    let config = TopicConfig {
        segment_max_bytes: 4 * MIB as u64,
        record_max_bytes: 2 * 1024 * 1024,
        ..TopicConfig::default()
    };
    let bench = Bench::on(disk, Bench::new(FlushPolicy::Sync).clock, config);
    bench.create().expect("made");
    let partition = bench.open().expect("opens");
    let sizes = [1 << 10, 64 << 10, MIB - 1, MIB];
    let all = || (0_u64..).zip(sizes.repeat(2)).map(|(number, len)| (number, value(number, len)));
    for (number, value) in all() {
        let name = format!("name-{number}");
        let headers =
            [Header { name: &name, value: Some(&value[..9]) }, Header { name: "", value: None }];
        let key = number.to_le_bytes();
        let record = Record::new(&value).with_key(&key).with_headers(&headers);
        partition.append(&[record]).expect("appended");
    }
    while bench.background.run_pending() > 0 {}
    partition.close().expect("closes");
    for without in [false, true] {
        let bench = bench.next(bench.disk.kill());
        for path in [indexes(&bench), bench.files("/checkpoint")].concat() {
            if without {
                bench.disk.remove_raw(&path);
            }
        }
        let partition = bench.open().expect("opens");
        for (number, value) in all() {
            let same = partition.visit(number, |record| {
                let mut headers = record.headers;
                let first = headers.next().expect("a header");
                let second = headers.next().expect("a header");
                record.key == Some(&number.to_le_bytes())
                    && record.value == Some(&value)
                    && (first.name, first.value) == (&format!("name-{number}"), Some(&value[..9]))
                    && (second.name, second.value) == ("", None)
            });
            assert_eq!(same.expect("readable"), Some(true), "{number}");
        }
    }
}

#[test]
fn b04_a_checkpoint_from_before_retention_changes_nothing() {
    let (mut bench, partition) = filled(100, 1_000);
    bench.config.retention =
        RetentionPolicy { max_age: Some(Duration::from_secs(60)), max_bytes: Some(200_000) };
    partition.close().expect("closes");
    let path = bench.files("/checkpoint").swap_remove(0);
    let old = bench.disk.read(&path);
    let partition = bench.open().expect("opens");
    for round in 1..20 {
        append(&partition, round * 100..(round + 1) * 100, 1_000);
        while bench.background.run_pending() > 0 {}
        bench.clock.advance(Duration::from_secs(5));
        partition.maintain().expect("retention works");
    }
    let ends = partition.ends();
    assert!(ends.log_start > 1_000 && ends.end == 2_000, "{ends:?}");
    let mut found = Vec::new();
    for checkpoint in [Some(old), None] {
        let bench = bench.next(bench.disk.kill());
        match checkpoint {
            Some(bytes) => replace(&bench.disk, &path, &bytes),
            None => indexes(&bench).iter().for_each(|path| bench.disk.remove_raw(path)),
        }
        let partition = bench.open().expect("opens");
        assert_holds(&partition, ends.log_start..2_000);
        found.push((partition.ends(), partition.used_bytes()));
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn b05_the_first_record_at_or_after_a_time_is_found() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    assert_eq!(first_since(&partition, 0), None);
    for (offset, time) in (0..).zip([2, 4, 6, 8]) {
        assert_eq!(at(&partition, time), offset);
    }
    let expected = [0, 0, 0, 1, 1, 2, 2, 3, 3];
    for (time, offset) in (0..).zip(expected) {
        assert_eq!(first_since(&partition, time), Some(offset), "{time}");
    }
    assert_eq!((first_since(&partition, 9), first_since(&partition, i64::MAX)), (None, None));
    assert_eq!(first_since(&partition, i64::MIN), Some(0));
    // The same time in two segments: the first one.
    for _ in 0..90 {
        let value = [0; 1_000];
        let record = Record::new(&value).with_timestamp(Timestamp::from_millis(10));
        partition.append(&[record]).expect("appended");
    }
    assert!(partition.segments().len() > 1);
    assert_eq!((first_since(&partition, 9), first_since(&partition, 10)), (Some(4), Some(4)));
    assert_eq!(first_since(&partition, 11), None);
    let later = Timestamp::from_millis(11);
    assert_eq!(partition.resolve(StartFrom::Time(later)).expect("readable"), 94);
}

#[test]
fn b06_a_log_from_which_everything_has_expired_answers_all_questions() {
    let (mut bench, partition) = filled(100, 1_000);
    drop(partition);
    bench.config.segment_max_age = Some(Duration::from_secs(1));
    bench.config.retention.max_age = Some(Duration::from_secs(10));
    bench = bench.next(bench.disk.kill());
    let partition = bench.open().expect("opens");
    for _ in 0..20 {
        bench.clock.advance(Duration::from_secs(30));
        while bench.background.run_pending() > 0 {}
        partition.maintain().expect("retention works");
    }
    append(&partition, 100..101, 1_000);
    for _ in 0..5 {
        bench.clock.advance(Duration::from_secs(30));
        while bench.background.run_pending() > 0 {}
        partition.maintain().expect("retention works");
    }
    let next = bench.next(bench.disk.kill());
    for partition in [partition, next.open().expect("opens")] {
        let ends = partition.ends();
        assert_eq!((ends.log_start, ends.end), (101, 101));
        assert!(partition.read(101, 1_000).expect("the end").is_empty());
        for wrong in [0, 100, 102] {
            let refused = partition.read(wrong, 1_000).map(drop);
            let told =
                matches!(refused, Err(Error::OffsetOutOfRange { log_start: 101, end: 101, .. }));
            assert!(told, "{wrong}: {refused:?}");
        }
        assert_eq!(first_since(&partition, 0), None);
        for start in [StartFrom::Earliest, StartFrom::Latest, StartFrom::Time(Timestamp::MIN)] {
            assert_eq!(partition.resolve(start).expect("the end"), 101);
        }
    }
}

#[test]
fn b07_two_hundred_segments_without_indexes_are_served() {
    let bench = Bench::new(FlushPolicy::Os);
    bench.disk.set_file_capacity(70 * 1024);
    let partition = bench.open().expect("opens");
    let start = bench.clock.now().as_millis();
    for offset in 0..400 {
        append(&partition, offset..offset + 1, 25_000);
        bench.clock.advance(Duration::from_millis(10));
        while bench.background.run_pending() > 0 {}
    }
    partition.close().expect("closes");
    let bench = bench.next(bench.disk.kill());
    for path in indexes(&bench) {
        bench.disk.remove_raw(&path);
    }
    let partition = bench.open().expect("opens");
    let report = partition.recovery_report();
    assert!(partition.segments().len() >= 200 && report.clean);
    assert!(report.walked_bytes < 100_000, "opening builds none: {}", report.walked_bytes);
    for offset in (0_u32..400).step_by(7) {
        let time = start + i64::from(offset) * 10;
        assert_eq!(first_since(&partition, time), Some(u64::from(offset)));
    }
    assert_eq!(offsets(&partition).0.len(), 400);
    let bytes: usize = indexes(&bench).iter().map(|path| bench.disk.read(path).len()).sum();
    assert!(bytes < 200 * 200, "indexes are as large as what is in them: {bytes}");
}
