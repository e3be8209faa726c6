//! Tests of FaultyDisk: a disk that lies must lie in just the ways that it says.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::crash::Random;
use super::{Call, CrashMode, Failure, FaultyDisk};
use crate::disk::{Disk, DiskFile, FileMode, is_not_found};
use crate::error::Error;

const SECTOR: usize = 512;

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A disk with one file, `/a`, which is durable and holds these bytes.
fn disk_with(bytes: &[u8]) -> (FaultyDisk, Arc<dyn DiskFile>) {
    let disk = FaultyDisk::new();
    let file = disk.open(path("/a"), FileMode::Create).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path("/")).unwrap();
    (disk, file)
}

fn names(disk: &FaultyDisk) -> Vec<String> {
    disk.list(path("/")).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn create(disk: &FaultyDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path(name), FileMode::Create).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

#[test]
fn writes_are_read_back_and_gaps_are_zero() {
    let (disk, file) = disk_with(b"abc");
    file.write_at(b"xyz", 6).unwrap();
    let mut bytes = [9; 12];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 9);
    assert_eq!(&bytes, b"abc\0\0\0xyz\x09\x09\x09");
    assert_eq!(file.read_at(&mut bytes, 100).unwrap(), 0);
    assert_eq!(file.size().unwrap(), 9);
    assert_eq!(disk.read(path("a")), b"abc\0\0\0xyz", "relative paths begin at the root");
    disk.open(path("/a"), FileMode::Create).unwrap();
    assert_eq!(file.size().unwrap(), 0, "emptied");
}

#[test]
fn maps_share_memory_with_the_file() {
    let (_disk, file) = disk_with(b"abc");
    let mut writer = file.map(1 << 20).unwrap();
    assert_eq!(writer.file().len(), 1 << 20, "beyond what is allocated");
    file.allocate(4096).unwrap();
    writer.publish(3);
    assert_eq!(writer.file().slice(0, 3), b"abc");
    writer.unpublished(0, 3).copy_from_slice(b"def");
    writer.publish(6);
    let mut bytes = [0; 6];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abcdef");
    file.write_at(b"ghi", 6).unwrap();
    writer.publish(9);
    assert_eq!(writer.file().slice(0, 9), b"abcdefghi");
    assert_eq!(file.map_read_only(9).unwrap().slice(3, 9), b"defghi");
    assert!(file.map_read_only(4097).is_err(), "a touch beyond the end would be a SIGBUS");
}

#[test]
fn a_first_map_may_be_larger_than_the_file_capacity() {
    let disk = FaultyDisk::new();
    disk.set_file_capacity(4096);
    let file = create(&disk, "/a", b"abc");
    assert!(matches!(file.write_at(b"x", 4096), Err(Error::DiskFull { .. })));
    let writer = file.map(8192).unwrap();
    assert_eq!(writer.file().len(), 8192);
    file.write_at(b"x", 4096).unwrap();
    assert!(file.map(16384).is_err(), "memory that is mapped can't move");
}

#[test]
#[should_panic(expected = "SIGBUS")]
fn a_store_beyond_the_end_of_the_file_is_found_out() {
    let (_disk, file) = disk_with(b"abc");
    let mut writer = file.map(8192).unwrap();
    writer.unpublished(100, 1)[0] = 1;
    let _ = file.allocate(4096);
}

#[test]
fn errors_say_which_file_and_which_kind() {
    let (disk, file) = disk_with(b"abc");
    let error = disk.open(path("/b"), FileMode::Read).unwrap_err();
    assert!(is_not_found(&error) && error.to_string().contains("/b"), "{error}");
    assert!(is_not_found(&disk.list(path("/nowhere")).unwrap_err()));
    assert!(is_not_found(&disk.open(path("/no/b"), FileMode::Create).unwrap_err()));
    assert!(is_not_found(&disk.remove_file(path("/b")).unwrap_err()));
    assert!(is_not_found(&disk.rename(path("/b"), path("/c")).unwrap_err()));
    let read_only = disk.open(path("/a"), FileMode::Read).unwrap();
    assert!(read_only.write_at(b"x", 0).is_err() && read_only.map(1).is_err());
    disk.create_dir(path("/d")).unwrap();
    disk.create_dir(path("/d")).unwrap();
    create(&disk, "/d/e", b"");
    assert!(disk.remove_dir(path("/d")).unwrap_err().to_string().contains("/d"));
    assert!(disk.rename(path("/a"), path("/d/a")).is_err(), "another directory");
    assert_eq!(file.path(), path("/a"));
    assert_eq!(disk.paths(), [path("/a"), path("/d/e")]);
}

