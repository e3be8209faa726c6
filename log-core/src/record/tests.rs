//! Tests of batches: golden bytes, round trips, what a producer may send, bytes that mean harm.

mod golden;
mod hostile;

use super::*;
use crate::error::{Error, Fault};
use crate::offset::Offset;

const NOW: Timestamp = Timestamp::from_millis(0x018b_cfe5_6800);
const SEED: u32 = 0xdead_beef;
const STAMP: Stamp = Stamp {
    base_offset: 0x0102_0304_0506_0708,
    append_time: Timestamp::from_millis(0x018b_cfe5_6807),
    durable_end: 0x0102_0304_0506_0700,
    epoch: 3,
};
const LIMITS: BatchLimits = BatchLimits {
    record_max_bytes: 1 << 20,
    batch_max_bytes: 8 << 20,
    expanded_max: 16 << 20,
    headers_max: 100,
    strict: true,
};

/// splitmix64: small, seeded, good enough to choose test data.
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
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        (0..self.below(longest + 1)).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    fn field(&mut self) -> Option<Vec<u8>> {
        // Around the widths at which a length takes another byte, and the copies change.
        let longest = [0, 8, 16, 17, 70, 200, 9_000][self.below(7)];
        (self.below(5) != 0).then(|| self.bytes(longest))
    }

    fn record(&mut self) -> Owned {
        let headers = if self.below(3) == 0 { self.below(5) } else { 0 };
        let near = i64::try_from(self.below(200_000)).unwrap() - 100_000;
        let timestamp = match self.below(4) {
            0 => Timestamp::from_millis(self.next().cast_signed()),
            1 => Timestamp::from_millis(NOW.as_millis() + near),
            _ => NOW,
        };
        Owned {
            offset: 0,
            timestamp,
            key: self.field(),
            value: self.field(),
            headers: (0..headers)
                .map(|_| (["", "a", "é", headers::EXPIRES_AT][self.below(4)], self.field()))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    offset: Offset,
    timestamp: Timestamp,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Owned {
    fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
    }
}

fn owned(record: &RecordView<'_>) -> Owned {
    Owned {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec)))
            .collect(),
    }
}

fn encoded(records: &[Record<'_>]) -> Vec<u8> {
    let mut out = vec![0; encoded_len(records, NOW)];
    encode_into(&mut out, records, NOW);
    out
}

fn built(codec: Codec, records: &[Record<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for record in records {
        builder.push(record, NOW).unwrap();
    }
    assert_eq!(builder.len(), records.len());
    assert_eq!(builder.encoded_bytes(), encoded_len(records, NOW));
    builder.finish().unwrap()
}

/// Everything a reader does, with a small cap on what may expand.
fn read(bytes: &[u8]) -> Result<Vec<Owned>, Fault> {
    check_header(bytes, SEED)?;
    let (batch, _) = BatchView::parse(bytes)?;
    batch.check_body()?;
    let body = batch.open(1 << 20)?;
    body.records().map(|record| record.map(|record| owned(&record))).collect()
}

#[test]
fn records_come_back_as_they_were() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut expected: Vec<Owned> = (0..=random.below(150)).map(|_| random.record()).collect();
        for (record, offset) in expected.iter_mut().zip(STAMP.base_offset..) {
            record.offset = offset;
        }
        let headers: Vec<_> = expected.iter().map(Owned::headers).collect();
        let records: Vec<_> = expected
            .iter()
            .zip(&headers)
            .map(|(record, headers)| Record {
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers,
                timestamp: (record.timestamp != NOW).then_some(record.timestamp),
            })
            .collect();
        let plain = encoded(&records);
        assert_eq!(check_records(&records, NOW, &LIMITS).unwrap(), plain.len());
        assert_eq!(plain, built(Codec::None, &records), "seed {seed}");
        for mut batch in [plain, built(Codec::Lz4, &records), built(Codec::Zstd, &records)] {
            verify_produced(&batch, &LIMITS).unwrap_or_else(|error| panic!("{seed}: {error}"));
            stamp(&mut batch, STAMP, SEED);
            assert_eq!(read(&batch).unwrap(), expected, "seed {seed}");
        }
    }
}

#[test]
fn every_number_of_records_is_encoded_exactly() {
    let value = [7; 100];
    for count in [1, 2, 63, 64, 65, 8_191, 8_192, 8_193] {
        let batch = encoded(&vec![Record::new(&value); count]);
        let header = verify_produced(&batch, &LIMITS).unwrap();
        assert_eq!(header.record_count as usize, count);
    }
}

