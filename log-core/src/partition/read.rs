//! Reading: batches from an offset, an offset for a time, waiting for what is not there yet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::tail::WaitingReader;
use super::{Ends, Partition, Shared};
use crate::clock::Timestamp;
use crate::error::{Corruption, Error, Fault, Result};
use crate::offset::{Offset, OffsetRange, StartFrom};
use crate::record::{BatchView, RecordView};
use crate::segment::{Chunk, ReadAhead, Segment, Source};

/// Whole batches as they stand in a segment: they share its map, nothing is copied.
///
/// The first batch may begin before the offset that was asked for, and markers may stand between
/// batches; [`Fetched::for_each`] skips both.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The batches' bytes.
    pub bytes: Bytes,
    /// The offset that was asked for.
    pub from: Offset,
    /// The offset to ask for next.
    pub next: Offset,
    source: Option<Source>,
    expanded_max: usize,
}

impl Partition {
    /// Batches from the one that holds `from` on, up to about `max_bytes`, but at least one. No
    /// bytes if nothing is there to be read yet. Headers are checked; bodies are when they are
    /// walked.
    ///
    /// # Errors
    /// `OffsetOutOfRange` below `log_start` or past the end; `Corrupt` if what is there can't be
    /// read: the range tells where to go on; `Closed` at the end of a partition that is closed, as
    /// nothing more will come; `Io`.
    pub fn read(&self, from: Offset, max_bytes: usize) -> Result<Fetched> {
        self.0.read(from, max_bytes).inspect_err(|error| self.0.count(error))
    }

    /// Whether a read of `max_bytes` from `from` on is likely to wait for no disk: nothing is there
    /// yet, it was appended a moment ago, or the page cache has it. A cheap look, for those who read
    /// such on a thread that must not block, and the rest elsewhere: see [`Fetched::populate`].
    #[must_use]
    pub fn is_in_memory(&self, from: Offset, max_bytes: usize) -> bool {
        let (shared, bytes) = (&*self.0, max_bytes as u64);
        let readable_end = shared.readable_end();
        from >= readable_end
            || shared
                .segment_with(from, readable_end)
                .is_ok_and(|(segment, _)| segment.is_in_memory(from, bytes))
    }

    /// Has the kernel begin to read `bytes` from `from` on from the disk, as far as they are in one
    /// segment. For those who are about to read them, and more of them after that; it may itself
    /// have to read an index.
    pub fn will_need(&self, from: Offset, bytes: u64) {
        let (shared, readable_end) = (&*self.0, self.0.readable_end());
        if from < readable_end
            && let Ok((segment, _)) = shared.segment_with(from, readable_end)
        {
            segment.will_need(from, bytes);
        }
    }

