//! Oracle: knows from outside what a partition was told and what it has answered, and judges what
//! is there after a stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log_core::config::FlushPolicy;
use log_core::partition::{Partition, RecoveryReport};

use super::reading::{Stored, read_everything};

/// How the process before this one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Close,
    Kill,
    PowerCut,
}

/// A record: its bytes follow from its number, and no two have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) number: u64,
    pub(crate) len: usize,
}

/// What a producer has sent and was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) producer: u64,
    pub(crate) sequence: u32,
    pub(crate) count: u32,
    pub(crate) base: u64,
}

/// A batch on its way.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Planned>,
    pub(crate) producer: Option<(u64, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    record: Planned,
    written_at: Duration,
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    /// By offset.
    entries: Vec<Entry>,
    /// The first offset of each batch.
    starts: BTreeSet<u64>,
    numbers: u64,
    /// Everything below survives a power cut: it was promised.
    pub(crate) floor: u64,
    /// `log_start` never goes below the first, and never above the second.
    pub(crate) told_start: u64,
    pub(crate) tried_start: u64,
    /// A batch whose append was not answered.
    pub(crate) in_flight: Option<Batch>,
    /// From where on the policy was `Interval` all the time.
    interval_from: Option<u64>,
    producers: BTreeMap<u64, Vec<Sent>>,
}

impl Planned {
    /// Its value.
    pub(crate) fn value(self) -> Vec<u8> {
        let mut value = self.number.to_le_bytes().to_vec();
        let mut byte = self.number.wrapping_mul(0x9e37_79b9);
        value.resize_with(self.len.max(8), || {
            byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (byte >> 56).to_le_bytes()[0]
        });
        value
    }

    /// Its key: some have none.
    pub(crate) fn key(self) -> Option<Vec<u8>> {
        (!self.number.is_multiple_of(3)).then(|| format!("key {}", self.number % 7).into_bytes())
    }

    pub(crate) fn is(self, stored: &Stored) -> bool {
        stored.value.as_deref() == Some(&self.value()[..]) && stored.key == self.key()
    }
}

impl Oracle {
    pub(crate) fn end(&self) -> u64 {
        self.entries.len() as u64
    }

    /// A record that was never there before.
    pub(crate) fn plan(&mut self, len: usize) -> Planned {
        self.numbers += 1;
        Planned { number: self.numbers, len }
    }

    /// The batch is in the log.
    pub(crate) fn push(&mut self, batch: &Batch, written_at: Duration) {
        let base = self.end();
        self.starts.insert(base);
        let entry = |record: &Planned| Entry { record: *record, written_at };
        self.entries.extend(batch.records.iter().map(entry));
        if let Some((producer, sequence)) = batch.producer {
            let count = u32::try_from(batch.records.len()).expect("small batches");
            let sent = Sent { producer, sequence, count, base };
            self.producers.entry(producer).or_default().push(sent);
        }
    }

    /// What comes next from this producer.
    pub(crate) fn next_sequence(&self, producer: u64) -> u32 {
        let last = self.producers.get(&producer).and_then(|sent| sent.last());
        last.map_or(0, |sent| sent.sequence + sent.count)
    }

    /// The batches that the partition must know if they come again.
    pub(crate) fn remembered(&self, producer: u64) -> &[Sent] {
        let sent = self.producers.get(&producer).map_or(&[][..], |sent| &sent[..]);
        &sent[sent.len().saturating_sub(5)..]
    }

    /// The records of a batch that was sent.
    pub(crate) fn records_of(&self, sent: Sent) -> Vec<Planned> {
        let offsets = sent.base..sent.base + u64::from(sent.count);
        offsets.map(|offset| self.entry(offset).record).collect()
    }

    pub(crate) fn policy_is(&mut self, flush: FlushPolicy) {
        let interval = matches!(flush, FlushPolicy::Interval { .. });
        self.interval_from =
            if interval { Some(self.interval_from.unwrap_or(self.end())) } else { None };
    }

    fn entry(&self, offset: u64) -> Entry {
        self.entries[usize::try_from(offset).expect("a test's log is short")]
    }

    /// After a call: what the partition says of itself must fit; what it says is durable is
    /// promised from here on.
    pub(crate) fn observe(&mut self, partition: &Partition) -> Result<(), String> {
        let ends = partition.ends();
        let fits = ends.log_start <= ends.durable_end && ends.durable_end <= ends.end;
        if !fits || ends.end != self.end() {
            return Err(format!("{ends:?}, but {} were written", self.end()));
        }
        if ends.log_start < self.told_start || ends.log_start > self.tried_start {
            let range = self.told_start..=self.tried_start;
            return Err(format!("{ends:?}, but log_start must be within {range:?}"));
        }
        self.told_start = ends.log_start;
        self.floor = self.floor.max(ends.durable_end);
        Ok(())
    }

