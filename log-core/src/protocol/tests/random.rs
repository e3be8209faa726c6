//! Bytes from seeds: frames cut anywhere, and bodies that are not what they should be.

use bytes::Bytes;

use crate::protocol::fetch::{FetchReply, FetchRequest};
use crate::protocol::frame::{FrameReader, Outgoing, RequestHead, encode_request};
use crate::protocol::produce::{ProduceHead, Produced};
use crate::protocol::{CONTROL_LIMIT_BYTES, decode_body, groups, hello, offsets, topics};

/// Numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<const N: usize>(&mut self, from: [usize; N]) -> usize {
        from[self.below(N)]
    }

    /// Fewer than this many bytes.
    fn bytes_below(&mut self, limit: usize) -> Vec<u8> {
        let len = self.below(limit);
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

#[test]
fn frames_come_out_as_they_went_in_however_they_are_cut() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut stream, mut sent) = (Vec::new(), Vec::new());
        for correlation in 0..20 {
            let zeros = random.pick([0, 0, 1, 100, 9_000, 300_000]);
            let body = [random.bytes_below(2_000), vec![0; zeros]].concat();
            let head = RequestHead { kind: 10, version: 1, correlation };
            stream.extend(encode_request(head, &body));
            sent.push((head, body));
        }
        let (mut reader, mut came, mut at) = (FrameReader::new(400_000), Vec::new(), 0);
        while at < stream.len() {
            let most = random.pick([1, 3, 50, 5_000, 200_000]);
            let step = 1 + random.below(most);
            let to = (at + step).min(stream.len());
            let room = reader.room();
            assert!(room.capacity() - room.len() >= 8 * 1_024, "seed {seed}");
            room.extend_from_slice(&stream[at..to]);
            at = to;
            while random.below(4) != 0 {
                if random.below(2) == 0 {
                    let Some(frame) = reader.take().unwrap() else { break };
                    came.push((RequestHead::decode(&frame.head), frame.body.to_vec()));
                } else {
                    let Some(frame) = reader.peek().unwrap() else { break };
                    came.push((RequestHead::decode(&frame.head), frame.body.to_vec()));
                    reader.advance();
                }
            }
            reader.shrink();
        }
        while let Some(frame) = reader.take().unwrap() {
            came.push((RequestHead::decode(&frame.head), frame.body.to_vec()));
        }
        assert!(came == sent, "seed {seed}: {} of {} frames", came.len(), sent.len());
        assert_eq!(reader.buffered(), 0);
    }
}

#[test]
fn what_goes_out_is_what_was_put_in_however_the_socket_takes_it() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut outgoing, mut put, mut sent) = (Outgoing::new(), Vec::new(), Vec::new());
        for _ in 0..100 {
            let piece = random.bytes_below(40);
            put.extend_from_slice(&piece);
            if random.below(2) == 0 {
                outgoing.put(&piece);
            } else {
                outgoing.put_shared(Bytes::from(piece));
            }
            assert_eq!(outgoing.len(), put.len() - sent.len());
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let filled = outgoing.fill(&mut slices);
            let there: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = random.below(there.len() + 1);
            sent.extend_from_slice(&there[..taken]);
            outgoing.advance(taken);
        }
        assert!(put.starts_with(&sent), "seed {seed}");
    }
}

/// Decodes a body as everything that a body can be. What decodes must be the whole of it.
fn decode_all(body: &[u8]) {
    let _ = ProduceHead::decode(body);
    let _ = Produced::decode(body);
    if let Ok(request) = FetchRequest::decode(body) {
        assert_eq!(request.encode(), body);
    }
    let _ = FetchReply::decode(Bytes::copy_from_slice(body));
    let _ = decode_body::<hello::HelloReplyV1>(body);
    let _ = decode_body::<topics::TopicV1>(body);
    let _ = decode_body::<groups::HeartbeatV1>(body);
    let _ = decode_body::<groups::GroupV1>(body);
    let _ = decode_body::<offsets::CommitOffsetsV1>(body);
    let _ = decode_body::<offsets::CommitOffsetsReplyV1>(body);
}

#[test]
fn bodies_of_any_bytes_are_refused_in_peace() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let mut body = random.bytes_below(160);
        // Small numbers look like lengths, and go further.
        for byte in &mut body {
            *byte = if random.below(3) == 0 { *byte } else { *byte & 1 };
        }
        decode_all(&body);
    }
    for byte in [0, 1, 0x7f, 0xff] {
        decode_all(&vec![byte; 70_000]);
    }
    decode_all(&vec![0; CONTROL_LIMIT_BYTES + 1]);
}
