//! Tests of the store, on a disk in memory.

mod crash;
mod grants;
mod offsets;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::clock::{ManualClock, Timestamp};
use crate::config::{FlushPolicy, StoreConfig, TopicConfig};
use crate::disk::{Call, Disk, FaultyDisk, FileMode};
use crate::error::{Error, Fault, Result};
use crate::name::TopicName;
use crate::partition::Partition;
use crate::record::Record;
use crate::store::{OpenMode, Rebuild, Store, Topic};

const DATA: &str = "/data";

fn open(disk: &FaultyDisk, mode: OpenMode) -> Result<Store> {
    open_limited(disk, mode, StoreConfig::default())
}

fn open_limited(disk: &FaultyDisk, mode: OpenMode, config: StoreConfig) -> Result<Store> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
    Store::open_with(DATA, config, mode, Arc::new(disk.clone()), clock, Background::manual())
}

fn create(disk: &FaultyDisk) -> Store {
    open(disk, OpenMode::CreateIfMissing).unwrap()
}

fn reopen(disk: &FaultyDisk) -> Store {
    open(disk, OpenMode::MustExist).unwrap()
}

fn name(raw: &str) -> TopicName {
    TopicName::parse(raw).unwrap()
}

/// Small segments, so that a simulated disk need not be large.
fn small() -> TopicConfig {
    TopicConfig {
        segment_max_bytes: 64 * 1024,
        batch_max_bytes: 16 * 1024,
        record_max_bytes: 8 * 1024,
        ..TopicConfig::default()
    }
}

fn append(topic: &Topic, partition: u32, value: &str) -> Result<u64> {
    let appended = topic.partition(partition)?.append(&[Record::new(value.as_bytes())])?;
    Ok(appended.base_offset)
}

fn values(partition: &Partition) -> Vec<String> {
    let mut found = Vec::new();
    let mut from = partition.ends().log_start;
    while from < partition.readable_end() {
        let fetched = partition.read(from, 1 << 20).unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        fetched.for_each(|record| found.push(text(record.value.unwrap()))).unwrap();
        from = fetched.next;
    }
    found
}

/// What is in the directory of topics.
fn dirs(disk: &FaultyDisk) -> Vec<String> {
    let entries = disk.list(&Path::new(DATA).join("topics")).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_store_that_is_not_there_is_made_only_if_asked() {
    let disk = FaultyDisk::new();
    for mode in [OpenMode::MustExist, OpenMode::ReadOnly] {
        assert!(matches!(open(&disk, mode), Err(Error::NoStore { .. })));
    }
    assert!(disk.list(Path::new("/")).unwrap().is_empty(), "nothing was made");
    create(&disk).close().unwrap();
    assert!(reopen(&disk).topics().is_empty());
}

#[test]
fn directories_above_the_store_are_made_durably() {
    let disk = FaultyDisk::new();
    let open = |disk: &FaultyDisk, mode| {
        let clock = Arc::new(ManualClock::default());
        let (config, background) = (StoreConfig::default(), Background::manual());
        Store::open_with("/a/b/c", config, mode, Arc::new(disk.clone()), clock, background)
    };
    open(&disk, OpenMode::CreateIfMissing).unwrap();
    let crashed = disk.crash(0, crate::disk::CrashMode::LoseAll);
    open(&crashed, OpenMode::MustExist).unwrap();
}

#[test]
fn one_writer_at_a_time_and_readers_without_lock() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let second = open(&disk, OpenMode::CreateIfMissing);
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    open(&disk, OpenMode::ReadOnly).unwrap();
    store.close().unwrap();
    reopen(&disk);
}

