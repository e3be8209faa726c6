//! BatchBuilder: makes batches one record at a time, compressed if wanted.

use super::Record;
use super::batch::{BATCH_HEADER_BYTES, BatchHeader};
use super::compression::{Codec, Compressor};
use super::encode::{BATCH_LIMIT, Frame, Summary, Writer};
use crate::clock::Timestamp;
use crate::error::{Error, Fault, Result};

/// Collects records into a batch; after `finish` or `clear` it begins the next one.
#[derive(Debug)]
pub struct BatchBuilder {
    compressor: Compressor,
    producer_id: u64,
    producer_epoch: u16,
    base_sequence: u32,
    /// Room for the header, then the records so far.
    bytes: Vec<u8>,
    /// Absent as long as there are no records.
    summary: Option<Summary>,
}

impl BatchBuilder {
    /// An empty batch, whose body will be compressed this way.
    #[must_use]
    pub fn new(codec: Codec) -> BatchBuilder {
        BatchBuilder {
            compressor: Compressor::new(codec),
            producer_id: 0,
            producer_epoch: 0,
            base_sequence: 0,
            bytes: vec![0; BATCH_HEADER_BYTES],
            summary: None,
        }
    }

    /// The same for a producer whose batches are numbered, so that none is appended twice. The
    /// first record gets `base_sequence`; each batch goes on where the one before it ended.
    #[must_use]
    pub fn with_producer(self, id: u64, epoch: u16, base_sequence: u32) -> BatchBuilder {
        BatchBuilder { producer_id: id, producer_epoch: epoch, base_sequence, ..self }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// `TooLarge` if the batch would be longer than the format allows; it stays as it was.
    pub fn push(&mut self, record: &Record<'_>, now: Timestamp) -> Result<()> {
        let first = || Summary::starting_at(record.timestamp.unwrap_or(now));
        let mut summary = self.summary.unwrap_or_else(first);
        let frame = Frame::of(record, summary.base_timestamp, now, summary.record_count);
        let start = self.bytes.len();
        let end = start.saturating_add(frame.total_len());
        if end > BATCH_LIMIT as usize {
            let (actual, limit) = (end as u64, u64::from(BATCH_LIMIT));
            return Err(Error::TooLarge { what: "batch bytes", actual, limit });
        }
        self.bytes.resize(end, 0);
        Writer { rest: &mut self.bytes[start..] }.put_record(record, &frame);
        summary.add(record, now);
        self.summary = Some(summary);
        Ok(())
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.summary.map_or(0, |summary| summary.record_count as usize)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.summary.is_none()
    }

    /// How long the batch is, header included, before compression.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops the records, to begin anew in the same memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(BATCH_HEADER_BYTES);
        self.summary = None;
    }

    /// The batch, ready to be sent or appended. The builder is empty then, and the next batch's
    /// sequence follows on this one's. A body that compression does not shrink stays as it is.
    ///
    /// # Errors
    /// `Malformed` if there are no records, or the codec fails.
    pub fn finish(&mut self) -> Result<Vec<u8>> {
        let Some(summary) = self.summary else {
            let fault = Fault::Field { field: "record_count", value: 0 };
            return Err(Error::Malformed(fault));
        };
        let (mut batch, codec) = self.compressed()?;
        if let Some((front, body)) = batch.split_first_chunk_mut::<BATCH_HEADER_BYTES>() {
            let header = summary.header(body.len());
            let header = BatchHeader {
                body_crc: crc32fast::hash(body),
                attributes: header.attributes | codec.bits(),
                producer_id: self.producer_id,
                producer_epoch: self.producer_epoch,
                base_sequence: self.base_sequence,
                ..header
            };
            header.encode(front);
        }
        self.base_sequence = self.base_sequence.wrapping_add(summary.record_count);
        self.clear();
        Ok(batch)
    }

    /// Room for a header and the body as it will be stored.
    fn compressed(&mut self) -> Result<(Vec<u8>, Codec)> {
        if self.compressor.codec != Codec::None {
            let body = &self.bytes[BATCH_HEADER_BYTES..];
            let mut batch = Vec::with_capacity(BATCH_HEADER_BYTES + body.len() / 2);
            batch.resize(BATCH_HEADER_BYTES, 0);
            self.compressor.compress(body, &mut batch)?;
            if batch.len() < self.bytes.len() {
                return Ok((batch, self.compressor.codec));
            }
        }
        Ok((std::mem::replace(&mut self.bytes, vec![0; BATCH_HEADER_BYTES]), Codec::None))
    }
}
