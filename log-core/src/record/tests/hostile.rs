//! Bytes that mean harm: an error or the same data, never a panic, never memory without bounds.

use std::io;

use super::super::compression::{Compressor, expand, read_bounded};
use super::*;

/// The numbers at which lengths and counts go wrong.
const EDGES: [u32; 6] = [0, 1, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

fn sample(codec: Codec) -> Vec<u8> {
    let headers =
        [Header { name: "name", value: Some(b"value") }, Header { name: "", value: None }];
    let records = [
        Record::new(&[b'v'; 200]).with_key(b"key").with_headers(&headers),
        Record::default(),
        Record::new(&[b'w'; 70]).with_key(b""),
    ];
    let mut batch = built(codec, &records);
    assert_eq!(BatchHeader::decode(&batch).unwrap().codec(), Ok(codec));
    stamp(&mut batch, STAMP, SEED);
    batch
}

/// Makes both checksums right again, as one who means harm would.
fn reseal(batch: &mut [u8]) {
    let crc = crc32fast::hash(&batch[BATCH_HEADER_BYTES..]);
    batch::set_body_crc(batch.first_chunk_mut().unwrap(), crc);
    let crc = header_checksum(batch, SEED);
    batch[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads and verifies it in every way that bytes from outside meet.
fn meet(batch: &[u8]) -> Result<Vec<Owned>, Fault> {
    let _ = verify_produced(batch, &LIMITS);
    if let Ok((view, _)) = BatchView::parse(batch) {
        let _ = Marker::decode(&view);
    }
    read(batch)
}

/// The same, as a producer sends it: what the partition fills in is zero.
fn meet_as_produced(batch: &[u8]) {
    let mut batch = batch.to_vec();
    let none =
        Stamp { base_offset: 0, append_time: Timestamp::default(), durable_end: 0, epoch: 0 };
    stamp(&mut batch, none, SEED);
    batch[..4].fill(0);
    let _ = verify_produced(&batch, &LIMITS);
}

#[test]
fn every_truncation_is_refused() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let batch = sample(codec);
        let expected = read(&batch).unwrap();
        for end in 0..batch.len() {
            assert!(meet(&batch[..end]).is_err(), "{codec:?} {end}");
            if end >= BATCH_HEADER_BYTES {
                // The header tells the truth about a body that was cut.
                let mut cut = batch[..end].to_vec();
                let length = u32::try_from(end - BATCH_HEADER_BYTES).unwrap();
                cut[8..12].copy_from_slice(&length.to_le_bytes());
                reseal(&mut cut);
                // An lz4 frame may lose its end mark, and nothing with it.
                let met = meet(&cut);
                assert!(met.is_err() || met == Ok(expected.clone()), "{codec:?} {end}");
            }
        }
    }
}

#[test]
fn every_flipped_byte_is_found() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let batch = sample(codec);
        for at in 0..batch.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut flipped = batch.clone();
                flipped[at] ^= flip;
                assert!(meet(&flipped).is_err(), "{codec:?} {at}");
                reseal(&mut flipped);
                let _ = meet(&flipped);
                meet_as_produced(&flipped);
            }
        }
    }
}

#[test]
fn random_bodies_and_headers_are_borne() {
    let mut random = Random(1);
    for round in 0..20_000 {
        let mut batch = random.bytes(300);
        let _ = meet(&batch);
        let codec = [0, 1, 2, 3][round % 4];
        batch.splice(0..0, [0; BATCH_HEADER_BYTES]);
        let count = u32::try_from(random.below(20)).unwrap();
        let header = BatchHeader {
            body_length: u32::try_from(batch.len() - BATCH_HEADER_BYTES).unwrap(),
            attributes: codec,
            record_count: count + 1,
            last_offset_delta: count,
            ..BatchHeader::default()
        };
        header.encode(batch.first_chunk_mut().unwrap());
        reseal(&mut batch);
        let _ = meet(&batch);
        meet_as_produced(&batch);
    }
}

