//! Fuzz target `stored`: a catalog, and a record of committed offsets, behind valid checksums.

#![no_main]

#[path = "../../src/hostile.rs"]
#[expect(dead_code, reason = "each target calls one of its functions")]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::stored(data));
