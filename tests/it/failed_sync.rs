//! Failed syncs, late syncs: on real files. What was not durable is never served as durable.

use std::path::{Path, PathBuf};

use integration_tests::{key, record, value};
use log_core::config::{StoreConfig, TopicConfig};
use log_core::error::{Error, Result};
use log_core::partition::{Appended, Partition};
use log_core::store::{OpenMode, Store};

use crate::full_disk::fill;
use crate::system::ledger::{Ledger, Loss, orders, read_numbers};
use crate::system::mount::{Kind, Mounted};
use crate::system::process::{Line, Victim, acks, failures};
use crate::system::{PATIENCE, has, remove, skip, tell};

/// The last segment of a partition of the victims' topic.
fn last_segment(dir: &Path, partition: u32) -> PathBuf {
    let store = Store::open(dir, StoreConfig::default(), OpenMode::ReadOnly).expect("opens");
    let partition = store.topic(&orders()).and_then(|topic| topic.partition(partition));
    let segments = partition.expect("it was made").segments();
    segments.last().expect("it has one").path.clone()
}

/// A sync that takes 200 ms: who is told before it returns would be told too early.
#[test]
fn a13_an_acknowledgement_never_comes_before_its_sync() {
    const LATE_NANOS: u64 = 200_000_000;
    let name = "a13";
    if !has("strace") {
        return skip(name, "there is no strace");
    }
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("log");
    let made = Victim::start("append", &dir, &["flush=sync", "count=0"]).end(PATIENCE);
    assert!(made.status.success(), "{}", made.stderr);
    let late = ["-e", "inject=fdatasync:delay_enter=200000"];
    for life in 1..=2 {
        let settings = ["flush=sync", &format!("life={life}"), "count=1000", "value=100"];
        let victim = Victim::start_traced(&late, "append", &dir, &settings);
        let (said, told) = victim.listen(PATIENCE, |line| matches!(line, Line::Ack(_)));
        let mut ledger = Ledger::default();
        ledger.note(&said);
        ledger.note(&victim.kill().said);
        assert!(told, "{said:?}");
        for ack in acks(&said) {
            let took = ack.ended - ack.began;
            assert!(took >= LATE_NANOS, "told after {took} ns");
        }
        let (compared, _) = ledger.compare(&dir, Loss::Nothing);
        assert!(compared.present >= 1);
        // The next life begins with a log of its own kind: one that was killed.
        if life == 1 {
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
}

#[test]
fn a_sync_that_fails_stops_one_partition_until_the_store_is_opened_again() {
    let name = "a failed sync";
    if !has("strace") {
        return skip(name, "there is no strace");
    }
    let (mut refused, mut acknowledged) = (0, 0);
    for (nth, policy) in [(1, "flush=sync"), (2, "flush=sync"), (7, "flush=sync"), (2, "flush=os")]
    {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("log");
        let mut ledger = Ledger::default();
        let first = [policy, "life=1", "count=5", "partitions=2", "threads=2"];
        ledger.note(&Victim::start("append", &dir, &first).end(PATIENCE).said);
        let file = last_segment(&dir, 0).display().to_string();
        let inject = format!("inject=fdatasync:error=EIO:when={nth}");
        let settings =
            [policy, "life=2", "count=60", "threads=2", "value=5000", "failure=go-on", "last=exit"];
        // Only syncs of that file: those of the other partition are none of its business.
        let strace = ["-P", &file, "-e", "trace=fdatasync", "-e", &inject];
        let ended = Victim::start_traced(&strace, "append", &dir, &settings).end(PATIENCE);
        ended.refuse_panic();
        let told = failures(&ended.said);
        assert!(!told.is_empty(), "{policy} {nth}: {:?}", ended.said.last());
        for (variant, text) in &told {
            assert_eq!(*variant, "SyncFailed", "{text}");
            assert!(text.contains("open the store again") && text.contains(&file), "{text}");
        }
        refused += told.len();
        let of = |partition| {
            let mine = move |line: &&Line| match line {
                Line::Ack(ack) => ack.partition == partition,
                _ => false,
            };
            ended.said.iter().filter(mine).count()
        };
        assert_eq!(of(1), 60, "the other partition goes on");
        assert_eq!(of(0) + told.len(), 60, "one answer for each append");
        // Once it has failed, it stays so: what was told stands before all that was refused.
        let refusals = |line: &Line| matches!(line, Line::Fail { partition: 0, .. });
        let later = ended.said.iter().skip_while(|line| !refusals(line));
        let later = later.filter(|line| matches!(line, Line::Ack(ack) if ack.partition == 0));
        assert_eq!(later.count(), 0, "{policy} {nth}");
        ledger.note(&ended.said);
        acknowledged += ledger.acknowledged();
        let (_, store) = ledger.compare(&dir, Loss::Nothing);
        ledger.append_one(&store.topic(&orders()).expect("it was made"));
    }
    tell(&format!("{name}: {refused} appends refused, {acknowledged} acknowledged, 0 lost"));
}

/// A topic whose records may be large.
fn large() -> TopicConfig {
    TopicConfig { record_max_bytes: 6 << 20, segment_max_bytes: 16 << 20, ..TopicConfig::default() }
}

fn append(partition: &Partition, number: u64, len: usize) -> Result<Appended> {
    partition.append(&[record(&key(number), &value(number, len))])
}

/// The partition, and what readers are shown of it.
fn shown(dir: &Path) -> (Store, Partition, Vec<(u64, u64)>) {
    let store = Store::open(dir, StoreConfig::default(), OpenMode::MustExist).expect("opens");
    let partition = store.topic(&orders()).and_then(|topic| topic.partition(0)).expect("there");
    let numbers = read_numbers(&partition);
    (store, partition, numbers)
}

/// An image that is larger than the file system it lies on: writes succeed, a sync fails, and the
/// next sync of the same file succeeds without having written anything. Then the page cache goes.
///
/// The record whose sync fails is large, so that it takes several requests to the device: a loop
/// device takes a request that it could write in part for done.
#[test]
fn what_a_failed_sync_has_left_in_the_page_cache_is_never_served_as_durable() {
    const SOUND: u64 = 50;
    let name = "a failing device";
    // With the device as it is, or with room again, when the next process opens the log.
    for healed in [false, true] {
        let made = Mounted::new(Kind::Tmpfs, 24).and_then(|thin| {
            let mounted = Mounted::with(Kind::Ext4Plain, 64, "errors=continue", Some(&thin.dir))?;
            // The one on top is dropped first.
            Ok((mounted, thin))
        });
        let (mut mounted, thin) = match made {
            Ok(made) => made,
            Err(why) => return skip(name, &why),
        };
        let dir = mounted.dir.join("log");
        let store = Store::open(&dir, StoreConfig::default(), OpenMode::CreateIfMissing);
        let store = store.expect("opens");
        let partition = store.create_topic(&orders(), 1, large()).and_then(|it| it.partition(0));
        let partition = partition.expect("made");
        for number in 0..SOUND {
            append(&partition, number, 5_000).expect("appended");
        }
        fill(&thin.dir.join("ballast"), &thin.dir, 0);
        for number in SOUND..SOUND + 3 {
            let failed = append(&partition, number, 4 << 20);
            assert!(matches!(failed, Err(Error::SyncFailed { .. })), "{failed:?}");
        }
        let acknowledged: Vec<_> = (0..SOUND).map(|number| (number, number)).collect();
        assert_eq!(read_numbers(&partition), acknowledged);
        drop((partition, store));
        if healed {
            remove(&thin.dir.join("ballast")).expect("it is ours");
        }
        let (store, partition, before) = shown(&dir);
        assert_eq!(before[..acknowledged.len()], acknowledged);
        // What is in the page cache alone was written again; that is durable, or it is not shown.
        assert_eq!(before.len() as u64, SOUND + u64::from(healed), "{:?}", partition.refusal());
        assert_eq!(matches!(partition.refusal(), Some(Error::SyncFailed { .. })), !healed);
        drop((partition, store));
        if !healed {
            remove(&thin.dir.join("ballast")).expect("it is ours");
        }
        mounted.remount();
        let (store, partition, after) = shown(&dir);
        assert_eq!(after[..before.len()], before, "what was shown as durable is there");
        append(&partition, 77, 5_000).expect("appends go on");
        drop((partition, store));
        tell(&format!(
            "{name}, healed {healed}: {SOUND} acknowledged, {} shown before the page cache went, \
             {} after",
            before.len(),
            after.len()
        ));
    }
}
