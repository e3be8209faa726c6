//! What is answered to requests that are in order, and to those that are not.

use std::time::Duration;

use log_core::config::TopicConfigV1;
use log_core::protocol::fetch::FetchPartition;
use log_core::protocol::frame::{RequestHead, encode_request};
use log_core::protocol::hello::HelloV1;
use log_core::protocol::offsets::ResolveOffsetV1;
use log_core::protocol::produce::{Acks, ProduceHead};
use log_core::protocol::topics::{
    AddPartitionsV1, AlterTopicV1, DeleteTopicV1, DescribeTopicV1, ListTopicsV1, TrimPartitionV1,
};
use log_core::protocol::{ErrorCode, RequestKind, encode_call};
use log_core::{BatchBuilder, Codec, FlushPolicy, Record, StartFrom, Timestamp, TopicConfig};

use crate::support::*;

#[test]
fn hello_is_the_bytes_it_always_was_and_tells_what_is_answered() {
    let setup = start();
    let mut golden = vec![33, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0];
    golden.extend([2, 0, 0, 0, 0, 0, 0, 0, b'm', b'e']);
    golden.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend(b"tool 1\n");
    let hello = HelloV1 { client_id: "me".to_owned(), software: "tool 1\n".to_owned() };
    assert_eq!(encode_call(&hello, 9), golden);
    let mut peer = Peer::silent(setup.server.address());
    // However the bytes arrive.
    for byte in golden {
        peer.send(&[byte]);
    }
    let (correlation, body) = peer.receive().unwrap();
    let reply: log_core::protocol::hello::HelloReplyV1 =
        log_core::protocol::decode_body(&body.unwrap()).unwrap();
    assert_eq!((correlation, reply.frame_max_bytes), (9, 64 << 20));
    assert!(reply.versions.iter().any(|versions| versions.kind == 10 && versions.max == 1));
    assert!(!reply.versions.iter().any(|versions| versions.kind == 1), "no authentication yet");
}

#[test]
fn what_is_produced_is_fetched_as_it_came() {
    let setup = start();
    let mut peer = setup.peer();
    for (name, flush) in [("durable", FlushPolicy::Sync), ("quick", FlushPolicy::Os)] {
        let topic = peer.create(name, 2, flush);
        for (turn, acks) in [Acks::Policy, Acks::Written, Acks::Synced].into_iter().enumerate() {
            let turn = turn as u64;
            let produced = peer.produce(to(&topic, 1, acks), &batch(&[b"one", b"two"])).unwrap();
            assert_eq!((produced.base_offset, produced.end), (2 * turn, 2 * turn + 2));
            assert!(!produced.duplicate);
        }
        let mut found = Vec::new();
        while found.len() < 6 {
            let reply = peer.fetch(&fetch_of(vec![from(&topic, 1, found.len() as u64)], 10_000));
            let [entry] = reply.partitions.as_slice() else { panic!("one has something to tell") };
            assert_eq!((entry.code, entry.partition, entry.log_start), (0, 1, 0));
            found.extend(values(&entry.bytes));
        }
        assert_eq!(found, [b"one", b"two"].repeat(3));
    }
}

#[test]
fn unknown_kinds_and_versions_and_bodies_are_refused_and_the_connection_lives() {
    let setup = start();
    let mut peer = setup.peer();
    let produce = RequestKind::Produce.number();
    for (kind, version, body, code) in [
        (999, 1, &b""[..], ErrorCode::UnsupportedRequest),
        (1, 1, b"", ErrorCode::UnsupportedRequest),
        (produce, 2, b"", ErrorCode::UnsupportedVersion),
        (produce, 0, b"", ErrorCode::UnsupportedVersion),
        (produce, 1, b"short", ErrorCode::Malformed),
        (RequestKind::Fetch.number(), 1, &[255; 32], ErrorCode::Malformed),
        (RequestKind::CreateTopic.number(), 1, b"nonsense", ErrorCode::Malformed),
        (RequestKind::Hello.number(), 1, b"", ErrorCode::Malformed),
    ] {
        let correlation = peer.correlation();
        peer.send(&encode_request(RequestHead { kind, version, correlation }, body));
        let (answered, refusal) = peer.receive().unwrap();
        let refusal = refusal.unwrap_err();
        assert_eq!((answered, refusal.error_code()), (correlation, Some(code)), "{refusal}");
        if code == ErrorCode::UnsupportedVersion {
            assert_eq!(refusal.numbers, [1, 1]);
        }
    }
    peer.create("still-here", 1, FlushPolicy::Os);
    assert!(setup.metric("refusals_malformed") >= 4);
}

