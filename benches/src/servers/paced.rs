//! Paced: records sent at a pace, each with the time it was due, and seen by another connection.
//!
//! A record's latency runs from when it was due, not from when it was sent: whoever falls behind
//! shows it.

use std::thread;
use std::time::Duration;

use crate::Outcome;
use crate::stats::Latencies;
use crate::stopwatch::{Stopwatch, with_tight_timers};

const STAMP_BYTES: usize = 8;
/// Until everybody stands ready.
const LEAD: Duration = Duration::from_millis(50);

/// How many records are sent, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many in a second, one by one.
    pub a_second: u64,
    /// How many of the first are not noted.
    pub warm: u64,
    /// How many are noted.
    pub count: u64,
}

impl Pace {
    /// How many are sent in all.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.warm + self.count
    }

    /// When one is due.
    #[must_use]
    pub fn due(&self, number: u64) -> Duration {
        LEAD + Duration::from_nanos(number * 1_000_000_000 / self.a_second)
    }
}

/// Sends one record at a time, and does not wait for what is said to it.
pub trait Sender: Send {
    /// Sends it.
    ///
    /// # Errors
    /// If that fails, or an earlier one did.
    fn send(&mut self, message: &[u8]) -> Outcome<()>;
}

/// Sees the records as they come.
pub trait Tail: Send {
    /// Waits for one or more, and shows them.
    ///
    /// # Errors
    /// If none comes.
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()>;
}

/// Writes into a record when it was due.
///
/// # Panics
/// If it is shorter than that.
pub fn stamp(message: &mut [u8], due: Duration) {
    let nanos = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
    message[..STAMP_BYTES].copy_from_slice(&nanos.to_le_bytes());
}

/// When a record was due.
///
/// # Errors
/// If it is none that was stamped.
pub fn due_of(message: &[u8]) -> Outcome<Duration> {
    let stamp = message.first_chunk::<STAMP_BYTES>().ok_or("a record without a stamp has come")?;
    Ok(Duration::from_nanos(u64::from_le_bytes(*stamp)))
}

/// Sends records of `message_bytes` at the pace and waits until all were seen; returns how long
/// each took.
///
/// # Errors
/// If one could not be sent, or did not come.
///
/// # Panics
/// If the thread that sees them does.
pub fn paced(
    pace: Pace,
    message_bytes: usize,
    sender: &mut dyn Sender,
    tail: &mut dyn Tail,
) -> Outcome<Latencies> {
    let stopwatch = Stopwatch::start();
    thread::scope(|scope| {
        let seen = scope.spawn(move || watch(pace, stopwatch, tail));
        let sent = send(pace, stopwatch, message_bytes, sender);
        let seen = seen.join().expect("no panic");
        sent?;
        seen
    })
}

fn send(
    pace: Pace,
    stopwatch: Stopwatch,
    message_bytes: usize,
    sender: &mut dyn Sender,
) -> Outcome<()> {
    let mut message = vec![b'x'; message_bytes];
    with_tight_timers(|| {
        for number in 0..pace.all() {
            let due = pace.due(number);
            stopwatch.sleep_until(due);
            stamp(&mut message, due);
            sender.send(&message)?;
        }
        Ok(())
    })
}

fn watch(pace: Pace, stopwatch: Stopwatch, tail: &mut dyn Tail) -> Outcome<Latencies> {
    let mut latencies = Latencies::with_room(usize::try_from(pace.count)?);
    let mut count = 0;
    while count < pace.all() {
        let mut bad = None;
        tail.wait(&mut |message| {
            match due_of(message) {
                Ok(due) if count >= pace.warm => latencies.note(stopwatch.elapsed() - due),
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
            count += 1;
        })?;
        bad.map_or(Ok(()), Err)?;
    }
    Ok(latencies)
}
