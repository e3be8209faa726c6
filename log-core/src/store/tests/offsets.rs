//! Committed offsets: order, durability, snapshots, power cuts.

use std::collections::BTreeMap;

use super::{append, create, name, open, open_limited, reopen, small};
use crate::config::{FlushPolicy, StoreConfig, TopicConfig};
use crate::disk::{CrashMode, FaultyDisk};
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::Offset;
use crate::record::Record;
use crate::store::{GroupOffsets, OffsetCommit, OpenMode, Store};

fn group(raw: &str) -> GroupName {
    GroupName::parse(raw).unwrap()
}

/// A store with a topic `t` of two partitions that hold 100 records each.
fn prepare(disk: &FaultyDisk) -> Store {
    let store = create(disk);
    let topic = store.create_topic(&name("t"), 2, small()).unwrap();
    for partition in topic.partitions() {
        partition.unwrap().append(&[Record::new(b"x"); 100]).unwrap();
    }
    store
}

fn offset(offsets: &GroupOffsets, who: &str, partition: u32) -> Option<Offset> {
    let fetched = offsets.fetch(&group(who), &name("t"), partition).unwrap();
    fetched.map(|committed| committed.offset)
}

#[test]
fn a_commit_is_kept_and_never_goes_back() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    assert_eq!(offset(&offsets, "g", 0), None);
    assert!(store.all_topics().len() == 1, "no commit, no topic for commits");
    offsets.commit(&g, &t, 0, 7).unwrap();
    offsets.commit(&g, &t, 0, 7).unwrap();
    let refused = offsets.commit(&g, &t, 0, 6);
    assert!(
        matches!(refused, Err(Error::OffsetWentBack { committed: 7, offset: 6, .. })),
        "{refused:?}"
    );
    assert_eq!(offset(&offsets, "g", 0), Some(7));
    offsets.reset(&g, &[OffsetCommit::new(&t, 0, 2)]).unwrap();
    assert_eq!(offset(&offsets, "g", 0), Some(2));
    let with_text = OffsetCommit { metadata: "here", ..OffsetCommit::new(&t, 1, 100) };
    offsets.commit_all(&g, &[OffsetCommit::new(&t, 0, 3), with_text]).unwrap();
    drop((store, offsets));

    let store = open(&disk.crash(1, CrashMode::LoseAll), OpenMode::MustExist).unwrap();
    let offsets = store.group_offsets();
    let list = offsets.list(&g).unwrap();
    let lines: Vec<_> = list.iter().map(|l| (l.partition, l.committed.offset)).collect();
    assert_eq!(lines, [(0, 3), (1, 100)]);
    assert_eq!(&*list[1].committed.metadata, "here");
    assert_eq!(list[1].committed.committed_at.as_millis(), 1_000);
    assert_eq!(offsets.groups().unwrap(), [g]);
    assert_eq!(offsets.list_all().unwrap().len(), 2);
}

#[test]
fn a_batch_of_commits_is_refused_as_a_whole() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    offsets.commit(&g, &t, 1, 50).unwrap();
    let gone = name("gone");
    let long = "x".repeat(5_000);
    for bad in [
        OffsetCommit::new(&t, 1, 49),
        OffsetCommit::new(&t, 1, 101),
        OffsetCommit::new(&t, 2, 0),
        OffsetCommit::new(&gone, 0, 0),
        OffsetCommit { topic_id: Some(1), ..OffsetCommit::new(&t, 1, 60) },
        OffsetCommit { metadata: &long, ..OffsetCommit::new(&t, 1, 60) },
    ] {
        offsets.commit_all(&g, &[OffsetCommit::new(&t, 0, 9), bad]).unwrap_err();
        assert_eq!((offset(&offsets, "g", 0), offset(&offsets, "g", 1)), (None, Some(50)));
    }
}