#[test]
fn a_header_comes_back_and_counts_its_offsets() {
    let header = BatchHeader {
        header_crc: 1,
        body_length: 2,
        body_crc: 3,
        attributes: attributes::KNOWN & !attributes::CONTROL,
        producer_epoch: 5,
        base_offset: 6,
        append_time: Timestamp::from_millis(-7),
        durable_end: 8,
        base_timestamp: Timestamp::from_millis(-9),
        max_timestamp: Timestamp::from_millis(10),
        producer_id: 11,
        base_sequence: 12,
        record_count: 13,
        last_offset_delta: 14,
        epoch: 15,
        key_id: 16,
        dictionary_id: 17,
    };
    let mut bytes = [0xff; BATCH_HEADER_BYTES];
    header.encode(&mut bytes);
    assert_eq!(BatchHeader::decode(&bytes), Ok(header));
    assert_eq!((header.last_offset(), header.next_offset(), header.total_len()), (20, 21, 106));
    assert!(matches!(header.codec(), Err(Fault::Unknown { what: "codec", found: 7 })));
    let marker = BatchHeader { attributes: attributes::CONTROL, base_offset: 6, ..header };
    assert_eq!(marker.next_offset(), 6);
}

#[test]
fn a_batch_is_valid_only_where_it_was_written() {
    let mut batch = encoded(&[Record::new(b"v")]);
    stamp(&mut batch, STAMP, SEED);
    assert!(check_header(&batch, SEED).is_ok());
    assert!(matches!(check_header(&batch, SEED ^ 4096), Err(Fault::Checksum { .. })));
}

#[test]
fn append_time_stands_in_for_the_producers_time_where_the_topic_says_so() {
    let mut batch = encoded(&[Record::new(b"v").with_timestamp(Timestamp::from_millis(1))]);
    let mut header = BatchHeader::decode(&batch).unwrap();
    header.attributes |= attributes::APPEND_TIME;
    header.encode(batch.first_chunk_mut().unwrap());
    verify_produced(&batch, &LIMITS).unwrap();
    stamp(&mut batch, STAMP, SEED);
    assert_eq!(read(&batch).unwrap()[0].timestamp, STAMP.append_time);
}

#[test]
fn a_builder_begins_anew_and_its_sequence_goes_on() {
    let mut builder = BatchBuilder::new(Codec::None).with_producer(7, 1, u32::MAX);
    assert!(matches!(builder.finish(), Err(Error::Malformed(_))));
    builder.push(&Record::new(b"dropped"), NOW).unwrap();
    builder.clear();
    assert!(builder.is_empty());
    for sequence in [u32::MAX, 1] {
        for _ in 0..2 {
            builder.push(&Record::new(b"v"), NOW).unwrap();
        }
        let header = BatchHeader::decode(&builder.finish().unwrap()).unwrap();
        assert_eq!((header.producer_id, header.producer_epoch), (7, 1));
        assert_eq!((header.base_sequence, header.record_count), (sequence, 2));
    }
}

#[test]
fn what_compression_does_not_shrink_stays_plain() {
    let batch = built(Codec::Zstd, &[Record::new(b"v")]);
    assert_eq!(BatchHeader::decode(&batch).unwrap().codec(), Ok(Codec::None));
    let batch = built(Codec::Lz4, &[Record::new(&[0; 1_000])]);
    assert_eq!(BatchHeader::decode(&batch).unwrap().codec(), Ok(Codec::Lz4));
}

#[test]
fn what_is_over_a_limit_is_refused() {
    let records = [Record::new(&[0; 300]), Record::new(&[0; 300])];
    let batch = encoded(&records);
    let headers = [Header { name: "h", value: None }; 3];
    let with_headers = [Record::new(b"").with_headers(&headers)];
    let refused = |records: &[Record<'_>], batch: &[u8], limits: BatchLimits, name: &str| {
        let at_once = check_records(records, NOW, &limits).unwrap_err();
        let arrived = verify_produced(batch, &limits).unwrap_err();
        assert_eq!(at_once.to_string(), arrived.to_string());
        assert!(matches!(at_once, Error::TooLarge { what, .. } if what == name), "{at_once}");
    };
    let record_len = u32::try_from(batch.len() - BATCH_HEADER_BYTES).unwrap() / 2;
    refused(
        &records,
        &batch,
        BatchLimits { record_max_bytes: record_len - 1, ..LIMITS },
        "record bytes",
    );
    let exact = BatchLimits { record_max_bytes: record_len, ..LIMITS };
    assert!(
        verify_produced(&batch, &exact).is_ok() && check_records(&records, NOW, &exact).is_ok()
    );
    refused(&records, &batch, BatchLimits { batch_max_bytes: 500, ..LIMITS }, "batch bytes");
    let few = BatchLimits { headers_max: 2, ..LIMITS };
    refused(&with_headers, &encoded(&with_headers), few, "record headers");
    assert!(matches!(check_records(&[], NOW, &LIMITS), Err(Error::Malformed(_))));
}

