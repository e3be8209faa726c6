//! Reading batches in place: a borrowed batch, its opened body, the records in it.

use std::borrow::Cow;

use super::Header;
use super::batch::{BATCH_HEADER_BYTES, BatchHeader, attributes};
use super::compression::{Codec, expand};
use super::varint::{Malformed, read_count, read_i64, read_len};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::offset::Offset;

/// A whole batch, borrowed from where it is stored.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    /// Its header, decoded.
    pub header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The batch that is exactly `bytes`, whose header was decoded from them.
    ///
    /// # Panics
    /// If they are not as long as the header says.
    #[must_use]
    #[inline]
    pub(crate) fn new(header: BatchHeader, bytes: &'a [u8]) -> BatchView<'a> {
        assert!(bytes.len() == header.total_len(), "a batch is as long as its header says");
        BatchView { header, bytes }
    }

    /// The batch at the front of `bytes`, and what follows it. Checksums are not checked.
    ///
    /// # Errors
    /// What [`BatchHeader::decode`] refuses; `Truncated` if the body is not all there.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<(BatchView<'a>, &'a [u8]), Fault> {
        let header = BatchHeader::decode(bytes)?;
        let (bytes, rest) = bytes
            .split_at_checked(header.total_len())
            .ok_or(Fault::Truncated { what: "batch body" })?;
        Ok((BatchView { header, bytes }, rest))
    }

    /// The batch as stored, header and body.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The body as stored: compressed, if it is.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }

    /// Checks the body's checksum.
    ///
    /// # Errors
    /// `Checksum` if it is not right.
    #[inline]
    pub fn check_body(&self) -> Result<(), Fault> {
        let expected = self.header.body_crc;
        let found = crc32fast::hash(self.body());
        if found != expected {
            return Err(Fault::Checksum { what: "batch body", found, expected });
        }
        Ok(())
    }

    /// The records' bytes, decompressed if need be to at most `max_expanded` bytes. A marker has
    /// none.
    ///
    /// # Errors
    /// `Compression` if it does not decompress to at most that; `Unknown` for a codec, key or
    /// dictionary that is not known.
    pub fn open(&self, max_expanded: usize) -> Result<Body<'a>, Fault> {
        let header = self.header;
        if header.is_marker() {
            return Ok(Body { header, bytes: Cow::Borrowed(&[]) });
        }
        check_openable(&header)?;
        let bytes = match header.codec()? {
            Codec::None => Cow::Borrowed(self.body()),
            codec => Cow::Owned(expand(codec, self.body(), max_expanded)?),
        };
        Ok(Body { header, bytes })
    }
}

/// Refuses what needs a key or a dictionary: this release has neither.
pub(super) fn check_openable(header: &BatchHeader) -> Result<(), Fault> {
    if header.key_id != 0 {
        return Err(Fault::Unknown { what: "encryption key", found: header.key_id });
    }
    if header.dictionary_id != 0 {
        return Err(Fault::Unknown { what: "dictionary", found: header.dictionary_id });
    }
    Ok(())
}

/// A batch's records as bytes, decompressed.
#[derive(Debug, Clone)]
pub struct Body<'a> {
    header: BatchHeader,
    bytes: Cow<'a, [u8]>,
}

impl Body<'_> {
    /// The records, in order.
    #[must_use]
    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records::of(&self.header, &self.bytes)
    }

    /// The record at `offset`, if it is in the batch. Those before it are stepped over by their
    /// lengths alone.
    ///
    /// # Errors
    /// `Record` if a record on the way is malformed.
    pub fn record_at(&self, offset: Offset) -> Result<Option<RecordView<'_>>, Fault> {
        let header = &self.header;
        if offset < header.base_offset || offset > header.last_offset() {
            return Ok(None);
        }
        let mut records = self.records();
        // Without holes, the distance says how many records come before.
        if header.last_offset_delta.checked_add(1) == Some(header.record_count) {
            self.fetch_about(offset - header.base_offset + 1);
            for _ in header.base_offset..offset {
                records.step_over()?;
            }
        }
        for record in records {
            let record = record?;
            if record.offset >= offset {
                return Ok((record.offset == offset).then_some(record));
            }
        }
        Ok(None)
    }

    /// Touches the bytes of about the first `records`. Stepping over records waits for each one's
    /// length before it knows where the next one is; these loads wait for nothing, and a body
    /// that is not in the processor's cache gets there several times faster.
    fn fetch_about(&self, records: u64) {
        const CACHE_LINE: usize = 64;
        let count = u64::from(self.header.record_count).max(1);
        let about = self.bytes.len() as u64 * records / count + CACHE_LINE as u64;
        let about = usize::try_from(about).unwrap_or(usize::MAX).min(self.bytes.len());
        let touched = self.bytes[..about].iter().step_by(CACHE_LINE);
        std::hint::black_box(touched.fold(0_u8, |sum, byte| sum ^ byte));
    }

    /// How many bytes the records take, decompressed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> Body<'a> {
    /// The records as bytes: borrowed still, if they were not compressed.
    #[must_use]
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }
}