    /// Shows the record at `offset` to `visit` where it is stored; `None` if it is not there (yet).
    /// A large batch is verified when it is first read this way, and then taken as sound as long
    /// as its segment stays mapped.
    ///
    /// # Errors
    /// `OffsetOutOfRange` below `log_start`; else as [`Partition::read`].
    pub fn visit<T>(
        &self,
        offset: Offset,
        visit: impl FnOnce(RecordView<'_>) -> T,
    ) -> Result<Option<T>> {
        self.0.visit(offset, visit).inspect_err(|error| self.0.count(error))
    }

    /// The offset of the first record, in log order, that is stamped at or after `time`; `None` if
    /// there is none yet.
    ///
    /// # Errors
    /// `Corrupt` if bytes on the way can't be read; `Io`.
    pub fn offset_for_time(&self, time: Timestamp) -> Result<Option<Offset>> {
        self.offset_for_time_from(time, 0)
    }

    /// The same among the records at or after `from`. Where records are lost, what
    /// [`Partition::offset_for_time`] answers for all times at or after them is the error: who goes
    /// on from the end of the range that it names finds the first of those that are left.
    ///
    /// # Errors
    /// `OffsetOutOfRange` past the end; else as [`Partition::offset_for_time`].
    pub fn offset_for_time_from(&self, time: Timestamp, from: Offset) -> Result<Option<Offset>> {
        self.0.offset_for_time(time, from).inspect_err(|error| self.0.count(error))
    }

    /// The offset that a way of starting means now.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset that is not there; else as
    /// [`Partition::offset_for_time`]. A time past the last record means the end.
    pub fn resolve(&self, start: StartFrom) -> Result<Offset> {
        let Ends { log_start, end, .. } = self.ends();
        match start {
            StartFrom::Earliest => Ok(log_start),
            StartFrom::Latest => Ok(self.readable_end()),
            StartFrom::Time(time) => {
                Ok(self.offset_for_time(time)?.unwrap_or_else(|| self.readable_end()))
            }
            StartFrom::Offset(offset) if offset < log_start || offset > end => {
                Err(Error::OffsetOutOfRange { offset, log_start, end })
            }
            StartFrom::Offset(offset) => Ok(offset),
        }
    }

    /// Waits until there is something to read at `from`; `false` if `timeout` came first, or the
    /// partition was closed.
    pub fn wait_readable(&self, from: Offset, timeout: Duration) -> bool {
        let shared = &*self.0;
        let clock = &*shared.context.clock;
        let end = || if shared.is_closed() { Offset::MAX } else { shared.readable_end() };
        shared.tail.wait(from, timeout, end, || clock.monotonic()) && !shared.is_closed()
    }

    /// Calls `then` once there is something to read at `from`, or the partition is closed: at
    /// once, or later on a thread of the engine or of whoever appends. It must not block. The
    /// result, if there is one, is what [`Partition::forget_readable`] wants.
    pub fn when_readable(
        &self,
        from: Offset,
        then: impl FnOnce() + Send + 'static,
    ) -> Option<WaitingReader> {
        let shared = &*self.0;
        let end = || if shared.is_closed() { Offset::MAX } else { shared.readable_end() };
        shared.tail.call(from, end, Box::new(then))
    }

    /// Drops a callback that is not wanted any more, as when a long poll has timed out. It is not
    /// called after this returns `true`; `false` says that it was called, or is about to be.
    pub fn forget_readable(&self, waiting: WaitingReader) -> bool {
        self.0.tail.forget(waiting)
    }
}

impl Shared {
    fn count(&self, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            self.context.metrics.corrupt_reads.add(1);
        }
    }

