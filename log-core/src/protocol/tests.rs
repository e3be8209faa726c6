//! Tests of what is on the wire: golden bytes of each message, hostile lengths, refusals.

mod codes;
mod documented;
mod golden_groups;
mod golden_hot;
mod golden_offsets;
mod golden_refusals;
mod golden_topics;
mod random;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Call, RequestKind, decode_body, encode_answer, encode_call};

/// What a count, or a length, is set to in place of the right one. With the small ones, the bytes
/// may be those of something else.
const HOSTILE: [u64; 6] = [0, 1, (1 << 31) - 1, u32::MAX as u64, 1_000_000_000, u64::MAX];

/// Bytes as they were drawn, and where the counts in them are, each of 8 bytes.
struct Drawing {
    bytes: Vec<u8>,
    counts: Vec<usize>,
}

/// Reads a drawing. Each line: tokens up to two spaces, then what they are. `0a` is a byte, `00*3`
/// three of them, `'ab'` a text, `#02` a count or length of 2 in 8 bytes.
fn drawn(text: &str) -> Drawing {
    let mut drawing = Drawing { bytes: Vec::new(), counts: Vec::new() };
    for line in text.lines() {
        let tokens = line.trim().split("  ").next().unwrap();
        for token in tokens.split_whitespace() {
            if let Some(count) = token.strip_prefix('#') {
                drawing.counts.push(drawing.bytes.len());
                drawing.bytes.push(u8::from_str_radix(count, 16).unwrap());
                drawing.bytes.extend([0; 7]);
            } else if let Some(word) = token.strip_prefix('\'') {
                drawing.bytes.extend(word.strip_suffix('\'').unwrap().as_bytes());
            } else {
                let (byte, times) = token.split_once('*').unwrap_or((token, "1"));
                let byte = u8::from_str_radix(byte, 16).unwrap();
                drawing.bytes.extend(vec![byte; times.parse().unwrap()]);
            }
        }
    }
    drawing
}

/// The call's frame is its head and these bytes, and they hold against harm.
fn call_is<C: Call + Debug + PartialEq>(call: &C, kind: u16, body: &str) {
    let body = drawn(body);
    let length = u8::try_from(8 + body.bytes.len()).unwrap();
    let [low, high] = kind.to_le_bytes();
    let head = [length, 0, 0, 0, low, high, 1, 0, 0x0a, 0x0b, 0x0c, 0x0d];
    assert_eq!(encode_call(call, 0x0d0c_0b0a), [&head, body.bytes.as_slice()].concat());
    assert_eq!(RequestKind::from_number(kind), Some(C::KIND));
    structure_is(call, &body);
}

/// The answer's frame is its head and these bytes, and they hold against harm.
fn answer_is<T: Serialize + DeserializeOwned + Debug + PartialEq>(answer: &T, body: &str) {
    let body = drawn(body);
    let [low, high] = u16::try_from(8 + body.bytes.len()).unwrap().to_le_bytes();
    let head = [low, high, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d];
    assert_eq!(encode_answer(answer, 0x0d0c_0b0a), [&head, body.bytes.as_slice()].concat());
    structure_is(answer, &body);
}

fn structure_is<T: DeserializeOwned + Debug + PartialEq>(value: &T, body: &Drawing) {
    let Drawing { bytes, counts } = body;
    assert_eq!(&decode_body::<T>(bytes).unwrap(), value);
    for len in 0..bytes.len() {
        let cut = decode_body::<T>(&bytes[..len]);
        assert!(cut.is_err(), "{value:?} cut to {len} bytes is {cut:?}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(decode_body::<T>(&longer).is_err(), "{value:?} with a byte left over");
    for at in counts {
        for hostile in HOSTILE {
            let mut bytes = bytes.clone();
            let right = std::mem::replace(&mut bytes[*at], 0);
            if u64::from(right) == hostile {
                continue;
            }
            bytes[*at..*at + 8].copy_from_slice(&hostile.to_le_bytes());
            match decode_body::<T>(&bytes) {
                Ok(decoded) if hostile <= 1 => assert_ne!(&decoded, value, "{hostile} at {at}"),
                decoded => assert!(decoded.is_err(), "{hostile} at {at} is {decoded:?}"),
            }
        }
    }
}
