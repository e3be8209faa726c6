//! Hostile bytes against a real server: whatever comes, others are served, and memory stays.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use integration_tests::server_process::ServerProcess;
use integration_tests::wire::{CallError, Wire, body_of};
use log_core::clock::Timestamp;
use log_core::config::{TopicConfig, TopicConfigV1};
use log_core::protocol::fetch::{FetchPartition, FetchReply, FetchRequest};
use log_core::protocol::frame::{RequestHead, encode_request};
use log_core::protocol::produce::{Acks, ProduceHead, Produced};
use log_core::protocol::{Call, ErrorCode, RequestKind, encode_call, groups, hello, metrics};
use log_core::protocol::{offsets, topics};
use log_core::record::{BATCH_HEADER_BYTES, BatchBuilder, Codec, Record};

use crate::support::{Random, tell};

/// The most that a server's memory may grow by what others do.
const GROWTH_MAX_BYTES: u64 = 50 * 1024 * 1024;
const HOSTILE: [u32; 4] = [1, (1 << 31) - 1, u32::MAX, 1_000_000_000];
const TOPIC: &str = "orders";

/// A server with a topic, and a client that was there before all others.
struct Scene {
    server: ServerProcess,
    witness: Wire,
    topic_id: u128,
    before: u64,
    _home: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let home = tempfile::tempdir().expect("a directory");
        let flags = ["--log", "error", "--hello-timeout", "2s", "--frame-timeout", "2s"];
        let server =
            ServerProcess::start(env!("CARGO_BIN_EXE_server"), &home.path().join("data"), &flags);
        let mut witness = Wire::greeted(server.address()).expect("it is served");
        let config = TopicConfig { segment_max_bytes: 1 << 20, ..TopicConfig::default() };
        let create = topics::CreateTopicV1 {
            name: TOPIC.to_owned(),
            partitions: 1,
            config: TopicConfigV1::from(&config),
        };
        let topic_id = witness.call(&create).expect("created").id;
        let mut scene = Scene { server, witness, topic_id, before: 0, _home: home };
        scene.still_serves();
        scene.before = scene.server.resident_bytes();
        scene
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The client of before and a new one are served, and memory is what it was.
    fn still_serves(&mut self) {
        assert_eq!(self.server.status(), None, "the server has ended");
        let answer = serves(&mut self.witness, self.topic_id);
        answer.expect("the client that was there before");
        let mut new = Wire::greeted(self.address()).expect("a new client");
        serves(&mut new, self.topic_id).expect("a new client");
        if self.before > 0 {
            let grown = self.server.resident_bytes().saturating_sub(self.before);
            assert!(grown < GROWTH_MAX_BYTES, "the server's memory has grown by {grown} bytes");
        }
    }
}

/// Appends a batch, and reads it again.
fn serves(wire: &mut Wire, topic_id: u128) -> io::Result<()> {
    let head = ProduceHead { topic_id, partition: 0, acks: Acks::Written, expected_end: None };
    let batch = batch();
    let (code, body) =
        ask(wire, RequestKind::Produce, &[&head.encode(), batch.as_slice()].concat())?;
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&body));
    let produced = Produced::decode(&body).expect("a reply");
    let fetch = fetch(topic_id, produced.base_offset);
    let (code, body) = ask(wire, RequestKind::Fetch, &fetch.encode())?;
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&body));
    let reply = FetchReply::decode(body.into()).expect("a reply");
    let found = &reply.partitions[0];
    assert_eq!(found.code, 0);
    assert!(found.bytes.ends_with(&batch[BATCH_HEADER_BYTES..]), "the records come back");
    Ok(())
}

/// Sends a request, and waits for the answer to it.
fn ask(wire: &mut Wire, kind: RequestKind, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let correlation = 0x7777_7777;
    wire.send(&framed(kind, correlation, body))?;
    loop {
        let (head, body) = wire.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if head.correlation == correlation {
            return Ok((head.code, body));
        }
    }
}

