//! What must hold of any bytes: each function takes some as a peer, or a disk, might give them, and
//! panics if what reads them does. Fuzzers and seeded tests call the same ones.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use log_core::background::Background;
use log_core::clock::{Clock, ManualClock, Timestamp};
use log_core::disk::FaultyDisk;
use log_core::error::Result;
use log_core::protocol::fetch::{FetchReply, FetchRequest};
use log_core::protocol::frame::{FRAME_HEAD_BYTES, FrameReader};
use log_core::protocol::produce::{ProduceHead, Produced};
use log_core::protocol::{Call, Refusal, decode_body, groups, hello, metrics, offsets, topics};
use log_core::record::{
    BATCH_HEADER_BYTES, BatchLimits, BatchView, MAGIC, Record, verify_produced,
};
use log_core::store::{OpenMode, Store};
use log_core::{GroupName, StoreConfig, TopicConfig, TopicName};

/// The most that a frame's length may say here.
const FRAME_LIMIT: usize = 64 * 1024;
const EXPANDED_LIMIT: u32 = 1 << 20;

/// A stream cut into frames: the first bytes say where it is cut, the others are what comes.
///
/// # Panics
/// If cutting it elsewhere gives other frames, or if memory is taken that nothing came for.
pub fn frame(data: &[u8]) {
    let (cuts, stream) = data.split_at(data.len().min(8));
    let whole = frames_of(stream, &[u8::MAX]);
    assert_eq!(frames_of(stream, cuts), whole, "it matters how bytes arrive");
    assert_eq!(frames_of(stream, &[0]), whole, "it matters that bytes arrive alone");
}

/// The frames of a stream that comes in steps, and whether it could be followed to its end.
fn frames_of(stream: &[u8], cuts: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let (mut reader, mut found, mut rest) = (FrameReader::new(FRAME_LIMIT), Vec::new(), stream);
    let mut steps = cuts.iter().cycle();
    while !rest.is_empty() {
        let step = steps.next().map_or(1, |cut| usize::from(*cut) + 1).min(rest.len());
        let (now, later) = rest.split_at(step);
        reader.room().extend_from_slice(now);
        rest = later;
        loop {
            match reader.take() {
                Ok(Some(frame)) => found.push([frame.head.as_slice(), &frame.body].concat()),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
        assert!(reader.buffered() <= FRAME_LIMIT + FRAME_HEAD_BYTES, "more than a frame waits");
    }
    (found, true)
}

/// The body of a request: the first byte says of which.
///
/// # Panics
/// If one that was taken is written differently again.
pub fn request(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    match which % 22 {
        0 => drop(ProduceHead::decode(body).map(|(head, rest)| {
            assert_eq!([head.encode().as_slice(), rest].concat(), body);
        })),
        1 => drop(FetchRequest::decode(body).map(|request| assert_eq!(request.encode(), body))),
        2 => call::<hello::HelloV1>(body),
        3 => call::<metrics::MetricsV1>(body),
        4 => call::<offsets::ResolveOffsetV1>(body),
        5 => call::<topics::ListTopicsV1>(body),
        6 => call::<topics::DescribeTopicV1>(body),
        7 => call::<topics::CreateTopicV1>(body),
        8 => call::<topics::DeleteTopicV1>(body),
        9 => call::<topics::AlterTopicV1>(body),
        10 => call::<topics::AddPartitionsV1>(body),
        11 => call::<topics::TrimPartitionV1>(body),
        12 => call::<groups::JoinGroupV1>(body),
        13 => call::<groups::HeartbeatV1>(body),
        14 => call::<groups::LeaveGroupV1>(body),
        15 => call::<groups::ReleasePartitionV1>(body),
        16 => call::<groups::DescribeGroupV1>(body),
        17 => call::<groups::ListGroupsV1>(body),
        18 => call::<groups::DeleteGroupV1>(body),
        19 => call::<offsets::CommitOffsetsV1>(body),
        20 => call::<offsets::FetchOffsetsV1>(body),
        _ => call::<offsets::ResetOffsetsV1>(body),
    }
}

fn call<C: Call>(body: &[u8]) {
    if let Ok(decoded) = decode_body::<C>(body) {
        let frame = log_core::protocol::encode_call(&decoded, 0);
        assert_eq!(&frame[FRAME_HEAD_BYTES..], body, "it is written differently");
    }
}

/// The body of a reply: the first byte says of which.
pub fn reply(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    match which % 16 {
        0 => drop(Produced::decode(body)),
        1 => fetched(body),
        2 => drop(decode_body::<Refusal>(body).map(|refusal| refusal.corrupt_offsets())),
        3 => answer::<hello::HelloV1>(body),
        4 => answer::<metrics::MetricsV1>(body),
        5 => answer::<topics::ListTopicsV1>(body),
        6 => answer::<topics::DescribeTopicV1>(body),
        7 => answer::<topics::TrimPartitionV1>(body),
        8 => answer::<groups::JoinGroupV1>(body),
        9 => answer::<groups::HeartbeatV1>(body),
        10 => answer::<groups::DescribeGroupV1>(body),
        11 => answer::<groups::ListGroupsV1>(body),
        12 => answer::<offsets::CommitOffsetsV1>(body),
        13 => answer::<offsets::FetchOffsetsV1>(body),
        14 => answer::<offsets::ResetOffsetsV1>(body),
        _ => answer::<offsets::ResolveOffsetV1>(body),
    }
}

fn answer<C: Call>(body: &[u8]) {
    drop(decode_body::<C::Reply>(body));
}

fn fetched(body: &[u8]) {
    let Ok(reply) = FetchReply::decode(Bytes::copy_from_slice(body)) else { return };
    for entry in &reply.partitions {
        let mut rest: &[u8] = &entry.bytes;
        while let Ok((batch, after)) = BatchView::parse(rest) {
            walk(&batch);
            rest = after;
        }
        drop(decode_body::<Refusal>(&entry.bytes));
    }
}

/// A batch: as it comes, and with lengths and checksums made right, so that what is behind them is
/// reached.
pub fn batch(data: &[u8]) {
    for strict in [false, true] {
        verify(data, strict);
        verify(&mended(data), strict);
    }
    if let Ok((batch, _)) = BatchView::parse(data) {
        walk(&batch);
    }
}

fn verify(bytes: &[u8], strict: bool) {
    let limits = BatchLimits {
        record_max_bytes: 4_096,
        batch_max_bytes: 1 << 20,
        expanded_max: EXPANDED_LIMIT,
        headers_max: 8,
        strict,
    };
    let Ok(header) = verify_produced(bytes, &limits) else { return };
    let (batch, rest) = BatchView::parse(bytes).expect("it was verified");
    assert!(rest.is_empty() && batch.header == header);
    let records = walk(&batch);
    let all = records == u64::from(header.record_count);
    let plain = header.codec().is_ok_and(|codec| codec == log_core::Codec::None);
    assert!(all || !(strict || plain), "{records} of {} records", header.record_count);
}

/// How many records can be read.
fn walk(batch: &BatchView<'_>) -> u64 {
    let Ok(body) = batch.open(EXPANDED_LIMIT as usize) else { return 0 };
    assert!(body.len() <= (EXPANDED_LIMIT as usize).max(batch.body().len()));
    let _ = body.record_at(batch.header.base_offset.wrapping_add(3));
    let mut records = 0;
    for record in body.records().map_while(std::result::Result::ok) {
        assert!(record.headers.count() <= body.len(), "each has a byte at least");
        records += 1;
    }
    records
}

/// The bytes as a batch whose fields are right where a wrong one would end it at once.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(BATCH_HEADER_BYTES), 0);
    let (header, body) = bytes.split_at_mut(BATCH_HEADER_BYTES);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let partition_sets = [0..4, 24..48, 84..104];
    for range in partition_sets {
        header[range].fill(0);
    }
    header[4..8].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..16].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    header[16..20].copy_from_slice(&[1, 104, 0, 0]);
    // The codec, and nothing that a producer may not set.
    header[20] &= 0x4b;
    header[21] = 0;
    bytes
}

