//! Cases of area A, the log as a whole: damage in the middle, side files, rolls, failing reads.

use std::path::{Path, PathBuf};

use log_core::clock::{Clock, Timestamp};
use log_core::config::{FlushPolicy, RetentionPolicy};
use log_core::disk::{Call, CrashMode, Failure, FaultyDisk};
use log_core::error::Error;
use log_core::partition::{Access, Partition};
use log_core::record::{BatchBuilder, Codec, Record};

use crate::support::log::{
    append, assert_holds, assert_holds_but, flip, offsets, positions, replace, value,
};
use crate::support::{Bench, DIR, POLICIES, SEGMENT_BYTES, WINDOW};

/// Files of the partition that are derived: without them, opening takes longer.
fn side_files(disk: &FaultyDisk) -> Vec<PathBuf> {
    let mut paths = disk.paths();
    paths.retain(|path| path.extension() != Some("log".as_ref()));
    paths
}

fn segments(bench: &Bench) -> Vec<PathBuf> {
    bench.files(".log")
}

/// A bench with this many records of 1 kB, in segments that are sealed with their indexes.
fn filled(flush: FlushPolicy, records: u64) -> (Bench, Partition) {
    let bench = Bench::new(flush);
    let partition = bench.open().expect("opens");
    append(&partition, 0..records, 1_000);
    while bench.background.run_pending() > 0 {}
    (bench, partition)
}

fn after_kill(bench: &Bench) -> (Bench, Partition) {
    let next = bench.next(bench.disk.kill());
    let partition = next.open().expect("opens");
    (next, partition)
}

#[test]
fn a11_a_flipped_bit_costs_the_batch_that_it_is_in_and_nothing_else() {
    let (bench, partition) = filled(FlushPolicy::Sync, 600);
    partition.close().expect("closes");
    let files = segments(&bench);
    assert!(files.len() >= 10, "{files:?}");
    let fourth = positions(&bench.disk, &files[3]);
    let base = partition.segments()[3].offsets.start;
    // In the header of a batch, and in the body of one.
    for into in [30, 600] {
        let bench = bench.next(bench.disk.kill());
        flip(&bench.disk, &files[3], fourth[7] + into);
        let partition = bench.open().expect("opens");
        assert_holds_but(&partition, 0..600, base + 7..base + 8);
        let found = partition.check(|_| ()).expect("it can be read").corrupt;
        let told: Vec<_> = found.iter().map(|found| (&found.path, found.offsets.start)).collect();
        assert_eq!(told, [(&files[3], base + 7)]);
        append(&partition, 600..605, 1_000);
        partition.maintain().expect("nothing is due");
        assert_eq!(segments(&bench)[..files.len()], files, "nothing is removed");
        let (_, partition) = after_kill(&bench);
        assert_holds_but(&partition, 0..605, base + 7..base + 8);
    }
}

/// A batch of producer 9 whose record says when it happened.
fn produced(bench: &Bench, sequence: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None).with_producer(9, 0, sequence);
    let at = Timestamp::from_millis(i64::from(sequence) * 10);
    let value = value(u64::from(sequence), 4_000);
    let record = Record::new(&value).with_timestamp(at);
    builder.push(&record, bench.clock.now()).expect("fits");
    builder.finish().expect("a batch")
}

