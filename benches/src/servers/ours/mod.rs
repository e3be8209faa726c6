//! Ours: log-server in a process of its own. It enters twice: with the same small clients on bare
//! connections that the peers are measured with, and by way of log-client. Reading from the start
//! is by way of log-client in any case.

mod by_client;
mod frames;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use log_core::Timestamp;
use log_core::config::{FlushPolicy, TopicConfig, TopicConfigV1};
use log_core::protocol::frame::{self, FRAME_HEAD_BYTES, ReplyHead, RequestHead};
use log_core::protocol::hello::HelloV1;
use log_core::protocol::produce::{self, PRODUCE_VERSION, ProduceHead};
use log_core::protocol::topics::CreateTopicV1;
use log_core::protocol::{Call, Refusal, RequestKind, decode_body, encode_call};
use log_core::record::{Record, encode_into, encoded_len};

use super::exchange::{Exchanged, exchange};
use super::paced::{Pace, Sender, Tail, paced};
use super::{Acks, Entry, Produce, Server, Start, Stop, free_address, once_up};
use crate::Outcome;
use crate::process::Process;
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;
use crate::wire::Wire;

pub(super) const ENTRY: Entry = Entry {
    name: "log-server",
    program: "log-server",
    in_batches_in: 1,
    can_sync: true,
    start: |start| Ok(Box::new(Ours::start(start, By::Frames)?)),
};

pub(super) const BY_CLIENT: Entry = Entry {
    name: "log-client",
    start: |start| Ok(Box::new(Ours::start(start, By::Client)?)),
    ..ENTRY
};

const TOPIC: &str = "bench";
/// Who speaks to the server.
#[derive(Clone, Copy)]
enum By {
    Frames,
    Client,
}

struct Ours {
    by: By,
    process: Process,
    address: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    acks: Acks,
    topic_id: u128,
}

impl Ours {
    fn start(start: &Start<'_>, by: By) -> Outcome<Ours> {
        let address = free_address()?;
        let (program, dir) = (start.program.clone(), start.dir.to_path_buf());
        let process = Process::start(&mut launch(&program, &dir, address))?;
        let mut wire = once_up("log-server", || greeted(address))?;
        let flush = match start.acks {
            Acks::Written => FlushPolicy::Os,
            Acks::Synced => FlushPolicy::Sync,
        };
        let config = TopicConfig { flush, ..TopicConfig::default() };
        let config = TopicConfigV1::from(&config);
        let topic = CreateTopicV1 { name: TOPIC.to_owned(), partitions: 1, config };
        let topic_id = call(&mut wire, &topic)?.id;
        Ok(Ours { by, process, address, program, dir, acks: start.acks, topic_id })
    }

    fn acks(&self) -> produce::Acks {
        match self.acks {
            Acks::Written => produce::Acks::Written,
            Acks::Synced => produce::Acks::Synced,
        }
    }

    fn produce_frame(&self, batch: &[u8]) -> Vec<u8> {
        let (topic_id, acks) = (self.topic_id, self.acks());
        let head = ProduceHead { topic_id, partition: 0, acks, expected_end: None };
        request(RequestKind::Produce, PRODUCE_VERSION, &[&head.encode(), batch])
    }

    fn fetch_first(&self) -> Outcome<()> {
        let mut count = 0;
        frames::Reader::connect(self.address, self.topic_id)?.wait(&mut |_| count += 1)?;
        if count > 0 { Ok(()) } else { Err("nothing was fetched".into()) }
    }
}

/// A batch as a producer sends it.
fn batch_of(records: &[Record<'_>]) -> Vec<u8> {
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut batch = vec![0; encoded_len(records, now)];
    encode_into(&mut batch, records, now);
    batch
}

fn launch(program: &PathBuf, dir: &PathBuf, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("--listen").arg(address.to_string()).arg("--data").arg(dir);
    command.args(["--log", "warn"]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn greeted(address: SocketAddr) -> Outcome<Wire> {
    let mut wire = Wire::connect(address)?;
    let (client_id, software) = ("scoreboard".to_owned(), "benches".to_owned());
    call(&mut wire, &HelloV1 { client_id, software })?;
    Ok(wire)
}

fn call<C: Call>(wire: &mut Wire, what: &C) -> Outcome<C::Reply> {
    wire.send(&encode_call(what, 0))?;
    let len = wire.reply(reply_len)?;
    let reply = decode_body(&wire.received()[FRAME_HEAD_BYTES..len])?;
    wire.take(len);
    Ok(reply)
}

fn request(kind: RequestKind, version: u16, body: &[&[u8]]) -> Vec<u8> {
    let head = RequestHead { kind: kind.number(), version, correlation: 0 };
    frame::encode_request(head, &body.concat())
}

fn reply_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    let Some(head) = bytes.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let len = size_of::<u32>() + usize::try_from(length)?;
    if bytes.len() < len {
        return Ok(None);
    }
    if ReplyHead::decode(head).code != 0 {
        return Err(decode_body::<Refusal>(&bytes[FRAME_HEAD_BYTES..len])?.into());
    }
    Ok(Some(len))
}

impl Server for Ours {
    fn process(&self) -> &Process {
        &self.process
    }

    fn produce(&mut self, work: &Produce<'_>) -> Outcome<Duration> {
        match self.by {
            By::Frames => frames::produce(self, work),
            By::Client => by_client::produce(self.address, self.acks(), work),
        }
    }

    fn consume(&mut self, count: u64) -> Outcome<Duration> {
        let (mut seen, mut bytes) = (0, 0);
        let mut reader = by_client::Reader::connect(self.address)?;
        let stopwatch = Stopwatch::start();
        while seen < count {
            reader.wait(&mut |message| {
                seen += 1;
                bytes += message.len();
            })?;
        }
        std::hint::black_box(bytes);
        Ok(stopwatch.elapsed())
    }

    fn exchange(
        &mut self,
        connections: usize,
        message: &[u8],
        time: Duration,
    ) -> Outcome<Exchanged> {
        let request = self.produce_frame(&batch_of(&[Record::new(message)]));
        let connect = |_| Ok((greeted(self.address)?, request.clone()));
        exchange((0..connections).map(connect).collect::<Outcome<_>>()?, reply_len, time)
    }

    fn end_to_end(&mut self, pace: Pace, message_bytes: usize) -> Outcome<Latencies> {
        match self.by {
            By::Frames => frames::end_to_end(self, pace, message_bytes),
            By::Client => by_client::end_to_end(self.address, self.acks(), pace, message_bytes),
        }
    }

    fn restart(&mut self, stop: Stop) -> Outcome<Duration> {
        match stop {
            Stop::Cleanly => self.process.stop()?,
            Stop::Kill => self.process.kill()?,
        }
        let mut launch = launch(&self.program, &self.dir, self.address);
        let stopwatch = Stopwatch::start();
        self.process = Process::start(&mut launch)?;
        once_up("log-server", || self.fetch_first())?;
        Ok(stopwatch.elapsed())
    }
}
