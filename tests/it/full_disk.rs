//! Full disks: on real file systems an append says so, nothing dies, nothing acknowledged is lost,
//! and when there is space again everything goes on.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use integration_tests::{key, record, value};
use log_core::config::{StoreConfig, TopicConfig};
use log_core::error::Error;
use log_core::partition::Partition;
use log_core::store::{OpenMode, Store};

use crate::system::ledger::{Ledger, Loss, orders, read_numbers};
use crate::system::mount::{Kind, Mounted};
use crate::system::process::{Line, Victim, failures};
use crate::system::{PATIENCE, remove, skip, tell, tell_on_panic};

/// What is kept free for the log.
const ROOM: u64 = 6 * 1024 * 1024;
const POLICIES: [&str; 3] = ["flush=sync", "flush=os", "flush=interval:50:65536"];

/// A small file system of each kind that can be had, filled up to [`ROOM`].
fn small_disks(test: &str) -> Vec<(Mounted, PathBuf)> {
    let mut disks = Vec::new();
    for (kind, mib) in [(Kind::Tmpfs, 8), (Kind::Ext4, 16), (Kind::Xfs, 300), (Kind::Btrfs, 128)] {
        match Mounted::new(kind, mib) {
            Ok(mounted) => {
                let ballast = mounted.dir.join("ballast");
                fill(&ballast, &mounted.dir, ROOM);
                disks.push((mounted, ballast));
            }
            Err(why) => skip(&format!("{test} on {kind:?}"), &why),
        }
    }
    disks
}

/// Fills a file system with one file, but for so many bytes.
pub(crate) fn fill(ballast: &Path, dir: &Path, room: u64) {
    let found = rustix::fs::statvfs(dir).expect("it is mounted");
    let free = found.f_bavail * found.f_frsize;
    let file = fs::OpenOptions::new().create(true).append(true).open(ballast).expect("a file");
    let mut left = free.saturating_sub(room);
    let chunk = vec![1; 1 << 20];
    let mut position = file.metadata().expect("it is there").len();
    while left > 0 {
        let step = left.min(chunk.len() as u64);
        let step_bytes = usize::try_from(step).expect("a megabyte");
        if file.write_all_at(&chunk[..step_bytes], position).is_err() {
            break;
        }
        (left, position) = (left - step, position + step);
    }
    let _ = file.sync_all();
}

/// The appends that failed did so because the disk was full.
fn refuse_other_failures(said: &[Line]) {
    for (variant, text) in failures(said) {
        assert_eq!(variant, "DiskFull", "{text}");
        assert!(text.contains("free some space"), "it names the way out: {text}");
    }
}

#[test]
fn h01_h03_a_full_disk_is_an_error_and_space_is_all_it_takes_to_go_on() {
    let name = "full disk";
    let (mut appended, mut failed) = (0, 0);
    for (mounted, ballast) in small_disks(name) {
        for (life, policy) in (1..).zip(POLICIES) {
            let dir = mounted.dir.join(format!("log-{life}"));
            let settings = [policy, "life=1", "count=1000000", "value=20000", "failure=wait"];
            let mut victim = Victim::start("append", &dir, &settings);
            let mut ledger = Ledger::default();
            // Fifty appends fail, one after the other.
            for _ in 0..50 {
                let full = |line: &Line| matches!(line, Line::Fail { .. });
                let (said, is_full) = victim.listen(PATIENCE, full);
                assert!(is_full, "{policy} on {}: {said:?}", dir.display());
                refuse_other_failures(&said);
                ledger.note(&said);
                victim.answer(1);
                failed += 1;
            }
            let full_at = ledger.acknowledged();
            remove(&ballast).expect("it is ours");
            // One that failed meanwhile may still wait for its answer.
            victim.answer(1);
            let more = |line: &Line| matches!(line, Line::Ack(ack) if ack.end > full_at + 20);
            let (said, goes_on) = victim.listen(PATIENCE, more);
            assert!(goes_on, "{policy}: it went on after {full_at}: {:?}", failures(&said));
            ledger.note(&said);
            ledger.note(&victim.kill().refuse_panic().said);
            appended += ledger.acknowledged();
            let (_, store) = ledger.compare(&dir, Loss::Nothing);
            ledger.append_one(&store.topic(&orders()).expect("it was made"));
            drop(store);
            fs::remove_dir_all(&dir).expect("it is ours");
            fill(&ballast, &mounted.dir, ROOM);
        }
    }
    tell(&format!("{name}: {failed} appends failed, {appended} acknowledged, 0 lost"));
}

