//! Exchange: many connections with one request in flight on each, all driven by one thread.

use std::time::Duration;

use rustix::event::epoll;

use crate::Outcome;
use crate::stats::Latencies;
use crate::stopwatch::{Stopwatch, per_second};
use crate::wire::{ReplyLen, Wire};

/// The most that is expected of anybody in a second; there is room for so many.
const MOST_A_SECOND: u64 = 500_000;

/// What came of it.
#[derive(Debug)]
pub struct Exchanged {
    /// How many requests were answered in a second.
    pub a_second: f64,
    /// How long each of them took.
    pub latencies: Latencies,
}

/// A connection, and what is sent on it.
pub type Requests = (Wire, Vec<u8>);

/// Sends the request of each connection, again as soon as it was answered, for so long.
///
/// # Errors
/// If a connection is lost, or a reply says that something failed.
pub fn exchange(
    mut connections: Vec<Requests>,
    reply_len: ReplyLen,
    time: Duration,
) -> Outcome<Exchanged> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for ((wire, _), number) in connections.iter().zip(0..) {
        epoll::add(&poll, wire, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let room = u64::try_from(time.as_micros())? * MOST_A_SECOND / 1_000_000;
    let mut latencies = Latencies::with_room(usize::try_from(room)?);
    let mut events = Vec::with_capacity(connections.len());
    let mut count = 0;
    let stopwatch = Stopwatch::start();
    let mut sent_at = vec![Duration::ZERO; connections.len()];
    for ((wire, request), sent_at) in connections.iter_mut().zip(&mut sent_at) {
        *sent_at = stopwatch.elapsed();
        wire.send(request)?;
    }
    while stopwatch.elapsed() < time {
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let number = usize::try_from(event.data.u64())?;
            let (wire, request) = &mut connections[number];
            wire.receive()?;
            let Some(len) = reply_len(wire.received())? else { continue };
            wire.take(len);
            let now = stopwatch.elapsed();
            latencies.note(now - sent_at[number]);
            count += 1;
            sent_at[number] = now;
            wire.send(request)?;
        }
    }
    Ok(Exchanged { a_second: per_second(count, stopwatch.elapsed()), latencies })
}
