//! Cases of area A, the end of the log: what others lost or revived there.

use std::path::{Path, PathBuf};

use log_core::config::FlushPolicy;
use log_core::disk::{CrashMode, FaultyDisk};
use log_core::error::{Error, Fault};
use log_core::partition::Partition;
use log_core::record::Record;
use log_core::segment::{FIRST_DATA_START, SegmentHeader, SegmentName};
use log_core::store::OpenMode;

use crate::support::log::{
    append, assert_holds, assert_holds_but, forge, header, offsets, positions, replace,
};
use crate::support::stores::{create_store, name, open_store, small};
use crate::support::{Bench, DIR, POLICIES};

const BATCH_HEADER: u64 = 104;

/// What is done to a disk, given where the first batch of records stands.
type Spoil<'a> = &'a dyn Fn(&FaultyDisk, u64);

fn first_segment() -> PathBuf {
    segment(0, 1)
}

fn segment(base: u64, epoch: u32) -> PathBuf {
    Path::new(DIR).join(SegmentName { base, epoch }.log_file())
}

/// A bench on which so many records were appended, then the process died.
fn killed(flush: FlushPolicy, records: u64) -> Bench {
    let bench = Bench::new(flush);
    append(&bench.open().expect("opens"), 0..records, 300);
    bench.next(bench.disk.kill())
}

/// The process that comes after a kill.
fn after_kill(bench: &Bench) -> (Bench, Partition) {
    let next = bench.next(bench.disk.kill());
    let partition = next.open().expect("opens");
    (next, partition)
}

#[test]
fn a01_records_appended_after_a_torn_tail_survive() {
    for (flush, zeros) in POLICIES.into_iter().flat_map(|flush| [(flush, false), (flush, true)]) {
        let bench = killed(flush, 2);
        let torn = positions(&bench.disk, &first_segment())[1] + 150;
        if zeros {
            bench.disk.write_raw(&first_segment(), torn, &[0; 400]);
        } else {
            bench.disk.truncate_raw(&first_segment(), torn);
        }
        let partition = bench.open().expect("opens");
        assert_holds(&partition, 0..1);
        let cut = partition.recovery_report().cut.clone().expect("a cut");
        assert_eq!((cut.path, cut.offset), (first_segment(), 1));
        append(&partition, 1..3, 300);
        // What was torn is no part of the log before anything else is acknowledged.
        for disk in [bench.disk.kill(), bench.disk.crash(1, CrashMode::Random)] {
            let partition = bench.next(disk).open().expect("opens");
            let report = partition.recovery_report();
            assert!(!report.needs_attention(), "{report:?}");
            if flush == FlushPolicy::Sync || partition.ends().end == 3 {
                assert_holds(&partition, 0..3);
            }
        }
    }
}

#[test]
fn a02_files_of_a_segment_that_was_never_begun_change_nothing() {
    let next = SegmentName { base: 5, epoch: 1 };
    let stranger = SegmentName { base: 5, epoch: 2 };
    let headless = vec![0; 8192];
    let cases: [(String, Vec<u8>); 6] = [
        (next.index_file(), Vec::new()),
        (next.index_file(), b"garbage".repeat(99)),
        (next.log_file(), Vec::new()),
        (next.log_file(), headless.clone()),
        (stranger.log_file(), headless),
        ("checkpoint.tmp".to_owned(), b"half".to_vec()),
    ];
    for (file, bytes) in cases {
        let bench = Bench::new(FlushPolicy::Sync);
        let partition = bench.open().expect("opens");
        append(&partition, 0..5, 300);
        partition.close().expect("closes");
        replace(&bench.disk, &Path::new(DIR).join(&file), &bytes);
        let (bench, partition) = after_kill(&bench);
        let report = partition.recovery_report();
        assert!(!report.needs_attention(), "{file}: {report:?}");
        assert_holds(&partition, 0..5);
        append(&partition, 5..8, 300);
        let (_, partition) = after_kill(&bench);
        assert_holds(&partition, 0..8);
    }
}