#[test]
fn h04_a_store_opens_on_a_full_disk() {
    let name = "opening on a full disk";
    let mut opened = 0;
    for (mounted, ballast) in small_disks(name) {
        // There, even writing the same bytes again takes space.
        let copies = mounted.kind == Kind::Btrfs;
        let may_lose = if copies { Loss::Waiting } else { Loss::Nothing };
        for (life, policy) in (1..).zip(POLICIES) {
            let what = format!("{policy} on {}", mounted.dir.display());
            tell_on_panic(&what, || {
                let dir = mounted.dir.join(format!("log-{life}"));
                let mut ledger = Ledger::default();
                let settings = [policy, "life=1", "count=1000000", "value=20000"];
                let ended = Victim::start("append", &dir, &settings).end(PATIENCE);
                refuse_other_failures(&ended.refuse_panic().said);
                ledger.note(&ended.said);
                // Not a byte is left.
                fill(&ballast, &mounted.dir, 0);
                for _ in 0..2 {
                    let (compared, store) = ledger.compare(&dir, may_lose);
                    assert!(compared.present > 0);
                    drop(store);
                    opened += 1;
                }
                remove(&ballast).expect("it is ours");
                let (_, store) = ledger.compare(&dir, Loss::Nothing);
                ledger.append_one(&store.topic(&orders()).expect("it was made"));
                drop(store);
                fs::remove_dir_all(&dir).expect("it is ours");
                fill(&ballast, &mounted.dir, ROOM);
            });
        }
    }
    tell(&format!("{name}: opened {opened} times"));
}

#[test]
fn h05_producers_on_a_full_disk_do_not_hang_and_go_on_when_there_is_space() {
    let name = "8 producers on a full disk";
    let mut disks = 0;
    for (mounted, ballast) in small_disks(name) {
        for policy in ["flush=sync", "flush=os"] {
            let dir = mounted.dir.join(policy);
            let settings =
                [policy, "life=1", "count=100000", "value=20000", "threads=8", "failure=wait"];
            let mut victim = Victim::start("append", &dir, &settings);
            let mut ledger = Ledger::default();
            // Each of the eight is told.
            let mut told = 0;
            while told < 8 {
                let full = |line: &Line| matches!(line, Line::Fail { .. });
                let (said, is_full) = victim.listen(Duration::from_secs(20), full);
                assert!(is_full, "{policy} on {}: {told} were told", dir.display());
                refuse_other_failures(&said);
                ledger.note(&said);
                told += 1;
            }
            let full_at = ledger.acknowledged();
            remove(&ballast).expect("it is ours");
            victim.answer(8);
            let more = |line: &Line| matches!(line, Line::Ack(ack) if ack.end > full_at + 20);
            let (said, goes_on) = victim.listen(PATIENCE, more);
            assert!(goes_on, "{policy}: after {full_at}: {:?}", failures(&said));
            ledger.note(&said);
            let ended = victim.kill();
            ledger.note(&ended.refuse_panic().said);
            drop(ledger.compare(&dir, Loss::Nothing));
            fs::remove_dir_all(&dir).expect("it is ours");
            fill(&ballast, &mounted.dir, ROOM);
        }
        disks += 1;
    }
    tell(&format!("{name}: on {disks} file systems, under 2 policies"));
}

/// How many records can be read, while others are appended.
fn count(partition: &Partition) -> u64 {
    let (mut from, mut found) = (0, 0);
    loop {
        let fetched = partition.read(from, 1 << 20).expect("everything can be read");
        if fetched.is_empty() {
            return found;
        }
        fetched.for_each(|_| found += 1).expect("everything can be read");
        from = fetched.next;
        assert_eq!(found, from, "offsets are dense");
    }
}

/// Within one process: threads whose appends fail, and one that reads all the while.
#[test]
fn h05_reading_goes_on_while_appends_fail() {
    let name = "reading on a full disk";
    let mut read = 0;
    for (mounted, ballast) in small_disks(name) {
        let dir = mounted.dir.join("log");
        let store = Store::open(&dir, StoreConfig::default(), OpenMode::CreateIfMissing);
        let store = store.expect("opens");
        let config = TopicConfig { segment_max_bytes: 64 * 1024, ..TopicConfig::default() };
        let topic = store.create_topic(&orders(), 1, config).expect("made");
        let partition = topic.partition(0).expect("there");
        let lanes = AtomicU64::new(0);
        let append =
            |number: u64| partition.append(&[record(&key(number), &value(number, 20_000))]);
        let full = std::thread::scope(|scope| {
            let lane = || {
                let lane = lanes.fetch_add(1, Ordering::Relaxed) << 32;
                let failed = (lane..).find_map(|number| append(number).err());
                // It is told at once, each time.
                let again = (0..20).filter_map(|number| append(lane | 1 << 31 | number).err());
                failed.into_iter().chain(again).collect::<Vec<_>>()
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(lane)).collect();
            while all.iter().any(|lane| !lane.is_finished()) {
                read += count(&partition);
            }
            all.into_iter().flat_map(|lane| lane.join().expect("no panic")).collect::<Vec<_>>()
        });
        let other = full.iter().find(|error| !matches!(error, Error::DiskFull { .. }));
        assert!(other.is_none() && full.len() >= 8, "{other:?}");
        let end = partition.ends().end;
        assert_eq!(read_numbers(&partition).len() as u64, end);
        remove(&ballast).expect("it is ours");
        assert_eq!(append(u64::MAX).expect("there is space").base_offset, end);
        store.close().expect("closes");
    }
    tell(&format!("{name}: {read} records read"));
}