#[test]
fn a_sync_makes_bytes_and_length_durable() {
    let (disk, file) = disk_with(&[1; 1000]);
    file.write_at(&[2; 1000], 700).unwrap();
    assert_eq!(disk.read_durable(path("/a")), [1; 1000]);
    assert_eq!(disk.crash(1, CrashMode::LoseAll).read(path("/a")), [1; 1000]);
    file.sync().unwrap();
    let expected = [vec![1; 700], vec![2; 1000]].concat();
    assert_eq!(disk.read_durable(path("/a")), expected);
    for seed in 0..20 {
        assert_eq!(disk.crash(seed, CrashMode::Random).read(path("/a")), expected);
    }
}

#[test]
fn stores_into_a_map_are_durable_only_after_a_sync() {
    let (disk, file) = disk_with(&[0; 4096]);
    let mut writer = file.map(4096).unwrap();
    writer.unpublished(600, 3).copy_from_slice(b"abc");
    assert_eq!(disk.read_durable(path("/a")), [0; 4096]);
    assert_eq!(&disk.crash(1, CrashMode::KeepAll).read(path("/a"))[600..603], b"abc");
    assert_eq!(disk.crash(1, CrashMode::LoseAll).read(path("/a")), [0; 4096]);
    file.sync().unwrap();
    assert_eq!(&disk.crash(1, CrashMode::LoseAll).read(path("/a"))[600..603], b"abc");
}

#[test]
fn a_crash_keeps_any_subset_of_sectors_and_tears_some() {
    let (disk, file) = disk_with(&[1; 4 * SECTOR]);
    file.write_at(&[2; 3 * SECTOR], 0).unwrap();
    let mut found = BTreeSet::new();
    for seed in 0..400 {
        let bytes = disk.crash(seed, CrashMode::Random).read(path("/a"));
        assert_eq!(bytes.len(), 4 * SECTOR);
        assert_eq!(bytes[3 * SECTOR..], [1; SECTOR], "untouched");
        let states = bytes.chunks(SECTOR).take(3).map(|sector| {
            let new = sector.iter().take_while(|byte| **byte == 2).count();
            assert!(sector[new..].iter().all(|byte| *byte == 1), "a new head and an old tail");
            match new {
                0 => "old",
                SECTOR => "new",
                _ => "torn",
            }
        });
        found.insert(states.collect::<Vec<_>>());
    }
    assert_eq!(found.len(), 27, "every combination turns up");
}

#[test]
fn the_same_seed_gives_the_same_crash() {
    let (disk, file) = disk_with(&[1; 40 * SECTOR]);
    file.write_at(&[2; 60 * SECTOR], 0).unwrap();
    let crash = |seed| disk.crash(seed, CrashMode::Random).read(path("/a"));
    assert_eq!(crash(7), crash(7));
    assert_ne!(crash(7), crash(8));
}

#[test]
fn a_crash_loses_length_and_bytes_by_themselves() {
    let (disk, file) = disk_with(&[1; SECTOR]);
    file.write_at(&[2; SECTOR], SECTOR as u64).unwrap();
    let crash = |mode| disk.crash(3, mode).read(path("/a"));
    let old = [1; SECTOR].to_vec();
    assert_eq!(crash(CrashMode::LoseAll), old);
    assert_eq!(crash(CrashMode::LoseSizes), old);
    assert_eq!(crash(CrashMode::LoseData), [old.clone(), vec![0; SECTOR]].concat());
    assert_eq!(crash(CrashMode::KeepAll), [old, vec![2; SECTOR]].concat());
    let lengths: BTreeSet<usize> =
        (0..200).map(|seed| disk.crash(seed, CrashMode::Random).read(path("/a")).len()).collect();
    assert!(lengths.contains(&SECTOR) && lengths.contains(&(2 * SECTOR)) && lengths.len() > 2);
}