fn framed(kind: RequestKind, correlation: u32, body: &[u8]) -> Vec<u8> {
    encode_request(RequestHead { kind: kind.number(), version: 1, correlation }, body)
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(&Record::new(b"v").with_key(b"k"), Timestamp::from_millis(1)).expect("fits");
    builder.finish().expect("a batch")
}

fn fetch(topic_id: u128, from: u64) -> FetchRequest {
    let entry = FetchPartition { topic_id, partition: 0, max_bytes: 1 << 16, from, epoch: 0 };
    FetchRequest {
        max_bytes: 1 << 16,
        min_bytes: 1,
        max_wait: 10_000,
        reader: None,
        partitions: vec![entry],
    }
}

/// A right request of each kind, as its body.
fn requests(topic_id: u128) -> Vec<(RequestKind, Vec<u8>)> {
    let name = TOPIC.to_owned();
    let start = offsets::StartV1 { kind: 0, value: 0 };
    let config = TopicConfigV1::from(&TopicConfig::default());
    let head = ProduceHead { topic_id, partition: 0, acks: Acks::Synced, expected_end: None };
    let of_topics = vec![
        body(&hello::HelloV1 { client_id: "c".to_owned(), software: "s".to_owned() }),
        body(&metrics::MetricsV1 {}),
        (RequestKind::Produce, [head.encode().as_slice(), &batch()].concat()),
        (RequestKind::Fetch, fetch(topic_id, 0).encode()),
        body(&offsets::ResolveOffsetV1 { topic_id, partition: 0, start }),
        body(&topics::ListTopicsV1 { with_reserved: true }),
        body(&topics::DescribeTopicV1 { name: name.clone() }),
        body(&topics::CreateTopicV1 {
            name: "t".to_owned(),
            partitions: 1,
            config: config.clone(),
        }),
        body(&topics::DeleteTopicV1 { name: "nobody".to_owned() }),
        body(&topics::AlterTopicV1 { name: "nobody".to_owned(), config }),
        body(&topics::AddPartitionsV1 { name: name.clone(), total: 1 }),
        body(&topics::TrimPartitionV1 { name: name.clone(), partition: 0, before: 0 }),
    ];
    [of_topics, group_requests(topic_id)].concat()
}

fn body<C: Call>(call: &C) -> (RequestKind, Vec<u8>) {
    (C::KIND, body_of(&encode_call(call, 0)).to_vec())
}

fn group_requests(topic_id: u128) -> Vec<(RequestKind, Vec<u8>)> {
    let (name, group) = (TOPIC.to_owned(), "g".to_owned());
    let member = groups::MemberV1 { group: group.clone(), member: "m".to_owned(), incarnation: 1 };
    let start = offsets::StartV1 { kind: 0, value: 0 };
    let held = groups::HeldV1 { topic_id, partition: 0, epoch: 1, draining: false };
    let position = offsets::PositionV1 { offset: 0, settled: vec![(1, 2)] };
    let commit = offsets::CommitV1 {
        topic_id,
        partition: 0,
        epoch: 0,
        position: position.clone(),
        metadata: "x".to_owned(),
    };
    vec![
        body(&groups::JoinGroupV1 {
            member: member.clone(),
            topics: vec![name.clone()],
            start,
            session_timeout: 10_000,
            drain_timeout: 10_000,
            processing_timeout: 10_000,
        }),
        body(&groups::HeartbeatV1 {
            member: member.clone(),
            holds: vec![held],
            seen_version: 0,
            processing: 0,
            max_wait: 0,
        }),
        body(&groups::ReleasePartitionV1 {
            member: member.clone(),
            topic_id,
            partition: 0,
            epoch: 1,
            position: Some(position),
        }),
        body(&groups::LeaveGroupV1 { member, keep: Some(1) }),
        body(&groups::DescribeGroupV1 { group: group.clone() }),
        body(&groups::ListGroupsV1 {}),
        body(&groups::DeleteGroupV1 { group: group.clone() }),
        body(&offsets::CommitOffsetsV1 {
            group: group.clone(),
            member: None,
            commits: vec![commit],
        }),
        body(&offsets::FetchOffsetsV1 { group: group.clone(), topic: Some(name.clone()) }),
        body(&offsets::ResetOffsetsV1 {
            group,
            topic: name,
            partitions: vec![0],
            to: start,
            dry_run: false,
        }),
    ]
}