/// The records of a batch. After an error it ends.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    pub(super) rest: &'a [u8],
    index: u32,
    count: u32,
    /// The smallest offset delta that may come next: they grow, with holes.
    next_delta: u32,
    last_delta: u32,
    base_offset: Offset,
    base_timestamp: Timestamp,
    append_time: Option<Timestamp>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, Fault>;

    #[inline(always)]
    fn next(&mut self) -> Option<Result<RecordView<'a>, Fault>> {
        if self.index == self.count {
            return self.check_end();
        }
        match self.read_record() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(what) => Some(Err(self.fail(what))),
        }
    }
}

impl<'a> Records<'a> {
    /// The records of the batch with this header, in its body as [`Body::into_bytes`] gives it.
    #[must_use]
    #[inline]
    pub fn of(header: &BatchHeader, bytes: &'a [u8]) -> Records<'a> {
        let append_time = header.attributes & attributes::APPEND_TIME != 0;
        Records {
            rest: bytes,
            index: 0,
            count: header.record_count,
            next_delta: 0,
            last_delta: header.last_offset_delta,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: append_time.then_some(header.append_time),
        }
    }

    #[inline(always)]
    fn read_record(&mut self) -> Result<RecordView<'a>, Malformed> {
        let length = read_count(&mut self.rest)? as usize;
        let (mut bytes, rest) =
            self.rest.split_at_checked(length).ok_or("it is longer than the batch")?;
        self.rest = rest;
        let Some((0, after)) = bytes.split_first() else {
            return Err("its attributes are not zero");
        };
        bytes = after;
        let timestamp_delta = read_i64(&mut bytes)?;
        let delta = read_count(&mut bytes)?;
        if delta < self.next_delta || delta > self.last_delta {
            return Err("its offset is out of place");
        }
        self.next_delta = delta + 1;
        let key = read_field(&mut bytes)?;
        let value = read_field(&mut bytes)?;
        let count = read_count(&mut bytes)?;
        check_headers(bytes, count)?;
        let created = self.base_timestamp.as_millis().wrapping_add(timestamp_delta);
        Ok(RecordView {
            offset: self.base_offset + u64::from(delta),
            timestamp: self.append_time.unwrap_or(Timestamp::from_millis(created)),
            key,
            value,
            headers: Headers { rest: bytes, count },
        })
    }

    #[inline]
    fn step_over(&mut self) -> Result<(), Fault> {
        let length = match read_count(&mut self.rest) {
            Ok(length) => length as usize,
            Err(what) => return Err(self.fail(what)),
        };
        let Some(rest) = self.rest.get(length..) else {
            return Err(self.fail("it is longer than the batch"));
        };
        self.rest = rest;
        self.index += 1;
        self.next_delta += 1;
        Ok(())
    }

    #[inline(always)]
    fn check_end(&mut self) -> Option<Result<RecordView<'a>, Fault>> {
        if self.rest.is_empty() { None } else { Some(Err(self.fail("it is not in the count"))) }
    }

    #[cold]
    fn fail(&mut self, what: &'static str) -> Fault {
        let index = self.index;
        self.count = self.index;
        self.rest = &[];
        Fault::Record { index, what }
    }
}

/// A record as it is stored, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// When it happened, as its producer said, or when it was appended: as its batch says.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its payload.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
}

/// The headers of a record, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a> {
    // Walked once by `check_headers` before this is made, so that a reader meets no errors.
    rest: &'a [u8],
    count: u32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.count = self.count.checked_sub(1)?;
        read_header(&mut self.rest).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

#[inline(always)]
fn check_headers(mut bytes: &[u8], count: u32) -> Result<(), Malformed> {
    for _ in 0..count {
        read_header(&mut bytes)?;
    }
    if bytes.is_empty() { Ok(()) } else { Err("its length is over what is in it") }
}

fn read_header<'a>(bytes: &mut &'a [u8]) -> Result<Header<'a>, Malformed> {
    let name = read_field(bytes)?.ok_or("a header has no name")?;
    let name = str::from_utf8(name).map_err(|_| "a header's name is not UTF-8")?;
    Ok(Header { name, value: read_field(bytes)? })
}

#[inline(always)]
fn read_field<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some(length) = read_len(bytes)? else { return Ok(None) };
    let (field, rest) = bytes.split_at_checked(length).ok_or("a length is over its record")?;
    *bytes = rest;
    Ok(Some(field))
}