#[test]
fn emptying_a_file_is_durable_only_after_a_sync() {
    let (disk, _) = disk_with(&[1; 3 * SECTOR]);
    let file = create(&disk, "/a", &[2; 10]);
    assert_eq!(disk.crash(1, CrashMode::LoseAll).read(path("/a")), [1; 3 * SECTOR]);
    assert_eq!(disk.crash(1, CrashMode::KeepAll).read(path("/a")), [2; 10]);
    file.sync().unwrap();
    assert_eq!(disk.crash(1, CrashMode::Random).read(path("/a")), [2; 10]);
    file.allocate(1000).unwrap();
    file.sync().unwrap();
    assert_eq!(disk.read_durable(path("/a"))[10..], [0; 990], "nothing of the old bytes is left");
}

#[test]
fn a_file_vanishes_unless_its_directory_was_synced() {
    let disk = FaultyDisk::new();
    create(&disk, "/a", b"abc").sync().unwrap();
    assert!(names(&disk.crash(1, CrashMode::LoseAll)).is_empty());
    assert!(names(&disk.crash(1, CrashMode::LoseNames)).is_empty());
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(names(&disk.crash(1, CrashMode::LoseAll)), ["a"]);
    disk.remove_file(path("/a")).unwrap();
    let back = disk.crash(1, CrashMode::LoseAll);
    assert_eq!(back.read(path("/a")), b"abc", "a removal that was not synced");
    assert!(names(&disk.crash(1, CrashMode::KeepAll)).is_empty());
    disk.sync_dir(path("/")).unwrap();
    assert!(names(&disk.crash(1, CrashMode::LoseAll)).is_empty());
}

#[test]
fn a_subdirectory_vanishes_with_what_is_in_it() {
    let disk = FaultyDisk::new();
    disk.create_dir(path("/d")).unwrap();
    create(&disk, "/d/e", b"abc").sync().unwrap();
    disk.sync_dir(path("/d")).unwrap();
    assert!(names(&disk.crash(1, CrashMode::LoseAll)).is_empty());
    disk.sync_dir(path("/")).unwrap();
    let found = disk.crash(1, CrashMode::LoseAll);
    assert_eq!(found.read(path("/d/e")), b"abc");
    disk.remove_file(path("/d/e")).unwrap();
    disk.remove_dir(path("/d")).unwrap();
    assert_eq!(disk.crash(1, CrashMode::LoseAll).paths(), [path("/d/e")]);
    assert!(disk.crash(1, CrashMode::KeepAll).list(path("/")).unwrap().is_empty());
    let made = FaultyDisk::new();
    made.make_dirs(path("/x/y"));
    assert!(made.crash(1, CrashMode::LoseAll).list(path("/x/y")).unwrap().is_empty());
}

#[test]
fn a_rename_is_atomic() {
    let (disk, _) = disk_with(b"old");
    create(&disk, "/a.new", b"new").sync().unwrap();
    disk.rename(path("/a.new"), path("/a")).unwrap();
    assert_eq!(names(&disk), ["a"]);
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let after = disk.crash(seed, CrashMode::Random);
        found.insert((names(&after).join(" "), after.read(path("/a"))));
    }
    let expected = [
        ("a".to_owned(), b"new".to_vec()),
        ("a".to_owned(), b"old".to_vec()),
        ("a a.new".to_owned(), b"old".to_vec()),
    ];
    assert_eq!(found, BTreeSet::from(expected));
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(disk.crash(1, CrashMode::LoseAll).read(path("/a")), b"new");
}