#[test]
fn entries_are_deleted_for_good() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, t) = (store.group_offsets(), name("t"));
    assert!(!offsets.delete(&group("a"), &t, 0).unwrap());
    for who in ["a", "b"] {
        offsets.commit(&group(who), &t, 0, 5).unwrap();
        offsets.commit(&group(who), &t, 1, 6).unwrap();
    }
    assert!(offsets.delete(&group("a"), &t, 0).unwrap());
    assert!(!offsets.delete(&group("a"), &t, 0).unwrap());
    assert_eq!(offsets.delete_group(&group("b")).unwrap(), 2);
    assert_eq!(offsets.delete_group(&group("b")).unwrap(), 0);
    store.close().unwrap();
    let store = reopen(&disk);
    let left = store.group_offsets().list_all().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].group.as_str(), left[0].partition), ("a", 1));
    // What is gone may be committed anew, from anywhere.
    store.group_offsets().commit(&group("b"), &t, 0, 1).unwrap();
}

#[test]
fn there_is_a_limit_and_what_is_there_may_still_move() {
    let disk = FaultyDisk::new();
    prepare(&disk).close().unwrap();
    let config = StoreConfig { group_offsets_max: 2, ..StoreConfig::default() };
    let store = open_limited(&disk, OpenMode::MustExist, config).unwrap();
    let (offsets, t) = (store.group_offsets(), name("t"));
    offsets.commit(&group("a"), &t, 0, 1).unwrap();
    offsets.commit(&group("b"), &t, 0, 1).unwrap();
    let refused = offsets.commit(&group("c"), &t, 0, 1);
    assert!(matches!(refused, Err(Error::TooLarge { limit: 2, .. })), "{refused:?}");
    offsets.commit(&group("a"), &t, 0, 2).unwrap();
    offsets.delete_group(&group("b")).unwrap();
    offsets.commit(&group("c"), &t, 0, 1).unwrap();
}

#[test]
fn the_log_of_commits_is_bounded() {
    let disk = FaultyDisk::new();
    disk.set_file_capacity(8 * 1024 * 1024);
    let store = prepare(&disk);
    let (offsets, t) = (store.group_offsets(), name("t"));
    offsets.commit(&group("idle"), &t, 1, 42).unwrap();
    let text = "y".repeat(4_096);
    for round in 0..1_000 {
        let commit =
            OffsetCommit { metadata: &text, ..OffsetCommit::new(&t, 0, (round / 10).min(100)) };
        offsets.commit_all(&group("busy"), &[commit]).unwrap();
        if round % 50 == 0 {
            let _ = store.maintain();
        }
    }
    let log = store.topic(&TopicName::offsets()).unwrap().partition(0).unwrap();
    let ends = log.ends();
    assert!(ends.end - ends.log_start < 400, "{ends:?}");
    assert_eq!(store.metrics().maintenance_failures.value(), 0);
    store.close().unwrap();
    let offsets = reopen(&disk).group_offsets();
    assert_eq!((offset(&offsets, "idle", 1), offset(&offsets, "busy", 0)), (Some(42), Some(99)));
}

#[test]
fn a_deleted_topics_offsets_are_gone_with_it() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    offsets.commit(&g, &t, 0, 90).unwrap();
    let old = store.topic(&t).unwrap().id();
    store.delete_topic(&t).unwrap();
    assert!(matches!(offsets.fetch(&g, &t, 0), Err(Error::UnknownTopic(_))));
    assert!(offsets.list_all().unwrap().is_empty());
    let topic = store.create_topic(&t, 2, small()).unwrap();
    append(&topic, 0, "new").unwrap();
    assert_eq!(offset(&offsets, "g", 0), None);
    let stale = OffsetCommit { topic_id: Some(old), ..OffsetCommit::new(&t, 0, 0) };
    assert!(matches!(offsets.commit_all(&g, &[stale]), Err(Error::StaleTopic(_))));
    drop((topic, store, offsets));
    let offsets = reopen(&disk).group_offsets();
    assert_eq!(offset(&offsets, "g", 0), None);
    offsets.commit(&g, &t, 0, 1).unwrap();
}

