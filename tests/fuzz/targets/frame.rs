//! Fuzz target `frame`: a stream cut into frames.

#![no_main]

#[path = "../../src/hostile.rs"]
#[expect(dead_code, reason = "each target calls one of its functions")]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::frame(data));
