//! Faults that other systems had around topics and committed offsets, named by their cases.

use std::path::Path;
use std::sync::Arc;

use log_core::clock::SystemClock;
use log_core::disk::{CrashMode, Disk, FaultyDisk, FileMode};
use log_core::store::{GroupOffsets, OffsetCommit, OpenMode, Topic};
use log_core::{Error, FlushPolicy, Record, StartFrom};

use crate::support::Random;
use crate::support::stores::{
    create_store as create, group, name, open_store as open, open_store_at as open_at, small,
};

fn fill(topic: &Topic, partition: u32, records: usize) {
    let partition = topic.partition(partition).expect("a partition");
    for _ in 0..records {
        partition.append(&[Record::new(b"x")]).expect("an append");
    }
}

/// A04: the catalog is empty, zeros, or not there. Never a panic, the file is named, and nothing
/// is taken for an empty store.
#[test]
fn a04_the_catalog_is_empty_zeros_or_missing() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    fill(&store.create_topic(&name("t"), 1, small(FlushPolicy::Sync)).unwrap(), 0, 1);
    store.close().unwrap();
    let catalog = Path::new("/data/catalog");
    let good = disk.read(catalog);
    for bad in [Some(Vec::new()), Some(vec![0; good.len()]), None] {
        match &bad {
            Some(bytes) => {
                disk.open(catalog, FileMode::Create).unwrap().write_at(bytes, 0).unwrap();
            }
            None => disk.remove_file(catalog).unwrap(),
        }
        let error = open(&disk, OpenMode::CreateIfMissing).unwrap_err();
        assert!(matches!(&error, Error::CatalogDamaged { path, .. } if path == catalog));
    }
    disk.open(catalog, FileMode::Create).unwrap().write_at(&good, 0).unwrap();
    open(&disk, OpenMode::MustExist).unwrap();
}

/// A10: the power goes between the unlinks of a deletion. It is completed, nothing comes back.
#[test]
fn a10_a_deletion_is_cut_at_each_unlink() {
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let store = create(&disk);
        fill(&store.create_topic(&name("t"), 3, small(FlushPolicy::Sync)).unwrap(), 1, 1);
        let first = disk.calls();
        disk.power_off_at(first + cut);
        let outcome = store.delete_topic(&name("t"));
        let is_last = disk.calls() <= first + cut;
        let disk = disk.crash(cut, CrashMode::Random);
        let store = open(&disk, OpenMode::MustExist).unwrap();
        let left = disk.list(Path::new("/data/topics")).unwrap().len();
        match store.topic(&name("t")) {
            Ok(topic) => {
                assert!(outcome.is_err());
                assert_eq!((topic.partition(1).unwrap().ends().end, left), (1, 1));
            }
            Err(_) => assert_eq!(left, 0, "completed by the opening"),
        }
        assert!(store.leftovers().is_empty());
        if is_last {
            break;
        }
    }
}

/// A17: new files may be missing after a power loss. A topic that was made is there, with its
/// first record.
#[test]
fn a17_a_new_topic_and_its_first_record_survive() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    fill(&store.create_topic(&name("t"), 2, small(FlushPolicy::Sync)).unwrap(), 1, 1);
    for mode in [CrashMode::LoseAll, CrashMode::LoseNames, CrashMode::LoseSizes] {
        let store = open(&disk.crash(0, mode), OpenMode::MustExist).unwrap();
        let topic = store.topic(&name("t")).unwrap();
        assert_eq!(topic.partition(1).unwrap().ends().end, 1, "{mode:?}");
    }
}

/// A21: a rewrite that stops half way. The snapshot of committed offsets is cut at each of its
/// calls; the state is as before, each time.
#[test]
fn a21_a_snapshot_of_offsets_is_cut_at_each_call() {
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let store = create(&disk);
        fill(&store.create_topic(&name("t"), 1, small(FlushPolicy::Sync)).unwrap(), 0, 9);
        let offsets = store.group_offsets();
        for offset in 0..8 {
            for who in ["a", "b", "c"] {
                offsets.commit(&group(who), &name("t"), 0, offset).unwrap();
            }
        }
        offsets.delete_group(&group("b")).unwrap();
        let model = offsets.list_all().unwrap();
        let first = disk.calls();
        disk.power_off_at(first + cut);
        let outcome = offsets.snapshot();
        for disk in [disk.kill(), disk.crash(cut, CrashMode::Random)] {
            let store = open(&disk, OpenMode::MustExist).unwrap();
            assert_eq!(store.group_offsets().list_all().unwrap(), model, "call {cut}");
        }
        if disk.calls() <= first + cut {
            outcome.unwrap();
            break;
        }
    }
}