#[test]
fn topics_are_found_again_as_they_were_made() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let config = TopicConfig { flush: FlushPolicy::Os, ..small() };
    let orders = store.create_topic(&name("orders"), 3, config.clone()).unwrap();
    store.create_topic(&name("audit"), 1, small()).unwrap();
    assert_eq!(append(&orders, 2, "a").unwrap(), 0);
    store.close().unwrap();

    let store = reopen(&disk);
    let names: Vec<_> = store.topics().iter().map(|topic| topic.name().to_string()).collect();
    assert_eq!(names, ["audit", "orders"]);
    let again = store.topic(&name("orders")).unwrap();
    assert_eq!((again.id(), again.config(), again.partition_count()), (orders.id(), config, 3));
    assert_eq!(values(&again.partition(2).unwrap()), ["a"]);
    let described = store.describe(&name("orders")).unwrap();
    let ends: Vec<_> = described.partitions.into_iter().map(|ends| ends.unwrap().end).collect();
    assert_eq!(ends, [0, 0, 1]);
    assert_eq!(store.reports().len(), 4);
    assert!(store.reports().iter().all(|report| report.outcome.as_ref().unwrap().clean));
    assert!(store.leftovers().is_empty());
}

#[test]
fn bad_input_is_refused_and_leaves_nothing() {
    let disk = FaultyDisk::new();
    let config = StoreConfig { topics_max: 2, ..StoreConfig::default() };
    let store = open_limited(&disk, OpenMode::CreateIfMissing, config).unwrap();
    let topic = store.create_topic(&name("a"), 2, small()).unwrap();
    let before = dirs(&disk);
    for partitions in [0, 10_001] {
        let refused = store.create_topic(&name("b"), partitions, small());
        assert!(matches!(refused, Err(Error::IllegalConfig { setting: "partitions", .. })));
    }
    let refused = store.create_topic(&name("a"), 1, small());
    assert!(matches!(refused, Err(Error::TopicExists(_))));
    let nonsense = TopicConfig { segment_max_bytes: 1, ..small() };
    let refused = store.create_topic(&name("b"), 1, nonsense.clone());
    assert!(matches!(refused, Err(Error::IllegalConfig { .. })));
    assert!(matches!(store.alter_topic(&name("a"), nonsense), Err(Error::IllegalConfig { .. })));
    let offsets = TopicName::offsets();
    for refused in [
        store.create_topic(&offsets, 1, small()).map(drop),
        store.delete_topic(&offsets),
        store.add_partitions(&offsets, 3),
        store.alter_topic(&offsets, small()),
    ] {
        assert!(matches!(refused, Err(Error::IllegalName { .. })), "{refused:?}");
    }
    for refused in [
        store.topic(&name("b")).map(drop),
        store.delete_topic(&name("b")),
        store.add_partitions(&name("b"), 3),
        store.alter_topic(&name("b"), small()),
        store.describe(&name("b")).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::UnknownTopic(_))), "{refused:?}");
    }
    let refused = topic.partition(2);
    assert!(matches!(refused, Err(Error::UnknownPartition { partition: 2, partitions: 2, .. })));
    assert!(matches!(store.add_partitions(&name("a"), 1), Err(Error::IllegalConfig { .. })));
    store.add_partitions(&name("a"), 2).unwrap();
    assert_eq!(dirs(&disk), before);
    store.create_topic(&name("b"), 1, small()).unwrap();
    let refused = store.create_topic(&name("c"), 1, small());
    assert!(matches!(refused, Err(Error::TooLarge { actual: 3, limit: 2, .. })));
}