#[test]
fn lengths_and_counts_in_the_header_at_their_edges_are_borne() {
    let batch = sample(Codec::None);
    let expected = read(&batch).unwrap();
    // body_length, record_count, last_offset_delta
    for at in [8, 76, 80] {
        for edge in EDGES {
            let mut changed = batch.clone();
            changed[at..at + 4].copy_from_slice(&edge.to_le_bytes());
            reseal(&mut changed);
            let met = meet(&changed);
            assert!(met.is_err() || met == Ok(expected.clone()), "{at} {edge}");
            meet_as_produced(&changed);
        }
    }
}

#[test]
fn lengths_and_counts_in_a_record_at_their_edges_are_borne() {
    // length, timestamp delta, offset delta, key length, value length, header count, name length
    let numbers = [12_i64, 0, 0, 0, 0, 1, 0, -1];
    for changed in 0..numbers.len() {
        for edge in EDGES.into_iter().map(i64::from).chain([-1, -2, i64::MAX, i64::MIN]) {
            let mut body = Vec::new();
            for (index, &number) in numbers.iter().enumerate() {
                let number = if index == changed { edge } else { number };
                let mut bytes = [0; varint::VARINT_MAX_BYTES];
                let length = varint::write_varint(&mut bytes, varint::zigzag(number));
                body.extend_from_slice(&bytes[..length]);
                if index == 0 {
                    body.push(0);
                }
            }
            let mut batch = vec![0; BATCH_HEADER_BYTES];
            batch.extend_from_slice(&body);
            let header = BatchHeader {
                body_length: u32::try_from(body.len()).unwrap(),
                record_count: 1,
                ..BatchHeader::default()
            };
            header.encode(batch.first_chunk_mut().unwrap());
            reseal(&mut batch);
            let _ = meet(&batch);
            meet_as_produced(&batch);
        }
    }
}

#[test]
fn records_beyond_the_count_and_offsets_out_of_place_are_refused() {
    let batch = sample(Codec::None);
    for (count, last) in [(2, 2), (3, 3), (4, 3), (3, 1)] {
        let mut changed = batch.clone();
        let header = BatchHeader::decode(&batch).unwrap();
        let header = BatchHeader { record_count: count, last_offset_delta: last, ..header };
        header.encode(changed.first_chunk_mut().unwrap());
        reseal(&mut changed);
        // A hole after the last record is what compaction leaves; a producer may not send one.
        assert_eq!(read(&changed).is_ok(), (count, last) == (3, 3));
        changed[..4].fill(0);
        assert!(verify_produced(&changed, &LIMITS).is_err());
    }
}

#[test]
fn a_bomb_stays_under_the_cap() {
    let zeros = vec![0; 64 << 20];
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut bomb = Vec::new();
        Compressor::new(codec).compress(&zeros, &mut bomb).unwrap();
        assert!(bomb.len() < 1 << 20);
        for cap in [0, 1, 100_000, (64 << 20) - 1] {
            assert!(matches!(expand(codec, &bomb, cap), Err(Fault::Compression { .. })));
        }
        let whole = expand(codec, &bomb, 64 << 20).unwrap();
        assert!(whole.len() == 64 << 20 && whole.capacity() == 64 << 20);
        bomb.push(0);
        assert!(expand(codec, &bomb, 64 << 20).is_err(), "bytes after the frame");
    }
}

#[test]
fn expanding_takes_memory_as_bytes_arrive() {
    for arriving in [0, 1, 65_535, 65_536, 65_537, 1 << 20] {
        let source = io::Read::take(io::repeat(7), arriving);
        let expanded = read_bounded(source, 1 << 30).unwrap();
        assert_eq!(expanded.len() as u64, arriving);
        assert!(expanded.capacity() <= (2 * expanded.len()).max(128 * 1024));
    }
    assert!(read_bounded(io::repeat(7), 100_000).is_err());
}