/// D05: committed offsets belong to the group, not to the member that committed them.
#[test]
fn d05_another_member_goes_on_where_the_group_stopped() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    fill(&store.create_topic(&name("t"), 1, small(FlushPolicy::Sync)).unwrap(), 0, 80);
    store.group_offsets().commit(&group("g"), &name("t"), 0, 77).unwrap();
    store.close().unwrap();
    let offsets = open(&disk, OpenMode::MustExist).unwrap().group_offsets();
    let committed = offsets.fetch(&group("g"), &name("t"), 0).unwrap().unwrap();
    assert_eq!(committed.offset, 77);
    assert_eq!(offsets.list_all().unwrap().len(), 1, "one line for group, topic and partition");
}

/// D06: a commit past the end. The end is taken, what is past it is refused, below the oldest
/// record is taken; a read from what was committed never loops.
#[test]
fn d06_only_what_can_be_read_next_is_committed() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("t"), 3, small(FlushPolicy::Sync)).unwrap();
    let (full, empty, trimmed) = (0, 1, 2);
    fill(&topic, full, 10);
    fill(&topic, trimmed, 10);
    topic.partition(trimmed).unwrap().trim(5).unwrap();
    let offsets = store.group_offsets();
    for (number, end) in [(full, 10), (empty, 0), (trimmed, 10)] {
        for past in [end + 1, end + 1_000, u64::MAX] {
            let refused = offsets.commit(&group("g"), &name("t"), number, past);
            let Err(Error::OffsetBeyondEnd { offset, end: at, .. }) = refused else {
                panic!("{number}: {refused:?}");
            };
            assert_eq!((offset, at), (past, end));
        }
        assert_eq!(offsets.fetch(&group("g"), &name("t"), number).unwrap(), None);
        offsets.commit(&group("g"), &name("t"), number, end).unwrap();
        let fetched = topic.partition(number).unwrap().read(end, 1_024).unwrap();
        assert!(fetched.bytes.is_empty() && fetched.next == end);
    }
    // Below what retention has left: taken, and reading there says what is the matter.
    offsets.reset(&group("g"), &[OffsetCommit::new(&name("t"), trimmed, 4)]).unwrap();
    let partition = topic.partition(trimmed).unwrap();
    let read = partition.read(4, 1_024);
    assert!(matches!(read, Err(Error::OffsetOutOfRange { offset: 4, log_start: 5, .. })));
    assert_eq!(partition.resolve(StartFrom::Earliest).unwrap(), 5);
}

/// D09: offsets of a deleted topic apply to a new one of its name.
#[test]
fn d09_a_new_topic_of_the_same_name_has_no_offsets() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let old = store.create_topic(&name("t"), 1, small(FlushPolicy::Sync)).unwrap();
    fill(&old, 0, 900);
    let (g, t) = (group("g"), name("t"));
    store.group_offsets().commit(&g, &t, 0, 900).unwrap();
    store.delete_topic(&t).unwrap();
    let new = store.create_topic(&t, 1, small(FlushPolicy::Sync)).unwrap();
    fill(&new, 0, 10);
    assert!(matches!(old.partition(0), Err(Error::Closed { .. })));
    for store in [store.clone(), open(&disk.kill(), OpenMode::MustExist).unwrap()] {
        let offsets = store.group_offsets();
        assert_eq!(offsets.fetch(&g, &t, 0).unwrap(), None);
        let cached = OffsetCommit { topic_id: Some(old.id()), ..OffsetCommit::new(&t, 0, 5) };
        let refused = offsets.commit_all(&g, &[cached]);
        assert!(matches!(refused, Err(Error::StaleTopic(_))), "{refused:?}");
    }
}

/// D14: committed offsets were more durable than the records. The position is moved back to where
/// the log ended, says so, and the records appended since are delivered.
#[test]
fn d14_a_position_ahead_of_the_end_skips_nothing() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("t"), 1, small(FlushPolicy::Os)).unwrap();
    fill(&topic, 0, 60);
    topic.partition(0).unwrap().sync().unwrap();
    fill(&topic, 0, 40);
    store.group_offsets().commit(&group("g"), &name("t"), 0, 100).unwrap();

    let disk = disk.crash(0, CrashMode::LoseAll);
    let store = open(&disk, OpenMode::MustExist).unwrap();
    let topic = store.topic(&name("t")).unwrap();
    let end = topic.partition(0).unwrap().ends().end;
    assert!(end < 100, "the power cut has taken records");
    fill(&topic, 0, 10);
    let committed = store.group_offsets().fetch(&group("g"), &name("t"), 0).unwrap().unwrap();
    assert_eq!((committed.offset, committed.clamped_from), (end, Some(100)));
    let mut delivered = 0;
    let mut next = committed.offset;
    while next < topic.partition(0).unwrap().readable_end() {
        let fetched = topic.partition(0).unwrap().read(next, 1_024).unwrap();
        fetched.for_each(|_| delivered += 1).unwrap();
        next = fetched.next;
    }
    assert_eq!(delivered, 10);
}