/// The successor has nothing but its header.
#[test]
fn a02_a_segment_with_a_header_and_no_batch_is_the_end_of_the_log() {
    let bench = killed(FlushPolicy::Sync, 5);
    append(&bench.open().expect("opens"), 5..6, 300);
    let successor = segment(5, 2);
    bench.disk.truncate_raw(&successor, u64::from(FIRST_DATA_START));
    let (bench, partition) = after_kill(&bench);
    assert_holds(&partition, 0..5);
    assert!(!partition.recovery_report().needs_attention());
    append(&partition, 5..8, 300);
    let (_, partition) = after_kill(&bench);
    assert_holds(&partition, 0..8);
}

#[test]
fn a03_a_log_that_has_lost_its_first_batch_begins_again_at_its_first_byte() {
    let spoil: [Spoil<'_>; 3] = [
        &|disk, first| disk.truncate_raw(&first_segment(), first + 200),
        &|disk, first| disk.write_raw(&first_segment(), first, &[0; 4]),
        &|disk, first| disk.write_raw(&first_segment(), first, &[0; 4096]),
    ];
    for (flush, spoil) in POLICIES.into_iter().flat_map(|flush| spoil.map(|spoil| (flush, spoil))) {
        let bench = killed(flush, 1);
        spoil(&bench.disk, positions(&bench.disk, &first_segment())[0]);
        let partition = bench.open().expect("opens");
        assert_holds(&partition, 0..0);
        append(&partition, 0..1, 300);
        let (bench, partition) = after_kill(&bench);
        assert_holds(&partition, 0..1);
        // Nothing is overwritten: the new batch is the first of a segment of its own.
        assert_eq!(positions(&bench.disk, &segment(0, 2)), [u64::from(FIRST_DATA_START)]);
    }
}

/// Where the header is zeros, too, nothing says that the log was empty: nothing is taken for it.
#[test]
fn a03_a_first_segment_of_zeros_is_no_empty_log() {
    let bench = killed(FlushPolicy::Sync, 1);
    let size = bench.disk.read(&first_segment()).len();
    replace(&bench.disk, &first_segment(), &vec![0; size]);
    let partition = bench.open().expect("opens");
    let report = partition.recovery_report();
    assert!(report.end_unproven && report.damage[0].path == first_segment(), "{report:?}");
    let refused = partition.append(&[Record::new(b"x")]);
    assert!(matches!(refused, Err(Error::EndUnproven { at_least: 0, .. })), "{refused:?}");
    partition.repair().expect("somebody has decided");
    append(&partition, 0..1, 300);
    let (_, partition) = after_kill(&bench);
    assert_holds(&partition, 0..1);
}

#[test]
fn a05_a_last_batch_with_a_wrong_field_is_cut_or_told() {
    let (most, all) = (i32::MAX.to_le_bytes(), u32::MAX.to_le_bytes());
    let fields: [(u64, &[u8]); 9] = [
        (8, &[0; 4]),
        (8, &[1, 0, 0, 0]),
        (8, &most),
        (8, &all),
        (76, &[0; 4]),
        (76, &most),
        (4, &[0x32]),
        (20, &[0xff, 0xff]),
        (18, &[1, 0]),
    ];
    for (at, field) in fields {
        for right_checksum in [false, true] {
            let bench = killed(FlushPolicy::Sync, 3);
            let last = positions(&bench.disk, &first_segment())[2];
            if right_checksum {
                forge(&bench.disk, &first_segment(), last, at, field);
            } else {
                bench.disk.write_raw(&first_segment(), last + at, field);
            }
            let partition = bench.open().expect("opens");
            let end = partition.ends().end;
            assert!(end == 2 || right_checksum, "{at} {field:?}: {end}");
            assert_holds_but(&partition, 0..2, 2..end.min(3));
            append(&partition, end..end + 2, 300);
            let (_, partition) = after_kill(&bench);
            assert_eq!(partition.ends().end, end + 2);
            assert_holds_but(&partition, 0..end + 2, 2..end);
        }
    }
}

