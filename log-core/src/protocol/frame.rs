//! Frame: how requests and replies follow each other on a connection.
//!
//! ```text
//! request  | length 4 | kind 2 | version 2 | correlation 4 | body |
//! reply    | length 4 | code 2 | zero 2    | correlation 4 | body |
//! ```
//! Little endian. `length` counts what follows it, so it is at least 8. A code of 0 means success;
//! with any other, the body is a `Refusal`.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use super::error_code::Refusal;
use crate::codec;

const LENGTH_BYTES: usize = size_of::<u32>();
const KIND_AT: usize = LENGTH_BYTES;
const VERSION_AT: usize = KIND_AT + size_of::<u16>();
const CORRELATION_AT: usize = VERSION_AT + size_of::<u16>();

/// The bytes before the body, the length among them.
pub const FRAME_HEAD_BYTES: usize = CORRELATION_AT + size_of::<u32>();
const _: () = assert!(FRAME_HEAD_BYTES == 12);

/// The shortest length that a frame can name.
const LENGTH_MIN: usize = FRAME_HEAD_BYTES - LENGTH_BYTES;
/// How much room a reader makes at first, and the most that it makes ahead of what has come.
const ROOM_MIN_BYTES: usize = 8 * 1024;
const ROOM_STEP_BYTES: usize = 256 * 1024;

/// What stands before the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    /// The number of a [`RequestKind`](super::RequestKind), or one that this release does not know.
    pub kind: u16,
    /// The version of the body.
    pub version: u16,
    /// Chosen by the client; its reply carries it.
    pub correlation: u32,
}

/// What stands before the body of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// The number of an [`ErrorCode`](super::ErrorCode); 0 is success.
    pub code: u16,
    /// That of the request.
    pub correlation: u32,
}

impl RequestHead {
    /// The head's bytes, for a body of this length.
    ///
    /// # Panics
    /// If the body is longer than a frame can tell: limits keep it far below.
    #[must_use]
    pub fn encode(self, body_bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
        head(self.kind, self.version, self.correlation, body_bytes)
    }

    /// The head of a [`Frame`].
    #[must_use]
    pub fn decode(bytes: &[u8; FRAME_HEAD_BYTES]) -> RequestHead {
        let kind = u16_at(bytes, KIND_AT);
        let version = u16_at(bytes, VERSION_AT);
        RequestHead { kind, version, correlation: u32_at(bytes, CORRELATION_AT) }
    }
}

impl ReplyHead {
    /// The head's bytes, for a body of this length.
    ///
    /// # Panics
    /// If the body is longer than a frame can tell: limits keep it far below.
    #[must_use]
    pub fn encode(self, body_bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
        head(self.code, 0, self.correlation, body_bytes)
    }

    /// The head of a [`Frame`].
    #[must_use]
    pub fn decode(bytes: &[u8; FRAME_HEAD_BYTES]) -> ReplyHead {
        ReplyHead { code: u16_at(bytes, KIND_AT), correlation: u32_at(bytes, CORRELATION_AT) }
    }
}

fn head(first: u16, second: u16, correlation: u32, body: usize) -> [u8; FRAME_HEAD_BYTES] {
    let length = u32::try_from(LENGTH_MIN + body).expect("frames are limited");
    let mut bytes = [0; FRAME_HEAD_BYTES];
    bytes[..KIND_AT].copy_from_slice(&length.to_le_bytes());
    bytes[KIND_AT..VERSION_AT].copy_from_slice(&first.to_le_bytes());
    bytes[VERSION_AT..CORRELATION_AT].copy_from_slice(&second.to_le_bytes());
    bytes[CORRELATION_AT..].copy_from_slice(&correlation.to_le_bytes());
    bytes
}

fn u16_at(bytes: &[u8; FRAME_HEAD_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let (word, _) = bytes[at..].split_first_chunk().expect("the caller has looked");
    u32::from_le_bytes(*word)
}

/// A request as a whole frame.
#[must_use]
pub fn encode_request(head: RequestHead, body: &[u8]) -> Vec<u8> {
    [head.encode(body.len()).as_slice(), body].concat()
}

/// A reply as a whole frame.
#[must_use]
pub fn encode_reply(head: ReplyHead, body: &[u8]) -> Vec<u8> {
    [head.encode(body.len()).as_slice(), body].concat()
}

/// A reply that refuses, as a whole frame.
#[must_use]
pub fn encode_refusal(refusal: &Refusal, correlation: u32) -> Vec<u8> {
    encode_reply(ReplyHead { code: refusal.code, correlation }, &codec::encode(refusal))
}

/// A frame is longer than the reader takes, or shorter than a head: the stream can't be followed
/// any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes is not within {LENGTH_MIN}..={limit}")]
pub struct FrameTooLong {
    /// What it says that follows its length.
    pub length: u32,
    /// The most that is taken.
    pub limit: usize,
}

/// A whole frame: what stands before the body, and the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<B> {
    /// The bytes of a [`RequestHead`] or a [`ReplyHead`].
    pub head: [u8; FRAME_HEAD_BYTES],
    /// What follows them.
    pub body: B,
}

