//! Cases of areas E and H: producers that send again, and space that can't be had.

use std::time::Duration;

use log_core::clock::Clock;
use log_core::disk::{Call, Failure};
use log_core::error::{Error, Result};
use log_core::partition::{Appended, Partition};
use log_core::record::{BatchBuilder, Codec, Record};
use log_core::{FlushPolicy, RetentionPolicy};

use crate::support::log::{append, assert_holds, value};
use crate::support::{Bench, POLICIES};
use crate::system::ledger::{Ledger, Loss, orders};
use crate::system::process::{Line, Victim, acks, failures};
use crate::system::{PATIENCE, has, skip, tell};

const PRODUCER: u64 = 9;

/// A producer's batch of two records.
fn send(partition: &Partition, bench: &Bench, epoch: u16, sequence: u32) -> Result<Appended> {
    let mut builder = BatchBuilder::new(Codec::None).with_producer(PRODUCER, epoch, sequence);
    for record in sequence..sequence + 2 {
        let value = value(u64::from(record), 4_000);
        builder.push(&Record::new(&value), bench.clock.now()).expect("fits");
    }
    partition.append_batch(&builder.finish().expect("a batch"))
}

fn after_kill(bench: &Bench) -> (Bench, Partition) {
    let next = bench.next(bench.disk.kill());
    let partition = next.open().expect("opens");
    (next, partition)
}

/// Lets everything that is old enough go.
fn expire(bench: &Bench, partition: &Partition) {
    for _ in 0..4 {
        bench.clock.advance(Duration::from_secs(60));
        while bench.background.run_pending() > 0 {}
        partition.maintain().expect("retention works");
    }
}

#[test]
fn e01_e04_a_producer_is_known_after_its_records_are_gone() {
    for flush in POLICIES {
        let mut bench = Bench::new(flush);
        bench.config.segment_max_age = Some(Duration::from_secs(1));
        bench.config.retention =
            RetentionPolicy { max_age: Some(Duration::from_secs(1)), max_bytes: None };
        let mut partition = bench.open().expect("opens");
        for sequence in (0..20).step_by(2) {
            send(&partition, &bench, 0, sequence).expect("appended");
        }
        // Only the last of its batches is left; then, none.
        for keep in [2, 0] {
            partition.trim(partition.readable_end() - keep).expect("trimmed");
            (bench, partition) = after_kill(&bench);
            let again = send(&partition, &bench, 0, 18).expect("answered");
            assert_eq!((again.duplicate, again.base_offset, again.end), (true, 18, 20));
            let gap = send(&partition, &bench, 0, 25);
            assert!(matches!(gap, Err(Error::SequenceGap { expected: 20, actual: 25, .. })));
        }
        expire(&bench, &partition);
        assert_eq!(partition.ends().log_start, 20);
        (bench, partition) = after_kill(&bench);
        assert!(send(&partition, &bench, 0, 18).expect("answered").duplicate);
        assert_eq!(send(&partition, &bench, 0, 20).expect("the next one").base_offset, 20);
        assert!(send(&partition, &bench, 0, 18).expect("answered").duplicate);
        let old = send(&partition, &bench, 0, 2);
        assert!(matches!(old, Err(Error::ProducerUnknown { .. })), "past the window: {old:?}");
    }
}

#[test]
fn e02_a_producer_that_was_idle_too_long_is_told_so_and_begins_anew() {
    let mut bench = Bench::new(FlushPolicy::Sync);
    bench.config.producer_expiry = Duration::from_secs(100);
    let partition = bench.open().expect("opens");
    send(&partition, &bench, 0, 0).expect("appended");
    expire(&bench, &partition);
    for _ in 0..3 {
        let unknown = send(&partition, &bench, 0, 2);
        let Err(error @ Error::ProducerUnknown { producer_id: PRODUCER, sequence: 2 }) = unknown
        else {
            panic!("{unknown:?}");
        };
        assert!(error.to_string().contains("take a new producer id") && !error.is_retriable());
    }
    assert_eq!(partition.ends().end, 2);
    assert_eq!(send(&partition, &bench, 1, 0).expect("anew").base_offset, 2);
    let fenced = send(&partition, &bench, 0, 2);
    assert!(matches!(fenced, Err(Error::ProducerFenced { epoch: 0, current: 1, .. })));
}

