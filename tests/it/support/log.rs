//! A partition of numbered records, and the batches in its files, to be tampered with.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use log_core::disk::{Disk, FaultyDisk, FileMode};
use log_core::error::Corruption;
use log_core::partition::Partition;
use log_core::record::{BatchHeader, Record, header_checksum};
use log_core::segment::{Found, SegmentHeader, SegmentScan, seed_at};

use super::reading::read_everything;

/// A value that names its offset.
pub(crate) fn value(offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = offset.to_le_bytes().to_vec();
    bytes.resize(len.max(bytes.len()), 7);
    bytes
}

/// Appends a record for each of these offsets, each in a batch of its own.
pub(crate) fn append(partition: &Partition, offsets: Range<u64>, len: usize) {
    for offset in offsets {
        let appended = partition.append(&[Record::new(&value(offset, len))]).expect("appended");
        assert_eq!(appended.base_offset, offset);
    }
}

/// The offsets that can be read, in order, and what can't be; each value names its offset.
pub(crate) fn offsets(partition: &Partition) -> (Vec<u64>, Vec<Corruption>) {
    let found = read_everything(partition, 10_000).expect("what can't be read says so");
    let mut offsets = Vec::new();
    for stored in found.records {
        let value = stored.value.expect("a value");
        assert_eq!(&value[..8], &stored.offset.to_le_bytes(), "the value of another offset");
        offsets.push(stored.offset);
    }
    assert!(offsets.is_sorted_by(|before, after| before < after), "each once, in order");
    (offsets, found.corrupt)
}

/// Everything in this range can be read, once, and nothing else is there.
#[track_caller]
pub(crate) fn assert_holds(partition: &Partition, expected: Range<u64>) {
    let (found, corrupt) = offsets(partition);
    assert_eq!(corrupt, []);
    assert_eq!(found, expected.clone().collect::<Vec<_>>());
    let ends = partition.ends();
    assert_eq!((ends.log_start, ends.end), (expected.start, expected.end));
}

/// Everything in this range can be read but for the offsets in `lost`, which are told as corrupt.
#[track_caller]
pub(crate) fn assert_holds_but(partition: &Partition, expected: Range<u64>, lost: Range<u64>) {
    let (found, corrupt) = offsets(partition);
    let there: BTreeSet<u64> = found.into_iter().collect();
    let wanted: BTreeSet<u64> = expected.filter(|offset| !lost.contains(offset)).collect();
    assert_eq!(there, wanted);
    let told = |offset| corrupt.iter().any(|found| found.offsets.contains(offset));
    assert!(lost.clone().all(told), "{lost:?} is told: {corrupt:?}");
}

/// The header of a segment.
pub(crate) fn header(disk: &FaultyDisk, path: &Path) -> SegmentHeader {
    let file = disk.open(path, FileMode::Read).expect("the segment is there");
    let found = SegmentHeader::read(&*file).expect("it can be read");
    found.expect("it has a header").header
}

/// The batches of a segment, markers too, with their positions.
pub(crate) fn batches(disk: &FaultyDisk, path: &Path) -> Vec<(u64, BatchHeader)> {
    let header = header(disk, path);
    let file = disk.open(path, FileMode::Read).expect("the segment is there");
    let (start, size) = (u64::from(header.data_start), file.size().expect("it has a size"));
    let mut scan = SegmentScan::new(file, &header, (start, header.name.base), size, true);
    let mut found = Vec::new();
    while let Some(Found::Batch { header, position }) = scan.step().expect("it can be read") {
        found.push((position, header));
    }
    found
}

/// Where the batches of records stand.
pub(crate) fn positions(disk: &FaultyDisk, path: &Path) -> Vec<u64> {
    let all = batches(disk, path).into_iter();
    all.filter(|(_, header)| !header.is_marker()).map(|(position, _)| position).collect()
}

/// Overwrites a field of a batch's header and makes the header's checksum right again.
pub(crate) fn forge(disk: &FaultyDisk, path: &Path, position: u64, at: u64, field: &[u8]) {
    let seed = seed_at(header(disk, path).seed(), position);
    disk.write_raw(path, position + at, field);
    let from = usize::try_from(position).expect("a position in a test");
    let checksum = header_checksum(&disk.read(path)[from..], seed);
    disk.write_raw(path, position, &checksum.to_le_bytes());
}

/// Flips a bit.
pub(crate) fn flip(disk: &FaultyDisk, path: &Path, position: u64) {
    let at = usize::try_from(position).expect("a position in a test");
    let byte = disk.read(path)[at] ^ 0x10;
    disk.write_raw(path, position, &[byte]);
}

/// Gives a file these bytes, and no others.
pub(crate) fn replace(disk: &FaultyDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, FileMode::Create).expect("it can be made");
    file.write_at(bytes, 0).and_then(|()| file.sync()).expect("it can be written");
}