#[test]
fn a06_a_part_of_a_batch_header_of_any_length_is_cut() {
    for records in [0, 1] {
        let whole = killed(FlushPolicy::Sync, records + 1);
        let at = positions(&whole.disk, &first_segment())[usize::try_from(records).unwrap()];
        for some in 1..BATCH_HEADER {
            for zeros in [false, true] {
                if zeros && some % 10 != 0 {
                    continue;
                }
                let bench = whole.next(whole.disk.kill());
                if zeros {
                    bench.disk.write_raw(&first_segment(), at + some, &[0; 512]);
                } else {
                    bench.disk.truncate_raw(&first_segment(), at + some);
                }
                let partition = bench.open().expect("opens");
                assert_holds(&partition, 0..records);
                append(&partition, records..records + 1, 10);
                assert_holds(&partition, 0..records + 1);
            }
        }
    }
}

#[test]
fn a07_offsets_that_go_back_in_a_segment_are_never_served() {
    for (records, damaged) in [(3, false), (5, true)] {
        let bench = killed(FlushPolicy::Sync, records);
        let third = positions(&bench.disk, &first_segment())[2];
        forge(&bench.disk, &first_segment(), third, 24, &0_u64.to_le_bytes());
        let partition = bench.open().expect("opens");
        let report = partition.recovery_report().clone();
        if damaged {
            // Later batches prove that it had been synced.
            assert_eq!((report.damage[0].position, report.end), (third, 5), "{report:?}");
            assert_holds_but(&partition, 0..5, 2..3);
        } else {
            assert_eq!(report.cut.map(|cut| (cut.position, cut.offset)), Some((third, 2)));
            assert_holds(&partition, 0..2);
        }
        append(&partition, report.end..report.end + 1, 300);
    }
}

