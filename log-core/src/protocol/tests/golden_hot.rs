//! Golden bytes: produce and fetch, which are laid out by hand.

use bytes::Bytes;

use super::{HOSTILE, drawn};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::protocol::fetch::{
    FETCH_PARTITIONS_MAX, FetchPartition, FetchReply, FetchRequest, FetchedPartition, GroupReader,
};
use crate::protocol::produce::{Acks, ProduceHead, Produced};
use crate::protocol::{Refusal, decode_body};

const PRODUCE: &str = "
    10 0f 0e 0d 0c 0b 0a 09 08 07 06 05 04 03 02 01  topic id
    04 03 02 01 03 00 00 00      partition, acks: synced, zero
    08 07 06 05 04 03 02 01      expected end
    'batch'
";

const PRODUCED: &str = "
    07 00*7 09 00*7 fe ff*7      base offset, end, append time
    01 00*7                      a duplicate, zero
";

const FETCH: &str = "
    04 03 02 01 02 00 00 00      max bytes, min bytes
    f4 01 00 00 02 00 00 00      max wait, count
    08 07 06 05 04 03 02 01      incarnation
    01 00 02 00 00 00 00 00      group length, member length, zero
    'g' 'm1'
    10 0f 0e 0d 0c 0b 0a 09 08 07 06 05 04 03 02 01  topic id
    03 00 00 00 05 00 00 00 06 00*7 07 00*7  partition, max bytes, from, epoch
    01 00*15 04 00 00 00 ff*4 ff*8 08 00*7
";

const FETCHED: &str = "
    fe ff*7 02 00 00 00 00 00 00 00          server time, count, zero
    10 0f 0e 0d 0c 0b 0a 09 08 07 06 05 04 03 02 01  topic id
    03 00 00 00 00 00 00 00 05 00*7 09 00*7  partition, code, zero, from, next
    01 00*7 0a 00*7 07 00 00 00 00 00 00 00  log start, readable end, length, zero
    01 00*15 04 00 00 00 14 00 00 00 06 00*7 06 00*7
    07 00*7 08 00*7 13 00 00 00 00 00 00 00
    'batches'
    14 00 #01 'x' #00                        a refusal: code 20, message, numbers
";

#[test]
fn a_produce_request() {
    let head = ProduceHead {
        topic_id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        partition: 0x0102_0304,
        acks: Acks::Synced,
        expected_end: Some(0x0102_0304_0506_0708),
    };
    let golden = drawn(PRODUCE).bytes;
    assert_eq!([head.encode().as_slice(), b"batch"].concat(), golden);
    assert_eq!(ProduceHead::decode(&golden), Ok((head, b"batch".as_slice())));
    for len in 0..32 {
        let cut = ProduceHead::decode(&golden[..len]);
        assert_eq!(cut, Err(Fault::Truncated { what: "produce request" }), "{len}");
    }
    assert_eq!(ProduceHead::decode(&golden[..32]), Ok((head, [].as_slice())));
    for (acks, byte) in [(Acks::Policy, 0), (Acks::None, 1), (Acks::Written, 2), (Acks::Synced, 3)]
    {
        let head = ProduceHead { acks, expected_end: None, ..head };
        let bytes = head.encode();
        assert_eq!((bytes[20], bytes[24..].to_vec()), (byte, vec![255; 8]));
        assert_eq!(ProduceHead::decode(&bytes), Ok((head, [].as_slice())));
    }
    for at in 20..24 {
        let mut odd = golden.clone();
        odd[at] = 4;
        assert!(matches!(ProduceHead::decode(&odd), Err(Fault::Field { .. })), "{at}");
    }
}

#[test]
fn a_produce_reply() {
    let produced = Produced {
        base_offset: 7,
        end: 9,
        append_time: Timestamp::from_millis(-2),
        duplicate: true,
    };
    let golden = drawn(PRODUCED).bytes;
    assert_eq!(produced.encode().as_slice(), golden);
    assert_eq!(Produced::decode(&golden), Ok(produced));
    for len in 0..golden.len() {
        let cut = Produced::decode(&golden[..len]);
        assert_eq!(cut, Err(Fault::Truncated { what: "produce reply" }), "{len}");
    }
    let longer = [golden.as_slice(), &[0]].concat();
    assert!(matches!(Produced::decode(&longer), Err(Fault::Structure { .. })));
    for at in 24..32 {
        let mut odd = golden.clone();
        odd[at] = 2;
        assert!(matches!(Produced::decode(&odd), Err(Fault::Field { .. })), "{at}");
    }
}

fn fetch() -> FetchRequest {
    let group = GroupReader {
        group: "g".to_owned(),
        member: "m1".to_owned(),
        incarnation: 0x0102_0304_0506_0708,
    };
    let first = FetchPartition {
        topic_id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        partition: 3,
        max_bytes: 5,
        from: 6,
        epoch: 7,
    };
    let second =
        FetchPartition { topic_id: 1, partition: 4, max_bytes: u32::MAX, from: u64::MAX, epoch: 8 };
    FetchRequest {
        max_bytes: 0x0102_0304,
        min_bytes: 2,
        max_wait: 500,
        reader: Some(group),
        partitions: vec![first, second],
    }
}

