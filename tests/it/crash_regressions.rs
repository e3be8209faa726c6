//! What the crash model and the reading of the engine have found: each told by its name.

use std::path::Path;

use log_core::clock::{Clock, Timestamp};
use log_core::config::FlushPolicy;
use log_core::disk::{Call, CrashMode, Failure, FaultyDisk};
use log_core::error::Error;
use log_core::partition::{Partition, RecoveryReport};
use log_core::record::{BatchBuilder, Codec, Record};

use crate::support::reading::read_everything;
use crate::support::{Bench, DIR, POLICIES};

fn append(partition: &Partition, values: std::ops::Range<u64>, len: usize) {
    for value in values {
        let appended = partition.append(&[Record::new(&bytes(value, len))]).expect("appended");
        assert_eq!(appended.base_offset, value);
    }
}

/// A value that names its offset.
fn bytes(value: u64, len: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(len, 7);
    bytes
}

/// The first offset and the end of what is read, which is what was appended.
fn read(partition: &Partition) -> (u64, u64) {
    let found = read_everything(partition, 10_000).expect("readable");
    assert_eq!(found.corrupt, []);
    let first = partition.ends().log_start;
    for (expected, stored) in (first..).zip(&found.records) {
        let value = stored.value.as_deref().expect("a value");
        assert_eq!((stored.offset, &value[..8]), (expected, &expected.to_le_bytes()[..]));
    }
    (first, first + found.records.len() as u64)
}

fn assert_sound(report: &RecoveryReport) {
    assert!(report.damage.is_empty() && !report.end_unproven, "{report:?}");
}

/// A batch of producer 9 with one record.
fn producers_batch(bench: &Bench, sequence: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None).with_producer(9, 0, sequence);
    builder.push(&Record::new(&bytes(0, 100)), bench.clock.now()).expect("fits");
    builder.finish().expect("a batch")
}

fn segment(base: u64, epoch: u32) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{base:020}-{epoch:08}.log"))
}

// The space for the first batch of a new segment was allocated once that had its name. On a full
// disk the roll failed there, the old segment went on with smaller batches, and recovery took it
// to end where the new one begins: acknowledged records were gone.
#[test]
fn a_roll_that_finds_the_disk_full_does_not_end_the_old_segment() {
    for (flush, failing) in POLICIES.into_iter().flat_map(|flush| (0..4).map(move |n| (flush, n))) {
        let bench = Bench::new(flush);
        let partition = bench.open().expect("opens");
        // With a producer, the header of the new segment is longer than what a spare file has.
        partition.append_batch(&producers_batch(&bench, 0)).expect("appended");
        append(&partition, 1..4, 10_000);
        let from = bench.disk.calls_of(Call::Allocate) + failing;
        bench.disk.fail_calls(Call::Allocate, from, 100, Failure::DiskFull);
        let outcome = partition.append(&[Record::new(&bytes(4, 40_000))]);
        bench.disk.stop_failing();
        if let Err(error) = outcome {
            assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        }
        let end = partition.ends().end;
        append(&partition, end..end + 1, 100);
        let next = bench.next(bench.disk.kill());
        let partition = next.open().expect("opens");
        assert_eq!(read(&partition), (0, end + 1), "{flush:?} {failing}");
    }
}

// A kill between the writing of a trim marker and its sync left the marker in the page cache. An
// Os topic took `log_start` from it, removed segments, and a power cut then lost the marker: the
// removed segments were damage, and `log_start` went back.
#[test]
fn a_log_start_read_back_after_a_kill_is_synced_before_segments_go() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = bench.open().expect("opens");
    for value in 0..30 {
        append(&partition, value..value + 1, 10_000);
        bench.background.run_pending();
    }
    partition.sync().expect("synced");
    // The marker is stored into the map; the sync that follows is not done any more.
    let syncs = bench.disk.calls_of(Call::Sync);
    bench.disk.power_off_at(bench.disk.calls());
    partition.trim(20).expect_err("the power is off");
    assert_eq!(bench.disk.calls_of(Call::Sync), syncs + 1);
    let killed = bench.next(bench.disk.kill());
    let partition = killed.open().expect("opens");
    let log_start = partition.ends().log_start;
    partition.maintain().expect("no faults");
    let cut = killed.next(killed.disk.crash(0, CrashMode::LoseAll));
    let partition = cut.open().expect("opens");
    assert_sound(partition.recovery_report());
    assert_eq!((log_start, read(&partition)), (20, (20, 30)));
}

// After a clean stop a segment was mapped up to the limit of now. If that was lowered below where
// the segment ends, there was no room for the marker that says it goes on: a panic.
#[test]
fn a_segment_that_outgrew_a_lowered_limit_goes_on() {
    for flush in POLICIES {
        let mut bench = Bench::new(flush);
        bench.config.segment_max_bytes = 128 * 1024;
        let partition = bench.open().expect("opens");
        append(&partition, 0..8, 10_000);
        partition.close().expect("closed");
        bench.config.segment_max_bytes = 64 * 1024;
        let partition = bench.open().expect("opens");
        append(&partition, 8..12, 10_000);
        assert_eq!(read(&partition), (0, 12));
    }
}

