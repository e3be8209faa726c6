//! Damage: a log whose bytes are known, and a judge of what the engine makes of it once somebody
//! has been at its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use log_core::clock::Clock;
use log_core::config::FlushPolicy;
use log_core::disk::FaultyDisk;
use log_core::error::Error;
use log_core::partition::{Partition, RecoveryReport};
use log_core::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, Codec, MAGIC, Record};

use super::Bench;
use super::reading::{Everything, read_everything};

/// The header pages of a segment.
const HEADER_BYTES: usize = 8192;

/// A batch as it stands in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) first: u64,
    pub(crate) next: u64,
}

/// The files of a log, and what is in them.
pub(crate) struct Known {
    pub(crate) bench: Bench,
    pub(crate) disk: FaultyDisk,
    pub(crate) values: Vec<Vec<u8>>,
    pub(crate) log_start: u64,
    /// How much of each segment's file is in use, and its batches.
    pub(crate) segments: BTreeMap<PathBuf, (u64, Vec<Stand>)>,
}

/// What the engine made of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) report: RecoveryReport,
    /// Whether any of reading, recovery and check has told of damage.
    pub(crate) named: bool,
    pub(crate) missing: BTreeSet<u64>,
    pub(crate) end: u64,
}

/// A value that no other offset has.
pub(crate) fn value(offset: u64, len: usize) -> Vec<u8> {
    let mut value = offset.to_le_bytes().to_vec();
    let mut byte = offset.wrapping_mul(0x9e37_79b9).wrapping_add(77);
    value.resize_with(len.max(8), || {
        byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (byte >> 56).to_le_bytes()[0]
    });
    value
}

/// A log that is being written.
pub(crate) struct Writing {
    pub(crate) bench: Bench,
    pub(crate) partition: Partition,
    pub(crate) values: Vec<Vec<u8>>,
}

impl Writing {
    pub(crate) fn new(flush: FlushPolicy) -> Writing {
        let mut bench = Bench::new(flush);
        bench.config.segment_max_age = Some(Duration::from_secs(5));
        let partition = bench.open().expect("a disk without faults");
        Writing { bench, partition, values: Vec::new() }
    }

    /// Appends a batch with values of these lengths.
    pub(crate) fn append(&mut self, lens: &[usize]) {
        let end = self.values.len() as u64;
        let values: Vec<_> = (end..).zip(lens).map(|(offset, len)| value(offset, *len)).collect();
        self.append_values(values);
    }

    pub(crate) fn append_values(&mut self, values: Vec<Vec<u8>>) {
        let records: Vec<_> = values.iter().map(|value| Record::new(value)).collect();
        self.partition.append(&records).expect("appended");
        self.values.extend(values);
    }

    /// Appends a producer's batch, compressed.
    pub(crate) fn produce(&mut self, producer: u64, codec: Codec) {
        let mut builder = BatchBuilder::new(codec).with_producer(producer, 0, 0);
        for offset in (self.values.len() as u64..).take(3) {
            let value = value(offset % 2, 60);
            builder.push(&Record::new(&value), self.bench.clock.now()).expect("fits");
            self.values.push(value);
        }
        let batch = builder.finish().expect("records");
        self.partition.append_batch(&batch).expect("appended");
    }

    /// Ends the active segment; the next append begins another.
    pub(crate) fn roll(&mut self) {
        self.bench.clock.advance(Duration::from_secs(6));
        assert!(self.partition.maintain().expect("no faults").rolled);
        self.bench.background.run_pending();
    }

    /// The process dies, and the next one goes on.
    pub(crate) fn kill(&mut self) {
        self.bench = self.bench.next(self.bench.disk.kill());
        self.partition = self.bench.open().expect("opens");
    }

    pub(crate) fn close(self) -> Known {
        self.partition.close().expect("closed");
        self.leave()
    }

    /// The log as it is, after a kill.
    pub(crate) fn leave(self) -> Known {
        let disk = self.bench.disk.kill();
        let segments = self.partition.segments().into_iter().map(|segment| {
            let stands = batches_in(&disk.read(&segment.path), segment.bytes);
            (segment.path, (segment.bytes, stands))
        });
        let (segments, log_start) = (segments.collect(), self.partition.ends().log_start);
        Known { bench: self.bench, disk, values: self.values, log_start, segments }
    }
}

fn batches_in(bytes: &[u8], used: u64) -> Vec<Stand> {
    let used = usize::try_from(used).expect("small");
    let magic = MAGIC.to_le_bytes();
    let first = bytes[HEADER_BYTES..].windows(4).position(|window| window == magic);
    let Some(mut at) = first.map(|at| HEADER_BYTES + at - 4) else { return Vec::new() };
    let mut stands = Vec::new();
    while at + BATCH_HEADER_BYTES <= used {
        let header = BatchHeader::decode(&bytes[at..]).expect("as it was written");
        let end = at + header.total_len();
        let (first, next) = (header.base_offset, header.next_offset());
        stands.push(Stand { start: at as u64, end: end as u64, first, next });
        at = end;
    }
    stands
}

impl Known {
    /// The offsets of the batches that overlap a range of a file.
    pub(crate) fn offsets_in(&self, path: &Path, start: u64, end: u64) -> BTreeSet<u64> {
        let stands = &self.segments[path].1;
        let hit = stands.iter().filter(|stand| stand.start < end && stand.end > start);
        hit.flat_map(|stand| stand.first..stand.next).collect()
    }