/// The request with a hostile number in place of each of its own, wherever one may stand.
fn with_hostile_numbers(kind: RequestKind, body: &[u8]) -> Vec<Vec<u8>> {
    // Some numbers that these have may well be meant: three bytes of one make 255 partitions.
    let makes = matches!(kind, RequestKind::CreateTopic | RequestKind::AddPartitions);
    let last = if makes { 1 } else { body.len() };
    let mut all = Vec::new();
    for at in 0..last {
        for number in HOSTILE {
            for high in [0, number] {
                let mut body = body.to_vec();
                let wide = u64::from(number) | u64::from(high) << 32;
                for (byte, new) in body.iter_mut().skip(at).zip(wide.to_le_bytes()) {
                    *byte = new;
                }
                all.push(body);
            }
        }
    }
    all
}

#[test]
fn g01_counts_that_nothing_follows_take_no_memory_from_two_hundred_connections() {
    const CONNECTIONS: usize = 200;
    let mut scene = Scene::new();
    let requests = requests(scene.topic_id);
    let connect = |_| Wire::greeted(scene.address()).expect("there is room for it");
    let mut wires: Vec<Wire> = (0..CONNECTIONS).map(connect).collect();
    let mut sent = 0;
    for (wire, (kind, body)) in wires.iter_mut().zip(requests.iter().cycle()) {
        for body in with_hostile_numbers(*kind, body) {
            // More would be refused as too many at once, and not looked at.
            wire.send(&framed(*kind, 0, &body)).expect("it reads on");
            sent += 1;
        }
    }
    for wire in &mut wires {
        let list = topics::ListTopicsV1 { with_reserved: false };
        match wire.call(&list) {
            Ok(listed) => assert!(listed.topics.iter().any(|topic| topic.name == TOPIC)),
            Err(CallError::Refused(refusal)) => {
                assert_eq!(refusal.error_code(), Some(ErrorCode::LimitReached), "{refusal}");
            }
            Err(CallError::Io(error)) => panic!("the connection is gone: {error}"),
        }
    }
    scene.still_serves();
    tell(&format!("hostile counts: {sent} requests over {CONNECTIONS} connections, all survived"));
}

#[test]
fn g02_what_is_no_client_of_ours_is_closed() {
    let mut scene = Scene::new();
    let random: Vec<u8> = {
        let mut random = Random::new(7);
        (0..512).flat_map(|_| random.next().to_le_bytes()).collect()
    };
    let tls = [[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3].as_slice(), &random[..501]].concat();
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    for foreign in [http, tls, random, vec![0; 4096], vec![0xff; 4096]] {
        let mut wire = Wire::connect(scene.address()).expect("connects");
        // It may be closed before all is sent.
        let _ = wire.send(&foreign);
        let last_words = wire.rest().expect("it is closed");
        assert!(last_words.iter().all(|(head, _)| head.code != 0), "{last_words:?}");
        scene.still_serves();
    }
}