#[test]
fn a_catalog_that_is_not_a_catalog_is_named_and_nothing_is_touched() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    append(&store.create_topic(&name("a"), 1, small()).unwrap(), 0, "kept").unwrap();
    store.close().unwrap();
    let catalog = Path::new(DATA).join("catalog");
    let file = disk.open(&catalog, FileMode::Read).unwrap();
    let mut good = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    file.read_at(&mut good, 0).unwrap();

    let mut flipped = good.clone();
    flipped[20] ^= 1;
    for (bytes, fault) in [
        (Vec::new(), "the file ends after 0 bytes, 16 are needed"),
        (vec![0; good.len()], "magic number is 00000000"),
        (b"who wrote this here?".to_vec(), "magic number is"),
        (flipped, "catalog checksum is"),
        (good[..good.len() - 1].to_vec(), "the file ends after"),
    ] {
        let file = disk.open(&catalog, FileMode::Create).unwrap();
        file.write_at(&bytes, 0).unwrap();
        for mode in [OpenMode::CreateIfMissing, OpenMode::MustExist, OpenMode::ReadOnly] {
            let error = open(&disk, mode).unwrap_err();
            assert!(matches!(&error, Error::CatalogDamaged { path, .. } if *path == catalog));
            let said = error.to_string();
            assert!(said.contains(fault) && said.contains("backup"), "{said}");
        }
    }
    disk.remove_file(&catalog).unwrap();
    for mode in [OpenMode::CreateIfMissing, OpenMode::MustExist, OpenMode::ReadOnly] {
        let error = open(&disk, mode).unwrap_err();
        let missing = Fault::FileMissing;
        assert!(matches!(&error, Error::CatalogDamaged { fault, .. } if *fault == missing));
    }
    disk.open(&catalog, FileMode::Create).unwrap().write_at(&good, 0).unwrap();
    assert_eq!(values(&reopen(&disk).topic(&name("a")).unwrap().partition(0).unwrap()), ["kept"]);
}

#[test]
fn a_lost_catalog_is_made_anew_from_the_directories() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a-b"), 3, small()).unwrap();
    append(&topic, 1, "kept").unwrap();
    let group = crate::name::GroupName::parse("g").unwrap();
    store.group_offsets().commit(&group, &name("a-b"), 1, 1).unwrap();
    store.close().unwrap();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let rebuild = |how| Store::rebuild_catalog(DATA, &shared, how);
    assert_eq!(rebuild(Rebuild::Apply).unwrap(), None);

    let catalog = Path::new(DATA).join("catalog");
    disk.write_raw(&catalog, 3, b"?");
    let twin = Path::new(DATA).join("topics").join(format!("a-b-{:032x}", 7));
    disk.make_dirs(&twin.join("0"));
    let unclear = rebuild(Rebuild::Apply).unwrap().unwrap();
    assert_eq!((unclear.unclear.len(), unclear.applied), (2, false));
    disk.remove_dir(&twin.join("0")).unwrap();
    disk.remove_dir(&twin).unwrap();

    let would = rebuild(Rebuild::DryRun).unwrap().unwrap();
    assert!(matches!(open(&disk, OpenMode::MustExist), Err(Error::CatalogDamaged { .. })));
    let done = rebuild(Rebuild::Apply).unwrap().unwrap();
    assert_eq!((would.topics, true), (done.topics, done.applied));
    let store = reopen(&disk);
    let again = store.topic(&name("a-b")).unwrap();
    assert_eq!((again.id(), again.partition_count()), (topic.id(), 3));
    assert_eq!(values(&again.partition(1).unwrap()), ["kept"]);
    let committed = store.group_offsets().fetch(&group, &name("a-b"), 1).unwrap().unwrap();
    assert_eq!(committed.offset, 1);
}

#[test]
fn a_topic_is_found_by_its_id_as_long_as_it_is_there() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let ids: Vec<u128> = ["a", "b"]
        .into_iter()
        .map(|raw| store.create_topic(&name(raw), 1, small()).unwrap().id())
        .collect();
    store.add_partitions(&name("b"), 2).unwrap();
    store.close().unwrap();
    assert!(matches!(store.topic_by_id(ids[0]), Err(Error::Closed { .. })));
    drop(store);

    let store = reopen(&disk);
    assert_eq!(store.topic_by_id(ids[0]).unwrap().name(), &name("a"));
    assert_eq!(store.topic_by_id(ids[1]).unwrap().partition_count(), 2);
    store.delete_topic(&name("a")).unwrap();
    let anew = store.create_topic(&name("a"), 1, small()).unwrap();
    let gone = store.topic_by_id(ids[0]);
    assert!(matches!(gone, Err(Error::UnknownTopicId(id)) if id == ids[0]), "{gone:?}");
    assert_eq!(store.topic_by_id(anew.id()).unwrap().name(), &name("a"));
    assert!(store.topic_by_id(ids[1]).is_ok());
}

