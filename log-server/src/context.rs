//! Context: what all connections of a server share; Peer: who is at the other end of one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use log_core::Store;
use log_core::clock::{Clock, Timestamp};
use parking_lot::Mutex;

use crate::config::ServerConfig;
use crate::groups::Coordinator;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::shutdown::{Phase, Shutdown};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) config: ServerConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shutdown: Shutdown,
    /// Random: a client sees by it that the server was restarted.
    pub(crate) boot_id: u64,
    /// The clock's monotonic time of the start.
    pub(crate) started: std::time::Duration,
    pub(crate) connections: Mutex<HashMap<u64, Weak<Outbox>>>,
}

impl Context {
    /// The wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Refuses new requests from now on, and wakes all connections, so that they see it.
    pub(crate) fn drain(&self) {
        self.shutdown.advance(Phase::Draining);
        let open: Vec<_> = self.connections.lock().values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|outbox| outbox.poke());
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The connection: no other of this server has, or had, the same.
    pub(crate) id: u64,
    /// What it calls itself; not proven.
    pub(crate) client_id: String,
    /// Where it connects from.
    pub(crate) address: SocketAddr,
}

#[cfg(test)]
impl Context {
    /// That of a server without connections.
    pub(crate) fn in_dir(dir: &std::path::Path) -> Arc<Context> {
        let config = ServerConfig::local(dir);
        let mode = log_core::OpenMode::CreateIfMissing;
        let store = Store::open(dir, config.store.clone(), mode).unwrap();
        let clock = Arc::new(log_core::clock::SystemClock::new());
        let groups = config.groups.clone();
        Arc::new(Context {
            coordinator: Coordinator::new(store.clone(), clock.clone(), groups),
            metrics: Arc::new(Metrics::new()),
            shutdown: Shutdown::new(),
            boot_id: 1,
            started: std::time::Duration::ZERO,
            connections: Mutex::new(HashMap::new()),
            store,
            config,
            clock,
        })
    }
}
