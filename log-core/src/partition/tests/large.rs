//! A large segment after a crash: it is walked through a map, and its later parts are checked on
//! other cores.

use std::fs;

use super::*;
use crate::record::{BATCH_HEADER_BYTES, BatchBuilder, Codec};

const BATCHES: u64 = 90;
const VALUE_BYTES: usize = 512 * 1024;

/// Every byte tells which record it belongs to; a record whose number can be divided by nine holds
/// a whole batch, as a message that was captured from a connection would.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![u8::try_from(number).unwrap(); VALUE_BYTES];
    if number.is_multiple_of(9) {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(&Record::new(&[3; 9_000]), Timestamp::from_millis(5)).unwrap();
        let batch = builder.finish().unwrap();
        value[100..100 + batch.len()].copy_from_slice(&batch);
    }
    value
}

/// What a kill leaves of a partition, and where in its file each batch begins.
struct Left {
    dir: tempfile::TempDir,
    bench: Bench,
    file: std::ffi::OsString,
    positions: Vec<usize>,
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("p")).unwrap();
    for entry in fs::read_dir(from.join("p")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("p").join(entry.file_name())).unwrap();
    }
}

fn killed() -> Left {
    let (dir, bench) = on_disk(64 << 20);
    let partition = open_in(&bench, dir.path());
    for number in 0..BATCHES {
        partition.append(&[Record::new(&value(number))]).unwrap();
    }
    copy(dir.path(), &dir.path().join("left"));
    let path = partition.segments()[0].path.clone();
    let bytes = fs::read(&path).unwrap();
    let position = |number| {
        let fetched = partition.read(number, 1).unwrap();
        memchr::memmem::find(&bytes, &fetched.bytes[..BATCH_HEADER_BYTES]).unwrap()
    };
    let positions = (0..BATCHES).map(position).collect();
    partition.close().unwrap();
    Left { dir, bench, file: path.file_name().unwrap().to_owned(), positions }
}

impl Left {
    /// Opens a copy of it, after the bit at `position` was flipped.
    fn open(&self, flip: Option<usize>) -> Partition {
        let home = self.dir.path().join("opened");
        copy(&self.dir.path().join("left"), &home);
        if let Some(position) = flip {
            let path = home.join("p").join(&self.file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[position] ^= 0x10;
            fs::write(path, bytes).unwrap();
        }
        open_in(&self.bench, &home)
    }
}

/// What can be read is what was written; returns what can't.
fn lost(partition: &Partition) -> Vec<u64> {
    let mut lost = Vec::new();
    for number in 0..BATCHES {
        match partition.visit(number, |record| record.value.unwrap() == value(number)) {
            Ok(found) => assert_eq!(found, Some(true), "{number}"),
            Err(Error::Corrupt(corruption)) => {
                assert_eq!(
                    (corruption.offsets.start, corruption.offsets.end),
                    (number, number + 1)
                );
                lost.push(number);
            }
            Err(error) => panic!("{number}: {error}"),
        }
    }
    lost
}

#[test]
fn damage_anywhere_in_a_large_segment_costs_the_batch_that_it_is_in() {
    let left = killed();
    // In each part, the first and the last batch among them; in bodies, and in a header.
    let bodies = [0, 44, 45, 46, 88].map(|number| (number, 400));
    for (number, into) in bodies.into_iter().chain([(60, 10)]) {
        let partition = left.open(Some(left.positions[number] + into));
        let report = partition.recovery_report();
        assert!(!report.clean && report.walked_bytes > 32 << 20, "{report:?}");
        assert_eq!((report.end, report.damage.len()), (BATCHES, 1), "{number}: {report:?}");
        assert_eq!(lost(&partition), [number as u64]);
        partition.append(&[Record::new(b"goes on")]).unwrap();
    }
    let partition = left.open(None);
    assert!(partition.recovery_report().damage.is_empty());
    assert_eq!((partition.ends().end, lost(&partition)), (BATCHES, vec![]));
}