#[test]
fn requests_of_a_partition_keep_their_order_however_many_are_in_flight() {
    let setup = start();
    let mut peer = setup.peer();
    for (name, flush) in [("durable", FlushPolicy::Sync), ("quick", FlushPolicy::Os)] {
        let topic = peer.create(name, 1, flush);
        let frames = (0..200_u32).map(|number| {
            let batch = batch(&[number.to_string().as_bytes()]);
            produce_frame(to(&topic, 0, Acks::Policy), &batch, 1_000 + number)
        });
        let all: Vec<u8> = frames.flatten().collect();
        peer.send(&all);
        let mut offsets = vec![u64::MAX; 200];
        for _ in 0..200 {
            let (correlation, body) = peer.receive().unwrap();
            let produced = log_core::protocol::produce::Produced::decode(&body.unwrap()).unwrap();
            offsets[correlation as usize - 1_000] = produced.base_offset;
        }
        assert_eq!(offsets, (0..200).collect::<Vec<u64>>());
    }
}

#[test]
fn a_batch_that_comes_twice_is_told_where_it_is_and_a_gap_is_refused() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Sync);
    let mut builder = BatchBuilder::new(Codec::None).with_producer(77, 1, 0);
    let mut next = || {
        builder.push(&Record::new(b"x"), Timestamp::from_millis(1)).unwrap();
        builder.finish().unwrap()
    };
    let (first, _lost, third) = (next(), next(), next());
    for duplicate in [false, true] {
        let produced = peer.produce(to(&topic, 0, Acks::Policy), &first).unwrap();
        assert_eq!((produced.base_offset, produced.duplicate), (0, duplicate));
    }
    let gap = peer.produce(to(&topic, 0, Acks::Policy), &third).unwrap_err();
    assert_eq!((gap.error_code(), gap.numbers), (Some(ErrorCode::SequenceGap), vec![1, 2]));
    let at = ProduceHead { expected_end: Some(9), ..to(&topic, 0, Acks::Policy) };
    let conflict = peer.produce(at, &batch(&[b"y"])).unwrap_err();
    assert_eq!(conflict.error_code(), Some(ErrorCode::EndConflict));
    assert_eq!(conflict.numbers, [9, 1]);
}

#[test]
fn a_long_poll_wakes_for_what_is_produced_and_holds_up_nothing() {
    let setup = start_with(|config| config.io_threads = 2);
    let (mut reader, mut writer) = (setup.peer(), setup.peer());
    for flush in [FlushPolicy::Sync, FlushPolicy::Os] {
        let topic = writer.create(&format!("{flush:?}"), 3, flush);
        let waits = fetch_of(vec![from(&topic, 0, 0), from(&topic, 2, 0)], 60_000);
        let correlation = reader.correlation();
        reader.send(&fetch_frame(&waits, correlation));
        // It waits, and others are answered meanwhile.
        reader.call(&ListTopicsV1 { with_reserved: false }).unwrap();
        writer.produce(to(&topic, 2, Acks::Policy), &batch(&[b"news"])).unwrap();
        let (answered, body) = reader.receive().unwrap();
        let reply = log_core::protocol::fetch::FetchReply::decode(body.unwrap()).unwrap();
        assert_eq!(answered, correlation);
        assert_eq!(reply.partitions.len(), 1);
        assert_eq!((reply.partitions[0].partition, reply.partitions[0].next), (2, 1));
        assert_eq!(values(&reply.partitions[0].bytes), [b"news"]);
    }
}

#[test]
fn a_long_poll_ends_with_every_partition_when_its_time_is_over() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("quiet", 2, FlushPolicy::Os);
    let reply = peer.fetch(&fetch_of(vec![from(&topic, 0, 0), from(&topic, 1, 0)], 50));
    assert_eq!(reply.partitions.len(), 2);
    assert!(reply.partitions.iter().all(|entry| entry.bytes.is_empty() && entry.code == 0));
    // Less than was asked for is told when the time is over, too.
    peer.produce(to(&topic, 1, Acks::Policy), &batch(&[b"little"])).unwrap();
    let much = fetch_of(vec![from(&topic, 1, 0)], 50);
    let much = log_core::protocol::fetch::FetchRequest { min_bytes: 500_000, ..much };
    assert_eq!(values(&peer.fetch(&much).partitions[0].bytes), [b"little"]);
}

