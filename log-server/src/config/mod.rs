//! ServerConfig: every setting and every limit of a server, with its name and default; checked once.

mod settings;
mod units;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use log_core::StoreConfig;
use log_core::protocol::{CONTROL_LIMIT_BYTES, DEFAULT_PORT};

use crate::error::ServerError;
use crate::groups::GroupLimits;

pub use settings::{Launch, LogFormat};

/// What a frame holds beside the batches of a fetch: heads, and an entry for each partition.
pub(crate) const FRAME_OVERHEAD_BYTES: usize = 1024 * 1024;

/// The bounds of a duration for which nothing else is said.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a server behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// The data directory; made if it is missing.
    pub data: PathBuf,
    /// The limits of the store.
    pub store: StoreConfig,
    /// The limits of consumer groups.
    pub groups: GroupLimits,
    /// How many threads serve connections.
    pub io_threads: usize,
    /// The most threads of each of them for what can block: cold reads, changes of topics, appends
    /// that have to wait.
    pub blocking_threads_max: usize,
    /// The most connections; one more is refused.
    pub connections_max: usize,
    /// The most bytes that may follow the length of a frame, either way. A topic's batches must
    /// fit into it.
    pub frame_max_bytes: usize,
    /// The most produce requests of a connection that may wait for their reply.
    pub produce_in_flight_max: u32,
    /// The most bytes of batches of a connection that wait to be appended, other requests that
    /// wait for their reply with them; it is not read from while they are more.
    pub produce_waiting_max_bytes: usize,
    /// The same for the batches of all connections; a produce that has to wait is refused while they are more.
    pub produce_waiting_total_max_bytes: usize,
    /// The most fetches of a connection that may wait for their reply.
    pub fetch_in_flight_max: u32,
    /// The longest that a fetch may wait for records, whatever it asks for.
    pub fetch_wait_max: Duration,
    /// The most other requests of a connection that may wait for their reply.
    pub control_in_flight_max: u32,
    /// A connection is not read from while more bytes than this wait for its peer.
    pub outgoing_max_bytes: usize,
    /// A connection that has not said hello by then is closed.
    pub hello_timeout: Duration,
    /// A connection whose frame has begun, and does not go on for so long, is closed.
    pub frame_timeout: Duration,
    /// A connection that takes no byte for so long, while some wait for it, is closed.
    pub write_timeout: Duration,
    /// A connection that asks nothing for so long, and waits for nothing, is closed.
    pub idle_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ServerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            data: PathBuf::from("data"),
            store: StoreConfig::default(),
            groups: GroupLimits::default(),
            io_threads: (cores / 2).max(1),
            blocking_threads_max: 16,
            connections_max: 10_000,
            frame_max_bytes: 64 * 1024 * 1024,
            produce_in_flight_max: 256,
            produce_waiting_max_bytes: 32 * 1024 * 1024,
            produce_waiting_total_max_bytes: 256 * 1024 * 1024,
            fetch_in_flight_max: 16,
            fetch_wait_max: Duration::from_secs(60),
            control_in_flight_max: 64,
            outgoing_max_bytes: 8 * 1024 * 1024,
            hello_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

impl ServerConfig {
    /// The default, but on any free port of this machine, with its data in `data`: for tests and
    /// for those who embed a server.
    #[must_use]
    pub fn local(data: impl Into<PathBuf>) -> ServerConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        ServerConfig { listen, data: data.into(), ..ServerConfig::default() }
    }

    /// Refuses settings that make no sense, rather than mending them.
    ///
    /// # Errors
    /// `IllegalSetting`, naming the setting and what it may be.
    pub fn check(&self) -> Result<(), ServerError> {
        self.store.check()?;
        within("io_threads", self.io_threads, 1, 1_024)?;
        within("blocking_threads_max", self.blocking_threads_max, 1, 1_024)?;
        within("connections_max", self.connections_max, 1, 1_000_000)?;
        // Control requests must fit, and a length is 32 bits wide.
        let frame_min = CONTROL_LIMIT_BYTES + FRAME_OVERHEAD_BYTES;
        within("frame_max_bytes", self.frame_max_bytes, frame_min, 1024 * 1024 * 1024)?;
        let (frame, most) = (self.frame_max_bytes, usize::MAX / 2);
        within("produce_waiting_max_bytes", self.produce_waiting_max_bytes, 64 * 1024, most)?;
        let total = self.produce_waiting_total_max_bytes;
        within("produce_waiting_total_max_bytes", total, frame, most)?;
        within("outgoing_max_bytes", self.outgoing_max_bytes, 64 * 1024, most)?;
        for (setting, count) in [
            ("produce_in_flight_max", self.produce_in_flight_max),
            ("fetch_in_flight_max", self.fetch_in_flight_max),
            ("control_in_flight_max", self.control_in_flight_max),
        ] {
            within(setting, count as usize, 1, 100_000)?;
        }
        for (setting, duration) in [
            ("hello_timeout", self.hello_timeout),
            ("frame_timeout", self.frame_timeout),
            ("write_timeout", self.write_timeout),
            ("idle_timeout", self.idle_timeout),
            ("fetch_wait_max", self.fetch_wait_max),
        ] {
            within_time(setting, duration, SHORTEST, LONGEST)?;
        }
        self.groups.check()
    }

    /// The most bytes of batches that the reply to a fetch can hold.
    pub(crate) fn fetch_max_bytes(&self) -> usize {
        self.frame_max_bytes - FRAME_OVERHEAD_BYTES
    }
}

/// Refuses a number that is out of bounds.
pub(crate) fn within(
    setting: &'static str,
    value: usize,
    min: usize,
    max: usize,
) -> Result<(), ServerError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let why = format!("{value} is not within {min}..={max}");
    Err(ServerError::IllegalSetting { setting, why })
}

/// Refuses a duration that is out of bounds.
pub(crate) fn within_time(
    setting: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), ServerError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let why = format!("{value:?} is not within {min:?}..={max:?}");
    Err(ServerError::IllegalSetting { setting, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_nonsense_is_refused_by_name() {
        let sound = ServerConfig::default();
        sound.check().unwrap();
        let bad = [
            ("io_threads", ServerConfig { io_threads: 0, ..sound.clone() }),
            ("frame_max_bytes", ServerConfig { frame_max_bytes: 1024, ..sound.clone() }),
            ("hello_timeout", ServerConfig { hello_timeout: Duration::ZERO, ..sound.clone() }),
            (
                "produce_waiting_total_max_bytes",
                ServerConfig { produce_waiting_total_max_bytes: 1, ..sound.clone() },
            ),
            (
                "topics_max",
                ServerConfig { store: StoreConfig { topics_max: 0, ..sound.store }, ..sound },
            ),
        ];
        for (setting, config) in bad {
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.contains(setting), "{refused}");
        }
    }
}
