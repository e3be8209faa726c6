//! Client: this process's side of the raw controls.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{ACK, BRINGS, LEN_BYTES, WANTS};
use crate::Outcome;
use crate::controls::walk;
use crate::process::Process;
use crate::servers::WINDOW;
use crate::servers::exchange::{self, Exchanged};
use crate::servers::paced::{Pace, Sender, Tail, paced};
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;
use crate::wire::{Pipeline, Wire, pipelined};

/// Starts the other side, which says where it listens.
fn start(mut command: Command) -> Outcome<(Process, SocketAddr)> {
    // As long as its input is open, this process is there.
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let mut line = String::new();
    let output = process.child().stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim_end().parse();
    let address = address.map_err(|error| format!("the control says {line:?}: {error}"))?;
    Ok((process, address))
}

fn ack_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    Ok((bytes.len() >= ACK.len()).then_some(ACK.len()))
}

/// The frame of a batch.
fn frame(batch: &[u8]) -> Outcome<Vec<u8>> {
    Ok([u32::try_from(batch.len())?.to_le_bytes().as_slice(), batch].concat())
}

/// A process with a bare log in it.
#[derive(Debug)]
pub struct Store {
    process: Process,
    address: SocketAddr,
}

impl Store {
    /// Starts it; the command must run [`serve_store`](super::serve_store).
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(command: Command) -> Outcome<Store> {
        let (process, address) = start(command)?;
        Ok(Store { process, address })
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends so many of these batches, which come round again; returns how long it took until all
    /// were answered.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn produce(&mut self, batches: &[Vec<u8>], count: u64) -> Outcome<Duration> {
        bring(self.address, batches, count)
    }

    /// Visits so many records; returns how long it took.
    ///
    /// # Errors
    /// If there are fewer, or they are not what was brought.
    pub fn consume(&mut self, count: u64) -> Outcome<Duration> {
        let stopwatch = Stopwatch::start();
        std::hint::black_box(fetch(self.address, count)?);
        Ok(stopwatch.elapsed())
    }
}

pub(super) fn bring(address: SocketAddr, batches: &[Vec<u8>], count: u64) -> Outcome<Duration> {
    let frames = batches.iter().map(|batch| frame(batch)).collect::<Outcome<Vec<_>>>()?;
    let mut wire = Wire::connect(address)?;
    wire.send(&[BRINGS])?;
    let work = Pipeline { frames: &frames, count, replies: 1, reply_len: ack_len, window: WINDOW };
    pipelined(&mut wire, &work)
}

/// Visits at least so many records; returns how many bytes of value there were.
pub(super) fn fetch(address: SocketAddr, count: u64) -> Outcome<u64> {
    let mut wire = Wire::connect(address)?;
    wire.send(&[WANTS])?;
    let (mut seen, mut value_bytes) = (0, 0);
    while seen < count {
        wire.receive()?;
        let walked = walk(wire.received())?;
        wire.take(walked.len);
        seen += walked.records;
        value_bytes += walked.value_bytes;
    }
    Ok(value_bytes)
}

/// One batch in flight on each of so many connections; the command must run
/// [`serve_exchange`](super::serve_exchange) for so many, with frames of [`frame_bytes`].
///
/// # Errors
/// If it does not come up, or a connection is lost.
pub fn exchange(
    command: Command,
    connections: usize,
    batch: &[u8],
    time: Duration,
) -> Outcome<Exchanged> {
    let (_process, address) = start(command)?;
    exchange_with(address, connections, batch, time)
}

pub(super) fn exchange_with(
    address: SocketAddr,
    connections: usize,
    batch: &[u8],
    time: Duration,
) -> Outcome<Exchanged> {
    let request = frame(batch)?;
    let connect = |_| Ok((Wire::connect(address)?, request.clone()));
    let connections = (0..connections).map(connect).collect::<Outcome<_>>()?;
    exchange::exchange(connections, ack_len, time)
}

/// Records at a pace from one connection to the other; the command must run
/// [`serve_relay`](super::serve_relay) for messages of that length.
///
/// # Errors
/// If it does not come up, or a connection is lost.
pub fn end_to_end(command: Command, pace: Pace, message_bytes: usize) -> Outcome<Latencies> {
    let (_process, address) = start(command)?;
    paced_through(address, pace, message_bytes)
}

pub(super) fn paced_through(
    address: SocketAddr,
    pace: Pace,
    message_bytes: usize,
) -> Outcome<Latencies> {
    // The first that connects is the one that sends.
    let mut sender = Sends { wire: Wire::connect(address)? };
    let mut tail = Sees { wire: Wire::connect(address)?, message_bytes };
    paced(pace, message_bytes, &mut sender, &mut tail)
}

struct Sends {
    wire: Wire,
}

impl Sender for Sends {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.wire.send(message)?;
        self.wire.take_replies_that_are_there(ack_len)?;
        Ok(())
    }
}

struct Sees {
    wire: Wire,
    message_bytes: usize,
}

impl Tail for Sees {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        self.wire.receive()?;
        while let Some(message) = self.wire.received().get(..self.message_bytes) {
            seen(message);
            self.wire.take(self.message_bytes);
        }
        Ok(())
    }
}

/// How long the frame of a batch is.
#[must_use]
pub fn frame_bytes(batch: &[u8]) -> usize {
    LEN_BYTES + batch.len()
}
