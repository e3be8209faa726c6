//! Varints: zigzag LEB128, in the one shortest form that each number has.

/// Why bytes are not a varint.
pub(super) type Malformed = &'static str;

/// Numbers below this take one byte.
pub(super) const ONE_BYTE: u64 = 1 << 7;
/// Numbers below this take at most two bytes.
pub(super) const TWO_BYTES: u64 = 1 << 14;

const CONTINUES: u8 = 0x80;
const LOW_BITS: u64 = 0x7f;
/// An i64 takes at most this many bytes, an i32 half of it.
pub(super) const VARINT_MAX_BYTES: usize = 10;

/// Signed to unsigned such that small numbers of either sign stay small: 0, -1, 1, -2, …
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// How many bytes a zigzagged number takes.
#[inline]
pub(super) const fn varint_len(value: u64) -> usize {
    // Nearly all are short, which a predicted branch tells faster than counting bits.
    if value < ONE_BYTE {
        1
    } else if value < TWO_BYTES {
        2
    } else {
        let bits = 64 - value.leading_zeros() as usize;
        bits.div_ceil(7)
    }
}

/// Writes a zigzagged number to the front of `out`; returns how many bytes it took.
pub(super) fn write_varint(out: &mut [u8; VARINT_MAX_BYTES], mut value: u64) -> usize {
    for (index, byte) in out.iter_mut().enumerate() {
        let [low, ..] = (value & LOW_BITS).to_le_bytes();
        value >>= 7;
        if value == 0 {
            *byte = low;
            return index + 1;
        }
        *byte = low | CONTINUES;
    }
    unreachable!("ten times seven bits hold 64")
}

/// Takes an i64 off the front.
#[inline(always)]
pub(super) fn read_i64(bytes: &mut &[u8]) -> Result<i64, Malformed> {
    read(bytes).map(unzigzag)
}

/// Takes an i32 that is not negative off the front.
#[inline(always)]
pub(super) fn read_count(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    let value = read(bytes)?;
    if value & 1 == 1 {
        return Err("a count is negative");
    }
    to_i32_range(value >> 1)
}

/// Takes a length off the front: -1 is null.
#[inline(always)]
pub(super) fn read_len(bytes: &mut &[u8]) -> Result<Option<usize>, Malformed> {
    let value = read(bytes)?;
    if value & 1 == 0 {
        return to_i32_range(value >> 1).map(|length| Some(length as usize));
    }
    if value == 1 { Ok(None) } else { Err("a length is below -1") }
}

#[inline(always)]
fn to_i32_range(value: u64) -> Result<u32, Malformed> {
    match u32::try_from(value) {
        Ok(value) if value <= i32::MAX.cast_unsigned() => Ok(value),
        _ => Err("a number is over 32 bits"),
    }
}

#[inline(always)]
fn read(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    match **bytes {
        [first, ref rest @ ..] if first < CONTINUES => {
            *bytes = rest;
            Ok(u64::from(first))
        }
        [first, second, ref rest @ ..] if second < CONTINUES && second != 0 => {
            *bytes = rest;
            Ok(u64::from(first) & LOW_BITS | u64::from(second) << 7)
        }
        _ => read_long(bytes),
    }
}

#[cold]
fn read_long(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(VARINT_MAX_BYTES).enumerate() {
        if index == VARINT_MAX_BYTES - 1 && byte > 1 {
            return Err("a number is over 64 bits");
        }
        value |= (u64::from(byte) & LOW_BITS) << (7 * index);
        if byte < CONTINUES {
            if byte == 0 && index > 0 {
                return Err("a number is longer than it need be");
            }
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err("it ends within a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: i64) -> Vec<u8> {
        let mut out = [0; VARINT_MAX_BYTES];
        let length = write_varint(&mut out, zigzag(value));
        assert_eq!(length, varint_len(zigzag(value)), "{value}");
        out[..length].to_vec()
    }

    #[test]
    fn golden() {
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(63), [0x7e]);
        assert_eq!(written(64), [0x80, 0x01]);
        assert_eq!(written(300), [0xd8, 0x04]);
        assert_eq!(written(i64::from(i32::MAX)), [0xfe, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(written(i64::MIN), [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn every_width_comes_back() {
        for shift in 0..64 {
            for near in -2..=2 {
                let value = (1_i64 << shift).wrapping_add(near);
                for value in [value, value.wrapping_neg()] {
                    let bytes = written(value);
                    let mut rest = bytes.as_slice();
                    assert_eq!(read_i64(&mut rest), Ok(value));
                    assert!(rest.is_empty());
                    for end in 0..bytes.len() {
                        assert!(read_i64(&mut &bytes[..end]).is_err());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_overlong_or_too_large_is_refused() {
        assert!(read_i64(&mut [0x80, 0x00].as_slice()).is_err());
        assert!(read_i64(&mut [0xff, 0x80, 0x00].as_slice()).is_err());
        let over_64_bits = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert!(read_i64(&mut over_64_bits.as_slice()).is_err());
        assert!(read_i64(&mut [255; 11].as_slice()).is_err());
        let over_32_bits = written(i64::from(i32::MAX) + 1);
        assert!(read_len(&mut over_32_bits.as_slice()).is_err());
        assert!(read_count(&mut over_32_bits.as_slice()).is_err());
        assert_eq!(read_len(&mut written(-1).as_slice()), Ok(None));
        assert!(read_len(&mut written(-2).as_slice()).is_err());
        assert!(read_count(&mut written(-1).as_slice()).is_err());
    }
}