#[test]
fn a_deleted_topic_is_gone_with_its_files_and_handles() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let old = store.create_topic(&name("a"), 2, small()).unwrap();
    append(&old, 0, "old").unwrap();
    let held = old.partition(0).unwrap();
    store.delete_topic(&name("a")).unwrap();
    assert!(dirs(&disk).is_empty());
    assert!(matches!(old.partition(0), Err(Error::Closed { what: "topic" })));
    assert!(matches!(held.append(&[Record::new(b"x")]), Err(Error::Closed { .. })));

    let new = store.create_topic(&name("a"), 2, small()).unwrap();
    assert_ne!(new.id(), old.id());
    assert!(values(&new.partition(0).unwrap()).is_empty());
    store.close().unwrap();
    assert_eq!(reopen(&disk).topics().len(), 1);
}

#[test]
fn partitions_are_added_and_stay() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a"), 1, small()).unwrap();
    append(&topic, 0, "first").unwrap();
    let version = store.topics_version();
    store.add_partitions(&name("a"), 3).unwrap();
    assert_ne!(store.topics_version(), version);
    append(&topic, 2, "third").unwrap();
    store.close().unwrap();
    let topic = reopen(&disk).topic(&name("a")).unwrap();
    let found: Vec<_> = topic.partitions().into_iter().map(|one| values(&one.unwrap())).collect();
    assert_eq!(found, [vec!["first".to_owned()], vec![], vec!["third".to_owned()]]);
}

#[test]
fn a_topic_behaves_as_altered_also_after_reopening() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a"), 1, small()).unwrap();
    let altered = TopicConfig { flush: FlushPolicy::Os, ..small() };
    store.alter_topic(&name("a"), altered.clone()).unwrap();
    assert_eq!(topic.config(), altered);
    let syncs = disk.calls_of(Call::Sync);
    append(&topic, 0, "unsynced").unwrap();
    append(&topic, 0, "unsynced").unwrap();
    assert!(disk.calls_of(Call::Sync) <= syncs + 1, "at most for the segment itself");
    store.close().unwrap();
    assert_eq!(reopen(&disk).topic(&name("a")).unwrap().config(), altered);
}

#[test]
fn what_the_catalog_does_not_list_is_told_and_left_alone() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    store.create_topic(&name("a"), 1, small()).unwrap();
    store.close().unwrap();
    let topics = Path::new(DATA).join("topics");
    let inside = topics.join(&dirs(&disk)[0]).join("7");
    let beside = topics.join("b-000102");
    for dir in [&inside, &beside] {
        disk.create_dir(dir).unwrap();
    }
    let store = reopen(&disk);
    let found: Vec<_> = store.leftovers().iter().map(|leftover| leftover.path.clone()).collect();
    assert_eq!(found, [beside.clone(), inside.clone()]);
    for dir in [&inside, &beside] {
        disk.list(dir).unwrap();
    }
    // A partition that would have to be made in the place of one is refused, not mixed with it.
    let refused = store.add_partitions(&name("a"), 8);
    assert!(matches!(&refused, Err(Error::Io { path, .. }) if *path == inside), "{refused:?}");
    assert_eq!(store.topic(&name("a")).unwrap().partition_count(), 1);
    disk.list(&inside).unwrap();
}

#[test]
fn a_partition_that_is_lost_keeps_no_other_closed() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a"), 3, small()).unwrap();
    for partition in 0..3 {
        append(&topic, partition, "kept").unwrap();
    }
    store.close().unwrap();
    let lost = Path::new(DATA).join("topics").join(&dirs(&disk)[0]).join("1");
    for entry in disk.list(&lost).unwrap() {
        disk.remove_file(&lost.join(entry.name)).unwrap();
    }
    disk.remove_dir(&lost).unwrap();

    let store = reopen(&disk);
    let topic = store.topic(&name("a")).unwrap();
    for partition in [0, 2] {
        assert_eq!(values(&topic.partition(partition).unwrap()), ["kept"]);
        append(&topic, partition, "more").unwrap();
    }
    let refusal = match topic.partition(1) {
        Ok(partition) => partition.append(&[Record::new(b"x")]).unwrap_err(),
        Err(error) => error,
    };
    assert!(refusal.to_string().contains("/1"), "{refusal}");
    let report = store.reports().into_iter().find(|report| report.partition == 1).unwrap();
    assert!(report.outcome.is_err() || report.outcome.unwrap().needs_attention());
    // Records without a key do not go there.
    for _ in 0..100 {
        let _ = topic.choose(&Record::new(&[0; 1000]));
    }
    store.close().unwrap();
}