#[test]
fn a_produced_header_that_claims_what_is_not_its_own_is_refused() {
    let batch = encoded(&[Record::new(b"a"), Record::new(b"b")]);
    let good = BatchHeader::decode(&batch).unwrap();
    let later = Timestamp::from_millis(NOW.as_millis() + 1);
    let changed: [BatchHeader; 15] = [
        BatchHeader { header_crc: 1, ..good },
        BatchHeader { base_offset: 1, ..good },
        BatchHeader { append_time: NOW, ..good },
        BatchHeader { durable_end: 1, ..good },
        BatchHeader { epoch: 1, ..good },
        BatchHeader { key_id: 1, ..good },
        BatchHeader { dictionary_id: 1, ..good },
        BatchHeader { attributes: attributes::TRANSACTIONAL, ..good },
        BatchHeader { attributes: attributes::CONTROL, record_count: 0, ..good },
        BatchHeader { attributes: 3, ..good },
        BatchHeader { record_count: 1, last_offset_delta: 0, ..good },
        BatchHeader { record_count: 3, last_offset_delta: 2, ..good },
        BatchHeader { last_offset_delta: 2, ..good },
        BatchHeader { max_timestamp: later, ..good },
        BatchHeader { body_crc: good.body_crc ^ 1, ..good },
    ];
    for header in changed {
        let mut batch = batch.clone();
        header.encode(batch.first_chunk_mut().unwrap());
        let verified = verify_produced(&batch, &LIMITS);
        assert!(matches!(verified, Err(Error::Malformed(_))), "{header:?}: {verified:?}");
    }
    let twice = [batch.clone(), batch].concat();
    assert!(matches!(verify_produced(&twice, &LIMITS), Err(Error::Malformed(_))));
}

#[test]
fn an_expiry_header_sets_its_bit_and_may_not_go_without() {
    let headers = [Header { name: headers::EXPIRES_AT, value: Some(b"1700000000000") }];
    let mut batch = encoded(&[Record::new(b"v").with_headers(&headers)]);
    let header = verify_produced(&batch, &LIMITS).unwrap();
    assert_eq!(header.attributes, attributes::HAS_EXPIRY);
    BatchHeader { attributes: 0, ..header }.encode(batch.first_chunk_mut().unwrap());
    assert!(matches!(verify_produced(&batch, &LIMITS), Err(Error::Malformed(_))));
}

#[test]
fn markers_come_back_and_hold_no_records() {
    use MarkerKind::{Close, Idle, Open, Roll, Trim};
    for kind in [Open, Close, Idle, Roll, Trim] {
        let marker = Marker { kind, log_start: 41 };
        let mut bytes = marker.encode();
        stamp(&mut bytes, STAMP, SEED);
        let (batch, rest) = BatchView::parse(&bytes).unwrap();
        assert_eq!(Marker::decode(&batch), Ok(marker));
        assert_eq!(batch.header.next_offset(), STAMP.base_offset);
        assert!(rest.is_empty() && read(&bytes).unwrap().is_empty());
    }
    let plain = encoded(&[Record::new(b"v")]);
    assert!(Marker::decode(&BatchView::parse(&plain).unwrap().0).is_err());
    for (at, byte) in [(0, 6), (0, 0), (1, 1), (7, 1)] {
        let mut bytes = Marker { kind: Open, log_start: 41 }.encode();
        bytes[BATCH_HEADER_BYTES + at] = byte;
        let crc = crc32fast::hash(&bytes[BATCH_HEADER_BYTES..]);
        batch::set_body_crc(bytes.first_chunk_mut().unwrap(), crc);
        assert!(Marker::decode(&BatchView::parse(&bytes).unwrap().0).is_err());
    }
}