#[test]
fn a_commit_past_the_end_is_moved_back_before_anything_is_appended() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let config = TopicConfig { flush: FlushPolicy::Os, ..small() };
    let topic = store.create_topic(&name("t"), 1, config).unwrap();
    for _ in 0..100 {
        append(&topic, 0, "x").unwrap();
    }
    store.group_offsets().commit(&group("g"), &name("t"), 0, 100).unwrap();
    let disk = disk.crash(0, CrashMode::LoseAll);

    let store = reopen(&disk);
    let topic = store.topic(&name("t")).unwrap();
    let end = topic.partition(0).unwrap().ends().end;
    assert!(end < 100);
    for _ in 0..10 {
        append(&topic, 0, "new").unwrap();
    }
    let fetched = |store: &Store| {
        let fetched = store.group_offsets().fetch(&group("g"), &name("t"), 0).unwrap().unwrap();
        (fetched.offset, fetched.clamped_from)
    };
    assert_eq!(fetched(&store), (end, Some(100)));
    drop((topic, store));
    // It stays there after another stop, though the end has moved on.
    let store = reopen(&disk);
    assert_eq!(fetched(&store), (end, Some(100)));
    store.group_offsets().commit(&group("g"), &name("t"), 0, end + 1).unwrap();
    assert_eq!(fetched(&store), (end + 1, None));
}

#[test]
fn what_may_be_lost_is_not_answered_with_what_is_older() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, t) = (store.group_offsets(), name("t"));
    for offset in 0..20 {
        offsets.commit(&group("old"), &t, 0, offset).unwrap();
    }
    offsets.commit(&group("sure"), &t, 0, 30).unwrap();
    let dir = store.topic(&TopicName::offsets()).unwrap().partition(0).unwrap().path().to_owned();
    store.close().unwrap();
    let log = crate::disk::Disk::list(&disk, &dir).unwrap();
    let log = log.iter().find(|entry| entry.name.ends_with(".log")).unwrap();
    // A byte in the middle of the commits of "old".
    let path = dir.join(&log.name);
    let bytes = disk.read(&path);
    let at = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"old")).nth(10).unwrap();
    disk.write_raw(&path, at as u64, b"X");

    let store = reopen(&disk);
    let offsets = store.group_offsets();
    assert!(matches!(offsets.doubt(), Some(Error::Corrupt(_))), "{:?}", offsets.doubt());
    assert_eq!(offset(&offsets, "sure", 0), Some(30));
    let never = offsets.fetch(&group("never"), &t, 0);
    assert!(matches!(never, Err(Error::Corrupt(_))), "{never:?}");
    offsets.accept_loss().unwrap();
    assert_eq!(offset(&offsets, "never", 0), None);
    assert_eq!(offset(&offsets, "sure", 0), Some(30));
    store.close().unwrap();
    assert!(reopen(&disk).group_offsets().doubt().is_none());
}

#[test]
fn commits_of_many_groups_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreConfig::default(), OpenMode::CreateIfMissing).unwrap();
    let topic = store.create_topic(&name("t"), 1, small()).unwrap();
    topic.partition(0).unwrap().append(&[Record::new(b"x"); 100]).unwrap();
    let before = store.metrics().syncs.value();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let offsets = store.group_offsets();
            scope.spawn(move || {
                let group = group(&format!("g{thread}"));
                for offset in 1..=50 {
                    offsets.commit(&group, &name("t"), 0, offset).unwrap();
                    let shown = offsets.fetch(&group, &name("t"), 0).unwrap().unwrap();
                    assert_eq!(shown.offset, offset);
                }
            });
        }
    });
    let syncs = store.metrics().syncs.value() - before;
    assert!(syncs < 300, "{syncs} syncs for 400 commits");
    let (sender, receiver) = std::sync::mpsc::channel();
    let t = name("t");
    for offset in 51..=100 {
        let sender = sender.clone();
        let then = move |outcome: Result<()>| sender.send(outcome).unwrap();
        store.group_offsets().commit_then(&group("g0"), &[OffsetCommit::new(&t, 0, offset)], then);
    }
    drop(sender);
    assert_eq!(receiver.iter().map(Result::unwrap).count(), 50);
    assert_eq!(offset(&store.group_offsets(), "g0", 0), Some(100));
    store.close().unwrap();
}

