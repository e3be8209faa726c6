//! What peers can't do to a server: too much, too long, too slowly.

use std::time::Duration;

use log_core::protocol::frame::{RequestHead, encode_request};
use log_core::protocol::groups::{HeartbeatV1, HeldV1, JoinGroupV1, MemberV1};
use log_core::protocol::metrics::MetricsV1;
use log_core::protocol::offsets::StartV1;
use log_core::protocol::produce::Acks;
use log_core::protocol::topics::ListTopicsV1;
use log_core::protocol::{ErrorCode, encode_call};
use log_core::{FlushPolicy, TopicConfig};

use crate::support::*;

#[test]
fn who_says_no_hello_is_sent_away() {
    let setup = start_with(|config| config.hello_timeout = Duration::from_millis(50));
    let mut peer = Peer::silent(setup.server.address());
    let refusal = peer.call(&ListTopicsV1 { with_reserved: false }).unwrap_err();
    assert_eq!(refusal.error_code(), Some(ErrorCode::HelloRequired));
    assert!(peer.receive().is_none());
    metric_becomes(&setup, "connections_ended_hello_timeout", 1);
}

#[test]
fn a_frame_out_of_bounds_is_refused_and_ends_the_connection() {
    let setup = start();
    // Before hello, a kilobyte is the limit; after it, that of frames; less than a head, never.
    for (greeted, length) in [(false, 2_000_u32), (true, 65 << 20), (true, u32::MAX), (true, 7)] {
        let mut peer = Peer::silent(setup.server.address());
        if greeted {
            peer.hello();
        }
        peer.send(&length.to_le_bytes());
        let (correlation, refusal) = peer.receive().unwrap();
        let refusal = refusal.unwrap_err();
        assert_eq!((correlation, refusal.error_code()), (0, Some(ErrorCode::TooLarge)));
        assert_eq!(refusal.numbers[0], u64::from(length));
        assert!(peer.receive().is_none());
    }
    metric_becomes(&setup, "connections_ended_framing", 4);
}

#[test]
fn a_frame_that_stands_still_ends_the_connection() {
    let setup = start_with(|config| config.frame_timeout = Duration::from_millis(50));
    let mut peer = setup.peer();
    let head = RequestHead { kind: 20, version: 1, correlation: 5 };
    peer.send(&encode_request(head, &[0; 100])[..50]);
    assert!(peer.receive().is_none());
    metric_becomes(&setup, "connections_ended_frame_timeout", 1);
}

#[test]
fn a_connection_that_asks_nothing_is_closed_and_one_that_waits_is_not() {
    let setup = start_with(|config| config.idle_timeout = Duration::from_millis(200));
    let mut waiting = setup.peer();
    let topic = waiting.create("quiet", 1, FlushPolicy::Os);
    let correlation = waiting.correlation();
    waiting.send(&fetch_frame(&fetch_of(vec![from(&topic, 0, 0)], 1_000), correlation));
    assert!(setup.peer().receive().is_none());
    assert!(waiting.receive().is_some());
}

#[test]
fn one_connection_too_many_is_told_so() {
    let setup = start_with(|config| config.connections_max = 1);
    let first = setup.peer();
    let mut second = Peer::silent(setup.server.address());
    let (_, refusal) = second.receive().unwrap();
    assert_eq!(refusal.unwrap_err().error_code(), Some(ErrorCode::LimitReached));
    assert!(second.receive().is_none());
    drop(first);
    // The place is free again, soon.
    let greeted = (0..100).any(|_| {
        let mut third = Peer::silent(setup.server.address());
        let hello = log_core::protocol::hello::HelloV1 {
            client_id: String::new(),
            software: String::new(),
        };
        third.send(&log_core::protocol::encode_call(&hello, 1));
        third.receive().is_some_and(|(_, answer)| answer.is_ok())
    });
    assert!(greeted);
}

