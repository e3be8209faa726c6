//! Partitioner: from a key to a partition, the same one that Kafka's default partitioner takes.

use std::num::NonZeroU32;

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition that records with this key go to.
#[must_use]
pub fn partition_for(key: &[u8], partitions: NonZeroU32) -> u32 {
    // Kafka's `toPositive` clears the sign bit; it does not negate.
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// 32-bit MurmurHash2 with Kafka's seed.
fn murmur2(bytes: &[u8]) -> u32 {
    // Kafka mixes in the length as a Java int, as MurmurHash2 does: modulo 2^32.
    let [a, b, c, d, ..] = (bytes.len() as u64).to_le_bytes();
    let mut hash = SEED ^ u32::from_le_bytes([a, b, c, d]);
    let (words, tail) = bytes.as_chunks();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u32::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kafka() {
        // From Kafka's own UtilsTest.testMurmur2.
        let known: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key).cast_signed(), hash, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn partitions_are_in_range_and_stable() {
        let ten = NonZeroU32::new(10).unwrap();
        assert_eq!(
            partition_for(b"foobar", ten),
            (-790_332_482_i32 & i32::MAX).unsigned_abs() % 10
        );
        assert_eq!(partition_for(b"", NonZeroU32::MIN), 0);
    }
}
