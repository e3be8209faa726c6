//! Records as a consumer hands them over: one by one and owned, or a partition's run at a time.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use log_core::record::{BatchHeader, BatchView, Records as BatchRecords};
use log_core::{Fault, Offset, OffsetRange, RecordView, Timestamp};

use super::membership::PartitionId;
use crate::error::{Error, Result};

/// From which assignment of a partition something was read: marks of an older one are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) id: PartitionId,
    pub(super) assignment: u64,
}

/// A header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerHeader {
    /// Its name.
    pub name: String,
    /// Its value, which may be absent.
    pub value: Option<Bytes>,
}

/// A record. Key and value share the memory of the reply that brought them, which lives as long as
/// one of them does: copy what is kept for long.
#[derive(Debug, Clone)]
pub struct ConsumerRecord {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: Offset,
    /// When it happened.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its payload.
    pub value: Option<Bytes>,
    /// Its headers, in their order.
    pub headers: Vec<ConsumerHeader>,
    pub(super) source: Source,
}

/// A batch whose checksum was found right, decompressed.
#[derive(Debug, Clone)]
pub(super) struct OpenBatch {
    pub(super) header: BatchHeader,
    body: Bytes,
}

/// What could not be opened, and why.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    pub(super) offsets: OffsetRange,
    pub(super) fault: Fault,
}

impl OpenBatch {
    fn records(&self) -> BatchRecords<'_> {
        BatchRecords::of(&self.header, &self.body)
    }

    pub(super) fn offsets(&self) -> OffsetRange {
        OffsetRange::new(self.header.base_offset, self.header.next_offset())
    }

    /// Its records, owned.
    ///
    /// # Errors
    /// The first record that can't be read.
    pub(super) fn decode(
        &self,
        topic: &Arc<str>,
        source: Source,
    ) -> std::result::Result<Vec<ConsumerRecord>, Fault> {
        let share = |field: Option<&[u8]>| field.map(|bytes| self.body.slice_ref(bytes));
        let records = self.records().map(|record| {
            let record = record?;
            let headers = record.headers.map(|header| ConsumerHeader {
                name: header.name.to_owned(),
                value: share(header.value),
            });
            Ok(ConsumerRecord {
                topic: Arc::clone(topic),
                partition: source.id.partition,
                offset: record.offset,
                timestamp: record.timestamp,
                key: share(record.key),
                value: share(record.value),
                headers: headers.collect(),
                source,
            })
        });
        records.collect()
    }
}

/// How much memory opened batches may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenLimits {
    /// The most that a compressed batch may expand to.
    pub(super) batch_bytes: usize,
    /// Once so much was decompressed, no further batch is opened.
    pub(super) run_bytes: usize,
}

/// The front of a reply, opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) batches: Vec<OpenBatch>,
    pub(super) damage: Option<Damage>,
    /// Not opened yet, and from which offset on.
    pub(super) rest: Bytes,
    pub(super) at: Offset,
}

/// Checks and opens the batches of a reply, up to the first that is damaged, or to what fits into
/// memory. `next` is where the reply ends: a damaged head does not say where its batch does.
pub(super) fn open_batches(
    bytes: &Bytes,
    from: Offset,
    next: Offset,
    limits: OpenLimits,
) -> Opened {
    let mut opened = Opened { batches: Vec::new(), damage: None, rest: Bytes::new(), at: from };
    let (mut rest, mut expanded) = (bytes.as_ref(), 0);
    while !rest.is_empty() {
        if expanded >= limits.run_bytes {
            opened.rest = bytes.slice_ref(rest);
            break;
        }
        let (batch, after) = match BatchView::parse(rest) {
            Ok(parsed) => parsed,
            Err(fault) => {
                let offsets = OffsetRange::new(opened.at, next);
                opened.damage = Some(Damage { offsets, fault });
                break;
            }
        };
        let end = batch.header.next_offset();
        match open(bytes, &batch, limits.batch_bytes) {
            Ok((body, took)) => {
                expanded += took;
                opened.batches.push(OpenBatch { header: batch.header, body });
            }
            Err(fault) => {
                let offsets = OffsetRange::new(batch.header.base_offset.max(opened.at), end);
                opened.damage = Some(Damage { offsets, fault });
                break;
            }
        }
        opened.at = end.max(opened.at);
        rest = after;
    }
    opened
}

