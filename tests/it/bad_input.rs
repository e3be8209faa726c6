//! Bad input: names, numbers, directories and files that are not what they should be.
//!
//! Each gives an error of its own that names the thing and the way out; nothing panics, nothing is
//! half done, nothing is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use log_core::clock::Timestamp;
use log_core::disk::{Disk, OsDisk};
use log_core::error::{Error, Fault, Result};
use log_core::partition::Partition;
use log_core::record::{BatchBuilder, Codec, Header, Record};
use log_core::store::{OpenMode, Store, Topic};
use log_core::{FlushPolicy, GroupName, StartFrom, StoreConfig, TopicConfig, TopicName};

use crate::support::log::{append, assert_holds};
use crate::support::stores::{group, name, small};
use crate::system::mount::{Kind, Mounted};
use crate::system::{copy_tree, quiet, remove, skip};

fn open(dir: &Path, mode: OpenMode) -> Result<Store> {
    Store::open(dir, StoreConfig::default(), mode)
}

/// A directory with a store, whose one topic has two partitions with three records each.
fn made() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("log");
    let store = open(&dir, OpenMode::CreateIfMissing).expect("made");
    let topic = store.create_topic(&name("orders"), 2, small(FlushPolicy::Sync)).expect("made");
    for number in 0..2 {
        append(&topic.partition(number).expect("there"), 0..3, 300);
    }
    store.close().expect("closes");
    (home, dir)
}

fn topic(store: &Store) -> Topic {
    store.topic(&name("orders")).expect("there")
}

/// The error's text names the thing and the way out.
#[track_caller]
fn tells(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[track_caller]
fn refused<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

#[test]
fn illegal_names_are_told_with_the_rule_that_they_break() {
    let long = "x".repeat(1_000);
    for raw in ["", ".", "..", "a/b", "a b", "é", "a\0", "../up", "a\n", &long] {
        for error in [refused(TopicName::parse(raw)), refused(GroupName::parse(raw))] {
            let Error::IllegalName { name, why, .. } = &error else { panic!("{error:?}") };
            assert!(name.len() < 300 && !why.is_empty(), "{error}");
            assert!(error.to_string().contains(why));
        }
    }
    tells(&refused(TopicName::parse("__offsets")), &["__offsets", "own"]);
}

#[test]
fn numbers_of_partitions_that_make_no_sense_leave_nothing() {
    let (_home, dir) = made();
    let store = open(&dir, OpenMode::MustExist).expect("opens");
    let listed = || fs::read_dir(dir.join("topics")).expect("listed").count();
    let before = listed();
    for partitions in [0, 10_001, u32::MAX] {
        let error = refused(store.create_topic(&name("t"), partitions, small(FlushPolicy::Sync)));
        assert!(matches!(error, Error::IllegalConfig { setting: "partitions", .. }), "{error:?}");
        tells(&error, &["partitions", &partitions.to_string()]);
        assert!(matches!(store.topic(&name("t")), Err(Error::UnknownTopic(_))));
    }
    assert!(matches!(store.add_partitions(&name("orders"), 1), Err(Error::IllegalConfig { .. })));
    assert_eq!(listed(), before);
}

#[test]
fn what_is_not_there_is_named() {
    let (_home, dir) = made();
    let store = open(&dir, OpenMode::MustExist).expect("opens");
    tells(&refused(store.topic(&name("nobody"))), &["nobody", "create it"]);
    for number in [2, u32::MAX] {
        let error = refused(topic(&store).partition(number));
        assert!(matches!(error, Error::UnknownPartition { partitions: 2, .. }), "{error:?}");
        tells(&error, &["orders", &number.to_string(), "it has 2"]);
    }
    let offsets = store.group_offsets();
    let error = refused(offsets.commit(&group("g"), &name("nobody"), 0, 1));
    assert!(matches!(error, Error::UnknownTopic(_)), "{error:?}");
    let error = refused(offsets.commit(&group("g"), &name("orders"), 9, 1));
    assert!(matches!(error, Error::UnknownPartition { partition: 9, .. }), "{error:?}");
    assert!(offsets.list_all().expect("listed").is_empty());
}

#[test]
fn what_is_too_large_is_refused_with_its_limit_and_nothing_of_it_is_there() {
    let (_home, dir) = made();
    let store = open(&dir, OpenMode::MustExist).expect("opens");
    let config = TopicConfig {
        record_max_bytes: 1_000,
        batch_max_bytes: 4_096,
        batch_max_expanded_bytes: 8_192,
        headers_max: 3,
        strict: true,
        ..small(FlushPolicy::Sync)
    };
    store.alter_topic(&name("orders"), config).expect("altered");
    let partition = topic(&store).partition(0).expect("there");
    let over = |error: Error, word: &str| {
        let Error::TooLarge { what, actual, limit } = &error else { panic!("{error:?}") };
        assert!(actual > limit && what.contains(word), "{error}");
        tells(&error, &[&limit.to_string(), &actual.to_string()]);
    };
    let (large, usual) = (vec![0; 2_000], vec![0; 900]);
    over(refused(partition.append(&[Record::new(&large)])), "record");
    over(refused(partition.append(&[Record::default().with_key(&large)])), "record");
    let header = Header { name: "h", value: Some(&large) };
    over(refused(partition.append(&[Record::new(b"x").with_headers(&[header])])), "record");
    let many = [Header { name: "h", value: None }; 4];
    over(refused(partition.append(&[Record::new(b"x").with_headers(&many)])), "header");
    over(refused(partition.append(&[Record::new(&usual); 6])), "batch");
    let batch = |codec, record: &Record<'_>, times| {
        let mut builder = BatchBuilder::new(codec);
        for _ in 0..times {
            builder.push(record, Timestamp::from_millis(1)).expect("fits");
        }
        builder.finish().expect("a batch")
    };
    over(refused(partition.append_batch(&batch(Codec::None, &Record::new(&usual), 6))), "batch");
    let bomb = batch(Codec::Zstd, &Record::new(&usual), 900);
    let error = refused(partition.append_batch(&bomb));
    assert!(matches!(error, Error::TooLarge { .. } | Error::Malformed(_)), "{error:?}");
    assert!(matches!(partition.append(&[]), Err(Error::Malformed(_))));
    for garbage in [&b""[..], b"x", &[0; 104], &[0xff; 4_000]] {
        assert!(matches!(partition.append_batch(garbage), Err(Error::Malformed(_))));
    }
    assert_holds(&partition, 0..3);
    append(&partition, 3..4, 300);
}