#[test]
fn a_partition_that_can_not_be_read_refuses_its_own_entry_alone() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 2, FlushPolicy::Os);
    peer.produce(to(&topic, 0, Acks::Policy), &batch(&[b"fine"])).unwrap();
    let strange = FetchPartition { topic_id: 7, ..from(&topic, 0, 0) };
    let asked = vec![from(&topic, 1, 9), from(&topic, 5, 0), strange, from(&topic, 0, 0)];
    let reply = peer.fetch(&fetch_of(asked, 10_000));
    let codes: Vec<_> = reply.partitions.iter().map(|e| ErrorCode::from_number(e.code)).collect();
    let [range, partition, topic_id, fine] = codes.as_slice() else { panic!("{codes:?}") };
    assert_eq!(*range, Some(ErrorCode::OffsetOutOfRange));
    assert_eq!(*partition, Some(ErrorCode::UnknownPartition));
    assert_eq!(*topic_id, Some(ErrorCode::StaleTopic));
    assert_eq!(
        (*fine, values(&reply.partitions[3].bytes)),
        (Some(ErrorCode::Ok), vec![b"fine".to_vec()])
    );
}

#[test]
fn refusals_leave_room_in_the_frame_for_batches() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Os);
    let asked = (0..10_000).map(|number| from(&topic, 1 + number, 0)).collect();
    let reply = peer.fetch(&fetch_of(asked, 10_000));
    let refused = reply.partitions.len();
    assert!((1_000..10_000).contains(&refused), "{refused}");
    let unknown = ErrorCode::UnknownPartition.number();
    assert!(reply.partitions.iter().all(|entry| entry.code == unknown));
    let bytes: usize = reply.partitions.iter().map(|entry| entry.bytes.len()).sum();
    assert!(bytes + 10_000 * 64 < 1 << 20, "{bytes}");
}

#[test]
fn one_batch_comes_whatever_its_size_and_then_no_more_than_asked_for() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("large", 2, FlushPolicy::Os);
    for partition in [0, 1] {
        let large = vec![b'x'; 300_000];
        peer.produce(to(&topic, partition, Acks::Policy), &batch(&[&large])).unwrap();
    }
    let asked = fetch_of(vec![from(&topic, 0, 0), from(&topic, 1, 0)], 0);
    let small = log_core::protocol::fetch::FetchRequest { max_bytes: 10, ..asked.clone() };
    assert_eq!(peer.fetch(&small).partitions.len(), 1);
    let one = log_core::protocol::fetch::FetchRequest { max_bytes: 400_000, ..asked.clone() };
    assert_eq!(peer.fetch(&one).partitions.len(), 1);
    assert_eq!(peer.fetch(&asked).partitions.len(), 2);
}

#[test]
fn a_fetch_with_no_room_for_the_next_batch_does_not_wait_for_more() {
    let setup = start_with(|config| config.io_threads = 1);
    let mut peer = setup.peer();
    let topic = peer.create("large", 2, FlushPolicy::Os);
    for (partition, bytes) in [(0, 600_000), (1, 500_000)] {
        peer.produce(to(&topic, partition, Acks::Policy), &batch(&[&vec![b'x'; bytes]])).unwrap();
    }
    let asked = fetch_of(vec![from(&topic, 0, 0), from(&topic, 1, 0)], 60_000);
    let whole = log_core::protocol::fetch::FetchRequest { min_bytes: 1 << 20, ..asked };
    let reply = peer.fetch(&whole);
    let found: Vec<_> = reply.partitions.iter().map(|e| (e.partition, e.next)).collect();
    assert_eq!(found, [(0, 1)], "the other one's batch goes into the next reply");
}

