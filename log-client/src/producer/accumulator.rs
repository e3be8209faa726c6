//! Accumulator: gathers the records of one partition into batches. Pure: it is given the time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log_core::record::{encode_into, encoded_len};
use log_core::{BatchBuilder, Codec, Record, Timestamp};
use tokio::time::Instant;

use super::outcome::{Delivery, Outcome};
use crate::error::{Error, Result};

/// What a record takes beside key, value and headers, at the most: lengths, deltas, counts.
const RECORD_EXTRA_BYTES: usize = 40;

/// A batch that is whole.
#[derive(Debug)]
pub(crate) struct Batch {
    /// As it will be sent, but for who sends it and its sequence.
    pub(crate) bytes: Bytes,
    pub(crate) count: u32,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) began: Instant,
    /// How many bytes of the buffer it takes.
    pub(crate) reserved: usize,
}

/// Gathers the records of one partition.
#[derive(Debug)]
pub(crate) struct Accumulator {
    partition: u32,
    builder: BatchBuilder,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    outcome: Arc<Outcome>,
    began: Instant,
    count: u32,
    reserved: usize,
}

/// The most bytes that a record takes in the buffer.
pub(crate) fn room_for(record: &Record<'_>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers.iter();
    let headers = headers.map(|header| header.name.len() + length(header.value) + 10);
    RECORD_EXTRA_BYTES + length(record.key) + length(record.value) + headers.sum::<usize>()
}

impl Accumulator {
    pub(crate) fn new(partition: u32, codec: Codec) -> Accumulator {
        Accumulator { partition, builder: BatchBuilder::new(codec), open: None }
    }

    /// Whether a record of `room` bytes asks for [`Accumulator::seal`] first, where a batch has so
    /// many at most.
    pub(crate) fn is_full_for(&self, room: usize, max_bytes: usize) -> bool {
        self.open.is_some() && self.builder.encoded_bytes() + room > max_bytes
    }

    /// Adds a record. `now` is asked for only if it begins a batch.
    ///
    /// # Errors
    /// `InvalidArgument` for a record that no batch can hold.
    pub(crate) fn push(
        &mut self,
        record: &Record<'_>,
        time: Timestamp,
        now: impl FnOnce() -> Instant,
    ) -> Result<Delivery> {
        let pushed = self.builder.push(record, time);
        pushed.map_err(|error| Error::invalid(error.to_string()))?;
        let partition = self.partition;
        let open = self.open.get_or_insert_with(|| {
            let outcome = Outcome::new(partition);
            Open { outcome, began: now(), count: 0, reserved: 0 }
        });
        let delivery = Delivery::new(Arc::clone(&open.outcome), open.count);
        open.count += 1;
        open.reserved += room_for(record);
        Ok(delivery)
    }

    /// When the batch that is gathered was begun.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.began)
    }

    /// When the batch that is gathered has waited long enough.
    pub(crate) fn due(&self, linger: Duration) -> Option<Instant> {
        self.began().map(|began| began + linger)
    }

    /// The batch that was gathered, if there is one. `Err` is a batch that could not be
    /// compressed, with the reason: it ends there.
    pub(crate) fn seal(&mut self) -> Option<std::result::Result<Batch, (Batch, Error)>> {
        let Open { outcome, began, count, reserved } = self.open.take()?;
        let finished = self.builder.finish();
        let batch = |bytes| Batch { bytes, count, outcome, began, reserved };
        Some(match finished {
            Ok(bytes) => Ok(batch(Bytes::from(bytes))),
            Err(error) => {
                self.builder.clear();
                Err((batch(Bytes::new()), Error::invalid(error.to_string())))
            }
        })
    }

    /// A batch of these records alone.
    ///
    /// # Errors
    /// `InvalidArgument` for records that no batch can hold.
    pub(crate) fn whole(
        &self,
        records: &[Record<'_>],
        codec: Codec,
        time: Timestamp,
        now: Instant,
    ) -> Result<Batch> {
        Ok(Batch {
            bytes: encode(records, codec, time)?,
            count: u32::try_from(records.len()).map_err(|_| Error::invalid("too many records"))?,
            outcome: Outcome::new(self.partition),
            began: now,
            reserved: records.iter().map(room_for).sum(),
        })
    }
}

/// Records as one batch.
///
/// # Errors
/// `InvalidArgument` if there are none, or more than a batch can hold.
pub(crate) fn encode(records: &[Record<'_>], codec: Codec, time: Timestamp) -> Result<Bytes> {
    if records.is_empty() {
        return Err(Error::invalid("a batch needs a record"));
    }
    let length = encoded_len(records, time);
    if codec == Codec::None && i32::try_from(length).is_ok() {
        let mut bytes = vec![0; length];
        encode_into(&mut bytes, records, time);
        return Ok(Bytes::from(bytes));
    }
    let illegal = |error: log_core::Error| Error::invalid(error.to_string());
    let mut builder = BatchBuilder::new(codec);
    for record in records {
        builder.push(record, time).map_err(illegal)?;
    }
    Ok(Bytes::from(builder.finish().map_err(illegal)?))
}