#[test]
fn g02_five_hundred_promises_of_large_frames_take_no_memory() {
    const CONNECTIONS: u32 = 500;
    let mut scene = Scene::new();
    let mut wires = Vec::new();
    for number in 0..CONNECTIONS {
        let (mut wire, length) = match number % 3 {
            0 => (Wire::connect(scene.address()).expect("connects"), 100_000_000_u32),
            1 => (Wire::greeted(scene.address()).expect("greeted"), 100_000_000),
            // That much is allowed: it waits for the bytes.
            _ => (Wire::greeted(scene.address()).expect("greeted"), 60_000_000),
        };
        let begun = [length.to_le_bytes().as_slice(), &[10, 0, 1, 0, 9, 9, 9, 9, 1, 2, 3]].concat();
        let _ = wire.send(&begun);
        wires.push(wire);
    }
    scene.still_serves();
    for (number, mut wire) in wires.into_iter().enumerate() {
        let rest = wire.rest();
        let last_words =
            rest.unwrap_or_else(|error| panic!("connection {number} is not closed: {error:?}"));
        assert!(last_words.iter().all(|(head, _)| head.code != 0), "{last_words:?}");
    }
    scene.still_serves();
}

#[test]
fn g03_lengths_that_contradict_each_other_are_refused() {
    let mut scene = Scene::new();
    for length in [0_u32, 1, 7, (1 << 31) - 1, 1 << 31, u32::MAX] {
        for greeted in [false, true] {
            let address = scene.address();
            let wire = if greeted { Wire::greeted(address) } else { Wire::connect(address) };
            let mut wire = wire.expect("connects");
            let _ = wire.send(&[length.to_le_bytes().as_slice(), &[0; 40]].concat());
            let last_words = wire.rest().expect("it is closed");
            assert!(last_words.iter().all(|(head, _)| head.code != 0), "{length}: {last_words:?}");
        }
    }
    // Whatever is wrong within a frame costs that request alone.
    let mut wire = Wire::greeted(scene.address()).expect("greeted");
    let head = ProduceHead {
        topic_id: scene.topic_id,
        partition: 0,
        acks: Acks::Synced,
        expected_end: None,
    };
    let whole = batch();
    for cut in BATCH_HEADER_BYTES..whole.len() {
        // The batch ends there, and says so; a varint may be cut, or a record's length be wrong.
        let mut short = whole[..cut].to_vec();
        let (header, body) = short.split_at_mut(BATCH_HEADER_BYTES);
        let length = u32::try_from(body.len()).expect("a short one");
        header[8..12].copy_from_slice(&length.to_le_bytes());
        header[12..16].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        let body = [head.encode().as_slice(), &short].concat();
        let (code, _) = ask(&mut wire, RequestKind::Produce, &body).expect("an answer");
        assert_eq!(code, ErrorCode::MalformedBatch.number(), "cut to {cut}");
    }
    let mut lies = whole.clone();
    for length in HOSTILE {
        lies[8..12].copy_from_slice(&length.to_le_bytes());
        let body = [head.encode().as_slice(), &lies].concat();
        let (code, _) = ask(&mut wire, RequestKind::Produce, &body).expect("an answer");
        assert_ne!(code, 0, "body_length {length}");
    }
    serves(&mut wire, scene.topic_id).expect("the same connection");
    scene.still_serves();
}

#[test]
fn g04_each_request_cut_at_each_byte_is_refused_and_harms_nobody() {
    let mut scene = Scene::new();
    let mut cuts = 0;
    let mut wire = Wire::greeted(scene.address()).expect("greeted");
    for (kind, body) in requests(scene.topic_id) {
        for len in 0..body.len() {
            let (code, text) = ask(&mut wire, kind, &body[..len]).expect("an answer");
            let text = String::from_utf8_lossy(&text);
            assert_ne!(code, 0, "{kind:?} of {len} bytes was taken: {text}");
            cuts += 1;
        }
        let frame = framed(kind, 1, &body);
        for len in 0..frame.len() {
            let mut cut = Wire::greeted(scene.address()).expect("greeted");
            cut.send(&frame[..len]).expect("sent");
            cut.finish().expect("finished");
            assert_eq!(cut.rest().expect("it is closed"), [], "{kind:?} of {len} bytes");
            cuts += 1;
        }
        serves(&mut wire, scene.topic_id).expect("the same connection");
    }
    scene.still_serves();
    tell(&format!("requests cut at each byte: {cuts} cuts, each refused"));
}