#[test]
fn a07_segments_that_overlap_keep_one_partition_closed_and_no_other() {
    let disk = FaultyDisk::new();
    let store = create_store(&disk);
    let topic = store.create_topic(&name("t"), 2, small(FlushPolicy::Sync)).unwrap();
    for number in 0..2 {
        append(&topic.partition(number).unwrap(), 0..9, 10_000);
    }
    let dir = topic.partition(0).unwrap().path().to_path_buf();
    store.close().unwrap();
    let segments = disk.paths().into_iter().filter(|path| path.starts_with(&dir));
    let mut segments = segments.filter(|path| path.extension() == Some("log".as_ref()));
    let second = segments.nth(1).expect("it has rolled");
    let good = header(&disk, &second);
    // Its batches begin where the first segment ends; its name and header say: before that.
    let name_below = SegmentName { base: good.name.base - 2, epoch: 1 };
    let overlapping = SegmentHeader { name: name_below, ..good.clone() };
    // Its header says that what comes before it begins behind it.
    let mut backwards = good.clone();
    backwards.predecessor.as_mut().unwrap().name.base = good.name.base + 5;
    for forged in [overlapping, backwards] {
        let disk = disk.kill();
        let mut bytes = disk.read(&second);
        bytes[..8192].copy_from_slice(&forged.encode());
        disk.remove_raw(&second);
        replace(&disk, &dir.join(forged.name.log_file()), &bytes);
        let store = open_store(&disk, OpenMode::MustExist).unwrap();
        let topic = store.topic(&name("t")).unwrap();
        assert_holds(&topic.partition(1).unwrap(), 0..9);
        append(&topic.partition(1).unwrap(), 9..10, 10_000);
        match topic.partition(0) {
            Ok(partition) => {
                // What can be read is in order, and nothing is there twice.
                offsets(&partition);
                let report = partition.recovery_report();
                assert!(report.cut.is_some() || report.needs_attention(), "{report:?}");
            }
            Err(Error::Corrupt(found)) => {
                assert!(matches!(found.fault, Fault::OffsetJump { .. }), "{found}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A checkpoint of a later time, beside a log of an earlier one.
#[test]
fn a08_a_checkpoint_ahead_of_the_log_is_not_believed() {
    let bench = Bench::new(FlushPolicy::Sync);
    let checkpoint = Path::new(DIR).join("checkpoint");
    let close = |records| {
        let partition = bench.open().expect("opens");
        append(&partition, records, 300);
        partition.close().expect("closes");
    };
    close(0..5);
    let (earlier, old) = (bench.disk.read(&first_segment()), bench.disk.read(&checkpoint));
    close(5..90);
    let mut ahead = bench.disk.read(&checkpoint);
    replace(&bench.disk, &first_segment(), &earlier);
    // The same place, and an end that is not there.
    let mut forged = old[..old.len() - 4].to_vec();
    forged[32..40].copy_from_slice(&1_005_u64.to_le_bytes());
    forged.extend(crc32fast::hash(&forged).to_le_bytes());
    for bytes in [std::mem::take(&mut ahead), forged] {
        let bench = bench.next(bench.disk.kill());
        replace(&bench.disk, &checkpoint, &bytes);
        for _ in 0..2 {
            let partition = bench.open().expect("opens");
            assert_holds(&partition, 0..5);
            assert!(partition.recovery_report().clean);
            assert!(partition.recovery_report().walked_bytes > 0);
        }
        append(&bench.open().expect("opens"), 5..7, 300);
        let (_, partition) = after_kill(&bench);
        assert_holds(&partition, 0..7);
    }
}

#[test]
fn a08_recovery_that_dies_at_any_call_is_done_again() {
    let bench = killed(FlushPolicy::Sync, 6);
    let torn = positions(&bench.disk, &first_segment())[5] + 20;
    bench.disk.truncate_raw(&first_segment(), torn);
    for call in 0.. {
        let dying = bench.next(bench.disk.kill());
        dying.disk.power_off_at(call);
        // Appending is part of it: the new segment that says where the old one ends.
        let outcome = dying.open().and_then(|partition| partition.append(&[Record::new(b"x")]));
        for disk in [dying.disk.kill(), dying.disk.crash(call, CrashMode::Random)] {
            let bench = bench.next(disk);
            let partition = bench.open().expect("opens");
            let end = partition.ends().end;
            assert!(end == 5 || end == 6, "{call}: {end}");
            assert!(outcome.is_err() || end == 6, "{call}: acknowledged");
            let report = partition.recovery_report();
            assert!(!report.needs_attention(), "{call}: {report:?}");
            // Until a new segment says where the old one ends, the torn tail is found again.
            let told = bench.disk.paths().contains(&segment(5, 2));
            assert!(report.cut.is_some() || end == 6 || told, "{call}: {report:?}");
        }
        if outcome.is_ok() {
            return;
        }
    }
}

#[test]
fn a09_the_mark_of_a_clean_stop_is_void_once_anything_is_written() {
    for flush in POLICIES {
        let bench = Bench::new(flush);
        let partition = bench.open().expect("opens");
        append(&partition, 0..5, 300);
        partition.close().expect("closes");
        for call in 0.. {
            let dying = bench.next(bench.disk.kill());
            dying.disk.power_off_at(call);
            let value = crate::support::log::value(5, 300);
            let outcome = dying.open().and_then(|it| it.append(&[Record::new(&value)]));
            let disk = dying.disk.kill();
            let unchanged = disk.read(&first_segment()) == bench.disk.read(&first_segment());
            let partition = bench.next(disk).open().expect("opens");
            let (report, end) = (partition.recovery_report(), partition.ends().end);
            assert_eq!(report.clean, unchanged, "{flush:?} {call}: {report:?}");
            assert!(!report.needs_attention() && report.cut.is_none(), "{report:?}");
            assert_holds(&partition, 0..end);
            assert!(end == 6 || (end == 5 && outcome.is_err()), "{flush:?} {call}: {end}");
            if outcome.is_ok() {
                break;
            }
        }
    }
}