type Model = BTreeMap<(String, u32), Offset>;

/// Commits, deletions and two snapshots; stops at the first failure. Tells what was acknowledged,
/// and what the step that failed would have led to.
fn run(store: &Store) -> (Model, Option<Model>) {
    let (offsets, t) = (store.group_offsets(), name("t"));
    let mut sure = Model::new();
    for step in 0..16_u64 {
        let mut next = sure.clone();
        let who = ["a", "b", "c"][usize::try_from(step % 3).unwrap()];
        let outcome = match step {
            6 | 12 => offsets.snapshot(),
            10 => {
                next.retain(|(group, _), _| group != who);
                offsets.delete_group(&group(who)).map(drop)
            }
            _ => {
                next.insert((who.to_owned(), 0), step);
                next.insert((who.to_owned(), 1), step + 1);
                let both = [OffsetCommit::new(&t, 0, step), OffsetCommit::new(&t, 1, step + 1)];
                offsets.commit_all(&group(who), &both)
            }
        };
        if outcome.is_err() {
            return (sure, Some(next));
        }
        sure = next;
    }
    (sure, None)
}

fn all(store: &Store) -> Model {
    let lines = store.group_offsets().list_all().unwrap();
    let line =
        |l: &crate::store::GroupCommitted| ((l.group.to_string(), l.partition), l.committed.offset);
    lines.iter().map(line).collect()
}

#[test]
fn power_may_go_at_any_call_of_commits_and_snapshots() {
    let (mut looked_at, mut cuts) = (0, 0);
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let store = prepare(&disk);
        let first = disk.calls();
        disk.power_off_at(first + cut);
        let (sure, next) = run(&store);
        let mut crashed = vec![disk.crash(cut, CrashMode::Random)];
        crashed.push(if cut % 2 == 0 { disk.kill() } else { disk.crash(0, CrashMode::LoseAll) });
        for crashed in crashed {
            let store = reopen(&crashed);
            let found = all(&store);
            let fine = found == sure || next.as_ref().is_some_and(|next| found == *next);
            assert!(fine, "call {cut}: {found:?}, expected {sure:?} or {next:?}");
            store.group_offsets().snapshot().unwrap();
            store.close().unwrap();
            assert_eq!(all(&reopen(&crashed)), found);
            looked_at += 1;
        }
        cuts += 1;
        if disk.calls() <= first + cut {
            assert!(next.is_none());
            break;
        }
    }
    assert!(cuts > 60 && looked_at == cuts * 2, "{cuts} cuts, {looked_at} disks");
}

#[test]
fn any_call_of_commits_and_snapshots_may_fail() {
    for at in 0.. {
        let disk = FaultyDisk::new();
        let store = prepare(&disk);
        let first = disk.calls();
        disk.fail_at(first + at, crate::disk::Failure::Io);
        let (sure, next) = run(&store);
        if disk.calls() <= first + at {
            break;
        }
        disk.stop_failing();
        assert_eq!(all(&store), sure, "call {at}: only what is durable is shown");
        drop(store);
        for crashed in [disk.kill(), disk.crash(at, CrashMode::Random)] {
            let found = all(&reopen(&crashed));
            let fine = found == sure || next.as_ref().is_some_and(|next| found == *next);
            assert!(fine, "call {at}: {found:?}, expected {sure:?} or {next:?}");
        }
    }
}
