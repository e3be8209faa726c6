//! What a thread that must not block may do: append where all is ready, read what is in memory.

use super::*;
use crate::disk::{Call, FileMode};
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
fn a_segment_that_nobody_has_looked_at_yet_is_not_in_memory() {
    let bench = Bench::new(FlushPolicy::Os);
    let partition = bench.open();
    while partition.segments().len() < 2 {
        partition.append(&[Record::new(&[0; 400])]).unwrap();
    }
    let end = partition.ends().end;
    assert!(partition.is_in_memory(0, 8_192) && partition.is_in_memory(end - 1, 8_192));
    assert!(partition.is_in_memory(end, 8_192), "there is nothing to wait for");
    partition.close().unwrap();

    let partition = bench.open();
    assert!(!partition.is_in_memory(0, 8_192) && !partition.is_in_memory(end - 1, 8_192));
    partition.append(&[Record::new(b"goes on with the last")]).unwrap();
    assert!(!partition.is_in_memory(0, 8_192) && partition.is_in_memory(end - 1, 8_192));
    partition.read(0, 8_192).unwrap();
    assert!(partition.is_in_memory(0, 8_192));
}

#[test]
fn what_only_the_disk_has_is_told_from_what_is_in_memory() {
    const LEN: u64 = 40 << 20;
    let (dir, bench) = on_disk(64 << 20);
    let partition = open_in(&bench, dir.path());
    for _ in 0..LEN >> 19 {
        partition.append(&[Record::new(&[7; 1 << 19])]).unwrap();
    }
    let path = partition.segments()[0].path.clone();
    partition.close().unwrap();
    drop(partition);
    let file = OsDisk.open(&path, FileMode::ReadWrite).unwrap();
    file.sync().unwrap();
    file.forget(0, LEN * 2);
    let map = file.map_read_only(LEN).unwrap();
    if map.map_resident(0, LEN) {
        // A file system in memory.
        return;
    }

    let partition = open_in(&bench, dir.path());
    let fetched = partition.read(0, 4 << 20).unwrap();
    assert!(partition.is_in_memory(0, 3 << 20));
    // How far the kernel reads ahead by itself is its own affair.
    let far = |len: u64| map.map_resident(36 << 20, (36 << 20) + len);
    assert_eq!(partition.is_in_memory(73, 1 << 20), far(2 << 20));
    fetched.ahead(LEN).unwrap().read();
    assert!(far(2 << 20) && partition.is_in_memory(73, 1 << 20));
    assert!(fetched.ahead(LEN).is_none(), "once is enough");
    partition.will_need(16, LEN);
    partition.will_need(1_000, LEN);
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
    let (dir, bench) = on_disk(16 << 20);
    let partition = open_in(&bench, dir.path());
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
