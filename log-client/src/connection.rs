//! Connection: one TCP connection, its requests on their way, and the task that reads the replies.
//!
//! A request is written where it is made, if nothing waits before it; else the connection's task
//! writes it. A reply ends the request that has its correlation id, in any order. A connection
//! that was lost stays lost, and every request is told whether all of it had been written.

mod driver;

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use log_core::protocol::frame::{FRAME_HEAD_BYTES, RequestHead};
use log_core::protocol::hello::{HelloReplyV1, HelloV1};
use log_core::protocol::{self, Call, ErrorCode, Outgoing, Refusal};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// Pieces of a request from this size on are shared with the socket, not copied.
const SHARED_MIN_BYTES: usize = 4 * 1024;
/// The most pieces that one write hands to the socket.
const SLICES: usize = 64;

/// What a reply says: its code, and its body without a copy.
#[derive(Debug)]
pub(crate) struct Reply {
    code: u16,
    body: Bytes,
}

/// A request got no reply: the connection was lost, or the time was up.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether the server may have seen it whole. If not, it is as if it had never been made.
    pub(crate) sent: bool,
    /// Why.
    pub(crate) error: Error,
}

/// What a request ends with.
pub(crate) type Answer = std::result::Result<Reply, Failure>;

/// Told the answer to a request, once, by the connection's task. It must not block.
pub(crate) type OnAnswer = Box<dyn FnOnce(Answer) + Send>;

impl Reply {
    /// The body, if the server has not refused.
    ///
    /// # Errors
    /// `Refused`; `Protocol` for a refusal that can't be read.
    pub(crate) fn accepted(self) -> Result<Bytes> {
        if self.code == ErrorCode::Ok.number() {
            return Ok(self.body);
        }
        Err(Error::Refused(protocol::decode_body::<Refusal>(&self.body)?))
    }
}

/// One connection; clones share it. It is closed with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Handle>);

/// Closes the connection when it is dropped; the connection's task does not hold it.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    hello: HelloReplyV1,
}

#[derive(Debug)]
struct Shared {
    address: String,
    stream: TcpStream,
    state: Mutex<State>,
    /// Tells the task: bytes wait, or the connection is over.
    changed: Notify,
}

#[derive(Default)]
struct State {
    outgoing: Outgoing,
    pending: HashMap<u32, Pending>,
    /// Without a reply, and not all with the socket yet; in the order in which they were made.
    telling: VecDeque<Pending>,
    next_correlation: u32,
    /// Bytes that the socket has taken, and that were put out at all.
    written: u64,
    put: u64,
    /// The most bytes that may follow a frame's length.
    frame_max_bytes: usize,
    over: Option<Error>,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Answered,
    /// The socket has all of it; if that is so at once, its callback is not called.
    Written,
}

/// A request that was put out.
struct Sent {
    correlation: u32,
    /// Whether the socket has all of it.
    written: bool,
}

struct Pending {
    /// Where the request ends in the stream: the server can act on it only once it has all of it.
    ends: u64,
    on_answer: OnAnswer,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pending, waiting) = (self.pending.len(), self.outgoing.len());
        write!(f, "State {{ pending: {pending}, waiting: {waiting}, over: {:?} }}", self.over)
    }
}

impl Connection {
    /// Connects and says hello.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`, `Protocol`, or `Refused`.
    pub(crate) async fn open(config: &ClientConfig, deadline: Instant) -> Result<Connection> {
        let address = config.address.clone();
        let lost = |error: io::Error| unreachable_at(&config.address, &error);
        let dial = timeout_at(deadline, TcpStream::connect(&address)).await;
        let stream = dial
            .map_err(|_| Error::TimedOut { what: format!("connecting to {address}") })?
            .map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let state = State { frame_max_bytes: usize::MAX, ..State::default() };
        let (state, changed) = (Mutex::new(state), Notify::new());
        let shared = Arc::new(Shared { address, stream, state, changed });
        tokio::spawn(driver::run(Arc::clone(&shared), config.clone()));
        // Whoever gives up here closes the connection with this.
        let closer = Closer(Some(&shared));
        let software = concat!("log-client ", env!("CARGO_PKG_VERSION")).to_owned();
        let hello = HelloV1 { client_id: config.client_id.clone(), software };
        let reply = shared.call(&hello, deadline).await.map_err(|failure| failure.error)?;
        closer.keep();
        let limit = usize::try_from(reply.frame_max_bytes).unwrap_or(usize::MAX);
        shared.state.lock().frame_max_bytes = limit;
        Ok(Connection(Arc::new(Handle { shared, hello: reply })))
    }