// Where the first bad byte was the header of a segment that a later one named, that segment stayed
// the last of the log, and the next one named no predecessor: all older ones were hidden by it.
#[test]
fn a_cut_at_a_lost_header_keeps_the_segments_before_it() {
    for calls in 0..20 {
        let bench = Bench::new(FlushPolicy::Os);
        bench.disk.set_can_store_into_maps(false);
        let partition = bench.open().expect("opens");
        append(&partition, 0..5, 10_000);
        partition.sync().expect("synced");
        append(&partition, 5..6, 10_000);
        assert_eq!(partition.segments().len(), 2, "rolled, not sealed");
        // A write that fails ends the second segment: a third one begins, whose header is synced.
        bench.disk.fail_calls(Call::Write, bench.disk.calls_of(Call::Write), 1, Failure::Io);
        partition.append(&[Record::new(&bytes(6, 100))]).expect_err("the write fails");
        bench.disk.power_off_at(bench.disk.calls() + calls);
        let _ = partition.append(&[Record::new(&bytes(6, 100))]);
        let mut bench = bench.next(bench.disk.crash(0, CrashMode::LoseData));
        for value in 5..8 {
            let partition = bench.open().expect("opens");
            let report = partition.recovery_report();
            assert_sound(report);
            let (first, end) = read(&partition);
            assert!(first == 0 && end >= value, "{calls}: {report:?}");
            append(&partition, end..end + 1, 100);
            bench = bench.next(bench.disk.kill());
        }
    }
}

// The walk began at a segment that retention had removed, so no table of producers was read, and
// a producer that had written nothing since was forgotten.
#[test]
fn producers_are_known_where_the_walk_begins_at_a_removed_segment() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = bench.open().expect("opens");
    let first = producers_batch(&bench, 0);
    partition.append_batch(&first).expect("appended");
    append(&partition, 1..7, 10_000);
    bench.background.run_pending();
    partition.trim(6).expect("trimmed");
    let found = bench.disk.kill();
    let next = bench.next(found);
    let partition = next.open().expect("opens");
    assert!(next.files(".log").len() == 1, "the first segment is gone");
    let again = partition.append_batch(&first).expect("known");
    assert!(again.duplicate && again.base_offset == 0);
    partition.append_batch(&producers_batch(&bench, 1)).expect("the next one");
}

// A power cut may keep the header of a new segment and lose its table of producers. The walk began
// there, since all before was durable: the producers were forgotten, and it was called damage.
#[test]
fn a_torn_table_of_producers_is_had_from_the_segment_before() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    let batch = producers_batch(&bench, 0);
    partition.append_batch(&batch).expect("appended");
    append(&partition, 1..5, 10_000);
    partition.write(&[Record::new(&bytes(5, 40_000))], None).expect("written");
    let found = bench.disk.crash(0, CrashMode::KeepAll);
    found.zero_page(&segment(5, 1), 2);
    let next = bench.next(found);
    let partition = next.open().expect("opens");
    assert_sound(partition.recovery_report());
    let again = partition.append_batch(&batch).expect("known");
    assert!(again.duplicate && again.base_offset == 0);
}

// A segment without batches told no append time, and what lies before it was not walked: a clock
// that was set back then stamped earlier than the records before.
#[test]
fn append_times_do_not_go_back_over_a_restart() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    append(&partition, 0..5, 10_000);
    partition.write(&[Record::new(&bytes(5, 40_000))], None).expect("written");
    let found: FaultyDisk = bench.disk.crash(0, CrashMode::KeepAll);
    // The first batch of the second segment is lost.
    found.zero_page(&segment(5, 1), 2);
    let next = bench.next(found);
    next.clock.set_wall(Timestamp::from_millis(5));
    let partition = next.open().expect("opens");
    let end = partition.ends().end;
    append(&partition, end..end + 1, 100);
    let found = read_everything(&partition, 10_000).expect("readable");
    assert!(found.append_times.is_sorted(), "{:?}", found.append_times);
}

// The table of producers is written together with a new segment's header. A power cut that kept it
// and lost the header left bytes behind a header that was never durable: that they were there was
// taken as proof that batches had been written, and the end could not be proven.
#[test]
fn a_table_of_producers_without_its_header_is_no_sign_of_batches() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = bench.open().expect("opens");
    partition.append_batch(&producers_batch(&bench, 0)).expect("appended");
    let killed = bench.next(bench.disk.kill());
    let partition = killed.open().expect("opens");
    let syncs = killed.disk.calls_of(Call::Sync);
    killed.disk.fail_calls(Call::Sync, syncs, 1, Failure::Io);
    partition.append(&[Record::new(&bytes(1, 100))]).expect_err("the header is not synced");
    let found = killed.disk.crash(0, CrashMode::KeepAll);
    found.write_raw(&segment(1, 2), 0, &[0; 8192]);
    found.write_raw(&segment(1, 2), 8192, &[1, 0, 0, 0, 9]);
    let next = killed.next(found);
    let partition = next.open().expect("opens");
    assert_sound(partition.recovery_report());
    append(&partition, 1..2, 100);
}
