//! Raw: the controls of servers. The same bytes over TCP to another process, with no log around them.

mod client;
mod serve;
#[cfg(test)]
mod tests;

pub use client::{Store, end_to_end, exchange, frame_bytes};
pub use serve::{serve_exchange, serve_relay, serve_store};

/// In front of each frame: its length.
const LEN_BYTES: usize = size_of::<u32>();
/// What a reply is as long as: a correlation id, a partition, an offset.
const ACK: [u8; 16] = [0; 16];
/// What a connection to the store begins with, if it brings batches.
const BRINGS: u8 = b'b';
/// The same if it wants all batches.
const WANTS: u8 = b'w';

/// Reads a frame's length, if it is there.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.first_chunk::<LEN_BYTES>()?;
    usize::try_from(u32::from_le_bytes(*len)).ok()
}
