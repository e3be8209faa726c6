//! Codec: structures as bytes, for what is stored or sent and is not hot. The only file that names
//! bincode.
//!
//! Little endian, integers at their full width, lengths as 8 bytes, an option behind one byte.
//! With fixed widths, what decoding claims is what it reads: its limit is exact. A length in hostile
//! bytes makes it allocate at most what the step below allows for a text, or a mebibyte (serde's own
//! bound) for each list that has begun, before the missing bytes end it.
//! A structure that was released is frozen: a change is a new structure under a new version.
//! Enums travel as numbers.

use bincode::config::{self, Configuration, Fixint, Limit, LittleEndian};
use bincode::error::DecodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Fault;

const SMALL: usize = 64 * 1024;
const MIDDLE: usize = 4 * 1024 * 1024;
const LARGE: usize = 256 * 1024 * 1024;

/// The structure as bytes.
///
/// # Panics
/// If the structure has no fixed form (a map of unknown length, say): our own bug.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let config = config::standard().with_fixed_int_encoding();
    bincode::serde::encode_to_vec(value, config).expect("our structures can be encoded")
}

/// The structure that exactly these bytes stand for.
///
/// # Errors
/// `Truncated` if bytes are missing; `Structure` if there are more than `limit` (or 256 MiB), if
/// some are left over, or if a field can't be what it is.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, Fault> {
    if bytes.len() > limit.min(LARGE) {
        return Err(Fault::Structure { what: format!("{} bytes are too many", bytes.len()) });
    }
    // The limit is a part of the configuration's type, so there are steps.
    if bytes.len() <= SMALL {
        decode_within::<T, SMALL>(bytes)
    } else if bytes.len() <= MIDDLE {
        decode_within::<T, MIDDLE>(bytes)
    } else {
        decode_within::<T, LARGE>(bytes)
    }
}

fn decode_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, Fault> {
    let config: Configuration<LittleEndian, Fixint, Limit<LIMIT>> =
        config::standard().with_fixed_int_encoding().with_limit::<LIMIT>();
    let decoded = bincode::serde::decode_from_slice(bytes, config);
    let (value, used) = decoded.map_err(|error| match error {
        // A length that is over the limit is over what came, too.
        DecodeError::UnexpectedEnd { .. } | DecodeError::LimitExceeded => {
            Fault::Truncated { what: "structure" }
        }
        error => Fault::Structure { what: error.to_string() },
    })?;
    if used < bytes.len() {
        let what = format!("{} bytes are left over", bytes.len() - used);
        return Err(Fault::Structure { what });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        id: u128,
        name: String,
        count: Option<u32>,
        rest: Vec<i64>,
    }

    fn sample() -> Sample {
        Sample { id: 0x0102, name: "ab".to_owned(), count: Some(7), rest: vec![-1] }
    }

    #[test]
    fn bytes_are_what_they_always_were() {
        let mut golden = vec![2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        golden.extend([1, 7, 0, 0, 0]);
        golden.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend([255; 8]);
        assert_eq!(encode(&sample()), golden);
        assert_eq!(decode::<Sample>(&golden, 1_000).unwrap(), sample());
    }

    #[test]
    fn every_byte_must_be_there_and_be_used() {
        let bytes = encode(&sample());
        for len in 0..bytes.len() {
            let error = decode::<Sample>(&bytes[..len], 1_000).unwrap_err();
            assert_eq!(error, Fault::Truncated { what: "structure" }, "{len}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(matches!(decode::<Sample>(&longer, 1_000), Err(Fault::Structure { .. })));
        assert!(matches!(decode::<Sample>(&bytes, 20), Err(Fault::Structure { .. })));
    }

    #[test]
    fn a_hostile_length_allocates_nothing() {
        let mut bytes = encode(&sample());
        bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode::<Sample>(&bytes, 1_000).is_err());
        bytes[16..24].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        assert!(decode::<Sample>(&bytes, 1_000).is_err());
    }
}
