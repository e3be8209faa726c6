//! Compression: one lz4 or zstd frame a batch, and expanding one under a cap.

use std::fmt;
use std::io::{self, Read};

use super::lz4;
use crate::error::{Error, Fault};

/// The zstd level: what zstd itself takes as its default.
pub const ZSTD_LEVEL: i32 = 3;

/// The first step in which expanded bytes get room; later ones double what there is.
const FIRST_STEP_BYTES: usize = 64 * 1024;

/// A zstd frame may ask for a window of 2^23 bytes whatever it holds (RFC 8878 asks decoders to
/// grant that); for more than that, only if as much may come out of it.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How the body of a batch is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// As it is.
    #[default]
    None,
    /// An lz4 frame: fast.
    Lz4,
    /// A zstd frame: small.
    Zstd,
}

impl Codec {
    pub(super) fn bits(self) -> u16 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    pub(super) fn from_bits(bits: u16) -> Result<Codec, Fault> {
        match bits {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            _ => Err(Fault::Unknown { what: "codec", found: u32::from(bits) }),
        }
    }
}

/// Compresses body after body; what zstd sets up once (a megabyte) is kept for the next.
pub(super) struct Compressor {
    pub(super) codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    pub(super) fn new(codec: Codec) -> Compressor {
        Compressor { codec, zstd: None }
    }

    /// Compresses `body` onto the end of `out`.
    pub(super) fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let written = match self.codec {
            Codec::None => {
                out.extend_from_slice(body);
                Ok(())
            }
            Codec::Lz4 => lz4::compress(body, out),
            Codec::Zstd => self.compress_zstd(body, out),
        };
        written.map_err(|source| Error::Malformed(refused(&source)))
    }

    fn compress_zstd(&mut self, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
        };
        out.extend_from_slice(&zstd.compress(body)?);
        Ok(())
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Compressor").field(&self.codec).finish()
    }
}

/// Expands the one frame that `stored` is, to at most `max` bytes.
pub(super) fn expand(codec: Codec, stored: &[u8], max: usize) -> Result<Vec<u8>, Fault> {
    let (expanded, left) = match codec {
        Codec::None => read_bounded(stored, max).map(|expanded| (expanded, 0)),
        Codec::Lz4 => lz4::expand(stored, max),
        Codec::Zstd => expand_zstd(stored, max),
    }
    .map_err(|source| refused(&source))?;
    if left != 0 {
        return Err(Fault::Compression { what: format!("{left} bytes follow the frame") });
    }
    Ok(expanded)
}

fn expand_zstd(stored: &[u8], max: usize) -> io::Result<(Vec<u8>, usize)> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)?.single_frame();
    let largest = max.max(1).next_power_of_two().ilog2();
    decoder.window_log_max(largest.clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX))?;
    let expanded = read_bounded(&mut decoder, max)?;
    Ok((expanded, decoder.finish().len()))
}

/// Reads to the end, taking memory as bytes arrive and never for more than `max` of them: what a
/// frame says about its own size is not believed.
pub(super) fn read_bounded(mut source: impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut expanded = Vec::new();
    loop {
        let step = expanded.len().max(FIRST_STEP_BYTES).min(max - expanded.len());
        if step == 0 {
            break;
        }
        expanded.reserve_exact(step);
        let read = source.by_ref().take(step as u64).read_to_end(&mut expanded)?;
        if read < step {
            return Ok(expanded);
        }
    }
    if source.read(&mut [0])? != 0 {
        return Err(io::Error::other(format!("it expands to more than {max} bytes")));
    }
    Ok(expanded)
}

fn refused(source: &io::Error) -> Fault {
    Fault::Compression { what: source.to_string() }
}
