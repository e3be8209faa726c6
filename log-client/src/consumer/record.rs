//! Records as a consumer hands them over: one by one and owned, or a partition's run at a time.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use log_core::record::{BatchHeader, BatchView, Records as BatchRecords};
use log_core::{Fault, Offset, OffsetRange, RecordView, Timestamp};

use super::membership::PartitionId;
use crate::error::{Error, Result};

/// The most that a compressed batch may expand to.
const EXPANDED_MAX_BYTES: usize = 256 * 1024 * 1024;

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

/// Checks and opens the batches of a reply, up to the first that is damaged. `next` is where the
/// reply ends: a damaged head does not say where its batch does.
pub(super) fn open_batches(
    bytes: &Bytes,
    from: Offset,
    next: Offset,
) -> (Vec<OpenBatch>, Option<Damage>) {
    let mut opened = Vec::new();
    let (mut rest, mut at) = (bytes.as_ref(), from);
    while !rest.is_empty() {
        let (batch, after) = match BatchView::parse(rest) {
            Ok(parsed) => parsed,
            Err(fault) => {
                return (opened, Some(Damage { offsets: OffsetRange::new(at, next), fault }));
            }
        };
        match open(bytes, &batch) {
            Ok(body) => opened.push(OpenBatch { header: batch.header, body }),
            Err(fault) => {
                let end = batch.header.next_offset();
                let offsets = OffsetRange::new(batch.header.base_offset.max(at), end);
                return (opened, Some(Damage { offsets, fault }));
            }
        }
        at = batch.header.next_offset().max(at);
        rest = after;
    }
    (opened, None)
}

fn open(bytes: &Bytes, batch: &BatchView<'_>) -> std::result::Result<Bytes, Fault> {
    batch.check_body()?;
    Ok(match batch.open(EXPANDED_MAX_BYTES)?.into_bytes() {
        // Of an empty one, too: a marker's is borrowed from nowhere.
        Cow::Borrowed([]) => Bytes::new(),
        Cow::Borrowed(body) => bytes.slice_ref(body),
        Cow::Owned(body) => Bytes::from(body),
    })
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

    fn run(bytes: Vec<u8>, offsets: OffsetRange, settled: Vec<OffsetRange>) -> Records {
        let (batches, damage) = open_batches(&Bytes::from(bytes), 0, 100);
        assert!(damage.is_none());
        let (topic, batches) = (Arc::from("orders"), Arc::from(batches));
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
        let (batches, _) = open_batches(&bytes, 0, 1);
        let records = batches[0].decode(&Arc::from("orders"), source()).unwrap();
        let value = records[0].value.clone().unwrap();
        let span = bytes.as_ptr_range();
        assert!(span.contains(&value.as_ptr()));
    }

    #[test]
    fn what_is_damaged_is_named_and_what_stands_before_it_is_kept() {
        let mut bytes = [batch(0, 3, Codec::None), batch(3, 4, Codec::None)].concat();
        *bytes.last_mut().unwrap() ^= 1;
        let (batches, damage) = open_batches(&Bytes::from(bytes.clone()), 0, 7);
        assert_eq!((batches.len(), damage.unwrap().offsets), (1, OffsetRange::new(3, 7)));
        bytes.truncate(bytes.len() - 1);
        let (batches, damage) = open_batches(&Bytes::from(bytes), 0, 9);
        assert_eq!((batches.len(), damage.unwrap().offsets), (1, OffsetRange::new(3, 9)));
    }
}