#[test]
fn changes_of_different_names_are_lost_by_themselves_and_of_one_name_in_order() {
    let (disk, _) = disk_with(b"1");
    disk.remove_file(path("/a")).unwrap();
    create(&disk, "/a", b"2").sync().unwrap();
    create(&disk, "/b", b"3").sync().unwrap();
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let after = disk.crash(seed, CrashMode::Random);
        let a = after.paths().contains(&path("/a").to_path_buf()).then(|| after.read(path("/a")));
        found.insert((a, after.paths().contains(&path("/b").to_path_buf())));
    }
    let of_a = [None, Some(b"1".to_vec()), Some(b"2".to_vec())];
    let all = of_a.into_iter().flat_map(|a| [(a.clone(), false), (a, true)]);
    assert_eq!(found, all.collect());
}

#[test]
fn a_kill_keeps_the_page_cache_and_what_is_durable() {
    let (disk, file) = disk_with(&[1; SECTOR]);
    let mut writer = file.map(8192).unwrap();
    file.write_at(b"ab", 0).unwrap();
    file.allocate(1024).unwrap();
    writer.publish(600);
    writer.unpublished(0, 2).copy_from_slice(b"cd");
    create(&disk, "/b", b"b");
    let killed = disk.kill();
    assert_eq!(killed.read(path("/a")), disk.read(path("/a")));
    assert_eq!(names(&killed), ["a", "b"]);
    let lost = killed.crash(1, CrashMode::LoseAll);
    assert_eq!((names(&lost), lost.read(path("/a"))), (vec!["a".to_owned()], vec![1; SECTOR]));
    // What was dirty can still be synced, whoever wrote it.
    killed.open(path("/a"), FileMode::ReadWrite).unwrap().sync().unwrap();
    assert_eq!(killed.read_durable(path("/a")), disk.read(path("/a")));
    assert_eq!(disk.read_durable(path("/a")), [1; SECTOR], "the old disk is another one");
}

#[test]
fn old_handles_do_not_reach_a_new_disk() {
    let (disk, file) = disk_with(b"abc");
    let (crashed, killed) = (disk.crash(1, CrashMode::KeepAll), disk.kill());
    let mut writer = file.map(8192).unwrap();
    writer.unpublished(0, 1)[0] = b'x';
    file.write_at(b"y", 1).unwrap();
    file.sync().unwrap();
    disk.remove_file(path("/a")).unwrap();
    for new in [crashed, killed] {
        assert_eq!((new.read(path("/a")), new.calls()), (b"abc".to_vec(), 0));
        assert_eq!(new.read_durable(path("/a")), b"abc");
    }
}

#[test]
fn a_lock_is_held_until_dropped_and_not_after_a_crash() {
    let disk = FaultyDisk::new();
    disk.make_dirs(path("/data"));
    let lock = disk.lock(path("/data/LOCK")).unwrap();
    let error = disk.lock(path("/data/LOCK")).err().unwrap();
    assert!(matches!(error, Error::Locked { path } if path == Path::new("/data")));
    assert!(disk.kill().lock(path("/data/LOCK")).is_ok());
    assert!(disk.crash(1, CrashMode::LoseAll).lock(path("/data/LOCK")).is_ok());
    drop(lock);
    assert!(disk.lock(path("/data/LOCK")).is_ok());
    assert_eq!(disk.paths(), [path("/data/LOCK")]);
}

#[test]
fn a_failed_sync_loses_what_it_covered_and_the_next_one_lies() {
    let (disk, file) = disk_with(&[0; 4 * SECTOR]);
    let mut writer = file.map(4 * SECTOR as u64).unwrap();
    writer.unpublished(0, 1)[0] = 1;
    file.write_at(&[2], SECTOR as u64).unwrap();
    disk.fail_calls(Call::Sync, disk.calls_of(Call::Sync), 1, Failure::Io);
    let error = file.sync().unwrap_err();
    assert!(matches!(&error, Error::Io { action: "sync", path, .. } if path == Path::new("/a")));
    file.sync().unwrap();
    let firsts = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().step_by(SECTOR).collect() };
    assert_eq!(firsts(disk.read(path("/a"))), [1, 2, 0, 0], "the cache still has it");
    assert_eq!(disk.read_durable(path("/a")), [0; 4 * SECTOR]);
    assert_eq!(firsts(disk.kill().crash(1, CrashMode::KeepAll).read(path("/a"))), [0; 4]);

    // Only what is written again is dirty again, also if the bytes are the same.
    file.write_at(&[2], SECTOR as u64).unwrap();
    writer.unpublished(2 * SECTOR as u64, 1)[0] = 3;
    file.sync().unwrap();
    assert_eq!(firsts(disk.read_durable(path("/a"))), [0, 2, 3, 0]);
    drop(writer);
    disk.drop_page_cache();
    assert_eq!(firsts(disk.read(path("/a"))), [0, 2, 3, 0], "the loss shows");
}