/// Cuts what comes from a socket into frames. Memory is taken as bytes arrive, not as a length
/// promises them.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    limit: usize,
    /// The most memory that `buffer` has had; what it tells itself shrinks as frames are taken out.
    held: usize,
}

impl FrameReader {
    /// A reader of frames whose length is `limit` at the most.
    #[must_use]
    pub fn new(limit: usize) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), limit, held: 0 }
    }

    /// Takes frames up to this length from now on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Where the next bytes of the socket go: a buffer with room at its end.
    pub fn room(&mut self) -> &mut BytesMut {
        let missing = self.missing();
        // Doubling, so that a long frame is not copied once for each step.
        let most = ROOM_STEP_BYTES.max(self.buffer.len());
        let step = missing.clamp(ROOM_MIN_BYTES, most);
        if self.buffer.capacity() - self.buffer.len() < step {
            self.buffer.reserve(step);
        }
        self.held = self.held.max(self.buffer.capacity());
        &mut self.buffer
    }

    /// How many bytes of the frame that has begun are still to come; 0 if that is not known.
    fn missing(&self) -> usize {
        match self.length() {
            Some(length) if length as usize <= self.limit => {
                (LENGTH_BYTES + length as usize).saturating_sub(self.buffer.len())
            }
            _ => 0,
        }
    }

    fn length(&self) -> Option<u32> {
        (self.buffer.len() >= LENGTH_BYTES).then(|| u32_at(&self.buffer, 0))
    }

    /// How long the next frame is, its length field among it, if it is there whole.
    ///
    /// # Errors
    /// `FrameTooLong`: the connection is of no more use.
    pub fn whole(&self) -> Result<Option<usize>, FrameTooLong> {
        let Some(length) = self.length() else { return Ok(None) };
        if (length as usize) < LENGTH_MIN || length as usize > self.limit {
            return Err(FrameTooLong { length, limit: self.limit });
        }
        let total = LENGTH_BYTES + length as usize;
        Ok((self.buffer.len() >= total).then_some(total))
    }

    /// The next frame where it stands; [`FrameReader::advance`] goes past it.
    ///
    /// # Errors
    /// As [`FrameReader::whole`].
    pub fn peek(&self) -> Result<Option<Frame<&[u8]>>, FrameTooLong> {
        let whole = self.whole()?;
        let parts = whole.and_then(|total| self.buffer[..total].split_first_chunk());
        Ok(parts.map(|(head, body)| Frame { head: *head, body }))
    }

    /// Goes past the frame that [`FrameReader::peek`] has shown.
    pub fn advance(&mut self) {
        if let Ok(Some(total)) = self.whole() {
            self.buffer.advance(total);
        }
    }

    /// Takes the next frame out: its head, and its body without a copy.
    ///
    /// # Errors
    /// As [`FrameReader::whole`].
    pub fn take(&mut self) -> Result<Option<Frame<Bytes>>, FrameTooLong> {
        let Some(total) = self.whole()? else { return Ok(None) };
        let mut frame = self.buffer.split_to(total);
        let mut head = [0; FRAME_HEAD_BYTES];
        frame.copy_to_slice(&mut head);
        Ok(Some(Frame { head, body: frame.freeze() }))
    }

    /// How many bytes have come that belong to no whole frame yet, or to frames not taken.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Gives memory back that a large frame has needed, if nothing is buffered.
    pub fn shrink(&mut self) {
        if self.buffer.is_empty() && self.held > ROOM_MIN_BYTES {
            self.buffer = BytesMut::new();
            self.held = 0;
        }
    }
}

/// Bytes on their way to a socket, in order: small ones are put together, large ones shared.
#[derive(Debug, Default)]
pub struct Outgoing {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    /// The most memory that `tail` has had; what it tells itself shrinks as bytes are sent.
    tail_held: usize,
    bytes: usize,
}

impl Outgoing {
    /// Nothing to send.
    #[must_use]
    pub fn new() -> Outgoing {
        Outgoing::default()
    }