/// The records' bytes of a batch, and how much memory of their own they take.
fn open(
    bytes: &Bytes,
    batch: &BatchView<'_>,
    max_expanded: usize,
) -> std::result::Result<(Bytes, usize), Fault> {
    batch.check_body()?;
    match batch.open(max_expanded)?.into_bytes() {
        // Of an empty one, too: a marker's is borrowed from nowhere.
        Cow::Borrowed([]) => Ok((Bytes::new(), 0)),
        Cow::Borrowed(body) => Ok((bytes.slice_ref(body), 0)),
        Cow::Owned(body) => {
            // What a producer has compressed was looked at by nobody yet.
            if let Some(fault) = BatchRecords::of(&batch.header, &body).find_map(|one| one.err()) {
                return Err(fault);
            }
            let took = body.capacity();
            Ok((Bytes::from(body), took))
        }
    }
}

/// A run of one partition's records, in order.
#[derive(Debug, Clone)]
pub struct Records {
    pub(super) topic: Arc<str>,
    pub(super) source: Source,
    pub(super) batches: Arc<[OpenBatch]>,
    pub(super) offsets: OffsetRange,
    /// What of these offsets was done before, and is left out.
    pub(super) settled: Vec<OffsetRange>,
}

impl Records {
    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.source.id.partition
    }

    /// The offsets that the run spans; some of them may have no record.
    #[must_use]
    pub fn offsets(&self) -> OffsetRange {
        self.offsets
    }

    /// The records, borrowed.
    #[must_use]
    pub fn iter(&self) -> RecordsIter<'_> {
        RecordsIter { run: self, batches: self.batches.iter(), records: None, ended: false }
    }

    /// The records, owned: they share the run's memory.
    ///
    /// # Errors
    /// `Protocol` for a record that can't be read.
    pub fn to_owned_records(&self) -> Result<Vec<ConsumerRecord>> {
        let mut all = Vec::new();
        for batch in self.batches.iter() {
            let records = batch.decode(&self.topic, self.source)?;
            all.extend(records.into_iter().filter(|record| self.holds(record.offset)));
        }
        Ok(all)
    }

    fn holds(&self, offset: Offset) -> bool {
        self.offsets.contains(offset) && !self.settled.iter().any(|run| run.contains(offset))
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<RecordView<'a>>;
    type IntoIter = RecordsIter<'a>;

    fn into_iter(self) -> RecordsIter<'a> {
        self.iter()
    }
}

/// The records of a run. After an error it ends.
#[derive(Debug, Clone)]
pub struct RecordsIter<'a> {
    run: &'a Records,
    batches: std::slice::Iter<'a, OpenBatch>,
    records: Option<BatchRecords<'a>>,
    ended: bool,
}