#[test]
fn a14_what_is_derived_follows_from_the_log_wherever_its_writing_stops() {
    const RECORDS: u32 = 40;
    for flush in POLICIES {
        for call in 0.. {
            let bench = Bench::new(flush);
            let partition = bench.open().expect("opens");
            for sequence in 0..RECORDS {
                partition.append_batch(&produced(&bench, sequence)).expect("appended");
            }
            // Seals, indexes and the checkpoint are written from here on.
            bench.disk.power_off_at(bench.disk.calls() + call);
            bench.background.run_pending();
            let closed = partition.close();
            let (bench, partition) = after_kill(&bench);
            assert_holds(&partition, 0..u64::from(RECORDS));
            for sequence in [0, 7, 20, RECORDS - 1] {
                let at = Timestamp::from_millis(i64::from(sequence) * 10 - 5);
                let found = partition.offset_for_time(at).expect("it can be read");
                assert_eq!(found, Some(u64::from(sequence)), "{flush:?} {call}");
            }
            let again = partition.append_batch(&produced(&bench, RECORDS - 1)).expect("answered");
            assert!(again.duplicate && again.base_offset == u64::from(RECORDS) - 1);
            let next = partition.append_batch(&produced(&bench, RECORDS)).expect("appended");
            assert_eq!(next.base_offset, u64::from(RECORDS));
            let checked = partition.check(|_| ()).expect("it can be read");
            assert_eq!(checked.corrupt, []);
            if closed.is_ok() {
                break;
            }
        }
    }
}

#[test]
fn a15_what_is_preallocated_counts_for_nothing() {
    let bench = Bench::new(FlushPolicy::Sync);
    append(&bench.open().expect("opens"), 0..1, 100);
    let bench = bench.next(bench.disk.kill());
    let file = bench.disk.read(&segments(&bench)[0]).len() as u64;
    let partition = bench.open_as(Access::ReadOnly).expect("opens");
    let used = partition.used_bytes();
    assert!(used < 9_000 && file >= SEGMENT_BYTES, "{used} of {file}");
    assert_eq!(partition.segments()[0].bytes, used);
    assert_holds(&partition, 0..1);
    let mut bench = bench.next(bench.disk.clone());
    // Less than the files, more than what is in them: nothing is removed.
    bench.config.retention = RetentionPolicy { max_age: None, max_bytes: Some(SEGMENT_BYTES) };
    let partition = bench.open().expect("opens");
    append(&partition, 1..9, 100);
    assert_eq!(partition.maintain().expect("nothing fails").removed, []);
    assert_holds(&partition, 0..9);
}

#[test]
fn a16_three_rolls_between_two_syncs_are_walked_from_the_oldest_on() {
    for flush in [FlushPolicy::Os, WINDOW] {
        let bench = Bench::new(flush);
        let partition = bench.open().expect("opens");
        append(&partition, 0..26, 8_000);
        assert!(segments(&bench).len() >= 4);
        assert_holds(&after_kill(&bench).1, 0..26);
        let mut shortest = 26;
        for seed in 0..20 {
            let cut = bench.next(bench.disk.crash(seed, CrashMode::Random));
            let partition = cut.open().expect("opens");
            let report = partition.recovery_report();
            assert!(!report.needs_attention(), "{flush:?} {seed}: {report:?}");
            let end = partition.ends().end;
            assert_holds(&partition, 0..end);
            append(&partition, end..end + 1, 100);
            shortest = shortest.min(end);
        }
        assert!(shortest < 26, "some of the cuts have taken something");
    }
}

/// An older segment, not the last one, ends in bytes that are no batch.
#[test]
fn a16_a_torn_end_of_an_older_segment_is_not_stepped_over_in_silence() {
    let (bench, partition) = filled(FlushPolicy::Sync, 100);
    drop(partition);
    let files = segments(&bench);
    let last = *positions(&bench.disk, &files[0]).last().expect("a batch");
    bench.disk.write_raw(&files[0], last, &[0; 1_100]);
    let (_, partition) = after_kill(&bench);
    let report = partition.recovery_report();
    let lost = partition.segments()[1].offsets.start;
    assert_holds_but(&partition, 0..100, lost - 1..lost);
    assert!(report.cut.is_none() && report.end == 100, "{report:?}");
}