#[test]
fn topics_are_made_changed_and_removed_and_old_ids_are_stale() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Os);
    let again = peer.create_with("events", 1, &TopicConfig::default()).unwrap_err();
    assert_eq!(again.error_code(), Some(ErrorCode::TopicExists));
    let name = || "events".to_owned();
    let grown = peer.call(&AddPartitionsV1 { name: name(), total: 3 }).unwrap();
    assert_eq!(grown.partitions.len(), 3);
    let config = TopicConfigV1::from(&TopicConfig::default());
    let altered = peer.call(&AlterTopicV1 { name: name(), config: config.clone() }).unwrap();
    assert_eq!(altered.config, config);
    for _ in 0..3 {
        peer.produce(to(&topic, 2, Acks::Synced), &batch(&[b"x"])).unwrap();
    }
    let trim = TrimPartitionV1 { name: name(), partition: 2, before: 2 };
    let ends = peer.call(&trim).unwrap();
    assert_eq!((ends.log_start, ends.durable_end, ends.end), (2, 3, 3));
    let listed = peer.call(&ListTopicsV1 { with_reserved: false }).unwrap();
    assert_eq!((listed.topics.len(), listed.topics[0].partitions), (1, 3));

    let correlation = peer.correlation();
    peer.send(&fetch_frame(&fetch_of(vec![from(&topic, 0, 0)], 60_000), correlation));
    let mut other = setup.peer();
    other.call(&DeleteTopicV1 { name: name() }).unwrap();
    let (_, body) = peer.receive().unwrap();
    let reply = log_core::protocol::fetch::FetchReply::decode(body.unwrap()).unwrap();
    assert_eq!(reply.partitions[0].code, ErrorCode::StaleTopic.number());
    for _ in 0..2 {
        let stale = peer.produce(to(&topic, 2, Acks::Policy), &batch(&[b"x"])).unwrap_err();
        assert_eq!(stale.error_code(), Some(ErrorCode::StaleTopic));
    }
    let unknown = peer.call(&DescribeTopicV1 { name: name() }).unwrap_err();
    assert_eq!(unknown.error_code(), Some(ErrorCode::UnknownTopic));
}

#[test]
fn a_topic_whose_batches_fit_no_frame_is_refused() {
    let setup = start();
    let config = TopicConfig {
        batch_max_bytes: 100 << 20,
        batch_max_expanded_bytes: 200 << 20,
        ..TopicConfig::default()
    };
    let refused = setup.peer().create_with("huge", 1, &config).unwrap_err();
    assert_eq!(refused.error_code(), Some(ErrorCode::IllegalConfig));
    assert!(refused.message.contains("frame_max_bytes"), "{refused}");
}

#[test]
fn who_has_asked_all_and_closed_its_side_gets_its_answers() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 2, FlushPolicy::Sync);
    let produce = produce_frame(to(&topic, 0, Acks::Policy), &batch(&[b"last"]), 100);
    let waits = fetch_frame(&fetch_of(vec![from(&topic, 1, 0)], 60_000), 101);
    let describe = encode_call(&DescribeTopicV1 { name: "events".to_owned() }, 102);
    peer.send(&[produce, waits, describe].concat());
    peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answered: Vec<u32> = std::iter::from_fn(|| peer.receive())
        .map(|(correlation, body)| {
            body.unwrap();
            correlation
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [100, 101, 102]);
    metric_becomes(&setup, "connections_ended_peer_closed", 1);
}

#[test]
fn a_produce_without_acks_is_not_answered_and_is_there_all_the_same() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Sync);
    peer.send(&produce_frame(to(&topic, 0, Acks::None), &batch(&[b"silent"]), 5));
    // A sync is asked for, so that readers see it.
    let reply = peer.fetch(&fetch_of(vec![from(&topic, 0, 0)], 10_000));
    assert_eq!(values(&reply.partitions[0].bytes), [b"silent"]);
    let silence = peer.socket.set_read_timeout(Some(Duration::from_millis(50)));
    silence.unwrap();
    assert!(std::io::Read::read(&mut peer.socket, &mut [0; 1]).is_err(), "nothing more comes");
}

#[test]
fn a_way_of_starting_is_an_offset() {
    let setup = start();
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Os);
    peer.produce(to(&topic, 0, Acks::Policy), &batch(&[b"one", b"two"])).unwrap();
    for (start, offset) in [
        (StartFrom::Earliest, 0),
        (StartFrom::Latest, 2),
        (StartFrom::Offset(1), 1),
        (StartFrom::Time(Timestamp::from_millis(1_000)), 0),
        (StartFrom::Time(Timestamp::from_millis(1_001)), 2),
    ] {
        let asked = ResolveOffsetV1 { topic_id: topic.id, partition: 0, start: start.into() };
        let reply = peer.call(&asked).unwrap();
        assert_eq!((reply.offset, reply.log_start, reply.readable_end), (offset, 0, 2));
    }
    let start = StartFrom::Offset(9).into();
    let asked = ResolveOffsetV1 { topic_id: topic.id, partition: 0, start };
    let refused = peer.call(&asked).unwrap_err();
    assert_eq!(refused.error_code(), Some(ErrorCode::OffsetOutOfRange));
}
