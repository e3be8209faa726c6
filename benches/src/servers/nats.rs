//! NATS: one JetStream stream in files; publishes with acknowledgements, and consumers that are pushed to.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::exchange::{Exchanged, exchange};
use super::paced::{Pace, Sender, Tail, paced};
use super::{Entry, Produce, Server, Start, Stop, WINDOW, free_address, once_up};
use crate::Outcome;
use crate::process::Process;
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;
use crate::wire::{Pipeline, Wire, pipelined};

pub(super) const ENTRY: Entry = Entry {
    name: "nats",
    program: "nats-server",
    in_batches_in: 25,
    // Version 2.9 never syncs before it acknowledges; later ones do so once a record.
    can_sync: false,
    start: |start| Ok(Box::new(Nats::start(start)?)),
};

const STREAM: &str = "bench";
const SUBJECT: &str = "records";
/// Where a connection has its replies sent; no two subscribe to one.
const INBOX: &str = "inbox";
const PUSHED: &str = "pushed";
const PING: &[u8] = b"PING\r\n";

struct Nats {
    process: Process,
    address: SocketAddr,
    program: PathBuf,
    config: PathBuf,
    /// So that each connection has an inbox of its own.
    connections: u32,
}

impl Nats {
    fn start(start: &Start<'_>) -> Outcome<Nats> {
        let address = free_address()?;
        let (program, config) = (start.program.clone(), start.dir.join("nats.conf"));
        fs::write(&config, configuration(start.dir, address))?;
        let process = Process::start(&mut launch(&program, &config)?)?;
        let mut nats = Nats { process, address, program, config, connections: 0 };
        let (mut wire, inbox) = once_up("nats-server", || nats.connect())?;
        let stream = json!({
            "name": STREAM, "subjects": [SUBJECT], "storage": "file", "num_replicas": 1,
            "retention": "limits", "discard": "old",
        });
        ask(&mut wire, &inbox, &format!("$JS.API.STREAM.CREATE.{STREAM}"), &stream)?;
        Ok(nats)
    }

    /// A connection that is subscribed to an inbox of its own.
    fn connect(&mut self) -> Outcome<(Wire, String)> {
        let mut wire = Wire::connect(self.address)?;
        self.connections += 1;
        let inbox = format!("{INBOX}.{}", self.connections);
        let options = json!({ "verbose": false, "pedantic": false, "headers": true });
        let hello = format!("CONNECT {options}\r\nSUB {inbox} 1\r\nPING\r\n");
        wire.send(hello.as_bytes())?;
        while !wire.received().ends_with(b"PONG\r\n") {
            if let Some(at) = find(wire.received(), b"-ERR") {
                let said = String::from_utf8_lossy(&wire.received()[at..]);
                return Err(format!("NATS: {said}").into());
            }
            wire.receive()?;
        }
        wire.take(wire.received().len());
        Ok((wire, inbox))
    }

    /// A connection to which the stream is pushed, from its start.
    fn pushed(&mut self) -> Outcome<Pushed> {
        let (mut wire, inbox) = self.connect()?;
        let subject = format!("{PUSHED}.{}", self.connections);
        wire.send(format!("SUB {subject} 2\r\n").as_bytes())?;
        let consumer = json!({
            "stream_name": STREAM,
            "config": {
                "deliver_subject": subject, "deliver_policy": "all", "ack_policy": "none",
                "replay_policy": "instant", "max_deliver": 1, "mem_storage": true,
            },
        });
        // Records may come before the answer does: it is not waited for.
        let api = format!("$JS.API.CONSUMER.CREATE.{STREAM}");
        wire.send(&publish(&api, &inbox, consumer.to_string().as_bytes()))?;
        Ok(Pushed { wire, inbox })
    }

    fn fetch_first(&mut self) -> Outcome<()> {
        let (mut wire, inbox) = self.connect()?;
        let api = format!("$JS.API.STREAM.MSG.GET.{STREAM}");
        ask(&mut wire, &inbox, &api, &json!({ "seq": 1 }))
    }
}

fn configuration(dir: &Path, address: SocketAddr) -> String {
    let store = dir.display();
    format!("listen: \"{address}\"\njetstream {{ store_dir: \"{store}\", max_file_store: 16GB }}\n")
}

fn launch(program: &PathBuf, config: &Path) -> Outcome<Command> {
    let said = OpenOptions::new().create(true).append(true).open(config.with_extension("said"))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(config);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    Ok(command)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn publish(subject: &str, reply_to: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 64);
    publish_into(&mut out, subject, reply_to, payload);
    out
}

fn publish_into(out: &mut Vec<u8>, subject: &str, reply_to: &str, payload: &[u8]) {
    write!(out, "PUB {subject} {reply_to} {}\r\n", payload.len()).expect("writing to memory");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Asks the API, and waits for an answer that is no error.
fn ask(wire: &mut Wire, inbox: &str, api: &str, what: &Value) -> Outcome<()> {
    wire.send(&publish(api, inbox, what.to_string().as_bytes()))?;
    let len = wire.reply(delivered_len)?;
    let delivered = delivered(wire.received())?.ok_or("no whole answer")?;
    let answer = serde_json::from_slice::<Value>(delivered.payload)?;
    if let Some(error) = answer.get("error") {
        return Err(format!("NATS: {api}: {error}").into());
    }
    wire.take(len);
    Ok(())
}

/// A message that has come.
#[derive(Debug, PartialEq)]
struct Delivered<'a> {
    subject: &'a [u8],
    payload: &'a [u8],
    /// How much of the bytes it takes.
    len: usize,
}

