//! ProducerState: what each producer wrote last, so that a repeat is known and a gap is refused.
//!
//! ```text
//! the table in a segment's header: | count 4 | then for each producer:
//! | id 8 | epoch 2 | batches 2 | last append time 8 | { sequence 4 | count 4 | offset 8 } * batches |
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::{Error, Fault, Result};
use crate::offset::Offset;
use crate::record::BatchHeader;

/// How many batches of a producer are remembered: as many as it may have in flight.
const REMEMBERED: usize = 5;

/// What every producer of a partition wrote last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProducerState {
    producers: HashMap<u64, Producer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: u16,
    last_append_time: Timestamp,
    /// The oldest first; never empty.
    batches: VecDeque<Remembered>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remembered {
    sequence: u32,
    count: u32,
    base_offset: Offset,
}

/// What an arriving batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The next one of its producer, or of no producer.
    Next,
    /// One that was appended before, at this offset.
    Duplicate(Offset),
}

impl ProducerState {
    /// Judges an arriving batch.
    ///
    /// # Errors
    /// `SequenceGap`, `ProducerUnknown`, `ProducerFenced`.
    #[inline]
    pub(crate) fn judge(&self, header: &BatchHeader) -> Result<Verdict> {
        if header.producer_id == 0 {
            return Ok(Verdict::Next);
        }
        self.judge_producer(header)
    }

    fn judge_producer(&self, header: &BatchHeader) -> Result<Verdict> {
        let (producer_id, sequence) = (header.producer_id, header.base_sequence);
        let unknown = Error::ProducerUnknown { producer_id, sequence };
        let known = self.producers.get(&producer_id);
        let Some(producer) = known.filter(|known| known.epoch >= header.producer_epoch) else {
            // A new producer, or a new epoch of one, starts at zero.
            return if sequence == 0 { Ok(Verdict::Next) } else { Err(unknown) };
        };
        if producer.epoch > header.producer_epoch {
            let (epoch, current) = (header.producer_epoch, producer.epoch);
            return Err(Error::ProducerFenced { producer_id, epoch, current });
        }
        let last = producer.batches.back().expect("a producer has a batch");
        let expected = last.sequence.wrapping_add(last.count);
        if sequence == expected {
            return Ok(Verdict::Next);
        }
        let same =
            |batch: &&Remembered| batch.sequence == sequence && batch.count == header.record_count;
        if let Some(batch) = producer.batches.iter().rev().find(same) {
            return Ok(Verdict::Duplicate(batch.base_offset));
        }
        // Sequences wrap: what lies less than half the circle ahead is a gap, the rest is old.
        if sequence.wrapping_sub(expected) < 1 << 31 {
            return Err(Error::SequenceGap { producer_id, expected, actual: sequence });
        }
        Err(unknown)
    }

    /// Notes a batch that was appended, and forgets producers over the limit.
    #[inline]
    pub(crate) fn note(&mut self, header: &BatchHeader, producers_max: usize) {
        if header.producer_id != 0 {
            self.note_producer(header, producers_max);
        }
    }

    fn note_producer(&mut self, header: &BatchHeader, producers_max: usize) {
        let batch = Remembered {
            sequence: header.base_sequence,
            count: header.record_count,
            base_offset: header.base_offset,
        };
        let (epoch, last_append_time) = (header.producer_epoch, header.append_time);
        let producer = self.producers.entry(header.producer_id).or_insert_with(|| Producer {
            epoch,
            last_append_time,
            batches: VecDeque::with_capacity(REMEMBERED),
        });
        if producer.epoch != epoch {
            producer.batches.clear();
        } else if producer.batches.len() == REMEMBERED {
            producer.batches.pop_front();
        }
        (producer.epoch, producer.last_append_time) = (epoch, last_append_time);
        producer.batches.push_back(batch);
        if self.producers.len() > producers_max {
            self.forget_longest_idle(producers_max);
        }
    }

