//! Work: the records that everybody appends, the same ones for the engine, the controls and the peers.

use std::ops::Range;

use log_core::record::Record;

use crate::Outcome;

/// The key of each record.
pub const KEY_BYTES: usize = 8;
/// How many different records there are; they come round again. Few enough to stay in a cache, so
/// that fetching them is no part of what is measured.
const DIFFERENT: usize = 2_000;

/// The bytes of the records: for each one its key, then its value.
#[derive(Debug)]
pub struct Payload {
    bytes: Vec<u8>,
    record_bytes: usize,
}

impl Payload {
    /// Records with values of this length, of bytes that do not compress.
    #[must_use]
    pub fn of_values(value_bytes: usize) -> Payload {
        let record_bytes = KEY_BYTES + value_bytes;
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let words = (DIFFERENT * record_bytes).div_ceil(size_of::<u64>());
        let bytes = (0..words).flat_map(|_| random.next_number().to_le_bytes()).collect();
        Payload { bytes, record_bytes }
    }

    /// Messages of this length, without keys.
    ///
    /// # Panics
    /// If it is shorter than a key would be.
    #[must_use]
    pub fn of_messages(message_bytes: usize) -> Payload {
        Payload::of_values(message_bytes - KEY_BYTES)
    }

    /// Key and value in one piece, as a message for those who know no keys.
    #[must_use]
    pub fn messages(&self) -> Vec<&[u8]> {
        self.bytes.chunks_exact(self.record_bytes).take(DIFFERENT).collect()
    }

    /// The same as records.
    #[must_use]
    pub fn records(&self) -> Vec<Record<'_>> {
        self.messages()
            .into_iter()
            .map(|message| {
                let (key, value) = message.split_at(KEY_BYTES);
                Record::new(value).with_key(key)
            })
            .collect()
    }

    /// How many bytes of key and value a record has.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }
}

/// Calls `each` with `count` items of `different`, `at_once` at a time, beginning again where
/// they end. `at_once` should divide both.
///
/// # Errors
/// The first that `each` returns.
#[inline]
pub fn in_batches<T>(
    different: &[T],
    count: u64,
    at_once: usize,
    mut each: impl FnMut(&[T]) -> Outcome<()>,
) -> Outcome<()> {
    let mut left = count;
    loop {
        for batch in different.chunks_exact(at_once) {
            if left == 0 {
                return Ok(());
            }
            left = left.saturating_sub(at_once as u64);
            each(batch)?;
        }
    }
}

/// Numbers that look random, the same ones in each run.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins at a seed, which may not be zero.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next one (xorshift).
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// That many numbers within a range that is not empty.
    #[must_use]
    pub fn numbers_within(mut self, range: &Range<u64>, count: usize) -> Vec<u64> {
        let span = range.end - range.start;
        (0..count).map(|_| range.start + self.next_number() % span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_round_until_there_are_enough() {
        let mut seen = Vec::new();
        let each = |batch: &[u32]| {
            seen.extend_from_slice(batch);
            Ok(())
        };
        in_batches(&[1, 2, 3, 4], 6, 2, each).unwrap();
        assert_eq!(seen, [1, 2, 3, 4, 1, 2]);
    }

    #[test]
    fn records_and_messages_are_the_same_bytes() {
        let payload = Payload::of_values(100);
        let (records, messages) = (payload.records(), payload.messages());
        assert_eq!((records.len(), messages.len()), (DIFFERENT, DIFFERENT));
        let whole = [records[7].key.unwrap(), records[7].value.unwrap()].concat();
        assert_eq!((whole.as_slice(), whole.len()), (messages[7], payload.record_bytes()));
    }
}