    /// What the server has said of itself.
    pub(crate) fn hello(&self) -> &HelloReplyV1 {
        &self.0.hello
    }

    /// Whether it was lost or closed.
    pub(crate) fn is_over(&self) -> bool {
        self.0.shared.state.lock().over.is_some()
    }

    /// Ends it, for all who share it: the server does not answer.
    pub(crate) fn give_up(&self) {
        let Shared { address, .. } = &*self.0.shared;
        let silent = io::Error::new(io::ErrorKind::TimedOut, "the server does not answer");
        self.0.shared.end(unreachable_at(address, &silent));
    }

    /// Sends a request, its body in two pieces; `on_answer` is told the reply. It waits for nothing, and calls nothing
    /// back while it runs, so that it may be called under a lock that `on_answer` takes.
    ///
    /// # Errors
    /// The connection is over, or the frame too long for the server: nothing was sent, and
    /// `on_answer` is not called.
    pub(crate) fn request(
        &self,
        kind: (u16, u16),
        body: (&[u8], &Bytes),
        on_answer: OnAnswer,
    ) -> Result<()> {
        self.0.shared.send(kind, body, Until::Answered, on_answer).map(drop)
    }

    /// Sends a request that has no reply; returns whether the socket has all of it. If not,
    /// `on_written` is told once that is so, with an empty reply, under the rules of `request`.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub(crate) fn tell(
        &self,
        kind: (u16, u16),
        body: (&[u8], &Bytes),
        on_written: OnAnswer,
    ) -> Result<bool> {
        self.0.shared.send(kind, body, Until::Written, on_written).map(|sent| sent.written)
    }

    /// Sends a request and waits for the body of its reply.
    ///
    /// # Errors
    /// The refusal, or why there is no reply.
    pub(crate) async fn ask(
        &self,
        kind: (u16, u16),
        body: &Bytes,
        deadline: Instant,
    ) -> std::result::Result<Bytes, Failure> {
        self.0.shared.ask(kind, body, deadline).await
    }

    /// Sends a request and waits until its reply was taken. `take` is given the body by the
    /// connection's task, with nothing between; it must not block.
    ///
    /// # Errors
    /// The refusal, or why there is no reply: `take` was not called, or will not be.
    pub(crate) async fn ask_and_take<T: Send + 'static>(
        &self,
        kind: (u16, u16),
        body: &Bytes,
        deadline: Instant,
        take: impl FnOnce(Bytes) -> T + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        self.0.shared.ask_and_take(kind, body, deadline, take).await
    }

    /// A control call, once.
    ///
    /// # Errors
    /// The refusal, or why there is no reply.
    pub(crate) async fn call<C: Call>(
        &self,
        call: &C,
        deadline: Instant,
    ) -> std::result::Result<C::Reply, Failure> {
        self.0.shared.call(call, deadline).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(Error::Closed { what: "the connection" });
    }
}

/// Ends a connection unless it is told to keep it.
struct Closer<'a>(Option<&'a Shared>);

impl Closer<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.end(Error::Closed { what: "the connection" });
        }
    }
}

/// Forgets a request whose caller has gone, so that it takes no memory until its reply comes.
struct Forget<'a>(&'a Shared, u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let forgotten = self.0.state.lock().pending.remove(&self.1);
        // Its callback may do more than free memory; not under the lock.
        drop(forgotten);
    }
}

