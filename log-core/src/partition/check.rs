//! Check: every byte of a partition looked at, by pread; nothing is changed.

use std::path::PathBuf;

use super::Partition;
use crate::clock::Timestamp;
use crate::disk::{DiskFile, FileMode};
use crate::error::{Corruption, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::BatchView;
use crate::segment::{Found, HEADER_BYTES, Segment, SegmentHeader, SegmentIndex, SegmentScan};

/// What looking at every byte has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// How many segments were looked at.
    pub segments: u64,
    /// How many batches were sound.
    pub batches: u64,
    /// How many records they hold.
    pub records: u64,
    /// How many bytes were read.
    pub bytes: u64,
    /// What can't be read.
    pub corrupt: Vec<Corruption>,
    /// Index files that are damaged or do not fit their segment. They are derived: they are made
    /// anew when they are needed.
    pub indexes: Vec<Corruption>,
}

/// What is in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDescription {
    /// Its file.
    pub path: PathBuf,
    /// The epoch in which it was begun.
    pub epoch: u32,
    /// Its offsets.
    pub offsets: OffsetRange,
    /// How many bytes of it are in use, its header among them.
    pub bytes: u64,
    /// When its first record was appended.
    pub first_append_time: Option<Timestamp>,
    /// When its last record was appended.
    pub last_append_time: Option<Timestamp>,
    /// Whether nothing more is appended to it.
    pub sealed: bool,
    /// What is wrong with its header, if something is: none of it can be read then.
    pub fault: Option<Fault>,
}

impl CheckReport {
    /// Whether everything is as it was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.corrupt.is_empty() && self.indexes.is_empty()
    }

    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: CheckReport) {
        self.segments += other.segments;
        self.batches += other.batches;
        self.records += other.records;
        self.bytes += other.bytes;
        self.corrupt.extend(other.corrupt);
        self.indexes.extend(other.indexes);
    }
}

impl Partition {
    /// The segments, the oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentDescription> {
        let end = self.ends().end;
        self.0.segments.read().iter().map(|segment| describe(segment, end)).collect()
    }

    /// How many segments there are.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.0.segments.read().len()
    }

    /// How many bytes of the partition's files are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.segments.read().iter().map(|segment| segment.used_bytes()).sum()
    }

    /// Reads everything: every checksum, the offsets dense, every record well-formed, the index
    /// files right. Tells `progress` how many bytes it has read since it last did.
    ///
    /// # Errors
    /// `Io` if the disk can't be read. What is damaged is in the report.
    pub fn check(&self, mut progress: impl FnMut(u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        report.corrupt.extend(self.recovery_report().skipped.iter().cloned());
        let segments = self.0.segments.read().clone();
        for segment in &segments {
            self.check_segment(segment, &mut report, &mut progress)?;
        }
        // What recovery has found missing stands in no segment.
        for found in &self.recovery_report().damage {
            let told = |other: &Corruption| {
                let holds = other.offsets.start <= found.offsets.start
                    && found.offsets.end <= other.offsets.end;
                let same = other.position == found.position || !found.offsets.is_empty();
                other.path == found.path && holds && same
            };
            if !report.corrupt.iter().any(told) {
                report.corrupt.push(found.clone());
            }
        }
        Ok(report)
    }

    fn check_segment(
        &self,
        segment: &Segment,
        report: &mut CheckReport,
        progress: &mut impl FnMut(u64),
    ) -> Result<()> {
        report.segments += 1;
        let (base, sealed) = (segment.name().base, segment.end());
        let end = sealed.map_or_else(|| self.ends().end, |end| end.offset);
        let header = match segment.header() {
            Ok(header) => header,
            Err(fault) => {
                let (path, offsets) = (segment.path(), OffsetRange::new(base, end));
                let fault = fault.clone();
                report.corrupt.push(Corruption { path, position: 0, offsets, fault });
                return Ok(());
            }
        };
        let file = self.0.context.disk.open(&segment.path(), FileMode::Read)?;
        if let Some(fault) = table_fault(&*file, header)? {
            let (path, offsets) = (segment.path(), OffsetRange::new(base, base));
            let position = HEADER_BYTES as u64;
            report.corrupt.push(Corruption { path, position, offsets, fault });
        }
        let start = (u64::from(header.data_start), base);
        let used = segment.used_bytes();
        let mut index = SegmentIndex::new(base, start.0);
        let mut scan = SegmentScan::new(file, header, start, used, false);
        let (mut told, mut whole) = (0, true);
        while let Some(found) = scan.step()? {
            match found {
                Found::Batch { header, position } => {
                    index.add(&header, position);
                    report.batches += 1;
                    report.records += u64::from(header.record_count);
                    if !header.is_marker() {
                        let bytes = scan.bytes_of(&header, position)?;
                        if let Err(fault) = walk_records(bytes, self.0.expanded_max()) {
                            let offsets =
                                OffsetRange::new(header.base_offset, header.next_offset());
                            let path = segment.path();
                            report.corrupt.push(Corruption { path, position, offsets, fault });
                        }
                    }
                }
                Found::Bad(bad) => {
                    whole = false;
                    report.corrupt.push(Corruption {
                        path: segment.path(),
                        position: bad.position,
                        offsets: OffsetRange::new(bad.offset, bad.next_offset.unwrap_or(end)),
                        fault: bad.fault,
                    });
                }
            }
            if scan.position() - told >= 1 << 20 {
                progress(scan.position() - told);
                told = scan.position();
            }
        }
        progress(scan.position() - told);
        report.bytes += scan.position();
        if scan.expected() < end
            && sealed.is_some()
            && !report.corrupt.iter().any(|c| c.path == segment.path() && c.offsets.end >= end)
        {
            report.corrupt.push(missing_tail(segment, scan.position(), scan.expected(), end));
        }
        check_index(segment, whole.then_some(&index), report);
        Ok(())
    }
}