    /// Judges a partition that was opened after `stop`, and takes over what is left.
    pub(crate) fn judge(
        &mut self,
        partition: &Partition,
        stop: Stop,
        flush: FlushPolicy,
    ) -> Result<(), String> {
        check_report(partition.recovery_report(), stop)?;
        let end = partition.ends().end;
        self.judge_end(end, stop, flush)?;
        self.observe(partition)?;
        if flush == FlushPolicy::Sync && partition.ends().durable_end != end {
            return Err(format!("opened under Sync, yet {:?}", partition.ends()));
        }
        self.check_contents(partition)
    }

    fn judge_end(&mut self, end: u64, stop: Stop, flush: FlushPolicy) -> Result<(), String> {
        let least = if stop == Stop::PowerCut { self.floor } else { self.end() };
        let in_flight = self.in_flight.take();
        let with_it = self.end() + in_flight.as_ref().map_or(0, |batch| batch.records.len() as u64);
        let told =
            format!("{} written, {least} promised, {with_it} with what was in flight", self.end());
        if end < least {
            return Err(format!("records are lost: the log ends at {end}; {told}"));
        }
        if let Some(batch) = in_flight.filter(|_| end > self.end()) {
            self.push(&batch, Duration::ZERO);
        }
        let whole = end == self.end() || self.starts.contains(&end);
        if end > self.end() || !whole {
            return Err(format!("the log ends at {end}, within or past a batch; {told}"));
        }
        self.check_window(end, flush)?;
        self.starts.split_off(&end);
        self.entries.truncate(usize::try_from(end).expect("short"));
        for sent in self.producers.values_mut() {
            sent.retain(|sent| sent.base < end);
        }
        self.interval_from = self.interval_from.map(|from| from.min(end));
        Ok(())
    }

    /// What was lost under `Interval` lies within its window.
    fn check_window(&self, end: u64, flush: FlushPolicy) -> Result<(), String> {
        let FlushPolicy::Interval { every, bytes } = flush else { return Ok(()) };
        let Some(from) = self.interval_from else { return Ok(()) };
        let lost = from.max(end)..self.end();
        let (Some(first), Some(last)) = (lost.clone().next(), lost.clone().last()) else {
            return Ok(());
        };
        // The last batch was admitted before it was counted.
        let last_batch = self.starts.range(..=last).next_back().copied().unwrap_or(last);
        let counted = lost.start..last_batch.max(lost.start);
        let size: u64 = counted.map(|offset| self.entry(offset).record.len as u64).sum();
        let (first, last) = (self.entry(first).written_at, self.entry(last).written_at);
        let age = last.saturating_sub(first);
        if size >= bytes || age >= every {
            return Err(format!("{lost:?} lost: {size} bytes, {age:?}: more than the window"));
        }
        Ok(())
    }

    fn check_contents(&self, partition: &Partition) -> Result<(), String> {
        let found = read_everything(partition, 20_000)?;
        if let Some(corrupt) = found.corrupt.first() {
            return Err(format!("called damage: {corrupt}"));
        }
        let expected = partition.ends().log_start..partition.readable_end();
        let offsets = found.records.iter().map(|stored| stored.offset);
        if !offsets.eq(expected.clone()) {
            return Err(format!("offsets are not {expected:?}"));
        }
        for stored in &found.records {
            let record = self.entry(stored.offset).record;
            if !record.is(stored) {
                return Err(format!("at {} is not record {}", stored.offset, record.number));
            }
        }
        if !found.append_times.is_sorted() {
            return Err(format!("append times go back: {:?}", found.append_times));
        }
        Ok(())
    }
}

/// No stop of a sound disk is ever called damage.
fn check_report(report: &RecoveryReport, stop: Stop) -> Result<(), String> {
    if !report.damage.is_empty() || report.end_unproven || !report.strays.is_empty() {
        return Err(format!("a sound disk was called damaged: {report:?}"));
    }
    if stop == Stop::Close && !report.clean {
        return Err(format!("not clean after a close: {report:?}"));
    }
    if stop == Stop::Kill && report.cut.as_ref().is_some_and(|cut| cut.offset < report.durable_end)
    {
        return Err(format!("cut below what is durable: {report:?}"));
    }
    Ok(())
}
