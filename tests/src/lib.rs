//! What the tests of the whole system share with the program that they kill: numbered records.

pub mod fault_proxy;
pub mod hostile;
pub mod server_process;
pub mod wire;

use log_core::record::{Record, RecordView};

/// The first bytes of a value tell how long it is.
const LENGTH_BYTES: usize = size_of::<u32>();

/// The key of the record with this number.
#[must_use]
pub fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// The value of the record with this number: its length, then bytes that only this number gives.
///
/// # Panics
/// If `len` has no room for the length, or does not fit into it.
#[must_use]
pub fn value(number: u64, len: usize) -> Vec<u8> {
    assert!(len >= LENGTH_BYTES, "a value begins with its length");
    let mut bytes = u32::try_from(len).expect("tests use short values").to_le_bytes().to_vec();
    let mut dice = Dice::new(number);
    while bytes.len() < len {
        let next = dice.next().to_le_bytes();
        bytes.extend_from_slice(&next[..next.len().min(len - bytes.len())]);
    }
    bytes
}

/// The record with this number, of a key and a value that were made for it.
#[must_use]
pub fn record<'a>(key: &'a [u8; 8], value: &'a [u8]) -> Record<'a> {
    Record::new(value).with_key(key)
}

/// The number of a record, if every byte of it is what its number says.
///
/// # Errors
/// What is wrong with it.
pub fn number_of(record: &RecordView<'_>) -> Result<u64, String> {
    let at = record.offset;
    let key = record.key.and_then(|key| <[u8; 8]>::try_from(key).ok());
    let number = u64::from_le_bytes(key.ok_or_else(|| format!("{at}: not a key of ours"))?);
    let found = record.value.ok_or_else(|| format!("{at}: no value"))?;
    if found.len() < LENGTH_BYTES || found != value(number, found.len()) {
        return Err(format!("{at}: the value of {number:x} is another one"));
    }
    Ok(number)
}

/// Nanoseconds of a clock that all processes of the machine share.
///
/// # Panics
/// After some centuries.
#[must_use]
pub fn shared_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).expect("it counts from the start of the machine")
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