impl<'a> Iterator for RecordsIter<'a> {
    type Item = Result<RecordView<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<RecordView<'a>>> {
        while !self.ended {
            match self.records.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) if self.run.holds(record.offset) => return Some(Ok(record)),
                Some(Ok(_)) => {}
                Some(Err(fault)) => {
                    self.ended = true;
                    return Some(Err(Error::Protocol(fault)));
                }
                None => match self.batches.next() {
                    Some(batch) => self.records = Some(batch.records()),
                    None => self.ended = true,
                },
            }
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use log_core::record::{BatchBuilder, Codec, Stamp, stamp};
    use log_core::{Header, Record};

    use super::*;

    pub(in super::super) fn source() -> Source {
        Source { id: PartitionId { topic_id: 7, partition: 3 }, assignment: 1 }
    }

    /// A batch as a partition stores it; each record's value is its offset.
    pub(in super::super) fn batch(base_offset: Offset, count: u64, codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new(codec);
        for offset in base_offset..base_offset + count {
            let headers = [Header { name: "n", value: Some(b"v") }];
            let value = offset.to_le_bytes();
            let record = Record::new(&value).with_headers(&headers);
            builder.push(&record, Timestamp::from_millis(5)).unwrap();
        }
        let mut bytes = builder.finish().unwrap();
        let append_time = Timestamp::from_millis(9);
        stamp(&mut bytes, Stamp { base_offset, append_time, durable_end: 0, epoch: 1 }, 0);
        bytes
    }

    pub(in super::super) const LIMITS: OpenLimits =
        OpenLimits { batch_bytes: 1 << 20, run_bytes: 1 << 20 };

    /// A batch that holds more than it says, though its checksum is right.
    pub(in super::super) fn garbage(base_offset: Offset, count: u64, codec: Codec) -> Vec<u8> {
        let mut bytes = batch(base_offset, count, codec);
        let header = BatchHeader::decode(&bytes).unwrap();
        let header = BatchHeader { record_count: header.record_count - 1, ..header };
        header.encode(bytes.first_chunk_mut().unwrap());
        bytes
    }

    fn run(bytes: Vec<u8>, offsets: OffsetRange, settled: Vec<OffsetRange>) -> Records {
        let opened = open_batches(&Bytes::from(bytes), 0, 100, LIMITS);
        assert!(opened.damage.is_none());
        let (topic, batches) = (Arc::from("orders"), Arc::from(opened.batches));
        Records { topic, source: source(), batches, offsets, settled }
    }

    #[test]
    fn a_run_tells_what_is_in_its_bounds_and_not_settled() {
        let bytes = [batch(0, 3, Codec::None), batch(3, 50, Codec::Zstd)].concat();
        let run = run(bytes, OffsetRange::new(1, 6), vec![OffsetRange::new(2, 4)]);
        let seen: Vec<_> = run.iter().map(|record| record.unwrap().offset).collect();
        assert_eq!(seen, [1, 4, 5]);
        let owned = run.to_owned_records().unwrap();
        assert_eq!(owned.iter().map(|record| record.offset).collect::<Vec<_>>(), seen);
        assert_eq!(owned[1].value.as_deref(), Some(4_u64.to_le_bytes().as_slice()));
        assert_eq!(owned[1].headers[0].name, "n");
    }

    #[test]
    fn values_share_the_memory_that_was_fetched() {
        let bytes = Bytes::from(batch(0, 1, Codec::None));
        let opened = open_batches(&bytes, 0, 1, LIMITS);
        let records = opened.batches[0].decode(&Arc::from("orders"), source()).unwrap();
        let value = records[0].value.clone().unwrap();
        let span = bytes.as_ptr_range();
        assert!(span.contains(&value.as_ptr()));
    }

    #[test]
    fn what_is_damaged_is_named_and_what_stands_before_it_is_kept() {
        let mut bytes = [batch(0, 3, Codec::None), batch(3, 4, Codec::None)].concat();
        *bytes.last_mut().unwrap() ^= 1;
        let damaged = |bytes: &[u8], next| {
            let opened = open_batches(&Bytes::copy_from_slice(bytes), 0, next, LIMITS);
            (opened.batches.len(), opened.damage.unwrap().offsets)
        };
        assert_eq!(damaged(&bytes, 7), (1, OffsetRange::new(3, 7)));
        bytes.truncate(bytes.len() - 1);
        assert_eq!(damaged(&bytes, 9), (1, OffsetRange::new(3, 9)));
    }

    #[test]
    fn a_compressed_batch_that_is_garbage_inside_is_damage_and_takes_no_other_with_it() {
        let bytes = [batch(0, 3, Codec::Zstd), garbage(3, 4, Codec::Zstd)].concat();
        let opened = open_batches(&Bytes::from(bytes), 0, 9, LIMITS);
        let damaged = opened.damage.unwrap().offsets;
        assert_eq!((opened.batches.len(), damaged), (1, OffsetRange::new(3, 7)));
    }

    #[test]
    fn what_expands_to_more_than_it_may_is_damage() {
        let bytes = Bytes::from(batch(0, 50, Codec::Zstd));
        let limits = OpenLimits { batch_bytes: 100, ..LIMITS };
        let opened = open_batches(&bytes, 0, 50, limits);
        assert_eq!(opened.damage.unwrap().offsets, OffsetRange::new(0, 50));
    }
}
