//! Redis: one stream, kept in an append-only file; a pipeline of single XADDs is its batch.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::exchange::{Exchanged, exchange};
use super::paced::{Pace, Sender, Tail, paced};
use super::resp::{command, entries, reply_len};
use super::{Acks, Entry, Produce, Server, Start, Stop, WINDOW, free_address, once_up};
use crate::Outcome;
use crate::process::Process;
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;
use crate::wire::{Pipeline, Wire, pipelined};

pub(super) const ENTRY: Entry = Entry {
    name: "redis",
    program: "redis-server",
    in_batches_in: 5,
    can_sync: true,
    start: |start| Ok(Box::new(Redis::start(start)?)),
};

const STREAM: &[u8] = b"s";
const FIELD: &[u8] = b"d";
/// Before the first entry.
const START: &[u8] = b"0-0";
/// How many entries it is asked for at once.
const READ_ENTRIES: &[u8] = b"1000";
const BLOCK_MILLIS: &[u8] = b"10000";

struct Redis {
    process: Process,
    address: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    acks: Acks,
}

impl Redis {
    fn start(start: &Start<'_>) -> Outcome<Redis> {
        let address = free_address()?;
        let (program, dir) = (start.program.clone(), start.dir.to_path_buf());
        let process = Process::start(&mut launch(&program, &dir, address, start.acks)?)?;
        let redis = Redis { process, address, program, dir, acks: start.acks };
        once_up("redis-server", || redis.ask(&[b"PING"]).map(drop))?;
        Ok(redis)
    }

    /// One command on a connection of its own; the reply lies in the wire.
    fn ask(&self, words: &[&[u8]]) -> Outcome<(Wire, usize)> {
        let mut wire = Wire::connect(self.address)?;
        let mut request = Vec::new();
        command(&mut request, words);
        wire.send(&request)?;
        let len = wire.reply(reply_len)?;
        Ok((wire, len))
    }

    fn fetch_first(&self) -> Outcome<()> {
        let (wire, len) = self.ask(&[b"XREAD", b"COUNT", b"1", b"STREAMS", STREAM, START])?;
        match entries(&wire.received()[..len], |_, _| ())? {
            1 => Ok(()),
            count => Err(format!("{count} entries were fetched").into()),
        }
    }
}

fn launch(program: &PathBuf, dir: &PathBuf, address: SocketAddr, acks: Acks) -> Outcome<Command> {
    let said = OpenOptions::new().create(true).append(true).open(dir.join("said"))?;
    let fsync = match acks {
        Acks::Written => "everysec",
        Acks::Synced => "always",
    };
    let mut command = Command::new(program);
    command
        .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said);
    Ok(command)
}

fn add(out: &mut Vec<u8>, message: &[u8]) {
    command(out, &[b"XADD", STREAM, b"*", FIELD, message]);
}

impl Server for Redis {
    fn process(&self) -> &Process {
        &self.process
    }

    fn produce(&mut self, work: &Produce<'_>) -> Outcome<Duration> {
        let batches = work.messages.chunks_exact(work.at_once).map(|batch| {
            let mut frame = Vec::new();
            batch.iter().for_each(|message| add(&mut frame, message));
            frame
        });
        let frames = batches.collect::<Vec<_>>();
        let (count, replies) = (work.count / work.at_once as u64, work.at_once);
        let work = Pipeline { frames: &frames, count, replies, reply_len, window: WINDOW };
        pipelined(&mut Wire::connect(self.address)?, &work)
    }

    fn consume(&mut self, count: u64) -> Outcome<Duration> {
        let mut tail = Reader::connect(self.address)?;
        let (mut seen, mut bytes) = (0, 0);
        let stopwatch = Stopwatch::start();
        while seen < count {
            tail.wait(&mut |message| {
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
        let mut request = Vec::new();
        add(&mut request, message);
        let connect = |_| Ok((Wire::connect(self.address)?, request.clone()));
        exchange((0..connections).map(connect).collect::<Outcome<_>>()?, reply_len, time)
    }

    fn end_to_end(&mut self, pace: Pace, message_bytes: usize) -> Outcome<Latencies> {
        let mut adder = Adder { wire: Wire::connect(self.address)?, request: Vec::new() };
        paced(pace, message_bytes, &mut adder, &mut Reader::connect(self.address)?)
    }

    fn restart(&mut self, stop: Stop) -> Outcome<Duration> {
        match stop {
            Stop::Cleanly => self.process.stop()?,
            Stop::Kill => self.process.kill()?,
        }
        let mut launch = launch(&self.program, &self.dir, self.address, self.acks)?;
        let stopwatch = Stopwatch::start();
        self.process = Process::start(&mut launch)?;
        once_up("redis-server", || self.fetch_first())?;
        Ok(stopwatch.elapsed())
    }
}

/// Reads the stream from its start, and waits at its end.
struct Reader {
    wire: Wire,
    last: Vec<u8>,
    request: Vec<u8>,
}

impl Reader {
    fn connect(address: SocketAddr) -> Outcome<Reader> {
        Ok(Reader { wire: Wire::connect(address)?, last: START.to_vec(), request: Vec::new() })
    }
}

impl Tail for Reader {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        self.request.clear();
        let words: [&[u8]; 8] = [
            b"XREAD",
            b"COUNT",
            READ_ENTRIES,
            b"BLOCK",
            BLOCK_MILLIS,
            b"STREAMS",
            STREAM,
            &self.last,
        ];
        command(&mut self.request, &words);
        self.wire.send(&self.request)?;
        let len = self.wire.reply(reply_len)?;
        let mut last: &[u8] = &[];
        let count = entries(&self.wire.received()[..len], |id, value| {
            last = id;
            seen(value);
        })?;
        if count == 0 {
            return Err("the stream has no more entries".into());
        }
        self.last.clear();
        self.last.extend_from_slice(last);
        self.wire.take(len);
        Ok(())
    }
}

/// Adds to the stream.
struct Adder {
    wire: Wire,
    request: Vec<u8>,
}

impl Sender for Adder {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.request.clear();
        add(&mut self.request, message);
        self.wire.send(&self.request)?;
        self.wire.take_replies_that_are_there(reply_len)?;
        Ok(())
    }
}