#[test]
fn a18_each_way_in_which_a_read_can_fail_has_its_error_and_changes_nothing() {
    let (bench, partition) = filled(FlushPolicy::Sync, 200);
    partition.close().expect("closes");
    let files = segments(&bench);
    let body = positions(&bench.disk, &files[1])[0] + 500;
    let base = partition.segments()[1].offsets.start;
    let (damaged, partition) = {
        let bench = bench.next(bench.disk.kill());
        flip(&bench.disk, &files[1], body);
        let partition = bench.open().expect("opens");
        (bench, partition)
    };
    let fetched = partition.read(base, 1_000).and_then(|fetched| fetched.for_each(|_| ()));
    assert!(matches!(fetched, Err(Error::Corrupt(_))), "{fetched:?}");
    let past = partition.read(201, 1_000).map(drop);
    assert!(matches!(past, Err(Error::OffsetOutOfRange { end: 200, .. })), "{past:?}");
    partition.trim(10).expect("trimmed");
    let below = partition.read(9, 1_000).map(drop);
    assert!(matches!(below, Err(Error::OffsetOutOfRange { log_start: 10, .. })), "{below:?}");
    for call in [Call::Open, Call::Map, Call::Size] {
        let (bench, partition) = after_kill(&bench);
        let from = bench.disk.calls_of(call);
        bench.disk.fail_calls(call, from, u64::MAX, Failure::Io);
        let failed = partition.read(base, 1_000).map(drop);
        assert!(matches!(failed, Err(Error::Io { .. })), "{call:?}: {failed:?}");
        assert!(partition.maintain().is_ok_and(|done| done.removed.is_empty()));
        assert_eq!(partition.ends().end, 200);
        bench.disk.stop_failing();
        assert_holds(&partition, 0..200);
    }
    // Opening meets it: that is no short log.
    for call in [Call::List, Call::Open, Call::Read, Call::Size] {
        let disk = damaged.disk.kill();
        let bench = damaged.next(disk.clone());
        let before: Vec<_> = disk.paths().iter().map(|path| disk.read(path)).collect();
        bench.disk.fail_calls(call, 0, u64::MAX, Failure::Io);
        let failed = bench.open().map(drop);
        assert!(matches!(failed, Err(Error::Io { .. })), "{call:?}: {failed:?}");
        let after: Vec<_> = disk.paths().iter().map(|path| disk.read(path)).collect();
        assert!(before == after, "{call:?}: nothing is changed");
        bench.disk.stop_failing();
        assert_eq!(bench.open().expect("opens").ends().end, 200);
    }
}

#[test]
fn a19_a_short_write_is_reported_and_nothing_of_it_is_there() {
    for (flush, bytes) in
        POLICIES.into_iter().flat_map(|flush| [0, 50, 104, 200].map(|n| (flush, n)))
    {
        let bench = Bench::new(flush);
        // Every byte goes in by `write_at`.
        bench.disk.set_can_store_into_maps(false);
        let partition = bench.open().expect("opens");
        append(&partition, 0..3, 300);
        let from = bench.disk.calls_of(Call::Write);
        bench.disk.fail_calls(Call::Write, from, 1, Failure::ShortWrite { bytes });
        let failed = partition.append(&[Record::new(&value(3, 300))]);
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        assert_holds(&partition, 0..3);
        append(&partition, 3..5, 300);
        assert_holds(&partition, 0..5);
        let (_, partition) = after_kill(&bench);
        assert_holds(&partition, 0..5);
    }
}

#[test]
fn a20_side_files_of_an_earlier_time_change_nothing() {
    let (bench, partition) = filled(FlushPolicy::Sync, 150);
    partition.close().expect("closes");
    let early: Vec<_> =
        side_files(&bench.disk).into_iter().map(|path| (bench.disk.read(&path), path)).collect();
    assert!(early.len() >= 3, "{early:?}");
    let partition = bench.open().expect("opens");
    append(&partition, 150..250, 1_000);
    while bench.background.run_pending() > 0 {}
    let (bench, _) = after_kill(&bench);
    for path in side_files(&bench.disk) {
        bench.disk.remove_raw(&path);
    }
    for (bytes, path) in &early {
        replace(&bench.disk, path, bytes);
    }
    let stored: Vec<_> = segments(&bench)
        .into_iter()
        .map(|path| {
            let used = positions(&bench.disk, &path).last().map_or(0, |last| last + 1_000);
            (bench.disk.read(&path)[..usize::try_from(used).unwrap()].to_vec(), path)
        })
        .collect();
    let partition = bench.open().expect("opens");
    assert_holds(&partition, 0..250);
    append(&partition, 250..260, 1_000);
    for (bytes, path) in stored {
        assert!(bench.disk.read(&path).starts_with(&bytes), "{}", path.display());
    }
    assert_holds(&after_kill(&bench).1, 0..260);
}