    /// Forgets a tenth more than must go, so that the search for them is rare.
    fn forget_longest_idle(&mut self, producers_max: usize) {
        let keep = producers_max - producers_max / 10;
        let mut by_age: Vec<_> =
            self.producers.iter().map(|(id, producer)| (producer.last_append_time, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age.iter().take(by_age.len().saturating_sub(keep)) {
            self.producers.remove(id);
        }
    }

    /// Forgets the producers that were idle for longer than `expiry`.
    pub(crate) fn expire(&mut self, now: Timestamp, expiry: Duration) {
        self.producers
            .retain(|_, producer| now.saturating_since(producer.last_append_time) <= expiry);
    }

    /// The table; no bytes if there are no producers.
    pub(crate) fn encode(&self) -> Vec<u8> {
        if self.producers.is_empty() {
            return Vec::new();
        }
        let narrow = |len: usize| u32::try_from(len).expect("producers_max is far smaller");
        let mut bytes = narrow(self.producers.len()).to_le_bytes().to_vec();
        let mut sorted: Vec<_> = self.producers.iter().collect();
        sorted.sort_unstable_by_key(|(id, _)| **id);
        for (id, producer) in sorted {
            let count = u16::try_from(producer.batches.len()).expect("at most REMEMBERED");
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&producer.epoch.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&producer.last_append_time.as_millis().to_le_bytes());
            for batch in &producer.batches {
                bytes.extend_from_slice(&batch.sequence.to_le_bytes());
                bytes.extend_from_slice(&batch.count.to_le_bytes());
                bytes.extend_from_slice(&batch.base_offset.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a table.
    ///
    /// # Errors
    /// What keeps the bytes from being one.
    pub(crate) fn decode(mut bytes: &[u8]) -> std::result::Result<ProducerState, Fault> {
        let mut state = ProducerState::default();
        if bytes.is_empty() {
            return Ok(state);
        }
        let count = u32::from_le_bytes(take(&mut bytes)?);
        for _ in 0..count {
            let id = u64::from_le_bytes(take(&mut bytes)?);
            let epoch = u16::from_le_bytes(take(&mut bytes)?);
            let batches = usize::from(u16::from_le_bytes(take(&mut bytes)?));
            let millis = i64::from_le_bytes(take(&mut bytes)?);
            if batches == 0 || batches > REMEMBERED {
                let value = batches as i64;
                return Err(Fault::Field { field: "batches of a producer", value });
            }
            let mut producer = Producer {
                epoch,
                last_append_time: Timestamp::from_millis(millis),
                batches: VecDeque::with_capacity(REMEMBERED),
            };
            for _ in 0..batches {
                producer.batches.push_back(Remembered {
                    sequence: u32::from_le_bytes(take(&mut bytes)?),
                    count: u32::from_le_bytes(take(&mut bytes)?),
                    base_offset: u64::from_le_bytes(take(&mut bytes)?),
                });
            }
            state.producers.insert(id, producer);
        }
        if bytes.is_empty() { Ok(state) } else { Err(Fault::Truncated { what: "producer table" }) }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> std::result::Result<[u8; N], Fault> {
    let (taken, rest) =
        bytes.split_first_chunk().ok_or(Fault::Truncated { what: "producer table" })?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(id: u64, epoch: u16, sequence: u32, count: u32, offset: u64) -> BatchHeader {
        BatchHeader {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: sequence,
            record_count: count,
            base_offset: offset,
            append_time: Timestamp::from_millis(offset.cast_signed()),
            ..BatchHeader::default()
        }
    }

    fn filled() -> ProducerState {
        let mut state = ProducerState::default();
        for n in 0..7 {
            state.note(&batch(9, 1, n * 10, 10, u64::from(n) * 10), 100);
        }
        state
    }

    #[test]
    fn repeats_are_known_gaps_are_refused_and_the_forgotten_is_unknown() {
        let state = filled();
        let judge = |epoch, sequence, count| state.judge(&batch(9, epoch, sequence, count, 0));
        assert_eq!(judge(1, 70, 3).unwrap(), Verdict::Next);
        assert_eq!(judge(1, 60, 10).unwrap(), Verdict::Duplicate(60));
        assert_eq!(judge(1, 20, 10).unwrap(), Verdict::Duplicate(20));
        assert!(matches!(judge(1, 10, 10), Err(Error::ProducerUnknown { .. })));
        assert!(matches!(judge(1, 75, 1), Err(Error::SequenceGap { expected: 70, .. })));
        assert!(matches!(judge(0, 70, 1), Err(Error::ProducerFenced { current: 1, .. })));
        assert_eq!(judge(2, 0, 1).unwrap(), Verdict::Next);
        assert!(matches!(judge(2, 5, 1), Err(Error::ProducerUnknown { .. })));
        let stranger = state.judge(&batch(8, 0, 3, 1, 0));
        assert!(matches!(stranger, Err(Error::ProducerUnknown { .. })));
    }

    #[test]
    fn sequences_wrap_around() {
        let mut state = ProducerState::default();
        state.note(&batch(9, 1, u32::MAX - 1, 3, 0), 100);
        assert_eq!(state.judge(&batch(9, 1, 1, 1, 0)).unwrap(), Verdict::Next);
        let old = state.judge(&batch(9, 1, u32::MAX - 8, 2, 0));
        assert!(matches!(old, Err(Error::ProducerUnknown { .. })), "{old:?}");
    }

    #[test]
    fn the_table_round_trips_and_garbage_is_refused() {
        let state = filled();
        let bytes = state.encode();
        assert_eq!(ProducerState::decode(&bytes).unwrap(), state);
        for cut in 1..bytes.len() {
            assert!(ProducerState::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(ProducerState::decode(&[0xFF; 64]).is_err());
    }

    #[test]
    fn the_longest_idle_are_forgotten_first() {
        let mut state = ProducerState::default();
        for id in 1..=20 {
            state.note(&batch(id, 0, 0, 1, id), 10);
        }
        assert!(state.producers.len() <= 10);
        assert!(state.producers.contains_key(&20) && !state.producers.contains_key(&1));
        state.expire(Timestamp::from_millis(1_020), Duration::from_millis(1_000));
        assert_eq!(state.producers.len(), 1);
    }
}