/// D12: what is in memory and what a fresh process finds are the same, whatever four clients did at
/// once.
#[test]
fn d12_offsets_in_memory_are_those_that_are_read_back() {
    for seed in 0..12 {
        let disk = FaultyDisk::new();
        // Leaders of a group commit linger, so time must pass.
        let clock = Arc::new(SystemClock::new());
        let store = open_at(&disk, OpenMode::CreateIfMissing, clock).unwrap();
        for topic in ["s", "t"] {
            let topic = store.create_topic(&name(topic), 3, small(FlushPolicy::Sync)).unwrap();
            (0..3).for_each(|partition| fill(&topic, partition, 30));
        }
        for round in 0..4 {
            std::thread::scope(|clients| {
                for client in 0..4 {
                    let offsets = store.group_offsets();
                    let mut random = Random::new(seed * 1_000 + round * 10 + client);
                    clients.spawn(move || (0..25).for_each(|_| change(&offsets, &mut random)));
                }
            });
            let found = store.group_offsets().list_all().unwrap();
            let again = open(&disk.kill(), OpenMode::MustExist).unwrap();
            assert_eq!(again.group_offsets().list_all().unwrap(), found, "seed {seed}");
        }
    }
}

/// Does something to a group. Some of it is refused, as what others do comes between.
fn change(offsets: &GroupOffsets, random: &mut Random) {
    let group = group(random.pick(&["g", "h", "i"]));
    let topic = name(random.pick(&["s", "t"]));
    let (partition, offset) = (random.pick(&[0, 1, 2]), random.below(31));
    let commit = OffsetCommit::new(&topic, partition, offset);
    let outcome = match random.below(20) {
        0 => offsets.delete_group(&group).map(drop),
        1..4 => offsets.delete(&group, &topic, partition).map(drop),
        4..7 => offsets.reset(&group, &[commit]),
        7 => offsets.snapshot(),
        8..12 => {
            let other = OffsetCommit::new(&topic, (partition + 1) % 3, 30);
            offsets.commit_all(&group, &[commit, other])
        }
        _ => offsets.commit(&group, &topic, partition, offset),
    };
    let refused = |error: &Error| matches!(error, Error::OffsetWentBack { .. });
    assert!(outcome.as_ref().err().is_none_or(refused), "{outcome:?}");
}

/// J01: a marker of something begun that can't be completed. Tombstones whose directories are not
/// there, all kinds of them: the opening completes or cancels each.
#[test]
fn j01_what_was_begun_is_completed_or_cancelled_without_its_target() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    store.create_topic(&name("kept"), 1, small(FlushPolicy::Sync)).unwrap();
    store.create_topic(&name("gone"), 2, small(FlushPolicy::Sync)).unwrap();
    // No file can be removed, so tombstones stay: of a topic, and of partitions that were begun.
    disk.fail_calls(log_core::disk::Call::RemoveFile, 0, u64::MAX, log_core::disk::Failure::Io);
    disk.fail_calls(log_core::disk::Call::RemoveDir, 0, u64::MAX, log_core::disk::Failure::Io);
    store.delete_topic(&name("gone")).unwrap();
    let syncs = disk.calls_of(log_core::disk::Call::Sync);
    disk.fail_calls(log_core::disk::Call::Sync, syncs + 1, 1, log_core::disk::Failure::Io);
    store.add_partitions(&name("kept"), 3).unwrap_err();
    let kept = store.topic(&name("kept")).unwrap().partition(0).unwrap().path().to_path_buf();
    drop(store);
    disk.stop_failing();
    // The targets go by another hand.
    let topics = Path::new("/data/topics");
    for path in disk.paths() {
        let is_kept = path.starts_with(&kept) || !path.starts_with(topics);
        if !is_kept && disk.open(&path, FileMode::Read).is_ok() {
            disk.remove_raw(&path);
        }
    }
    let store = open(&disk, OpenMode::MustExist).unwrap();
    assert!(store.leftovers().is_empty(), "{:?}", store.leftovers());
    assert_eq!(disk.list(topics).unwrap().len(), 1);
    store.add_partitions(&name("kept"), 3).unwrap();
    store.create_topic(&name("gone"), 1, small(FlushPolicy::Sync)).unwrap();
    store.close().unwrap();
    assert_eq!(open(&disk, OpenMode::MustExist).unwrap().topics().len(), 2);
}