const DATA: &str = "/data";
const CATALOG_MAGIC: u32 = 0x5443_474C;

/// What a store keeps, with valid checksums: as its catalog, and as a record of `__offsets`.
///
/// # Panics
/// If the store that has the record does not open, or does not take commits any more.
pub fn stored(data: &[u8]) {
    catalog(data);
    offset(data);
}

fn open(disk: &FaultyDisk, mode: OpenMode) -> Result<Store> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000))) as Arc<dyn Clock>;
    let disk = Arc::new(disk.clone());
    Store::open_with(DATA, StoreConfig::default(), mode, disk, clock, Background::manual())
}

fn small() -> TopicConfig {
    TopicConfig { segment_max_bytes: 64 * 1024, ..TopicConfig::default() }
}

fn catalog(data: &[u8]) {
    let disk = FaultyDisk::new();
    disk.set_file_capacity(256 * 1024);
    drop(open(&disk, OpenMode::CreateIfMissing).expect("a new store"));
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut file = Vec::new();
    for number in [CATALOG_MAGIC, 1, length] {
        file.extend(number.to_le_bytes());
    }
    let crc = crc32fast::hash(&[file.as_slice(), data].concat());
    file.extend(crc.to_le_bytes());
    file.extend(data);
    let path = Path::new(DATA).join("catalog");
    disk.write_raw(&path, 0, &file);
    disk.truncate_raw(&path, file.len() as u64);
    if let Ok(store) = open(&disk, OpenMode::MustExist) {
        for topic in store.topics() {
            drop(store.describe(topic.name()));
        }
    }
}

fn offset(data: &[u8]) {
    let (at, parts) = data.split_first().map_or((0, data), |(at, parts)| (usize::from(*at), parts));
    let (key, value) = parts.split_at(at.min(parts.len()));
    let disk = FaultyDisk::new();
    disk.set_file_capacity(1 << 20);
    let store = open(&disk, OpenMode::CreateIfMissing).expect("a new store");
    let (name, group) = (TopicName::parse("t"), GroupName::parse("g"));
    let (name, group) = (name.expect("a name"), group.expect("a name"));
    store.create_topic(&name, 1, small()).expect("a topic");
    store.group_offsets().commit(&group, &name, 0, 0).expect("a commit");
    let kept = store.all_topics().into_iter().find(|topic| topic.name().is_reserved());
    let partition = kept.expect("commits are kept").partition(0).expect("it has one");
    partition.append(&[Record::new(value).with_key(key)]).expect("appended");
    drop((partition, store));
    let store = open(&disk, OpenMode::MustExist).expect("a bad record does not keep it closed");
    let offsets = store.group_offsets();
    let _ = offsets.list_all().map(|all| all.len());
    let _ = offsets.commit(&group, &name, 0, 0);
}
