//! FaultProxy: stands between clients and a server, and does to their connections what networks do.
//!
//! Each connection has two ways, and each way a fault, which may change while it lives. What a seed
//! gives is a function of the seed and the connection's number; when bytes arrive is not.

mod faults;
mod pump;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use faults::{Fault, Faults, Way};

/// How often threads look whether anything has changed.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    over: bool,
    refuses: bool,
    /// Where the faults of connections to come are from.
    source: Source,
    connections: Vec<Connection>,
    /// How many bytes were passed on, each way.
    passed: [u64; 2],
}

#[derive(Debug)]
enum Source {
    /// The same for all.
    Same(Faults),
    /// One after the other, then none.
    Script(Vec<Faults>),
    Seed(u64),
}

#[derive(Debug)]
struct Connection {
    faults: Faults,
    open: bool,
    streams: [TcpStream; 2],
}

impl FaultProxy {
    /// A proxy to this address, without faults.
    ///
    /// # Errors
    /// What the system says if there is no port.
    pub fn start(target: SocketAddr) -> io::Result<FaultProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = State {
            target,
            over: false,
            refuses: false,
            source: Source::Same(Faults::NONE),
            connections: Vec::new(),
            passed: [0; 2],
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let for_thread = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &for_thread));
        Ok(FaultProxy { shared, address, acceptor: Some(acceptor) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads connections to come to another address.
    pub fn aim(&self, target: SocketAddr) {
        self.shared.lock().target = target;
    }

    /// Connections to come are closed at once, or not any more.
    pub fn refuse(&self, refuses: bool) {
        self.shared.lock().refuses = refuses;
    }

    /// Faults for all connections: those that are open, and those to come.
    pub fn set(&self, faults: Faults) {
        let mut state = self.shared.lock();
        for connection in &mut state.connections {
            connection.faults = faults;
        }
        state.source = Source::Same(faults);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Faults for the connections to come, one after the other; those after them have none.
    pub fn script(&self, faults: &[Faults]) {
        self.shared.lock().source = Source::Script(faults.iter().rev().copied().collect());
    }

    /// Faults for the connections to come as a seed gives them, see [`Faults::of_seed`].
    pub fn seed(&self, seed: u64) {
        self.shared.lock().source = Source::Seed(seed);
    }

    /// Cuts all connections that are open.
    pub fn drop_all(&self) {
        for connection in &mut self.shared.lock().connections {
            connection.close();
        }
        self.shared.changed.notify_all();
    }

    /// How many connections have been led on so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// How many of them are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.lock().connections.iter().filter(|connection| connection.open).count()
    }

    /// How many bytes were passed on this way.
    #[must_use]
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.lock().passed[way as usize]
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.drop_all();
        if let Some(acceptor) = self.acceptor.take() {
            // It has panicked, if at all, where a test has seen it.
            let _ = acceptor.join();
        }
    }
}

impl Connection {
    fn close(&mut self) {
        self.open = false;
        for stream in &self.streams {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn next_faults(&mut self) -> Faults {
        let number = self.connections.len() as u64;
        match &mut self.source {
            Source::Same(faults) => *faults,
            Source::Script(faults) => faults.pop().unwrap_or(Faults::NONE),
            Source::Seed(seed) => Faults::of_seed(*seed, number),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, and not longer than this.
    pub(crate) fn wait(&self, time: Duration) {
        let guard = self.lock();
        drop(self.changed.wait_timeout(guard, time));
    }

    /// Waits all of this time, if the connection stays open.
    pub(crate) fn delay(&self, connection: usize, mut left: Duration) {
        while !left.is_zero() && self.fault(connection, Way::Requests).is_some() {
            let step = left.min(TICK);
            self.wait(step);
            left -= step;
        }
    }

    /// The fault in force; none if the connection is closed.
    pub(crate) fn fault(&self, connection: usize, way: Way) -> Option<Fault> {
        let state = self.lock();
        let found = &state.connections[connection];
        (found.open && !state.over).then(|| found.faults.of(way))
    }

    pub(crate) fn close(&self, connection: usize) {
        self.lock().connections[connection].close();
        self.changed.notify_all();
    }

    pub(crate) fn has_passed(&self, way: Way, bytes: usize) {
        self.lock().passed[way as usize] += bytes as u64;
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while !shared.lock().over {
        match listener.accept() {
            // A target that can't be reached looks as a connection that is closed at once.
            Ok((client, _)) => threads.extend(lead(client, shared).into_iter().flatten()),
            Err(_) => shared.wait(TICK),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn lead(client: TcpStream, shared: &Arc<Shared>) -> io::Result<[JoinHandle<()>; 2]> {
    let (target, refuses) = {
        let state = shared.lock();
        (state.target, state.refuses)
    };
    if refuses {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    client.set_nonblocking(false)?;
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
    }
    let mut state = shared.lock();
    let number = state.connections.len();
    let faults = state.next_faults();
    let streams = [client.try_clone()?, server.try_clone()?];
    state.connections.push(Connection { faults, open: true, streams });
    drop(state);
    let ways =
        [(Way::Requests, client.try_clone()?, server.try_clone()?), (Way::Replies, server, client)];
    Ok(ways.map(|(way, from, to)| {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || pump::run(&shared, number, way, from, to))
    }))
}
