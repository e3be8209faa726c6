//! Servers: logs behind TCP, started for a run and driven over loopback by this process.

pub mod exchange;
mod nats;
mod ours;
pub mod paced;
pub mod raw;
mod redis;
mod resp;

use std::env;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Outcome;
use crate::process::Process;
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;

use exchange::Exchanged;
use paced::Pace;

/// How many batches may be on their way on a connection, without their acknowledgements.
pub const WINDOW: usize = 5;

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The record outlives the server's process.
    Written,
    /// The record is on disk.
    Synced,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is told to, and waited for.
    Cleanly,
    /// SIGKILL.
    Kill,
}

/// Records to produce on one connection.
#[derive(Debug, Clone, Copy)]
pub struct Produce<'a> {
    /// The different ones, which come round again.
    pub messages: &'a [&'a [u8]],
    /// How many there are in all: a multiple of `at_once`.
    pub count: u64,
    /// How many go in a batch: this divides the different ones.
    pub at_once: usize,
}

/// A server that runs, with one log, and the client that drives it.
pub trait Server {
    /// Its process.
    fn process(&self) -> &Process;

    /// Produces on one connection, with up to [`WINDOW`] batches on their way; returns how long
    /// it took until the last was acknowledged.
    ///
    /// # Errors
    /// What it says.
    fn produce(&mut self, work: &Produce<'_>) -> Outcome<Duration>;

    /// Visits so many records from the start on one connection; returns how long it took.
    ///
    /// # Errors
    /// What it says; if there are fewer.
    fn consume(&mut self, count: u64) -> Outcome<Duration>;

    /// Produces one record at a time on each of so many connections, for so long.
    ///
    /// # Errors
    /// What it says.
    fn exchange(
        &mut self,
        connections: usize,
        message: &[u8],
        time: Duration,
    ) -> Outcome<Exchanged>;

    /// Produces records of that length one by one at a pace, while another connection waits at
    /// the end; returns how long each took from when it was due until it was seen there.
    ///
    /// # Errors
    /// What it says.
    fn end_to_end(&mut self, pace: Pace, message_bytes: usize) -> Outcome<Latencies>;

    /// Stops it and starts it again; returns how long it took from the start of the new process
    /// until the first record was fetched.
    ///
    /// # Errors
    /// What it says; if it has no record.
    fn restart(&mut self, stop: Stop) -> Outcome<Duration>;
}

/// How a server is had.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What has to be installed.
    program: &'static str,
    /// Of the records that others take in batches, it gets one in so many: it is slower by about
    /// as much.
    pub in_batches_in: u64,
    /// Whether it can sync before it acknowledges.
    pub can_sync: bool,
    start: fn(&Start<'_>) -> Outcome<Box<dyn Server>>,
}

/// What a server is started with.
struct Start<'a> {
    program: PathBuf,
    /// Where its data goes.
    dir: &'a Path,
    acks: Acks,
}

/// Ours, spoken to as the peers are.
pub const OURS: Entry = ours::ENTRY;

/// Ours, by way of log-client.
pub const BY_CLIENT: Entry = ours::BY_CLIENT;

/// Other people's.
pub const PEERS: &[Entry] = &[redis::ENTRY, nats::ENTRY];

impl Entry {
    /// Where its program lies, if it was built beside this one or is installed.
    #[must_use]
    pub fn installed(&self) -> Option<PathBuf> {
        let beside = env::current_exe().ok();
        let beside = beside.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        let paths = env::var_os("PATH").unwrap_or_default();
        let dirs = beside.into_iter().chain(env::split_paths(&paths));
        // Where distributions put daemons, which is not on everybody's path.
        let dirs = dirs.chain([PathBuf::from("/usr/sbin")]);
        dirs.map(|dir| dir.join(self.program)).find(|path| path.is_file())
    }

    /// Starts it in an empty directory and waits until it answers.
    ///
    /// # Errors
    /// If it is not installed, or does not come up.
    pub fn start(&self, dir: &Path, acks: Acks) -> Outcome<Box<dyn Server>> {
        let missing = || format!("{}: not installed", self.program);
        let program = self.installed().ok_or_else(missing)?;
        (self.start)(&Start { program, dir, acks })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An address of the loopback that is free now; whoever binds it should do so soon.
fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Tries until it works; a server that starts is asked so.
fn once_up<T>(what: &str, mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    const PATIENCE: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_micros(500);
    let stopwatch = Stopwatch::start();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if stopwatch.elapsed() > PATIENCE => {
                return Err(format!("{what} does not come up: {error}").into());
            }
            Err(_) => stopwatch.sleep_until(stopwatch.elapsed() + PAUSE),
        }
    }
}
