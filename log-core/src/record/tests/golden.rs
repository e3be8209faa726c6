//! Golden bytes: what is written today is what a later release must read.

use super::*;

/// Hex digits up to two spaces, then what they are.
const BATCH: &str = "
    52 bb b9 9a               header_crc
    31 47 42 4c               magic
    22 00 00 00               body_length
    39 84 a6 b4               body_crc
    01 68                     version, header_length
    00 00                     features
    00 00                     attributes
    aa 99                     producer_epoch
    08 07 06 05 04 03 02 01   base_offset
    07 68 e5 cf 8b 01 00 00   append_time
    00 07 06 05 04 03 02 01   durable_end
    00 68 e5 cf 8b 01 00 00   base_timestamp
    05 68 e5 cf 8b 01 00 00   max_timestamp
    88 77 66 55 44 33 22 11   producer_id
    04 03 02 01               base_sequence
    03 00 00 00               record_count
    02 00 00 00               last_offset_delta
    03 00 00 00               epoch
    00 00 00 00 00 00 00 00   key_id, dictionary_id
    00 00 00 00 00 00 00 00   zero
    0c 00 00 00 01 00 00      null key, empty value, no headers
    22 00 0a 02 00 01 06      5 ms later: empty key, null value, three headers
    02 61 02 31               a: 1
    02 61 02 32               a: 2
    02 62 01                  b: null
    10 00 01 04 02 6b 02 76 00  1 ms earlier than the first: k: v
";

const MARKER: &str = "
    df 29 1c 59               header_crc
    31 47 42 4c               magic
    10 00 00 00               body_length
    6e f3 21 21               body_crc
    01 68                     version, header_length
    00 00                     features
    20 00                     attributes
    00 00                     producer_epoch
    08 07 06 05 04 03 02 01   base_offset
    07 68 e5 cf 8b 01 00 00   append_time
    00 07 06 05 04 03 02 01   durable_end
    00 00 00 00 00 00 00 00   base_timestamp
    00 00 00 00 00 00 00 00   max_timestamp
    00 00 00 00 00 00 00 00   producer_id
    00 00 00 00               base_sequence
    00 00 00 00               record_count
    00 00 00 00               last_offset_delta
    03 00 00 00               epoch
    00 00 00 00 00 00 00 00   key_id, dictionary_id
    00 00 00 00 00 00 00 00   zero
    03 00 00 00 00 00 00 00   idle, zero
    02 01 00 00 00 00 00 00   log_start
";

fn bytes_of(drawn: &str) -> Vec<u8> {
    let digits = drawn.lines().map(|line| line.trim().split("  ").next().unwrap_or_default());
    digits
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn a_batch() {
    let headers = [
        Header { name: "a", value: Some(b"1") },
        Header { name: "a", value: Some(b"2") },
        Header { name: "b", value: None },
    ];
    let at = |millis| Timestamp::from_millis(NOW.as_millis() + millis);
    let records = [
        Record::new(b""),
        Record { value: None, ..Record::default() }
            .with_key(b"")
            .with_headers(&headers)
            .with_timestamp(at(5)),
        Record::new(b"v").with_key(b"k").with_timestamp(at(-1)),
    ];
    let mut builder =
        BatchBuilder::new(Codec::None).with_producer(0x1122_3344_5566_7788, 0x99aa, 0x0102_0304);
    for record in &records {
        builder.push(record, NOW).unwrap();
    }
    let mut batch = builder.finish().unwrap();
    stamp(&mut batch, STAMP, SEED);
    assert_eq!(batch, bytes_of(BATCH));
    assert_eq!(&batch[BATCH_HEADER_BYTES..], &encoded(&records)[BATCH_HEADER_BYTES..]);

    let read = read(&bytes_of(BATCH)).unwrap();
    let keys: Vec<_> = read.iter().map(|record| record.key.as_deref()).collect();
    assert_eq!(keys, [None, Some(b"".as_slice()), Some(b"k")]);
    let values: Vec<_> = read.iter().map(|record| record.value.as_deref()).collect();
    assert_eq!(values, [Some(b"".as_slice()), None, Some(b"v")]);
    let names: Vec<_> = read[1].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "a", "b"]);
    assert_eq!(read[1].headers[2].1, None);
    assert_eq!(read[2].timestamp, at(-1));
    assert_eq!(read[2].offset, 0x0102_0304_0506_070a);
}

#[test]
fn a_marker() {
    let marker = Marker { kind: MarkerKind::Idle, log_start: 0x0102 };
    let mut bytes = marker.encode();
    stamp(&mut bytes, STAMP, SEED);
    assert_eq!(bytes.as_slice(), bytes_of(MARKER));
    assert_eq!(Marker::decode(&BatchView::parse(&bytes_of(MARKER)).unwrap().0), Ok(marker));
}
