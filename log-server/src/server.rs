//! Server: a store behind TCP. It has threads of its own, so that whoever embeds it needs no
//! runtime.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use log_core::background::Background;
use log_core::clock::{Clock, SystemClock};
use log_core::disk::OsDisk;
use log_core::{OpenMode, Store};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, LocalSet};

use crate::config::ServerConfig;
use crate::connection;
use crate::context::Context;
use crate::error::ServerError;
use crate::groups::Coordinator;
use crate::listener::{self, Accepted};
use crate::logging;
use crate::metrics::{Ending, Metrics};
use crate::outbox::Outbox;
use crate::session::Session;
use crate::shutdown::{Phase, Shutdown};

/// How long a stop waits if the server is dropped.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long work that can't be cut off (a read of a disk that hangs) may hold up the end.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropped, it stops.
#[derive(Debug)]
pub struct Server {
    context: Arc<Context>,
    address: SocketAddr,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Opens the store, and serves it from now on.
    ///
    /// # Errors
    /// `IllegalSetting`; `Store` if it can't be opened; `Listen`; `System`.
    pub fn bind(config: ServerConfig) -> Result<Server, ServerError> {
        config.check()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Store::open_with(
            &config.data,
            config.store.clone(),
            OpenMode::CreateIfMissing,
            Arc::new(OsDisk),
            Arc::clone(&clock),
            Background::threads(config.store.background_threads_max),
        )?;
        logging::tell_recovery(&store);
        let listen = |source| ServerError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        // Listening again only makes the queue longer.
        rustix::net::listen(&listener, listener::BACKLOG).map_err(|error| listen(error.into()))?;
        let address = listener.local_addr().map_err(listen)?;
        let context = Arc::new(Context {
            coordinator: Coordinator::new(store.clone(), Arc::clone(&clock), config.groups.clone()),
            metrics: Arc::new(Metrics::new()),
            shutdown: Shutdown::new(),
            boot_id: random()?,
            started: clock.monotonic(),
            connections: Mutex::new(HashMap::new()),
            store,
            config,
            clock,
        });
        let server = Server { context, address, threads: Mutex::new(Vec::new()) };
        server.start(listener)?;
        let version = env!("CARGO_PKG_VERSION");
        let data = server.context.config.data.display();
        tracing::info!(%address, %data, version, "listening");
        Ok(server)
    }

    fn start(&self, listener: TcpListener) -> Result<(), ServerError> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..self.context.config.io_threads).map(|_| unbounded_channel()).unzip();
        let mut first = Some((listener, senders));
        for (number, receiver) in receivers.into_iter().enumerate() {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(self.context.config.blocking_threads_max)
                .thread_name("log-blocking")
                .build()
                .map_err(|source| ServerError::System { action: "make a runtime", source })?;
            let (context, first) = (Arc::clone(&self.context), first.take());
            let thread = std::thread::Builder::new()
                .name(format!("log-io-{number}"))
                .spawn(move || io_thread(&context, runtime, receiver, first))
                .map_err(|source| ServerError::System { action: "start a thread", source })?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The store that it serves, for use in this process. Groups notice a change of its topics with
    /// the next heartbeat of a member.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.context.store
    }

    /// Stops: no connection is accepted and no request begun from now on; what is under way is
    /// answered, for `timeout` at the longest; then the store is closed in order. A second call
    /// does nothing.
    ///
    /// # Errors
    /// `StopDeadline` if connections had to be cut off; `Store` if it could not be closed in order.
    pub fn stop(&self, timeout: Duration) -> Result<(), ServerError> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return Ok(());
        }
        let clock = &self.context.clock;
        let deadline = clock.monotonic().saturating_add(timeout);
        self.context.drain();
        self.context.coordinator.stop(timeout);
        let left = deadline.saturating_sub(clock.monotonic());
        let connections = self.context.shutdown.wait_closed(left);
        self.context.shutdown.advance(Phase::Over);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that served connections had panicked");
            }
        }
        self.context.store.close()?;
        if connections > 0 { Err(ServerError::StopDeadline { connections }) } else { Ok(()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop(DROP_TIMEOUT) {
            tracing::warn!(%error, "the server was dropped, and did not stop in order");
        }
    }
}

fn random() -> Result<u64, ServerError> {
    let failed = |error: getrandom::Error| {
        let source = std::io::Error::other(error.to_string());
        ServerError::System { action: "get random bytes", source }
    };
    getrandom::u64().map_err(failed)
}

type First = (TcpListener, Vec<UnboundedSender<Accepted>>);

/// Serves the connections that are dealt to this thread; the first one accepts them, too.
fn io_thread(
    context: &Arc<Context>,
    runtime: Runtime,
    receiver: UnboundedReceiver<Accepted>,
    first: Option<First>,
) {
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        if let Some((listener, threads)) = first {
            let coordinator = Arc::clone(&context.coordinator);
            tokio::task::spawn_local(async move { coordinator.run().await });
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    let context = Arc::clone(context);
                    tokio::task::spawn_local(listener::listen(context, listener, threads));
                }
                Err(error) => tracing::error!(%error, "cannot wait for connections"),
            }
        }
        // To the end, though no connection may be left here: others may still need the groups.
        tokio::select! {
            () = serve_dealt(context, receiver) => {}
            () = context.shutdown.reached(Phase::Over) => {}
        }
    });
    drop(tasks);
    runtime.shutdown_timeout(BLOCKED_TIMEOUT);
}

/// Never returns: its connections end with it.
async fn serve_dealt(context: &Arc<Context>, mut receiver: UnboundedReceiver<Accepted>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some(accepted) = receiver.recv() => {
                tasks.spawn_local(serve_one(Arc::clone(context), accepted));
            }
            // What a connection held was given back while it unwound.
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a bug of ours has ended a connection");
                }
            }
            else => std::future::pending().await,
        }
    }
}

/// What a connection has registered; given back when it ends, by a panic, too.
struct Open {
    context: Arc<Context>,
    outbox: Arc<Outbox>,
    id: u64,
    ending: Ending,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.outbox.close();
        self.context.connections.lock().remove(&self.id);
        self.context.metrics.connections.sub(1);
        self.context.metrics.ended(self.ending);
        self.context.shutdown.connection_closed();
    }
}

async fn serve_one(context: Arc<Context>, accepted: Accepted) {
    let Accepted { id, stream, address } = accepted;
    let outbox = Outbox::new(Arc::clone(&context.metrics));
    context.metrics.connections.add(1);
    context.connections.lock().insert(id, Arc::downgrade(&outbox));
    let mut open = Open {
        context: Arc::clone(&context),
        outbox: Arc::clone(&outbox),
        id,
        ending: Ending::Panicked,
    };
    let mut session = Session::new(Arc::clone(&context), outbox, id, address);
    open.ending = match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => connection::serve(stream, &mut session).await,
        Err(_) => Ending::Broken,
    };
    let client = session.peer.as_ref().map_or("", |peer| peer.client_id.as_str()).escape_debug();
    let why = open.ending.name();
    tracing::debug!(connection = id, %address, %client, why, "connection ended");
}
