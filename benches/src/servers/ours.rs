//! Ours: log-server in a process of its own, spoken to in frames of its protocol, as leanly as the
//! peers are in theirs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use log_core::Timestamp;
use log_core::config::{FlushPolicy, TopicConfig, TopicConfigV1};
use log_core::protocol::fetch::{FETCH_VERSION, FetchPartition, FetchReply, FetchRequest};
use log_core::protocol::frame::{self, FRAME_HEAD_BYTES, ReplyHead, RequestHead};
use log_core::protocol::hello::HelloV1;
use log_core::protocol::produce::{self, PRODUCE_VERSION, ProduceHead};
use log_core::protocol::topics::{CreateTopicV1, DescribeTopicV1, TopicV1};
use log_core::protocol::{Call, Refusal, RequestKind, decode_body, encode_call};
use log_core::record::{BatchView, Record, encode_into, encoded_len};

use super::exchange::{Exchanged, exchange};
use super::paced::{Pace, Sender, Tail, paced};
use super::{Acks, Entry, Produce, Server, Start, Stop, WINDOW, free_address, once_up};
use crate::Outcome;
use crate::process::Process;
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;
use crate::wire::{Pipeline, Wire, pipelined};

pub(super) static ENTRY: Entry = Entry {
    name: "log-server",
    program: "log-server",
    in_batches_in: 1,
    can_sync: true,
    start: |start| Ok(Box::new(Ours::start(start)?)),
};

const TOPIC: &str = "bench";
/// What is asked for at once.
const FETCH_BYTES: u32 = 1024 * 1024;
const WAIT_MILLIS: u32 = 10_000;

struct Ours {
    process: Process,
    address: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    acks: Acks,
    topic_id: u128,
}

impl Ours {
    fn start(start: &Start<'_>) -> Outcome<Ours> {
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
        Ok(Ours { process, address, program, dir, acks: start.acks, topic_id })
    }

    fn produce_frame(&self, batch: &[u8]) -> Vec<u8> {
        let acks = match self.acks {
            Acks::Written => produce::Acks::Written,
            Acks::Synced => produce::Acks::Synced,
        };
        let head = ProduceHead { topic_id: self.topic_id, partition: 0, acks, expected_end: None };
        request(RequestKind::Produce, PRODUCE_VERSION, &[&head.encode(), batch])
    }

    fn reader(&self) -> Outcome<Reader> {
        Reader::connect(self.address, self.topic_id)
    }

    fn fetch_first(&self) -> Outcome<()> {
        let topic = DescribeTopicV1 { name: TOPIC.to_owned() };
        let topic: TopicV1 = call(&mut greeted(self.address)?, &topic)?;
        let mut count = 0;
        Reader::connect(self.address, topic.id)?.wait(&mut |_| count += 1)?;
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
        let batches = work.messages.chunks_exact(work.at_once).map(|batch| {
            let records = batch.iter().map(|message| Record::new(message)).collect::<Vec<_>>();
            self.produce_frame(&batch_of(&records))
        });
        let frames = batches.collect::<Vec<_>>();
        let count = work.count / work.at_once as u64;
        let work = Pipeline { frames: &frames, count, replies: 1, reply_len, window: WINDOW };
        pipelined(&mut greeted(self.address)?, &work)
    }

    fn consume(&mut self, count: u64) -> Outcome<Duration> {
        let mut reader = self.reader()?;
        let (mut seen, mut bytes) = (0, 0);
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
        let mut adder = Adder { wire: greeted(self.address)?, ours: self };
        let mut reader = self.reader()?;
        paced(pace, message_bytes, &mut adder, &mut reader)
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

/// Reads the partition from its start, and waits at its end.
struct Reader {
    wire: Wire,
    topic_id: u128,
    /// Where the next request starts, if its reply brings all that it asks for.
    from: u64,
    asked: usize,
}

impl Reader {
    fn connect(address: SocketAddr, topic_id: u128) -> Outcome<Reader> {
        Ok(Reader { wire: greeted(address)?, topic_id, from: 0, asked: 0 })
    }

    fn ask(&mut self) -> Outcome<()> {
        let partition = FetchPartition {
            topic_id: self.topic_id,
            partition: 0,
            max_bytes: FETCH_BYTES,
            from: self.from,
            epoch: 0,
        };
        let fetch = FetchRequest {
            max_bytes: FETCH_BYTES,
            min_bytes: 1,
            max_wait: WAIT_MILLIS,
            reader: None,
            partitions: vec![partition],
        };
        self.wire.send(&request(RequestKind::Fetch, FETCH_VERSION, &[&fetch.encode()]))?;
        self.asked += 1;
        Ok(())
    }
}

impl Tail for Reader {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        if self.asked == 0 {
            self.ask()?;
        }
        let len = self.wire.reply(reply_len)?;
        self.asked -= 1;
        let body = bytes::Bytes::copy_from_slice(&self.wire.received()[FRAME_HEAD_BYTES..len]);
        self.wire.take(len);
        let reply = FetchReply::decode(body)?;
        let found = reply.partitions.first().ok_or("no partition in the reply")?;
        if found.code != 0 {
            return Err(decode_body::<Refusal>(&found.bytes)?.into());
        }
        if found.bytes.is_empty() {
            return Err("the partition has no more records".into());
        }
        self.from = found.next;
        self.ask()?;
        let mut rest = &found.bytes[..];
        while !rest.is_empty() {
            let (batch, after) = BatchView::parse(rest)?;
            rest = after;
            if batch.header.is_marker() {
                continue;
            }
            batch.check_body()?;
            for record in batch.open(0)?.records() {
                let record = record?;
                if record.offset >= found.from {
                    seen(record.value.unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

/// Appends one record at a time.
struct Adder<'a> {
    wire: Wire,
    ours: &'a Ours,
}

impl Sender for Adder<'_> {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let frame = self.ours.produce_frame(&batch_of(&[Record::new(message)]));
        self.wire.send(&frame)?;
        self.wire.take_replies_that_are_there(reply_len)?;
        Ok(())
    }
}