#[test]
fn what_is_not_known_is_refused_and_the_connection_lives() {
    let mut scene = Scene::new();
    let mut wire = Wire::connect(scene.address()).expect("connects");
    let list = topics::ListTopicsV1 { with_reserved: false };
    let Err(CallError::Refused(refusal)) = wire.call(&list) else { panic!("hello comes first") };
    assert_eq!(refusal.error_code(), Some(ErrorCode::HelloRequired));
    let mut wire = Wire::greeted(scene.address()).expect("greeted");
    for (kind, version, code) in [
        (9_999, 1, ErrorCode::UnsupportedRequest),
        (u16::MAX, 0, ErrorCode::UnsupportedRequest),
        (RequestKind::Authenticate.number(), 1, ErrorCode::UnsupportedRequest),
        (RequestKind::Fetch.number(), 0, ErrorCode::UnsupportedVersion),
        (RequestKind::ListTopics.number(), 2, ErrorCode::UnsupportedVersion),
        (RequestKind::Hello.number(), 2, ErrorCode::UnsupportedVersion),
    ] {
        let head = RequestHead { kind, version, correlation: 5 };
        wire.send(&encode_request(head, &[1, 2, 3])).expect("sent");
        let (head, _) = wire.receive().expect("an answer").expect("it lives");
        assert_eq!((head.correlation, head.code), (5, code.number()), "{kind} {version}");
    }
    serves(&mut wire, scene.topic_id).expect("the same connection");
    scene.still_serves();
}

#[test]
fn g06_ten_thousand_mutated_handshakes_leave_a_server_that_serves() {
    let mut scene = Scene::new();
    let hello = hello::HelloV1 { client_id: "client".to_owned(), software: "s 1.0".to_owned() };
    let right = encode_call(&hello, 1);
    let mut random = Random::new(3);
    for number in 0..10_000_u32 {
        let mut bytes = right.clone();
        for _ in 0..random.between(1, 4) {
            let at = usize::try_from(random.below(bytes.len() as u64)).expect("an index");
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                2 => bytes.extend_from_within(at..),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut wire = Wire::connect(scene.address()).expect("connects");
        wire.send(&bytes).expect("sent");
        if number % 2_000 == 0 {
            scene.still_serves();
        }
    }
    scene.still_serves();
}

#[test]
fn random_requests_over_many_connections_harm_nobody() {
    let mut scene = Scene::new();
    let requests = requests(scene.topic_id);
    let mut random = Random::new(11);
    for _ in 0..300 {
        let mut wire = Wire::greeted(scene.address()).expect("greeted");
        for _ in 0..20 {
            let at = usize::try_from(random.below(requests.len() as u64)).expect("an index");
            let (kind, body) = &requests[at];
            // These would make and remove things as they are meant to.
            let makes = matches!(kind, RequestKind::CreateTopic | RequestKind::AddPartitions);
            let mut body = if makes { Vec::new() } else { body.clone() };
            for _ in 0..random.between(1, 6) {
                let at = usize::try_from(random.below(body.len().max(1) as u64)).expect("an index");
                if let Some(byte) = body.get_mut(at) {
                    *byte = random.next().to_le_bytes()[0];
                }
            }
            let _ = wire.send(&framed(*kind, 0, &body));
        }
        // Gone while it is at work.
        drop(wire);
    }
    scene.still_serves();
}

#[test]
fn a_server_that_is_killed_comes_back_on_its_port_with_what_it_had() {
    let mut scene = Scene::new();
    let address = scene.address();
    scene.server.kill();
    assert!(Wire::greeted(address).is_err(), "it is gone");
    scene.server.start_again();
    assert_eq!(scene.address(), address);
    scene.witness = Wire::greeted(address).expect("greeted");
    scene.still_serves();
    let status = scene.server.terminate(Duration::from_secs(20));
    assert!(status.success(), "{status}");
    scene.server.start_again();
    scene.witness = Wire::greeted(address).expect("greeted");
    scene.still_serves();
}