    /// Adds a copy of these bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(bytes);
        self.tail_held = self.tail_held.max(self.tail.capacity());
    }

    /// Adds these bytes without copying them.
    pub fn put_shared(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.seal_tail();
        self.bytes += bytes.len();
        self.chunks.push_back(bytes);
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// How many bytes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether none do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The first bytes that wait, for a vectored write; returns how many slices were filled.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let chunks = self.chunks.iter().map(Bytes::as_ref);
        let tail = (!self.tail.is_empty()).then_some(self.tail.as_ref());
        let mut filled = 0;
        for (slice, chunk) in slices.iter_mut().zip(chunks.chain(tail)) {
            *slice = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Drops the first `written` bytes: the socket has taken them.
    ///
    /// # Panics
    /// If more were written than there are: our own bug.
    pub fn advance(&mut self, mut written: usize) {
        self.bytes = self.bytes.checked_sub(written).expect("no more is written than waits");
        while let Some(front) = self.chunks.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.chunks.pop_front();
        }
        self.tail.advance(written);
        if self.tail.is_empty() && self.tail_held > ROOM_STEP_BYTES {
            self.tail = BytesMut::new();
            self.tail_held = 0;
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Outgoing::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_frames() -> Vec<u8> {
        let head = RequestHead { kind: 10, version: 1, correlation: 7 };
        [
            encode_request(head, b"first"),
            encode_request(RequestHead { correlation: 8, ..head }, b""),
            encode_request(RequestHead { correlation: 9, ..head }, &[5; 20_000]),
        ]
        .concat()
    }

    #[test]
    fn bytes_are_what_they_always_were() {
        let request = RequestHead { kind: 0x0102, version: 3, correlation: 0x0405_0607 };
        let golden = [9, 0, 0, 0, 2, 1, 3, 0, 7, 6, 5, 4, 0xAA];
        assert_eq!(encode_request(request, &[0xAA]), golden);
        let reply = ReplyHead { code: 0x0102, correlation: 0x0405_0607 };
        let golden = [9, 0, 0, 0, 2, 1, 0, 0, 7, 6, 5, 4, 0xAA];
        assert_eq!(encode_reply(reply, &[0xAA]), golden);
        assert_eq!(ReplyHead::decode(golden.first_chunk().unwrap()), reply);
    }

    #[test]
    fn frames_are_found_however_the_bytes_arrive() {
        let stream = three_frames();
        for step in [1, 2, 3, 11, 12, 13, 17, 1_000, 40_000] {
            let mut reader = FrameReader::new(30_000);
            let mut found = Vec::new();
            for part in stream.chunks(step) {
                reader.room().extend_from_slice(part);
                while let Some(frame) = reader.take().unwrap() {
                    found.push((RequestHead::decode(&frame.head).correlation, frame.body.len()));
                }
            }
            assert_eq!(found, [(7, 5), (8, 0), (9, 20_000)], "{step}");
            assert_eq!(reader.buffered(), 0);
        }
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_and_takes_no_memory() {
        for length in [0_u32, 7, 30_001, 1 << 31, u32::MAX] {
            let mut reader = FrameReader::new(30_000);
            reader.room().extend_from_slice(&length.to_le_bytes());
            assert_eq!(reader.peek(), Err(FrameTooLong { length, limit: 30_000 }));
            assert!(reader.room().capacity() <= 2 * ROOM_MIN_BYTES);
        }
        let mut reader = FrameReader::new(100_000_000);
        reader.room().extend_from_slice(&90_000_000_u32.to_le_bytes());
        assert_eq!(reader.peek(), Ok(None));
        assert!(reader.room().capacity() <= 2 * ROOM_STEP_BYTES);
    }

    #[test]
    fn what_goes_out_keeps_its_order_and_large_pieces_are_not_copied() {
        let mut outgoing = Outgoing::new();
        let large = Bytes::from(vec![7; 100]);
        outgoing.put(b"ab");
        outgoing.put(b"c");
        outgoing.put_shared(large.clone());
        outgoing.put(b"d");
        assert_eq!(outgoing.len(), 104);
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(outgoing.fill(&mut slices), 3);
        assert_eq!((&*slices[0], slices[1].as_ptr()), (b"abc".as_slice(), large.as_ptr()));
        outgoing.advance(2);
        outgoing.advance(51);
        let mut slices = [IoSlice::new(&[]); 1];
        assert_eq!((outgoing.fill(&mut slices), slices[0].len()), (1, 50));
        outgoing.advance(51);
        assert!(outgoing.is_empty());
        assert_eq!(outgoing.fill(&mut [IoSlice::new(&[])]), 0);
    }

    #[test]
    fn a_large_frame_that_is_gone_holds_no_memory() {
        for take in [false, true] {
            let mut reader = FrameReader::new(1 << 20);
            let frame =
                encode_request(RequestHead { kind: 0, version: 1, correlation: 0 }, &[0; 900_000]);
            for part in frame.chunks(70_000) {
                reader.room().extend_from_slice(part);
            }
            if take {
                assert!(reader.take().unwrap().is_some());
            } else {
                reader.advance();
            }
            reader.shrink();
            assert!(reader.room().capacity() <= 2 * ROOM_MIN_BYTES, "{take}");
        }
        let mut outgoing = Outgoing::new();
        outgoing.put(&vec![0; 900_000]);
        outgoing.advance(900_000);
        outgoing.put(b"x");
        assert!(outgoing.tail.capacity() < 1_000, "{}", outgoing.tail.capacity());
    }
}