#[test]
fn dropping_the_page_cache_keeps_what_is_dirty() {
    let (disk, file) = disk_with(&[0; 2 * SECTOR]);
    file.write_at(&[1], 0).unwrap();
    disk.fail_at(disk.calls(), Failure::DiskFull);
    assert!(matches!(file.sync(), Err(Error::DiskFull { .. })));
    file.write_at(&[2; 10], 2 * SECTOR as u64).unwrap();
    let reader = file.map_read_only(1).unwrap();
    disk.drop_page_cache();
    assert_eq!(disk.read(path("/a")), [vec![0; 2 * SECTOR], vec![2; 10]].concat());
    assert_eq!(reader.slice(0, 1), [1], "published bytes never change");
    file.sync().unwrap();
    assert_eq!(disk.read_durable(path("/a")), disk.read(path("/a")));
}

#[test]
fn calls_fail_by_number_and_by_kind() {
    let (disk, file) = disk_with(b"abc");
    let next = disk.calls();
    disk.fail_at(next + 1, Failure::Io);
    assert!(file.size().is_ok() && file.size().is_err() && file.size().is_ok());
    assert_eq!(disk.calls(), next + 3);
    disk.fail_calls(Call::Rename, 1, 2, Failure::DiskFull);
    let rename = |from: &str, to: &str| disk.rename(path(from), path(to));
    rename("/a", "/b").unwrap();
    assert!(matches!(rename("/b", "/c"), Err(Error::DiskFull { .. })));
    assert!(matches!(rename("/b", "/c"), Err(Error::DiskFull { .. })));
    assert_eq!(names(&disk), ["b"]);
    rename("/b", "/c").unwrap();
    assert_eq!(disk.calls_of(Call::Rename), 4);
    disk.fail_calls(Call::SyncDir, 0, 100, Failure::Io);
    assert!(disk.sync_dir(path("/")).is_err());
    assert_eq!(names(&disk.crash(1, CrashMode::LoseAll)), ["a"]);
    disk.stop_failing();
    assert!(disk.sync_dir(path("/")).is_ok());
}

#[test]
fn a_short_write_leaves_its_head() {
    let (disk, file) = disk_with(b"abc");
    disk.fail_at(disk.calls(), Failure::ShortWrite { bytes: 2 });
    assert!(matches!(file.write_at(b"defg", 3), Err(Error::Io { action: "write", .. })));
    assert_eq!(disk.read(path("/a")), b"abcde");
    disk.fail_at(disk.calls(), Failure::Io);
    assert!(file.write_at(b"xyz", 0).is_err());
    assert_eq!(disk.read(path("/a")), b"abcde");
}

