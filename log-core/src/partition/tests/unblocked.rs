//! What a thread that must not block may do: append where all is ready, read what is recent.

use super::*;
use crate::disk::{Call, OsDisk};
use crate::record::{BatchBuilder, Codec};

fn batch(value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(&Record::new(value), Timestamp::from_millis(5)).unwrap();
    builder.finish().unwrap()
}

fn text(value: u64) -> Vec<u8> {
    batch(format!("value {value}").as_bytes())
}

#[test]
fn it_copies_or_does_nothing() {
    for (flush, stores) in POLICIES.into_iter().flat_map(|flush| [(flush, true), (flush, false)]) {
        let bench = Bench::new(flush);
        bench.disk.set_can_store_into_maps(stores);
        let partition = bench.open();
        let (mut taken, mut refused) = (0, 0);
        for value in 0..2_000 {
            let (calls, writes) = (bench.disk.calls(), bench.disk.calls_of(Call::Write));
            let ends = partition.ends();
            if let Some(appended) = partition.try_write_batch(&text(value), None) {
                assert_eq!(appended.unwrap().base_offset, value);
                let written = bench.disk.calls_of(Call::Write) - writes;
                assert_eq!(bench.disk.calls() - calls, written, "{flush:?}: nothing but a write");
                assert!(written <= 1);
                taken += 1;
            } else {
                assert_eq!((bench.disk.calls(), partition.ends()), (calls, ends), "{flush:?}");
                partition.write_batch(&text(value), None).unwrap();
                bench.context.background.run_pending();
                refused += 1;
            }
        }
        assert!(partition.segments().len() > 2 && refused >= 3, "{refused} refused");
        assert!(taken > 1_800, "{flush:?}: {taken} taken, {refused} refused");
        partition.sync().unwrap();
        assert_eq!(values(&partition), expected(0..2_000));
    }
}

/// A partition whose next append is ready.
fn ready(bench: &Bench) -> Partition {
    let partition = bench.open();
    partition.append_batch(&text(0)).unwrap();
    bench.context.background.run_pending();
    partition
}

#[test]
fn whoever_has_the_writer_is_not_waited_for() {
    let bench = Bench::new(FlushPolicy::Sync);
    let partition = ready(&bench);
    let writer = partition.0.writer.lock();
    assert!(partition.try_write_batch(&text(1), None).is_none());
    drop(writer);
    assert_eq!(partition.try_write_batch(&text(1), None).unwrap().unwrap().base_offset, 1);
}

#[test]
fn what_needs_no_append_is_answered() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = ready(&bench);
    let refused = partition.try_write_batch(&text(1), Some(7)).unwrap();
    assert!(matches!(refused, Err(Error::EndConflict { expected: 7, actual: 1 })), "{refused:?}");
    let mut damaged = text(1);
    *damaged.last_mut().unwrap() ^= 1;
    let refused = partition.try_write_batch(&damaged, None).unwrap();
    assert!(matches!(refused, Err(Error::Malformed(_))), "{refused:?}");
    let mut builder = BatchBuilder::new(Codec::None).with_producer(9, 0, 0);
    builder.push(&Record::new(b"value 1"), Timestamp::from_millis(5)).unwrap();
    let numbered = builder.finish().unwrap();
    let first = partition.try_write_batch(&numbered, Some(1)).unwrap().unwrap();
    let again = partition.try_write_batch(&numbered, None).unwrap().unwrap();
    assert_eq!((first.base_offset, first.duplicate), (1, false));
    assert_eq!((again.base_offset, again.duplicate, partition.ends().end), (1, true, 2));
    partition.close().unwrap();
    assert!(partition.try_write_batch(&text(2), None).is_none(), "the waiting way tells why");
}

#[test]
fn a_window_that_is_full_is_for_those_who_wait() {
    let bench = Bench::new(FlushPolicy::Interval { every: Duration::from_secs(1), bytes: 4_096 });
    let partition = ready(&bench);
    partition.sync().unwrap();
    assert!(partition.try_write_batch(&batch(&[0; 5_000]), None).is_none(), "over the window");
    assert_eq!(partition.try_write_batch(&batch(&[0; 3_000]), None).unwrap().unwrap().end, 2);
    assert!(partition.try_write_batch(&batch(&[0; 3_000]), None).is_none(), "not both");
    // It was half full: a sync was asked for.
    partition.try_write_batch(&text(2), None).unwrap().unwrap();
    assert!(bench.context.background.run_pending() > 0);
    assert_eq!(partition.ends().durable_end, 3);
    partition.try_write_batch(&text(3), None).unwrap().unwrap();
    bench.clock.advance(Duration::from_secs(1));
    assert!(partition.try_write_batch(&text(4), None).is_none(), "a sync is late");
    partition.write_batch(&text(4), None).unwrap();
    assert_eq!(partition.ends().durable_end, 4);
}

#[test]
fn recent_is_what_this_process_has_just_appended() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = bench.open();
    let ends = |partition: &Partition| partition.ends().end;
    while ends(&partition) < 100 {
        partition.append(&[Record::new(&[0; 400])]).unwrap();
    }
    assert_eq!(partition.segments().len(), 1);
    assert!(partition.is_recent(0, 1 << 20) && partition.is_recent(100, 0));
    assert!(partition.is_recent(95, 8_192) && !partition.is_recent(50, 8_192));
    while partition.segments().len() < 2 {
        partition.append(&[Record::new(&[0; 400])]).unwrap();
    }
    let end = ends(&partition);
    assert!(partition.is_recent(end - 1, 1 << 20) && !partition.is_recent(0, 1 << 20));
    partition.close().unwrap();

    // After a clean stop the same segment goes on, but what it holds may be on disk alone.
    let partition = bench.open();
    while ends(&partition) < end + 30 {
        partition.append(&[Record::new(&[0; 400])]).unwrap();
    }
    assert!(partition.is_recent(end + 29, 1 << 20) && !partition.is_recent(end - 1, 1 << 20));
}

/// How many bytes of maps of files under `dir` are in this process's memory.
fn resident(dir: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut bytes = 0;
    for line in maps.lines() {
        // A map begins with its addresses; what is said of it has names that end in a colon.
        if line.split(' ').next().is_some_and(|first| !first.ends_with(':')) {
            ours = line.contains(dir.to_str().unwrap());
        } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| ours) {
            bytes += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
        }
    }
    bytes
}

#[test]
fn what_was_fetched_can_be_had_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::on(FaultyDisk::default(), FlushPolicy::Sync);
    bench.context.disk = Arc::new(OsDisk);
    bench.config.segment_max_bytes = 16 << 20;
    let path = dir.path().join("p");
    Partition::create(&bench.context, &path, id()).unwrap();
    let open = || {
        let config = bench.config.clone();
        Partition::open(&bench.context, &path, id(), config, Access::ReadWrite).unwrap()
    };
    let partition = open();
    for _ in 0..4 {
        partition.append(&[Record::new(&[7; 1 << 19])]).unwrap();
    }
    // Written by a call, not by stores: in the page cache, but not in the map.
    let fetched = partition.read(0, 4 << 20).unwrap();
    assert_eq!(fetched.next, 4);
    let (before, len) = (resident(dir.path()), fetched.bytes.len() as u64);
    assert!(before < len / 2, "{before} of {len} bytes");
    fetched.populate().unwrap();
    assert!(resident(dir.path()) >= len);
    partition.read(4, 1_024).unwrap().populate().unwrap();
    assert_eq!(fetched.batches().count(), 4);
}
