//! Hostile bytes from seeds, for all that reads bytes: what the fuzz targets do, everywhere and in
//! short. `LOG_HOSTILE_ROUNDS` says how many; `LOG_HOSTILE_SEEDS` is where seeds for a fuzzer go.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use integration_tests::hostile;
use log_core::clock::Timestamp;
use log_core::protocol::fetch::{FetchPartition, FetchReply, FetchRequest, FetchedPartition};
use log_core::protocol::frame::{FRAME_HEAD_BYTES, RequestHead, encode_request};
use log_core::protocol::produce::{Acks, ProduceHead, Produced};
use log_core::protocol::{ErrorCode, Refusal, encode_answer, encode_call, groups, hello, offsets};
use log_core::record::{BatchBuilder, Codec, Header, Record};

use crate::support::{Random, setting};

type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// What can be fed, with what is right and to be made wrong.
const TARGETS: [Target; 5] = [
    ("frame", hostile::frame, streams),
    ("request", hostile::request, requests),
    ("reply", hostile::reply, replies),
    ("batch", hostile::batch, batches),
    ("stored", hostile::stored, stored),
];

fn batches() -> Vec<Vec<u8>> {
    let batch = |codec| {
        let mut builder = BatchBuilder::new(codec).with_producer(7, 1, 0);
        for number in 0..20_u8 {
            let headers = [Header { name: "h", value: Some(&[number]) }];
            let record = Record::new(&[9; 60]).with_key(b"k").with_headers(&headers);
            builder.push(&record, Timestamp::from_millis(1)).expect("fits");
        }
        builder.finish().expect("a batch")
    };
    [Codec::None, Codec::Lz4, Codec::Zstd].into_iter().map(batch).collect()
}

fn streams() -> Vec<Vec<u8>> {
    let head = RequestHead { kind: 10, version: 1, correlation: 7 };
    let frames: Vec<u8> = [0, 3, 300].map(|len| encode_request(head, &vec![1; len])).concat();
    vec![[[3, 1, 40, 0, 0, 9, 200, 2].as_slice(), &frames].concat()]
}

/// Which request or reply it is, and its body.
fn body(which: u8, frame: &[u8]) -> Vec<u8> {
    [&[which], &frame[FRAME_HEAD_BYTES..]].concat()
}

fn member() -> groups::MemberV1 {
    groups::MemberV1 { group: "g".to_owned(), member: "m".to_owned(), incarnation: 3 }
}

fn requests() -> Vec<Vec<u8>> {
    let head = ProduceHead { topic_id: 1, partition: 2, acks: Acks::Synced, expected_end: None };
    let batch = &batches()[0];
    let entry = FetchPartition { topic_id: 1, partition: 2, max_bytes: 3, from: 4, epoch: 5 };
    let fetch = FetchRequest {
        max_bytes: 1 << 20,
        min_bytes: 1,
        max_wait: 500,
        reader: None,
        partitions: vec![entry; 3],
    };
    let hello = hello::HelloV1 { client_id: "c".to_owned(), software: "s".to_owned() };
    let held = groups::HeldV1 { topic_id: 1, partition: 2, epoch: 3, draining: false };
    let heartbeat = groups::HeartbeatV1 {
        member: member(),
        holds: vec![held; 2],
        seen_version: 4,
        processing: 5,
        max_wait: 6,
    };
    let commit = offsets::CommitV1 {
        topic_id: 1,
        partition: 2,
        epoch: 3,
        position: offsets::PositionV1 { offset: 4, settled: vec![(5, 6)] },
        metadata: "x".to_owned(),
    };
    let commits = offsets::CommitOffsetsV1 {
        group: "g".to_owned(),
        member: Some(("m".to_owned(), 3)),
        commits: vec![commit],
    };
    vec![
        [&[0], head.encode().as_slice(), batch].concat(),
        [&[1], fetch.encode().as_slice()].concat(),
        body(2, &encode_call(&hello, 0)),
        body(13, &encode_call(&heartbeat, 0)),
        body(19, &encode_call(&commits, 0)),
    ]
}