#[test]
fn a_fetch_request() {
    let golden = drawn(FETCH).bytes;
    assert_eq!(fetch().encode(), golden);
    assert_eq!(FetchRequest::decode(&golden), Ok(fetch()));
    for len in 0..golden.len() {
        let cut = FetchRequest::decode(&golden[..len]);
        assert_eq!(cut, Err(Fault::Truncated { what: "fetch request" }), "{len}");
    }
    let longer = [golden.as_slice(), &[0]].concat();
    assert!(matches!(FetchRequest::decode(&longer), Err(Fault::Structure { .. })));
    let mut repeats = fetch();
    repeats.partitions.push(FetchPartition { from: 0, ..repeats.partitions[0] });
    let repeats = FetchRequest::decode(&repeats.encode());
    assert!(matches!(repeats, Err(Fault::Structure { what }) if what.contains("twice")));
    let alone = FetchRequest { reader: None, partitions: Vec::new(), ..fetch() };
    let golden = drawn("04 03 02 01 02 00 00 00 f4 01 00 00 00*20  no partitions, no group").bytes;
    assert_eq!(alone.encode(), golden);
    assert_eq!(FetchRequest::decode(&golden), Ok(alone));
}

#[test]
fn a_fetch_request_with_what_can_not_be() {
    let golden = drawn(FETCH).bytes;
    let with = |at: usize, bytes: &[u8]| {
        let mut body = golden.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        FetchRequest::decode(&body)
    };
    for count in HOSTILE {
        let Ok(count) = u32::try_from(count) else { continue };
        assert!(with(12, &count.to_le_bytes()).is_err(), "{count}");
    }
    let over = u32::try_from(FETCH_PARTITIONS_MAX + 1).unwrap();
    let field = Fault::Field { field: "fetch partitions", value: i64::from(over) };
    assert_eq!(with(12, &over.to_le_bytes()), Err(field));
    for (at, length) in [(24, 0), (24, 2), (24, u16::MAX), (26, 0), (26, 1), (26, u16::MAX)] {
        assert!(with(at, &length.to_le_bytes()).is_err(), "{length} at {at}");
    }
    for at in 28..32 {
        assert!(matches!(with(at, &[9]), Err(Fault::Field { .. })), "zero at {at}");
    }
    assert!(matches!(with(32, &[0xff]), Err(Fault::Structure { .. })), "no text");
    // Without a group, there is no member.
    for (at, byte) in [(16, 1), (26, 1)] {
        let mut body = vec![0; 32];
        body[at] = byte;
        body.extend(vec![b'm'; usize::from(body[26])]);
        assert!(matches!(FetchRequest::decode(&body), Err(Fault::Structure { .. })), "{at}");
    }
}

fn fetched() -> FetchReply {
    let first = FetchedPartition {
        topic_id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        partition: 3,
        code: 0,
        from: 5,
        next: 9,
        log_start: 1,
        readable_end: 10,
        bytes: Bytes::from_static(b"batches"),
    };
    let second = FetchedPartition {
        topic_id: 1,
        partition: 4,
        code: 20,
        from: 6,
        next: 6,
        log_start: 7,
        readable_end: 8,
        bytes: Bytes::from(drawn("14 00 #01 'x' #00").bytes),
    };
    FetchReply { server_time: Timestamp::from_millis(-2), partitions: vec![first, second] }
}

#[test]
fn a_fetch_reply() {
    let golden = drawn(FETCHED).bytes;
    let reply = fetched();
    assert_eq!(reply.body_bytes(), golden.len());
    let batches = reply.partitions.iter().map(|entry| entry.bytes.to_vec());
    let encoded: Vec<u8> = std::iter::once(reply.encode_head()).chain(batches).flatten().collect();
    assert_eq!(encoded, golden);
    let decoded = FetchReply::decode(Bytes::from(golden.clone())).unwrap();
    assert_eq!(decoded, reply);
    let refusal: Refusal = decode_body(&decoded.partitions[1].bytes).unwrap();
    assert_eq!((refusal.code, refusal.message.as_str()), (20, "x"));
    for len in 0..golden.len() {
        let cut = FetchReply::decode(Bytes::from(golden[..len].to_vec()));
        assert_eq!(cut, Err(Fault::Truncated { what: "fetch reply" }), "{len}");
    }
    let longer = Bytes::from([golden.as_slice(), &[0]].concat());
    assert!(matches!(FetchReply::decode(longer), Err(Fault::Structure { .. })));
}

#[test]
fn a_fetch_reply_with_what_can_not_be() {
    let golden = drawn(FETCHED).bytes;
    let with = |at: usize, bytes: &[u8]| {
        let mut body = golden.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        FetchReply::decode(Bytes::from(body))
    };
    for count in HOSTILE {
        let Ok(count) = u32::try_from(count) else { continue };
        for at in [8, 72, 136] {
            assert!(with(at, &count.to_le_bytes()).is_err(), "{count} at {at}");
        }
    }
    for at in [12, 15, 38, 39, 76, 79, 102, 103, 140, 143] {
        let decoded = with(at, &[9]);
        assert!(matches!(decoded, Err(Fault::Field { field: "zero", .. })), "{at}: {decoded:?}");
    }
}