#[test]
fn offsets_and_times_out_of_range_are_told_with_the_range() {
    let (_home, dir) = made();
    let store = open(&dir, OpenMode::MustExist).expect("opens");
    let partition = topic(&store).partition(0).expect("there");
    partition.trim(2).expect("trimmed");
    for offset in [0, 1, 4, u64::MAX] {
        for error in [
            refused(partition.read(offset, 1_000)),
            refused(partition.resolve(StartFrom::Offset(offset))),
        ] {
            let told = matches!(error, Error::OffsetOutOfRange { log_start: 2, end: 3, .. });
            assert!(told, "{error:?}");
            tells(&error, &[&offset.to_string(), "2..3"]);
        }
    }
    assert!(matches!(partition.trim(4), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(partition.wait_durable(4), Err(Error::OffsetOutOfRange { .. })));
    assert!(partition.read(3, 0).expect("the end").is_empty());
    for time in [i64::MAX, i64::MAX - 1] {
        let past = Timestamp::from_millis(time);
        assert_eq!(partition.offset_for_time(past).expect("readable"), None);
        assert_eq!(partition.resolve(StartFrom::Time(past)).expect("the end"), 3);
    }
    assert_holds(&partition, 2..3);
}

#[test]
fn a_directory_that_is_locked_missing_or_no_directory_is_named() {
    let (home, dir) = made();
    let store = open(&dir, OpenMode::MustExist).expect("opens");
    let error = refused(open(&dir, OpenMode::CreateIfMissing));
    assert!(matches!(error, Error::Locked { .. }) && error.is_retriable(), "{error:?}");
    tells(&error, &[&dir.display().to_string(), "another process", "LOCK"]);
    // Nobody was hurt, and readers need no lock.
    append(&topic(&store).partition(0).expect("there"), 3..4, 300);
    let reader = open(&dir, OpenMode::ReadOnly).expect("readers come in");
    let partition = topic(&reader).partition(0).expect("there");
    let error = refused(partition.append(&[Record::new(b"x")]));
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    let error = refused(reader.delete_topic(&name("orders")));
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    store.close().expect("closes");
    open(&dir, OpenMode::MustExist).expect("the lock is free");

    let nowhere = home.path().join("nowhere");
    fs::create_dir(home.path().join("empty")).expect("made");
    for mode in [OpenMode::MustExist, OpenMode::ReadOnly] {
        for missing in [&nowhere, &home.path().join("empty")] {
            let error = refused(open(missing, mode));
            assert!(matches!(error, Error::NoStore { .. }), "{error:?}");
            tells(&error, &[&missing.display().to_string(), "create one"]);
        }
    }
    assert!(!nowhere.exists());
    let file = dir.join("catalog");
    let error = refused(open(&file, OpenMode::CreateIfMissing));
    tells(&error, &[&file.display().to_string()]);
}

#[test]
fn a_directory_that_can_not_be_written_can_be_read() {
    let test = "a read-only directory";
    let mut mounted = match Mounted::new(Kind::Ext4, 16) {
        Ok(mounted) => mounted,
        // As an ordinary user, permissions do.
        Err(_) => return without_permission(test),
    };
    let (_home, made) = made();
    let dir = mounted.dir.join("log");
    copy_tree(&made, &dir);
    mounted.unmount();
    mounted.mount().expect("it was mounted before");
    let mut remount = Command::new("mount");
    assert!(quiet(remount.args(["-o", "remount,ro"]).arg(&mounted.dir)), "it can be read-only");
    for mode in [OpenMode::MustExist, OpenMode::CreateIfMissing] {
        let error = refused(open(&dir, mode));
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        tells(&error, &[&dir.display().to_string(), "Read-only"]);
    }
    let fresh = refused(open(&mounted.dir.join("new"), OpenMode::CreateIfMissing));
    tells(&fresh, &["new", "Read-only"]);
    let reader = open(&dir, OpenMode::ReadOnly).expect("it can be read");
    assert_holds(&topic(&reader).partition(0).expect("there"), 0..3);
    drop(reader);
    let mut remount = Command::new("mount");
    assert!(quiet(remount.args(["-o", "remount,rw"]).arg(&mounted.dir)), "it can be written");
    append(&topic(&open(&dir, OpenMode::MustExist).expect("opens")).partition(0).unwrap(), 3..4, 9);
}

fn without_permission(test: &str) {
    let (_home, dir) = made();
    let permit = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set");
    permit(0o500);
    if fs::write(dir.join("probe"), b"").is_ok() {
        permit(0o700);
        return skip(test, "no permission stops root, and nothing can be mounted");
    }
    let reader = open(&dir, OpenMode::ReadOnly).expect("it can be read");
    assert_holds(&topic(&reader).partition(0).expect("there"), 0..3);
    let error = refused(topic(&reader).partition(0).and_then(|it| it.append(&[Record::new(b"x")])));
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    permit(0o700);
}

/// The files of a store, but for the lock.
fn files(dir: &Path) -> Vec<PathBuf> {
    let found = Command::new("find").arg(dir).args(["-type", "f"]).output().expect("find runs");
    let text = String::from_utf8(found.stdout).expect("paths of ours");
    let mut paths: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    paths.retain(|path| path.file_name() != Some("LOCK".as_ref()));
    paths.sort();
    paths
}

fn has_name(path: &Path, name: &str) -> bool {
    path.file_name() == Some(name.as_ref())
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let (home, dir) = made();
    for path in files(&dir) {
        let copy = home.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_tree(&dir, &copy);
        let path = copy.join(path.strip_prefix(&dir).expect("below it"));
        let mut bytes = fs::read(&path).expect("readable");
        if has_name(&path, "catalog") {
            bytes[4..8].copy_from_slice(&77_u32.to_le_bytes());
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes[..12]);
            hasher.update(&bytes[16..]);
            bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
        } else if path.extension() == Some("log".as_ref()) {
            bytes[4..6].copy_from_slice(&77_u16.to_le_bytes());
            let crc = crc32fast::hash(&bytes[..4_092]);
            bytes[4_092..4_096].copy_from_slice(&crc.to_le_bytes());
            bytes.copy_within(0..4_096, 4_096);
        } else {
            continue;
        }
        fs::write(&path, &bytes).expect("written");
        let error = match open(&copy, OpenMode::MustExist) {
            Err(error) => error,
            Ok(store) => {
                // The other partitions are there.
                let found = store.reports().into_iter().filter_map(|report| report.outcome.err());
                let mut found: Vec<_> = found.collect();
                assert_eq!(found.len(), 1, "{found:?}");
                found.remove(0)
            }
        };
        assert!(matches!(error, Error::NewerFormat { found: 77, .. }), "{error:?}");
        tells(&error, &[&path.display().to_string(), "77", "use a newer one"]);
        assert_eq!(fs::read(&path).expect("readable"), bytes, "it is left as it is");
    }
}