    /// All batches that hold records, and their files.
    pub(crate) fn stands(&self) -> Vec<(PathBuf, Stand)> {
        let all = self
            .segments
            .iter()
            .flat_map(|(path, (_, stands))| stands.iter().map(|stand| (path.clone(), *stand)));
        all.filter(|(_, stand)| stand.next > stand.first).collect()
    }

    /// All offsets of a segment.
    pub(crate) fn offsets_of(&self, path: &Path) -> BTreeSet<u64> {
        self.offsets_in(path, 0, u64::MAX)
    }

    /// Opens what somebody did to a copy of the disk, and asks everything of it.
    pub(crate) fn judge(&self, disk: FaultyDisk, story: &str) -> Verdict {
        let before: BTreeMap<_, _> =
            disk.paths().into_iter().map(|path| (path.clone(), disk.read(&path))).collect();
        let bench = self.bench.next(disk);
        let partition = bench.open().unwrap_or_else(|error| panic!("{story}: {error}"));
        let verdict = self.look(&partition, story);
        self.go_on(&partition, &verdict, story);
        let found = self.look(&partition, story);
        assert_eq!(found.missing, verdict.missing, "{story}: while appends went on");
        self.check_files(&bench.disk, &before, story);
        // What was appended is there after a kill, and nothing else has changed.
        let end = partition.ends().end;
        let next = bench.next(bench.disk.kill());
        let partition = next.open().unwrap_or_else(|error| panic!("{story}, again: {error}"));
        assert_eq!(partition.ends().end, end, "{story}: {:?}", partition.recovery_report());
        assert_eq!(partition.refusal().map(|error| error.to_string()), None, "{story}");
        let found = self.look(&partition, story);
        assert_eq!(found.missing, verdict.missing, "{story}: after a restart");
        verdict
    }

    /// Reads and checks everything: whatever is returned is what was written.
    pub(crate) fn look(&self, partition: &Partition, story: &str) -> Verdict {
        let report = partition.recovery_report().clone();
        let found = read_everything(partition, 20_000)
            .unwrap_or_else(|why| panic!("{story}: {why}\n{report:?}"));
        let check = partition.check(|_| {}).unwrap_or_else(|error| panic!("{story}: {error}"));
        let end = partition.ends().end;
        let missing = self.missing(&found, story);
        // What was cut, or lost with an end that can't be proven, is followed by what comes next.
        let reused = |offset: &&u64| !found.records.iter().any(|read| read.offset == **offset);
        for offset in missing.iter().filter(|offset| **offset < end).filter(reused) {
            let told = found.corrupt.iter().any(|range| range.offsets.contains(*offset));
            assert!(told, "{story}: nothing tells of {offset}: {report:?}");
            let checked = check.corrupt.iter().any(|range| range.offsets.contains(*offset));
            assert!(checked, "{story}: check() is silent of {offset}: {check:?}");
        }
        let named = !found.corrupt.is_empty()
            || !check.is_sound()
            || report.cut.is_some()
            || !report.damage.is_empty()
            || !report.skipped.is_empty()
            || !report.unborn.is_empty();
        Verdict { report, named, missing, end }
    }

    fn missing(&self, found: &Everything, story: &str) -> BTreeSet<u64> {
        let end = self.values.len() as u64;
        let mut missing: BTreeSet<u64> = (self.log_start..end).collect();
        for stored in found.records.iter().filter(|stored| stored.offset < end) {
            let expected = &self.values[usize::try_from(stored.offset).expect("short")];
            if stored.value.as_ref() == Some(&APPENDED.to_vec()) {
                continue;
            }
            assert_eq!(stored.value.as_ref(), Some(expected), "{story}: wrong bytes");
            assert!(missing.remove(&stored.offset), "{story}: {} comes twice", stored.offset);
        }
        missing
    }

    fn go_on(&self, partition: &Partition, verdict: &Verdict, story: &str) {
        let report = &verdict.report;
        let record = [Record::new(APPENDED)];
        let appended = match partition.append(&record) {
            Err(Error::EndUnproven { at_least, .. }) => {
                assert!(report.end_unproven && at_least == verdict.end, "{story}: {report:?}");
                let repaired = partition.repair();
                let at = repaired.unwrap_or_else(|error| panic!("{story}: repair: {error}"));
                assert_eq!(at, Some(at_least), "{story}");
                partition.append(&record)
            }
            outcome => outcome,
        };
        let appended = appended.unwrap_or_else(|error| panic!("{story}: {error}: {report:?}"));
        assert_eq!(appended.base_offset, verdict.end, "{story}");
        let seen = partition.visit(verdict.end, |record| record.value == Some(APPENDED));
        assert!(matches!(seen, Ok(Some(true))), "{story}: {seen:?}");
    }

    /// No segment was removed, and none was changed where it was in use.
    fn check_files(&self, disk: &FaultyDisk, before: &BTreeMap<PathBuf, Vec<u8>>, story: &str) {
        for (path, (used, _)) in &self.segments {
            let Some(old) = before.get(path) else { continue };
            let used = usize::try_from(*used).expect("small").min(old.len());
            let now = disk.read(path);
            assert!(now.len() >= old.len(), "{story}: {} was cut short", path.display());
            assert!(now[..used] == old[..used], "{story}: {} was changed", path.display());
        }
    }
}

/// What is appended to see that appends go on.
const APPENDED: &[u8] = b"appends go on";
