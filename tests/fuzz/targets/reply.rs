//! Fuzz target `reply`: the bodies of replies.

#![no_main]

#[path = "../../src/hostile.rs"]
#[expect(dead_code, reason = "each target calls one of its functions")]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::reply(data));