/// The message at the front; none if it is not all there.
fn delivered(bytes: &[u8]) -> Outcome<Option<Delivered<'_>>> {
    // A ping may come at any time; runs are too short for it to matter that it is not answered.
    if let Some(rest) = bytes.strip_prefix(PING) {
        let found = delivered(rest)?;
        return Ok(found.map(|found| Delivered { len: found.len + PING.len(), ..found }));
    }
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let line = bytes[..end].trim_ascii_end();
    let other = || format!("NATS: {}", String::from_utf8_lossy(line));
    let mut words = line.split(|&byte| byte == b' ');
    if words.next() != Some(b"MSG") {
        return Err(other().into());
    }
    let subject = words.next().ok_or_else(other)?;
    let len = words.next_back().ok_or_else(other)?;
    let len = str::from_utf8(len)?.parse::<usize>()?;
    let start = end + 1;
    let payload = bytes.get(start..start + len).filter(|_| bytes.len() >= start + len + 2);
    Ok(payload.map(|payload| Delivered { subject, payload, len: start + len + 2 }))
}

fn delivered_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    Ok(delivered(bytes)?.map(|found| found.len))
}

/// What a reply to a publish is: an acknowledgement of the stream, or it failed.
fn ack_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    match delivered(bytes)? {
        Some(Delivered { payload, len, .. }) if payload.starts_with(b"{\"stream\"") => {
            Ok(Some(len))
        }
        Some(Delivered { payload, .. }) => {
            Err(format!("NATS: not stored: {}", String::from_utf8_lossy(payload)).into())
        }
        None => Ok(None),
    }
}

impl Server for Nats {
    fn process(&self) -> &Process {
        &self.process
    }

    fn produce(&mut self, work: &Produce<'_>) -> Outcome<Duration> {
        let (mut wire, inbox) = self.connect()?;
        let batches = work.messages.chunks_exact(work.at_once).map(|batch| {
            let mut frame = Vec::new();
            batch.iter().for_each(|message| publish_into(&mut frame, SUBJECT, &inbox, message));
            frame
        });
        let frames = batches.collect::<Vec<_>>();
        let (count, replies) = (work.count / work.at_once as u64, work.at_once);
        let reply_len = ack_len;
        pipelined(
            &mut wire,
            &Pipeline { frames: &frames, count, replies, reply_len, window: WINDOW },
        )
    }

    fn consume(&mut self, count: u64) -> Outcome<Duration> {
        let (mut seen, mut bytes) = (0, 0);
        let stopwatch = Stopwatch::start();
        let mut tail = self.pushed()?;
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
        let connect = |_| {
            let (wire, inbox) = self.connect()?;
            Ok((wire, publish(SUBJECT, &inbox, message)))
        };
        exchange((0..connections).map(connect).collect::<Outcome<_>>()?, ack_len, time)
    }

    fn end_to_end(&mut self, pace: Pace, message_bytes: usize) -> Outcome<Latencies> {
        let mut tail = self.pushed()?;
        let (wire, inbox) = self.connect()?;
        let mut publisher = Publisher { wire, inbox, request: Vec::new() };
        paced(pace, message_bytes, &mut publisher, &mut tail)
    }

    fn restart(&mut self, stop: Stop) -> Outcome<Duration> {
        match stop {
            Stop::Cleanly => self.process.stop()?,
            Stop::Kill => self.process.kill()?,
        }
        let mut launch = launch(&self.program, &self.config)?;
        let stopwatch = Stopwatch::start();
        self.process = Process::start(&mut launch)?;
        once_up("nats-server", || self.fetch_first())?;
        Ok(stopwatch.elapsed())
    }
}

struct Publisher {
    wire: Wire,
    inbox: String,
    request: Vec<u8>,
}

impl Sender for Publisher {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.request.clear();
        publish_into(&mut self.request, SUBJECT, &self.inbox, message);
        self.wire.send(&self.request)?;
        self.wire.take_replies_that_are_there(ack_len)?;
        Ok(())
    }
}

/// A connection to which records are pushed.
struct Pushed {
    wire: Wire,
    /// Where the answer about the consumer comes, among the records.
    inbox: String,
}

impl Tail for Pushed {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        self.wire.reply(delivered_len)?;
        let mut taken = 0;
        let bytes = self.wire.received();
        while let Some(Delivered { subject, payload, len }) = delivered(&bytes[taken..])? {
            taken += len;
            // A push keeps the subject that the record was published with.
            if subject == self.inbox.as_bytes() {
                if find(payload, b"\"error\"").is_some() {
                    return Err(format!("NATS: {}", String::from_utf8_lossy(payload)).into());
                }
            } else {
                seen(payload);
            }
        }
        self.wire.take(taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_or_not_there() {
        let bytes = b"PING\r\nMSG inbox.1 1 5\r\nhe\r\no\r\nMSG";
        for len in 0..bytes.len() - 3 {
            assert_eq!(delivered(&bytes[..len]).unwrap(), None, "{len}");
        }
        let found = Delivered { subject: b"inbox.1", payload: b"he\r\no", len: bytes.len() - 3 };
        assert_eq!(delivered(bytes).unwrap(), Some(found));
        let replied_to = delivered(b"MSG a 1 reply.to 1\r\nx\r\n").unwrap();
        assert_eq!(replied_to.map(|found| found.payload), Some(&b"x"[..]));
        assert!(delivered(b"-ERR 'no'\r\n").is_err());
    }

    #[test]
    fn only_what_was_stored_is_acknowledged() {
        let ack = b"MSG i 1 26\r\n{\"stream\":\"bench\",\"seq\":1}\r\n";
        assert_eq!(ack_len(ack).unwrap(), Some(ack.len()));
        assert!(ack_len(b"MSG i 1 12\r\n{\"error\":{}}\r\n").is_err());
    }
}
