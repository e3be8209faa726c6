//! A stop in order, and what is there afterwards.

use log_core::FlushPolicy;
use log_core::protocol::produce::Acks;
use log_core::protocol::topics::DescribeTopicV1;
use log_server::{Server, ServerConfig, ServerError};

use crate::support::*;

#[test]
fn a_stop_answers_what_waits_and_marks_the_store_clean() {
    let Setup { server, dir } = start();
    let setup = Setup { server, dir };
    let mut peer = setup.peer();
    let topic = peer.create("events", 1, FlushPolicy::Sync);
    peer.produce(to(&topic, 0, Acks::Policy), &batch(&[b"kept"])).unwrap();
    let correlation = peer.correlation();
    peer.send(&fetch_frame(&fetch_of(vec![from(&topic, 0, 1)], 60_000), correlation));
    peer.call(&DescribeTopicV1 { name: "events".to_owned() }).unwrap();
    let waiting = std::thread::spawn(move || {
        let answer = peer.receive();
        (
            answer.is_some_and(|(answered, body)| answered == correlation && body.is_ok()),
            peer.receive(),
        )
    });
    setup.server.stop(PATIENCE).unwrap();
    let (answered, then) = waiting.join().unwrap();
    assert!(answered && then.is_none());

    let server = Server::bind(ServerConfig::local(setup.dir.path().join("data"))).unwrap();
    let reports = server.store().reports();
    assert!(!reports.is_empty() && reports.iter().all(|r| r.outcome.as_ref().unwrap().clean));
    let mut peer = Peer::silent(server.address());
    peer.hello();
    let reply = peer.fetch(&fetch_of(vec![from(&topic, 0, 0)], 10_000));
    assert_eq!(values(&reply.partitions[0].bytes), [b"kept"]);
}

#[test]
fn an_address_or_a_directory_that_is_taken_is_told() {
    let setup = start();
    let taken = ServerConfig::local(setup.dir.path().join("data"));
    let error = Server::bind(taken).unwrap_err();
    assert!(matches!(error, ServerError::Store(log_core::Error::Locked { .. })), "{error}");
    let listen = setup.server.address();
    let elsewhere = setup.dir.path().join("other");
    let error = Server::bind(ServerConfig { listen, ..ServerConfig::local(elsewhere) });
    assert!(matches!(error, Err(ServerError::Listen { .. })));
}