    /// What a read that failed tells: retention may have taken away meanwhile what it looked for.
    fn unless_trimmed(&self, from: Offset, error: Error) -> Error {
        let Ends { log_start, end, .. } = self.ends.all();
        if from < log_start {
            Error::OffsetOutOfRange { offset: from, log_start, end }
        } else {
            error
        }
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Fetched> {
        let readable_end = self.readable_end();
        let Ends { log_start, end, .. } = self.ends.all();
        if from < log_start || from > end {
            return Err(Error::OffsetOutOfRange { offset: from, log_start, end });
        }
        let expanded_max = self.expanded_max();
        if from >= readable_end {
            if self.is_closed() {
                return Err(Error::Closed { what: "partition" });
            }
            let bytes = Bytes::new();
            return Ok(Fetched { bytes, from, next: from, source: None, expanded_max });
        }
        let found = self.segment_with(from, readable_end).and_then(|(segment, until)| {
            let chunk = segment.read(from, readable_end, max_bytes)?;
            // Published, and in no segment: only a lost file can do that.
            let chunk = chunk.ok_or_else(|| self.lost(OffsetRange::new(from, until)))?;
            Ok(chunk)
        });
        let chunk = found.map_err(|error| self.unless_trimmed(from, error))?;
        let Chunk { bytes, source, next, .. } = chunk;
        Ok(Fetched { bytes, from, next, source: Some(source), expanded_max })
    }

    fn visit<T>(
        &self,
        offset: Offset,
        visit: impl FnOnce(RecordView<'_>) -> T,
    ) -> Result<Option<T>> {
        let (log_start, readable_end) = (self.ends.log_start(), self.readable_end());
        if offset < log_start {
            let end = self.ends.end();
            return Err(Error::OffsetOutOfRange { offset, log_start, end });
        }
        if offset >= readable_end {
            return Ok(None);
        }
        let (segment, _) = self.segment_with(offset, readable_end)?;
        let visited = segment.visit(offset, readable_end, self.expanded_max(), visit);
        visited.map_err(|error| self.unless_trimmed(offset, error))
    }

    /// The segment that should hold `from`, and where its offsets end: looked up at once, because
    /// retention may take segments off the list at any time.
    fn segment_with(&self, from: Offset, readable_end: Offset) -> Result<(Arc<Segment>, Offset)> {
        let segments = self.segments.read();
        let after = segments.partition_point(|segment| segment.name().base <= from);
        let next = segments.get(after).map_or(readable_end, |next| next.name().base);
        match after.checked_sub(1) {
            Some(at) => Ok((Arc::clone(&segments[at]), next)),
            None => Err(self.unless_trimmed(from, self.lost(OffsetRange::new(from, next)))),
        }
    }

    fn lost(&self, offsets: OffsetRange) -> Error {
        let (path, fault) = (self.dir.clone(), Fault::FileMissing);
        Error::Corrupt(Corruption { path, position: 0, offsets, fault })
    }

    fn offset_for_time(&self, time: Timestamp, from: Offset) -> Result<Option<Offset>> {
        self.ends.must_reach(from)?;
        let (from, readable_end) = (from.max(self.ends.log_start()), self.readable_end());
        let segments = self.segments.read().clone();
        for segment in &segments {
            if segment.end().is_some_and(|end| end.offset <= from) {
                continue;
            }
            if segment.name().base >= readable_end {
                break;
            }
            let found = segment.first_at_or_after(time, from, readable_end, self.expanded_max())?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

impl Fetched {
    /// Whether there was nothing to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the bytes into memory, whether they were there before or not: after that, a thread
    /// that must not block can send them.
    ///
    /// # Errors
    /// `Io` if the disk can't be read there.
    pub fn populate(&self) -> Result<()> {
        self.source.as_ref().map_or(Ok(()), Source::populate)
    }

    /// What to read ahead, up to `bytes`, for who goes on behind these batches; `None` if somebody
    /// has done that, or if it was never needed.
    #[must_use]
    pub fn ahead(&self, bytes: u64) -> Option<ReadAhead> {
        self.source.as_ref()?.ahead(bytes)
    }

    /// The batches, markers left out, each with its body's checksum checked.
    pub fn batches(&self) -> Batches<'_> {
        Batches { fetched: self, rest: &self.bytes }
    }

    /// Calls `visit` for every record at or after the offset that was asked for.
    ///
    /// # Errors
    /// `Corrupt` if a batch can't be read: what came before it was visited; the range tells where
    /// to go on.
    pub fn for_each(&self, mut visit: impl FnMut(RecordView<'_>)) -> Result<()> {
        for batch in self.batches() {
            let batch = batch?;
            let corrupt = |fault| self.corrupt(&batch, fault);
            let body = batch.open(self.expanded_max).map_err(corrupt)?;
            for record in body.records() {
                let record = record.map_err(corrupt)?;
                if record.offset >= self.from {
                    visit(record);
                }
            }
        }
        Ok(())
    }

    /// Says where a batch of these stands that can't be read.
    #[must_use]
    pub fn corrupt(&self, batch: &BatchView<'_>, fault: Fault) -> Error {
        let into = batch.bytes().as_ptr().addr() - self.bytes.as_ptr().addr();
        let offsets = OffsetRange::new(batch.header.base_offset, batch.header.next_offset());
        self.corrupt_at(into as u64, offsets, fault)
    }

    fn corrupt_at(&self, into: u64, offsets: OffsetRange, fault: Fault) -> Error {
        let (path, position) = match &self.source {
            Some(source) => (source.segment().path(), source.position() + into),
            None => (std::path::PathBuf::new(), into),
        };
        Error::Corrupt(Corruption { path, position, offsets, fault })
    }
}

/// The batches of a [`Fetched`].
#[derive(Debug)]
pub struct Batches<'a> {
    fetched: &'a Fetched,
    rest: &'a [u8],
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<BatchView<'a>>> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let into = (self.fetched.bytes.len() - self.rest.len()) as u64;
            let (batch, rest) = match BatchView::parse(self.rest) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    self.rest = &[];
                    let offsets = OffsetRange::new(self.fetched.from, self.fetched.next);
                    return Some(Err(self.fetched.corrupt_at(into, offsets, fault)));
                }
            };
            self.rest = rest;
            if batch.header.is_marker() {
                continue;
            }
            let checked = batch.check_body().map_err(|fault| self.fetched.corrupt(&batch, fault));
            return Some(checked.map(|()| batch));
        }
    }
}