/// The batches in flight, five of them, are sent again after the process died.
#[test]
fn e03_what_is_sent_again_after_a_kill_is_there_once() {
    let home = tempfile::tempdir().expect("a directory");
    let settings = ["flush=sync", "producer=9", "batch=2", "count=50", "last=exit"];
    let ended = Victim::start("append", home.path(), &settings).end(PATIENCE);
    let first = acks(&ended.refuse_panic().said);
    assert_eq!(first.last().map(|ack| ack.end), Some(100));
    let again = ["flush=sync", "producer=9", "sequence=90", "batch=2", "count=5", "last=exit"];
    let ended = Victim::start("append", home.path(), &again).end(PATIENCE);
    let second = acks(&ended.refuse_panic().said);
    let answered: Vec<_> = second.iter().map(|ack| (ack.base, ack.end)).collect();
    assert_eq!(answered, [(90, 92), (92, 94), (94, 96), (96, 98), (98, 100)]);
    let mut ledger = Ledger::default();
    ledger.note(&ended_lines(&first));
    let (compared, _) = ledger.compare(home.path(), Loss::Nothing);
    assert_eq!((compared.present, compared.unacknowledged), (100, 0));
}

fn ended_lines(acks: &[crate::system::process::Ack]) -> Vec<Line> {
    acks.iter().map(|ack| Line::Ack(*ack)).collect()
}

/// By strace: how a disk refuses to preallocate. Where it can't, zeros are written; a signal is no
/// failure; else the append says what is the matter, and all that was acknowledged is there.
#[test]
fn h02_a_refused_preallocation_is_an_error_and_never_a_sparse_file() {
    let name = "h02";
    if !has("strace") {
        return skip(name, "there is no strace");
    }
    let cases = [
        ("EOPNOTSUPP", "1+", None),
        ("EINTR", "1..3", None),
        ("EINTR", "6..9", None),
        ("ENOSPC", "6+", Some("DiskFull")),
        ("EFBIG", "6+", Some("Io")),
        ("ENOSPC", "1+", Some("DiskFull")),
    ];
    for (error, when, expected) in cases {
        for policy in ["flush=sync", "flush=os"] {
            let home = tempfile::tempdir().expect("a directory");
            let dir = home.path().join("log");
            let inject = format!("inject=fallocate:error={error}:when={when}");
            let settings = [policy, "life=1", "count=40", "value=9000", "last=close"];
            let ended = Victim::start_traced(&["-e", &inject], "append", &dir, &settings);
            let ended = ended.end(PATIENCE);
            let failed = failures(&ended.refuse_panic().said);
            let told: Vec<_> = failed.iter().map(|(variant, _)| *variant).collect();
            assert_eq!(told, Vec::from_iter(expected), "{error} {when}: {failed:?}");
            let holes = sparse_files(&dir);
            assert!(holes.is_empty(), "{error} {when}: {holes:?}");
            let mut ledger = Ledger::default();
            ledger.note(&ended.said);
            if ledger.acknowledged() > 0 {
                let (_, store) = ledger.compare(&dir, Loss::Nothing);
                ledger.append_one(&store.topic(&orders()).expect("it was made"));
            }
        }
    }
    tell(&format!("{name}: {} ways, under 2 policies", cases.len()));
}

/// The segments that are longer than what the disk has given to them.
fn sparse_files(dir: &std::path::Path) -> Vec<String> {
    let found = std::process::Command::new("find")
        .arg(dir)
        .args(["-name", "*.log", "-size", "+0", "-printf", "%S %b %s %p\n"])
        .output()
        .expect("find runs");
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let holes = text.lines().filter(|line| {
        let mut numbers = line.split(' ').skip(1).map(|number| number.parse().unwrap_or(0_u64));
        let (blocks, bytes) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        blocks * 512 < bytes
    });
    holes.map(str::to_owned).collect()
}

/// H02 and H03 on the simulated disk: each of the first calls for space is refused.
#[test]
fn h02_h03_space_that_is_refused_at_any_call_leaves_nothing_of_the_append() {
    for (flush, failure) in POLICIES
        .into_iter()
        .flat_map(|flush| [Failure::DiskFull, Failure::Io].map(|failure| (flush, failure)))
    {
        for nth in 0..4 {
            let bench = Bench::new(flush);
            let partition = bench.open().expect("opens");
            append(&partition, 0..4, 10_000);
            let from = bench.disk.calls_of(Call::Allocate) + nth;
            bench.disk.fail_calls(Call::Allocate, from, 50, failure);
            let mut end = 4;
            for _ in 0..50 {
                match partition.append(&[Record::new(&value(end, 10_000))]) {
                    Ok(appended) => end = appended.end,
                    Err(Error::DiskFull { .. }) => assert_eq!(failure, Failure::DiskFull),
                    Err(Error::Io { .. }) => assert_eq!(failure, Failure::Io),
                    Err(other) => panic!("{other}"),
                }
                assert_eq!(partition.ends().end, end, "nothing of what failed is there");
            }
            bench.disk.stop_failing();
            append(&partition, end..end + 3, 10_000);
            assert_holds(&partition, 0..end + 3);
            assert_holds(&after_kill(&bench).1, 0..end + 3);
        }
    }
}