#[test]
fn once_the_power_is_off_nothing_happens() {
    let (disk, file) = disk_with(b"abc");
    disk.power_off_at(disk.calls() + 1);
    file.write_at(b"x", 0).unwrap();
    assert!(file.write_at(b"y", 1).is_err());
    assert!(file.sync().is_err() && file.allocate(100).is_err() && file.size().is_err());
    assert!(disk.open(path("/b"), FileMode::Create).is_err() && disk.list(path("/")).is_err());
    assert_eq!(disk.read(path("/a")), b"xbc");
    let after = disk.crash(1, CrashMode::KeepAll);
    assert_eq!(after.read(path("/a")), b"xbc", "a sync without power loses nothing by itself");
    assert_eq!(names(&after), ["a"]);
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so() {
    let (disk, file) = disk_with(&[1; 100]);
    disk.set_capacity(Some(150));
    let other = create(&disk, "/b", &[2; 20]);
    assert!(
        matches!(other.allocate(51), Err(Error::DiskFull { path, .. }) if path == Path::new("/b"))
    );
    assert_eq!(disk.used(), 120, "an allocation is whole or not at all");
    assert!(matches!(file.write_at(&[3; 60], 90), Err(Error::DiskFull { .. })));
    assert_eq!((file.size().unwrap(), disk.used()), (130, 150));
    file.write_at(&[4; 130], 0).unwrap();
    assert!(
        matches!(
            disk.kill().open(path("/a"), FileMode::ReadWrite).unwrap().allocate(131),
            Err(Error::DiskFull { .. })
        ),
        "a new disk is as large"
    );
    disk.remove_file(path("/b")).unwrap();
    file.allocate(150).unwrap();
    disk.set_capacity(None);
    file.allocate(1000).unwrap();
}

#[test]
fn tampering_changes_both_images_and_no_map() {
    let (disk, file) = disk_with(&[1; 10_000]);
    let mapped = file.map_read_only(10_000).unwrap();
    disk.destroy_page(path("/a"), 1);
    disk.zero_page(path("/a"), 2);
    disk.write_raw(path("/a"), 10_100, b"abc");
    let bytes = disk.read(path("/a"));
    assert_eq!(bytes, disk.read_durable(path("/a")));
    assert_eq!(bytes[..4096], [1; 4096]);
    assert!(bytes[4096..8192].iter().collect::<BTreeSet<_>>().len() > 200, "noise");
    assert_eq!(bytes[8192..10_100], [0; 1908]);
    assert_eq!(bytes[10_100..], *b"abc");
    assert_eq!(mapped.slice(0, 10_000), [1; 10_000]);
    disk.truncate_raw(path("/a"), 5);
    assert_eq!(disk.crash(1, CrashMode::Random).read(path("/a")), [1; 5]);
    assert_eq!(file.size().unwrap(), 5);
}

#[test]
fn a_file_removed_by_tampering_does_not_come_back() {
    let (disk, _) = disk_with(b"old");
    create(&disk, "/a.new", b"new");
    disk.rename(path("/a.new"), path("/a")).unwrap();
    disk.remove_raw(path("/a"));
    for seed in 0..20 {
        assert!(names(&disk.crash(seed, CrashMode::Random)).is_empty());
    }
}

#[test]
fn whether_maps_can_be_stored_into_is_a_setting() {
    let disk = FaultyDisk::new();
    assert!(disk.can_store_into_maps(path("/")));
    disk.set_can_store_into_maps(false);
    assert!(!disk.crash(1, CrashMode::LoseAll).can_store_into_maps(path("/")));
}

#[test]
fn whatever_was_changed_a_crash_that_keeps_all_gives_the_live_disk() {
    let disk = FaultyDisk::new();
    let mut random = Random::new(1);
    for step in 0..500_u32 {
        let (one, two) = (format!("/{}", random.byte() % 8), format!("/{}", random.byte() % 8));
        match random.byte() % 8 {
            0..3 => create(&disk, &one, &vec![random.byte(); usize::from(random.byte()) * 9])
                .write_at(b"more", u64::from(random.byte()) * 11)
                .unwrap(),
            // Either may be missing.
            3 => drop(disk.rename(path(&one), path(&two))),
            4 => drop(disk.remove_file(path(&one))),
            5 => disk.sync_dir(path("/")).unwrap(),
            _ => drop(disk.open(path(&one), FileMode::Read).and_then(|file| file.sync())),
        }
        let bytes = |disk: &FaultyDisk| -> Vec<Vec<u8>> {
            disk.paths().iter().map(|path| disk.read(path)).collect()
        };
        for same in [disk.crash(u64::from(step), CrashMode::KeepAll), disk.kill()] {
            assert_eq!((same.paths(), bytes(&same)), (disk.paths(), bytes(&disk)), "step {step}");
        }
        let (lost, killed) = (disk.crash(1, CrashMode::LoseAll), disk.kill());
        let lost_later = killed.crash(2, CrashMode::LoseAll);
        assert_eq!((lost.paths(), bytes(&lost)), (lost_later.paths(), bytes(&lost_later)));
    }
}