#[test]
fn reading_only_writes_nothing() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a"), 1, small()).unwrap();
    append(&topic, 0, "kept").unwrap();
    drop((store, topic));
    let disk = disk.crash(1, crate::disk::CrashMode::KeepAll);
    let writes = [Call::Write, Call::Allocate, Call::Sync, Call::SyncDir, Call::Lock];
    for call in writes.into_iter().chain([Call::CreateDir, Call::Rename, Call::RemoveFile]) {
        disk.fail_calls(call, 0, u64::MAX, crate::disk::Failure::Io);
    }
    let store = open(&disk, OpenMode::ReadOnly).unwrap();
    let topic = store.topic(&name("a")).unwrap();
    assert_eq!(values(&topic.partition(0).unwrap()), ["kept"]);
    let group = crate::name::GroupName::parse("g").unwrap();
    for refused in [
        append(&topic, 0, "x").map(drop),
        store.create_topic(&name("b"), 1, small()).map(drop),
        store.delete_topic(&name("a")),
        store.add_partitions(&name("a"), 2),
        store.alter_topic(&name("a"), small()),
        store.group_offsets().commit(&group, &name("a"), 0, 0),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
    assert!(store.maintain().is_empty());
    store.close().unwrap();
}

#[test]
fn closing_is_final_and_may_be_repeated() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let topic = store.create_topic(&name("a"), 1, small()).unwrap();
    store.close().unwrap();
    store.close().unwrap();
    for refused in [
        append(&topic, 0, "x").map(drop),
        store.topic(&name("a")).map(drop),
        store.create_topic(&name("b"), 1, small()).map(drop),
        store.delete_topic(&name("a")),
    ] {
        assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    }
}

#[test]
fn dropping_frees_the_directory_and_stops_what_is_held() {
    let disk = FaultyDisk::new();
    let topic = create(&disk).create_topic(&name("a"), 1, small()).unwrap();
    append(&topic, 0, "a topic keeps its store open").unwrap();
    let partition = topic.partition(0).unwrap();
    drop(topic);
    let refused = partition.append(&[Record::new(b"x")]);
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    let store = reopen(&disk);
    assert!(!store.reports()[0].outcome.as_ref().unwrap().clean);
    assert_eq!(store.topic(&name("a")).unwrap().partition(0).unwrap().ends().end, 1);
}

#[test]
fn the_thread_maintains_and_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        StoreConfig { maintenance_every: Duration::from_millis(1), ..StoreConfig::default() };
    let store = Store::open(dir.path(), config, OpenMode::CreateIfMissing).unwrap();
    let retention = crate::config::RetentionPolicy { max_bytes: Some(1), max_age: None };
    let topic = store.create_topic(&name("a"), 1, TopicConfig { retention, ..small() }).unwrap();
    for _ in 0..32 {
        let value = vec![7; 8_000];
        topic.append(&Record::new(&value)).unwrap();
    }
    let partition = topic.partition(0).unwrap();
    // Retention goes on by itself: wait for it by waiting for records that never come.
    for _ in 0..1_000 {
        if partition.ends().log_start > 0 {
            break;
        }
        partition.wait_readable(1_000, Duration::from_millis(10));
    }
    assert!(partition.ends().log_start > 0);
    store.close().unwrap();

    let config =
        StoreConfig { maintenance_every: Duration::from_secs(3_600), ..StoreConfig::default() };
    let store = Store::open(dir.path(), config, OpenMode::MustExist).unwrap();
    drop(store);
}
