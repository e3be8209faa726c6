//! lz4 frames: made plain, and plain ones opened without the detours that others need.
//!
//! A plain frame has independent blocks of at most 64 KiB and neither checksums (a batch has its
//! own) nor sizes. Kafka's clients write the same.
//!
//! ```text
//! | 04 22 4d 18 | 60 40 82 | { length 4, top bit: not compressed | bytes } * n | zero 4 |
//! ```

use std::io;

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use lz4_flex::frame::FrameDecoder;

use super::compression::read_bounded;

const PLAIN_FRAME: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK_MAX_BYTES: usize = 64 * 1024;
const NOT_COMPRESSED: u32 = 1 << 31;
/// A byte of a block stands for at most this many.
const EXPANSION_MAX: usize = 255;

/// Compresses `body` as a plain frame onto the end of `out`.
pub(super) fn compress(body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&PLAIN_FRAME);
    for block in body.chunks(BLOCK_MAX_BYTES) {
        let word_at = out.len();
        let start = word_at + size_of::<u32>();
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let mut length = compress_into(block, &mut out[start..]).map_err(io::Error::other)?;
        let mut flag = 0;
        if length >= block.len() {
            (length, flag) = (block.len(), NOT_COMPRESSED);
            out[start..start + length].copy_from_slice(block);
        }
        out.truncate(start + length);
        let word = u32::try_from(length).map_err(io::Error::other)? | flag;
        out[word_at..start].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0_u32.to_le_bytes());
    Ok(())
}

/// Expands a frame to at most `max` bytes; returns them, and how many bytes follow the frame.
pub(super) fn expand(stored: &[u8], max: usize) -> io::Result<(Vec<u8>, usize)> {
    if let Some(blocks) = stored.strip_prefix(&PLAIN_FRAME) {
        return expand_plain(blocks, max);
    }
    let mut decoder = FrameDecoder::new(stored);
    let expanded = read_bounded(&mut decoder, max)?;
    Ok((expanded, decoder.into_inner().len()))
}

fn expand_plain(mut stored: &[u8], max: usize) -> io::Result<(Vec<u8>, usize)> {
    let mut expanded = Vec::new();
    loop {
        let (word, rest) = stored.split_first_chunk().ok_or_else(cut)?;
        let word = u32::from_le_bytes(*word);
        if word == 0 {
            return Ok((expanded, rest.len()));
        }
        let length = (word & !NOT_COMPRESSED) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        stored = rest;
        let room = BLOCK_MAX_BYTES.min(max - expanded.len());
        if word & NOT_COMPRESSED != 0 {
            if block.len() > room {
                return Err(io::Error::other("it expands to more than it may"));
            }
            reserve(&mut expanded, block.len(), max);
            expanded.extend_from_slice(block);
            continue;
        }
        let start = expanded.len();
        let end = start + room.min(block.len().saturating_mul(EXPANSION_MAX));
        reserve(&mut expanded, end - start, max);
        expanded.resize(end, 0);
        let written = decompress_into(block, &mut expanded[start..]).map_err(io::Error::other)?;
        expanded.truncate(start + written);
    }
}

/// Makes room by doubling, as `Vec` does, but never for more than `max` bytes in all.
fn reserve(expanded: &mut Vec<u8>, more: usize, max: usize) {
    if expanded.capacity() - expanded.len() < more {
        let doubled = expanded.len().min(max - expanded.len());
        expanded.reserve_exact(more.max(doubled));
    }
}

#[cold]
fn cut() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn frame_of(info: FrameInfo, body: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn frames_of_every_shape_are_opened() {
        use lz4_flex::frame::BlockMode::{Independent, Linked};
        let body: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut plain = Vec::new();
        compress(&body, &mut plain).unwrap();
        assert!(plain.starts_with(&PLAIN_FRAME));
        let mut others = Vec::new();
        io::Read::read_to_end(&mut FrameDecoder::new(plain.as_slice()), &mut others).unwrap();
        assert!(others == body, "others open what we write");
        let mut frames = vec![plain];
        for mode in [Independent, Linked] {
            for size in [BlockSize::Max64KB, BlockSize::Max4MB] {
                for checksums in [false, true] {
                    let info = FrameInfo::new().block_mode(mode).block_size(size);
                    let info = info.block_checksums(checksums).content_checksum(checksums);
                    frames.push(frame_of(info, &body));
                }
            }
        }
        for frame in frames {
            assert_eq!(expand(&frame, body.len()).unwrap(), (body.clone(), 0));
            assert!(expand(&frame, body.len() - 1).is_err());
        }
    }

    #[test]
    fn blocks_that_do_not_compress_come_back() {
        // Multiples of an odd number, mixed: nothing repeats.
        let noise: Vec<u8> = (1..50_000_u64)
            .flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 40)).to_le_bytes())
            .collect();
        let mut frame = Vec::new();
        compress(&noise, &mut frame).unwrap();
        assert!(frame.len() > noise.len());
        assert_eq!(expand(&frame, noise.len()).unwrap(), (noise.clone(), 0));
        assert!(expand(&frame, noise.len() - 1).is_err());
        assert!(expand(&frame[..frame.len() - 4], noise.len()).is_err(), "no end mark");
    }
}
