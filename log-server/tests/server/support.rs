//! A peer made of a plain socket, and a server to speak to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use log_core::config::TopicConfigV1;
use log_core::protocol::fetch::{FETCH_VERSION, FetchPartition, FetchReply, FetchRequest};
use log_core::protocol::frame::{FrameReader, ReplyHead, RequestHead, encode_request};
use log_core::protocol::hello::{HelloReplyV1, HelloV1};
use log_core::protocol::metrics::MetricsV1;
use log_core::protocol::produce::{Acks, PRODUCE_VERSION, ProduceHead, Produced};
use log_core::protocol::topics::{CreateTopicV1, TopicV1};
use log_core::protocol::{Call, Refusal, RequestKind, decode_body, encode_call};
use log_core::{BatchBuilder, Codec, FlushPolicy, Record, Timestamp, TopicConfig};
use log_server::{Server, ServerConfig};
use tempfile::TempDir;

/// Longer than anything takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) dir: TempDir,
}

pub(crate) fn start() -> Setup {
    start_with(|_| ())
}

pub(crate) fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ServerConfig::local(dir.path().join("data"));
    change(&mut config);
    Setup { server: Server::bind(config).unwrap(), dir }
}

impl Setup {
    pub(crate) fn peer(&self) -> Peer {
        let mut peer = Peer::silent(self.server.address());
        peer.hello();
        peer
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let reply = self.peer().call(&MetricsV1 {}).unwrap();
        let found = reply.metrics.iter().find(|metric| metric.name == name);
        found.unwrap_or_else(|| panic!("{name}")).value
    }
}

/// Waits until a metric is what it should be: an ending is counted a moment after the peer sees it.
pub(crate) fn metric_becomes(setup: &Setup, name: &str, value: u64) {
    let mut peer = setup.peer();
    let seen = (0..10_000).any(|_| {
        let reply = peer.call(&MetricsV1 {}).unwrap();
        reply.metrics.iter().any(|metric| metric.name == name && metric.value == value)
    });
    assert!(seen, "{name} does not become {value}");
}

pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    frames: FrameReader,
    next: u32,
}

/// A reply: its correlation id, and its body or a refusal.
pub(crate) type Answer = (u32, Result<Bytes, Refusal>);

impl Peer {
    /// Connected, and nothing said.
    pub(crate) fn silent(address: SocketAddr) -> Peer {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Peer { socket, frames: FrameReader::new(1 << 30), next: 1 }
    }

    pub(crate) fn hello(&mut self) -> HelloReplyV1 {
        let hello = HelloV1 { client_id: "test".to_owned(), software: "test 1".to_owned() };
        self.call(&hello).unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next reply; `None` if the server has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Answer> {
        loop {
            if let Some(frame) = self.frames.take().unwrap() {
                let ReplyHead { code, correlation } = ReplyHead::decode(&frame.head);
                let body = match code {
                    0 => Ok(frame.body),
                    _ => Err(decode_body::<Refusal>(&frame.body).unwrap()),
                };
                return Some((correlation, body));
            }
            let mut some = [0; 65_536];
            match self.socket.read(&mut some) {
                Ok(0) => return None,
                Ok(read) => self.frames.room().extend_from_slice(&some[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn correlation(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn call<C: Call>(&mut self, call: &C) -> Result<C::Reply, Refusal> {
        let correlation = self.correlation();
        self.send(&encode_call(call, correlation));
        let (answered, body) = self.receive().expect("an answer");
        assert_eq!(answered, correlation);
        body.map(|body| decode_body(&body).unwrap())
    }

    pub(crate) fn create(&mut self, name: &str, partitions: u32, flush: FlushPolicy) -> TopicV1 {
        let config = TopicConfig { flush, ..TopicConfig::default() };
        self.create_with(name, partitions, &config).unwrap()
    }

    pub(crate) fn create_with(
        &mut self,
        name: &str,
        partitions: u32,
        config: &TopicConfig,
    ) -> Result<TopicV1, Refusal> {
        let config = TopicConfigV1::from(config);
        self.call(&CreateTopicV1 { name: name.to_owned(), partitions, config })
    }

    pub(crate) fn produce(&mut self, head: ProduceHead, batch: &[u8]) -> Result<Produced, Refusal> {
        let correlation = self.correlation();
        self.send(&produce_frame(head, batch, correlation));
        let (answered, body) = self.receive().expect("an answer");
        assert_eq!(answered, correlation);
        body.map(|body| Produced::decode(&body).unwrap())
    }

    pub(crate) fn fetch(&mut self, request: &FetchRequest) -> FetchReply {
        let correlation = self.correlation();
        self.send(&fetch_frame(request, correlation));
        let (answered, body) = self.receive().expect("an answer");
        assert_eq!(answered, correlation);
        FetchReply::decode(body.unwrap()).unwrap()
    }
}

pub(crate) fn produce_frame(head: ProduceHead, batch: &[u8], correlation: u32) -> Vec<u8> {
    let kind = RequestKind::Produce.number();
    let request = RequestHead { kind, version: PRODUCE_VERSION, correlation };
    encode_request(request, &[head.encode().as_slice(), batch].concat())
}

pub(crate) fn fetch_frame(request: &FetchRequest, correlation: u32) -> Vec<u8> {
    let kind = RequestKind::Fetch.number();
    encode_request(RequestHead { kind, version: FETCH_VERSION, correlation }, &request.encode())
}

pub(crate) fn to(topic: &TopicV1, partition: u32, acks: Acks) -> ProduceHead {
    ProduceHead { topic_id: topic.id, partition, acks, expected_end: None }
}

pub(crate) fn from(topic: &TopicV1, partition: u32, offset: u64) -> FetchPartition {
    let max_bytes = u32::MAX;
    FetchPartition { topic_id: topic.id, partition, max_bytes, from: offset, epoch: 0 }
}

pub(crate) fn fetch_of(partitions: Vec<FetchPartition>, max_wait: u32) -> FetchRequest {
    FetchRequest { max_bytes: 1 << 20, min_bytes: 1, max_wait, reader: None, partitions }
}

pub(crate) fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        builder.push(&Record::new(value), Timestamp::from_millis(1_000)).unwrap();
    }
    builder.finish().unwrap()
}

/// The values of all records in a reply's batches.
pub(crate) fn values(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = log_core::record::BatchView::parse(bytes).unwrap();
        bytes = rest;
        if batch.header.is_marker() {
            continue;
        }
        batch.check_body().unwrap();
        let body = batch.open(1 << 30).unwrap();
        for record in body.records() {
            found.push(record.unwrap().value.unwrap().to_vec());
        }
    }
    found
}
