//! Fuzz target `batch`: a batch, and the records in it.

#![no_main]

#[path = "../../src/hostile.rs"]
#[expect(dead_code, reason = "each target calls one of its functions")]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::batch(data));