#[test]
fn a_slow_reader_is_cut_off_and_others_are_served() {
    let setup = start_with(|config| {
        config.write_timeout = Duration::from_millis(300);
        config.outgoing_max_bytes = 64 * 1024;
    });
    let mut slow = setup.peer();
    let topic = slow.create("large", 1, FlushPolicy::Os);
    let large = vec![b'x'; 900_000];
    for _ in 0..8 {
        slow.produce(to(&topic, 0, Acks::Policy), &batch(&[&large])).unwrap();
    }
    // Asks for far more than sockets hold, and reads nothing.
    let all = log_core::protocol::fetch::FetchRequest {
        max_bytes: 16 << 20,
        ..fetch_of(vec![from(&topic, 0, 0)], 0)
    };
    for correlation in 100..110 {
        slow.send(&fetch_frame(&all, correlation));
    }
    let mut other = setup.peer();
    let mut slow_readers = 0;
    for _ in 0..200 {
        other.fetch(&fetch_of(vec![from(&topic, 0, 7)], 0));
        slow_readers = setup.metric("connections_ended_slow_reader");
        if slow_readers > 0 {
            break;
        }
        other.fetch(&fetch_of(vec![from(&topic, 0, 8)], 50));
    }
    assert_eq!(slow_readers, 1);
    metric_becomes(&setup, "outgoing_bytes", 0);
}

#[test]
fn who_asks_and_does_not_read_is_not_read_from() {
    let setup = start_with(|config| {
        config.io_threads = 1;
        config.outgoing_max_bytes = 1 << 20;
    });
    let (mut slow, mut other) = (setup.peer(), setup.peer());
    // Each answer is some kilobytes long, all are far more than sockets hold.
    let requests = encode_call(&MetricsV1 {}, 7).repeat(50);
    for _ in 0..200 {
        slow.send(&requests);
        other.call(&ListTopicsV1 { with_reserved: false }).unwrap();
    }
    let answered = setup.metric("requests_metrics");
    assert!((50..8_000).contains(&answered), "{answered}");
    let waiting = setup.metric("outgoing_bytes");
    assert!((1 << 20..2 << 20).contains(&waiting), "{waiting}");
}

#[test]
fn requests_that_wait_are_limited_by_their_bytes_too() {
    let setup = start_with(|config| config.produce_waiting_max_bytes = 64 * 1024);
    let mut peer = setup.peer();
    peer.create("quiet", 1, FlushPolicy::Os);
    let member = MemberV1 { group: "g".to_owned(), member: "m".to_owned(), incarnation: 1 };
    let join = JoinGroupV1 {
        member: member.clone(),
        topics: vec!["quiet".to_owned()],
        start: StartV1 { kind: 0, value: 0 },
        session_timeout: 10_000,
        drain_timeout: 10_000,
        processing_timeout: 10_000,
    };
    peer.call(&join).unwrap();
    // Some 29 kilobytes.
    let held = HeldV1 { topic_id: 1, partition: 1, epoch: 1, draining: false };
    let mut heartbeat = HeartbeatV1 {
        member,
        holds: vec![held; 1_000],
        seen_version: 0,
        processing: 0,
        max_wait: 0,
    };
    let mut replies = std::iter::repeat_with(|| peer.call(&heartbeat).unwrap());
    let reply = replies.find(|reply| !reply.grants.is_empty()).unwrap();
    (heartbeat.seen_version, heartbeat.max_wait) = (reply.version, 60_000);
    let before = setup.metric("requests_heartbeat");
    peer.send(&encode_call(&heartbeat, 7).repeat(10));
    metric_becomes(&setup, "requests_heartbeat", before + 3);
    assert_eq!(
        setup.metric("produce_waiting_bytes"),
        0,
        "nothing of this keeps others from producing"
    );
    assert_eq!(setup.metric("requests_heartbeat"), before + 3);
}

#[test]
fn more_in_flight_than_the_limit_is_refused() {
    let setup = start_with(|config| config.fetch_in_flight_max = 2);
    let mut peer = setup.peer();
    let topic = peer.create_with("quiet", 1, &TopicConfig::default()).unwrap();
    for correlation in [50, 51, 52] {
        peer.send(&fetch_frame(&fetch_of(vec![from(&topic, 0, 0)], 60_000), correlation));
    }
    let (correlation, refusal) = peer.receive().unwrap();
    let refusal = refusal.unwrap_err();
    assert_eq!((correlation, refusal.error_code()), (52, Some(ErrorCode::LimitReached)));
    assert!(refusal.is_retriable());
}