fn replies() -> Vec<Vec<u8>> {
    let append_time = Timestamp::from_millis(1);
    let produced = Produced { base_offset: 1, end: 2, append_time, duplicate: true };
    let entry = FetchedPartition {
        topic_id: 1,
        partition: 2,
        code: 0,
        from: 3,
        next: 4,
        log_start: 0,
        readable_end: 5,
        bytes: Bytes::from(batches().remove(0)),
    };
    let fetched = FetchReply { server_time: append_time, partitions: vec![entry.clone()] };
    let refusal = Refusal::new(ErrorCode::Corrupt, "bad").with_numbers(&[1, 2]);
    let grant = groups::GrantV1 {
        topic: "t".to_owned(),
        topic_id: 1,
        partition: 2,
        epoch: 3,
        position: offsets::PositionV1 { offset: 4, settled: vec![(5, 6)] },
        revoked_for: Some(7),
    };
    let beat = groups::HeartbeatReplyV1 { version: 1, grants: vec![grant; 2] };
    let outcomes = vec![None, Some(refusal.clone())];
    vec![
        [&[0], produced.encode().as_slice()].concat(),
        [&[1], fetched.encode_head().as_slice(), &entry.bytes].concat(),
        body(2, &encode_answer(&refusal, 0)),
        body(9, &encode_answer(&beat, 0)),
        body(12, &encode_answer(&offsets::CommitOffsetsReplyV1 { outcomes }, 0)),
    ]
}

/// A catalog with one topic, and the key and the value of a committed offset.
fn stored() -> Vec<Vec<u8>> {
    use log_core::{GroupName, OpenMode, StoreConfig, TopicConfig, TopicName};
    let disk = log_core::disk::FaultyDisk::new();
    let clock = Arc::new(log_core::clock::ManualClock::at(Timestamp::from_millis(1_000)));
    let background = log_core::background::Background::manual();
    let (config, mode) = (StoreConfig::default(), OpenMode::CreateIfMissing);
    let store =
        log_core::Store::open_with("/d", config, mode, Arc::new(disk.clone()), clock, background)
            .expect("opens");
    let (name, group) = (TopicName::parse("t"), GroupName::parse("g"));
    let (name, group) = (name.expect("a name"), group.expect("a name"));
    store.create_topic(&name, 2, TopicConfig::default()).expect("created");
    store.group_offsets().commit(&group, &name, 1, 0).expect("committed");
    let catalog = disk.read(Path::new("/d/catalog"));
    let kept = store.all_topics().into_iter().find(|topic| topic.name().is_reserved());
    let fetched = kept.and_then(|topic| topic.partition(0).ok()?.read(0, 1 << 20).ok());
    let mut seeds = vec![catalog[16..].to_vec()];
    let kept = fetched.expect("commits are kept").for_each(|record| {
        let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
        let length = u8::try_from(key.len()).expect("a short key");
        seeds.push([&[length], key, value].concat());
    });
    kept.expect("they can be read");
    seeds
}

/// Makes some of it wrong: a bit, a number that looks like a length, the end, the middle.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.between(1, 4) {
        let at = usize::try_from(random.below(bytes.len().max(1) as u64)).expect("an index");
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.extend([0; 9]),
            2 | 3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let numbers = [0, 1, 127, 128, 0x7fff_ffff, u64::from(u32::MAX), u64::MAX];
                let number = random.pick(&numbers).to_le_bytes();
                for (byte, new) in bytes.iter_mut().skip(at).zip(number) {
                    *byte = new;
                }
            }
        }
    }
}

fn feed(name: &str, rounds: u64) {
    let rounds = setting("LOG_HOSTILE_ROUNDS", rounds);
    let (_, target, seeds) = TARGETS.into_iter().find(|(own, ..)| *own == name).expect("it is one");
    let seeds = seeds();
    seeds.iter().for_each(|seed| target(seed));
    let mut random = Random::new(1);
    for _ in 0..rounds {
        let at = usize::try_from(random.below(seeds.len() as u64)).expect("an index");
        let mut bytes = seeds[at].clone();
        spoil(&mut random, &mut bytes);
        target(&bytes);
    }
}

#[test]
fn frames_of_hostile_streams_end_in_peace() {
    feed("frame", 10_000);
}

#[test]
fn hostile_requests_are_refused_in_peace() {
    feed("request", 30_000);
}

#[test]
fn hostile_replies_are_refused_in_peace() {
    feed("reply", 30_000);
}

#[test]
fn hostile_batches_are_refused_in_peace() {
    feed("batch", 10_000);
}

#[test]
fn g05_what_is_stored_is_read_with_care_behind_valid_checksums() {
    feed("stored", 300);
}

/// Gives a fuzzer something to begin with, if it is asked to.
#[test]
fn seeds_are_right_as_they_are() {
    for (name, target, seeds) in TARGETS {
        for (number, seed) in seeds().iter().enumerate() {
            target(seed);
            let Ok(dir) = std::env::var("LOG_HOSTILE_SEEDS") else { continue };
            let dir = Path::new(&dir).join(name);
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join(number.to_string()), seed).expect("written");
        }
    }
}