impl Shared {
    fn send(
        &self,
        (kind, version): (u16, u16),
        (first, rest): (&[u8], &Bytes),
        until: Until,
        on_answer: OnAnswer,
    ) -> Result<Sent> {
        let length = first.len() + rest.len();
        let mut state = self.state.lock();
        if let Some(error) = &state.over {
            return Err(error.clone());
        }
        let after_length = length + FRAME_HEAD_BYTES - size_of::<u32>();
        if after_length > state.frame_max_bytes {
            let (actual, limit) = (after_length as u64, state.frame_max_bytes as u64);
            let message =
                format!("a request of {actual} bytes is longer than the server's {limit}");
            let refusal = Refusal::new(ErrorCode::TooLarge, message);
            return Err(Error::Refused(refusal.with_numbers(&[actual, limit])));
        }
        let correlation = state.free_correlation();
        let ends = state.put + (FRAME_HEAD_BYTES + length) as u64;
        let pending = Pending { ends, on_answer };
        match until {
            Until::Answered => drop(state.pending.insert(correlation, pending)),
            Until::Written => state.telling.push_back(pending),
        }
        let idle = state.outgoing.is_empty();
        state.put_out(&RequestHead { kind, version, correlation }.encode(length));
        state.put_out(first);
        if rest.len() < SHARED_MIN_BYTES {
            state.put_out(rest);
        } else {
            state.put += rest.len() as u64;
            state.outgoing.put_shared(Bytes::clone(rest));
        }
        // If others wait, the task is at it already.
        let mut written = false;
        if idle {
            let outcome = self.write(&mut state);
            let unfinished = !state.outgoing.is_empty();
            written = state.written >= ends;
            if written && until == Until::Written {
                // Those before it were told when the socket had taken them.
                state.telling.pop_back();
            }
            drop(state);
            match outcome {
                Err(error) => self.end(unreachable_at(&self.address, &error)),
                Ok(()) if unfinished => self.changed.notify_one(),
                Ok(()) => {}
            }
        }
        Ok(Sent { correlation, written })
    }

    /// Writes what waits, as far as the socket takes it.
    fn write(&self, state: &mut State) -> io::Result<()> {
        while !state.outgoing.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = state.outgoing.fill(&mut slices);
            match self.stream.try_write_vectored(&slices[..filled]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    state.outgoing.advance(written);
                    state.written += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Marks the connection as over; its task then tells all that wait.
    fn end(&self, error: Error) {
        self.state.lock().over.get_or_insert(error);
        self.changed.notify_one();
    }

    async fn ask(
        &self,
        kind: (u16, u16),
        body: &Bytes,
        deadline: Instant,
    ) -> std::result::Result<Bytes, Failure> {
        self.ask_and_take(kind, body, deadline, |body| body).await
    }

    async fn ask_and_take<T: Send + 'static>(
        &self,
        kind: (u16, u16),
        body: &Bytes,
        deadline: Instant,
        take: impl FnOnce(Bytes) -> T + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let on_answer = Box::new(move |answer: Answer| {
            let taken = answer.and_then(|reply| {
                let body = reply.accepted().map_err(|error| Failure { sent: true, error })?;
                Ok(take(body))
            });
            drop(tell.send(taken));
        });
        let unsent = |error| Failure { sent: false, error };
        let sent = self.send(kind, (&[], body), Until::Answered, on_answer).map_err(unsent)?;
        let _forget = Forget(self, sent.correlation);
        match timeout_at(deadline, told).await {
            Ok(Ok(taken)) => taken,
            // The task never drops a request without an answer, unless its runtime is shut down.
            Ok(Err(_)) => Err(Failure { sent: true, error: Error::Closed { what: "the runtime" } }),
            // What waits to be written will be written.
            Err(_) => {
                let what = format!("a reply from {}", self.address);
                Err(Failure { sent: true, error: Error::TimedOut { what } })
            }
        }
    }

    async fn call<C: Call>(
        &self,
        call: &C,
        deadline: Instant,
    ) -> std::result::Result<C::Reply, Failure> {
        let body = Bytes::from(log_core::codec::encode(call));
        let body = self.ask((C::KIND.number(), C::VERSION), &body, deadline).await?;
        protocol::decode_body(&body).map_err(|fault| Failure { sent: true, error: fault.into() })
    }
}

impl State {
    fn put_out(&mut self, bytes: &[u8]) {
        self.put += bytes.len() as u64;
        self.outgoing.put(bytes);
    }

    /// Takes those out that wait until they are written, and are.
    fn take_written(&mut self) -> Vec<Pending> {
        let written = self.written;
        let count = self.telling.partition_point(|pending| pending.ends <= written);
        self.telling.drain(..count).collect()
    }

    fn free_correlation(&mut self) -> u32 {
        loop {
            self.next_correlation = self.next_correlation.wrapping_add(1);
            if !self.pending.contains_key(&self.next_correlation) {
                return self.next_correlation;
            }
        }
    }
}

fn unreachable_at(address: &str, error: &io::Error) -> Error {
    Error::Unreachable { address: address.to_owned(), why: error.to_string() }
}