/// A reader goes on where it was, over the roll at which the writer died and those that follow.
#[test]
fn a22_a_reader_meets_every_record_over_a_roll_that_was_killed() {
    for call in 0.. {
        let bench = Bench::new(FlushPolicy::Sync);
        let partition = bench.open().expect("opens");
        append(&partition, 0..6, 10_000);
        let mut seen = offsets(&partition).0;
        bench.disk.power_off_at(bench.disk.calls() + call);
        let rolled = partition.append(&[Record::new(&value(6, 10_000))]);
        let (bench, partition) = after_kill(&bench);
        let end = partition.ends().end;
        assert!(end >= 6 + u64::from(rolled.is_ok()), "{call}");
        append(&partition, end..end + 14, 10_000);
        assert!(segments(&bench).len() >= 3);
        let mut from = seen.last().expect("it has read") + 1;
        while from < partition.readable_end() {
            let fetched = partition.read(from, 1).expect("it can be read");
            fetched.for_each(|record| seen.push(record.offset)).expect("sound");
            from = fetched.next;
        }
        assert_eq!(seen, (0..end + 14).collect::<Vec<_>>(), "{call}");
        if rolled.is_ok() {
            return;
        }
    }
}

/// All side files gone, empty, or zeros.
#[test]
fn a04_side_files_that_are_empty_zeros_or_missing_change_nothing() {
    let (bench, partition) = filled(FlushPolicy::Sync, 150);
    partition.close().expect("closes");
    for path in side_files(&bench.disk) {
        assert!(path.starts_with(Path::new(DIR)));
        let len = bench.disk.read(&path).len();
        for bad in [Some(Vec::new()), Some(vec![0; len]), Some(vec![0xa5; len]), None] {
            let bench = bench.next(bench.disk.kill());
            match bad {
                Some(bytes) => replace(&bench.disk, &path, &bytes),
                None => bench.disk.remove_raw(&path),
            }
            let partition = bench.open().expect("opens");
            assert!(partition.recovery_report().clean);
            assert_holds(&partition, 0..150);
            append(&partition, 150..152, 1_000);
        }
    }
}

/// J06: a page of zeros in the middle of a sealed segment, and one that the medium has lost.
#[test]
fn j06_a_lost_page_in_a_sealed_segment_costs_the_batches_that_it_held() {
    let (bench, partition) = filled(FlushPolicy::Sync, 200);
    partition.close().expect("closes");
    let file = &segments(&bench)[1];
    let base = partition.segments()[1].offsets.start;
    let lost: Vec<_> = (0..)
        .zip(positions(&bench.disk, file))
        .filter(|(_, position)| position / 4_096 == 6 || (position + 1_120) / 4_096 == 6)
        .map(|(nth, _)| base + nth)
        .collect();
    for zeros in [true, false] {
        let bench = bench.next(bench.disk.kill());
        if zeros {
            bench.disk.zero_page(file, 6);
        } else {
            bench.disk.destroy_page(file, 6);
        }
        let partition = bench.open().expect("opens");
        assert_holds_but(&partition, 0..200, lost[0]..lost[lost.len() - 1] + 1);
        let found = partition.check(|_| ()).expect("readable").corrupt;
        assert!(found.iter().all(|found| found.path == *file), "{found:?}");
        append(&partition, 200..210, 1_000);
    }
}