fn missing_tail(segment: &Segment, position: u64, from: Offset, end: Offset) -> Corruption {
    let (path, offsets) = (segment.path(), OffsetRange::new(from, end));
    Corruption { path, position, offsets, fault: Fault::Truncated { what: "segment" } }
}

/// What is wrong with the table of producers behind a header: it costs no record.
fn table_fault(file: &dyn DiskFile, header: &SegmentHeader) -> Result<Option<Fault>> {
    let most = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0_u8; (header.producers_length as usize).min(most)];
    let read = file.read_at(&mut bytes, HEADER_BYTES as u64)?;
    let (found, expected) = (crc32fast::hash(&bytes[..read]), header.producers_crc);
    let fault = Fault::Checksum { what: "producer table", found, expected };
    Ok((found != expected).then_some(fault))
}

fn walk_records(bytes: &[u8], expanded_max: usize) -> std::result::Result<(), Fault> {
    let (batch, _) = BatchView::parse(bytes)?;
    let body = batch.open(expanded_max)?;
    body.records().try_for_each(|record| record.map(|_| ()))
}

/// Compares the index file with what a walk of the segment gives, if that could read all of it.
fn check_index(segment: &Segment, walked: Option<&SegmentIndex>, report: &mut CheckReport) {
    let fault = match segment.stored_index() {
        Ok(Ok(stored)) if walked.is_none_or(|walked| stored.agrees_with(walked)) => return,
        Ok(Ok(stored)) => {
            let value = stored.end_position().cast_signed();
            Fault::Field { field: "index's end position or entries", value }
        }
        Ok(Err(fault)) => fault,
        // There is none: it is made when it is needed.
        Err(_) => return,
    };
    let (path, base) = (segment.index_path(), segment.name().base);
    let offsets = OffsetRange::new(base, base);
    report.indexes.push(Corruption { path, position: 0, offsets, fault });
}

fn describe(segment: &Segment, end: Offset) -> SegmentDescription {
    let offset = segment.end().map_or(end, |sealed| sealed.offset);
    let times = segment.times().map_or((None, None), |times| {
        (times.first_append, times.first_append.map(|_| times.last_append))
    });
    SegmentDescription {
        path: segment.path(),
        epoch: segment.name().epoch,
        offsets: OffsetRange::new(segment.name().base, offset),
        bytes: segment.used_bytes(),
        first_append_time: times.0,
        last_append_time: times.1,
        sealed: segment.end().is_some(),
        fault: segment.header().err().cloned(),
    }
}