/// What a partition whose file was spoiled may do: tell it, and lose nothing else.
fn check_spoiled(partition: &Partition, path: &Path) {
    let report = partition.recovery_report();
    if let Some(refusal) = partition.refusal() {
        assert!(matches!(refusal, Error::EndUnproven { .. }), "{refusal:?}");
        tells(&refusal, &["logctl check", "logctl repair"]);
        assert!(report.damage.iter().any(|found| path.starts_with(&found.path)), "{report:?}");
        assert!(partition.append(&[Record::new(b"x")]).is_err());
        partition.repair().expect("somebody has decided");
        partition.append(&[Record::new(b"x")]).expect("appends go on");
        return;
    }
    append(partition, 3..4, 300);
    assert_holds(partition, 0..4);
}

#[test]
fn a_file_that_is_empty_zeros_garbage_or_missing_is_named_and_nothing_else_is_lost() {
    let (home, dir) = made();
    let garbage = |len: usize| {
        b"no file of ours, and long".iter().copied().cycle().take(len).collect::<Vec<_>>()
    };
    for path in files(&dir) {
        let len = fs::read(&path).expect("readable").len();
        for spoiled in [Some(Vec::new()), Some(vec![0; len]), Some(garbage(len)), None] {
            let copy = home.path().join("copy");
            let _ = fs::remove_dir_all(&copy);
            copy_tree(&dir, &copy);
            let path = copy.join(path.strip_prefix(&dir).expect("below it"));
            match &spoiled {
                Some(bytes) => fs::write(&path, bytes).expect("written"),
                None => remove(&path).expect("ours"),
            }
            if has_name(&path, "catalog") {
                let error = refused(open(&copy, OpenMode::CreateIfMissing));
                let Error::CatalogDamaged { fault, .. } = &error else { panic!("{error:?}") };
                assert_eq!(spoiled.is_none(), *fault == Fault::FileMissing, "{error}");
                tells(&error, &[&path.display().to_string(), "backup", "logctl repair"]);
                continue;
            }
            let store = open(&copy, OpenMode::MustExist).expect("the store opens");
            for partition in topic(&store).partitions() {
                let partition = partition.expect("it opens");
                if path.starts_with(partition.path()) {
                    check_spoiled(&partition, &path);
                } else {
                    append(&partition, 3..4, 300);
                    assert_holds(&partition, 0..4);
                }
            }
        }
    }
}

/// A process that another thread was just starting had a copy of the lock's descriptor: a store
/// that had been closed could not be opened again, now and then.
#[test]
fn a_lock_is_free_once_it_is_let_go_though_processes_are_being_started() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("LOCK");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                quiet(&mut Command::new("true"));
            }
        });
        let failed = (0..5_000).filter(|_| OsDisk.lock(&path).is_err()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "nobody else has it");
    });
}
