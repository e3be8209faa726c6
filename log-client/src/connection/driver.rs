//! Driver: the task of a connection. It reads replies, writes what waits, and notices silence.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log_core::protocol::frame::ReplyHead;
use log_core::protocol::metrics::MetricsV1;
use log_core::protocol::{Call, ErrorCode, FrameReader};
use tokio::time::{Instant, sleep_until};

use super::{Failure, Pending, Reply, Shared, Until, unreachable_at};
use crate::config::ClientConfig;
use crate::error::Error;

/// How many reads in a row before other tasks get their turn.
const READS_MAX: usize = 32;

/// Runs a connection until it is over, then tells every request that waits.
pub(super) async fn run(shared: Arc<Shared>, config: ClientConfig) {
    // Requests are told even if the runtime stops this task in the middle.
    let _teller = Teller(&shared);
    let limit = usize::try_from(config.frame_max_bytes).unwrap_or(usize::MAX);
    let mut driver = Driver {
        shared: &shared,
        reader: FrameReader::new(limit),
        heard: Instant::now(),
        probed: false,
        keepalive: config.keepalive,
    };
    if let Err(error) = driver.run().await {
        shared.end(error);
    }
}

struct Driver<'a> {
    shared: &'a Shared,
    reader: FrameReader,
    /// When bytes came last.
    heard: Instant,
    /// Whether a sign of life was asked for since.
    probed: bool,
    keepalive: Duration,
}

impl Driver<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        loop {
            let waiting = {
                let state = self.shared.state.lock();
                if state.over.is_some() {
                    return Ok(());
                }
                !state.outgoing.is_empty()
            };
            let silent = self.heard + self.keepalive * if self.probed { 2 } else { 1 };
            let stream = &self.shared.stream;
            tokio::select! {
                ready = stream.readable() => {
                    ready.map_err(|error| self.lost(&error))?;
                    self.read().await?;
                }
                ready = stream.writable(), if waiting => {
                    ready.map_err(|error| self.lost(&error))?;
                    self.write()?;
                }
                () = self.shared.changed.notified() => {}
                () = sleep_until(silent) => self.probe()?,
            }
        }
    }

    /// Writes what waits, and tells those who waited for that.
    fn write(&self) -> Result<(), Error> {
        let (outcome, written) = {
            let mut state = self.shared.state.lock();
            (self.shared.write(&mut state), state.take_written())
        };
        tell_written(written);
        outcome.map_err(|error| self.lost(&error))
    }

    /// Takes what has come, and tells the requests that it answers.
    async fn read(&mut self) -> Result<(), Error> {
        for _ in 0..READS_MAX {
            match self.shared.stream.try_read_buf(self.reader.room()) {
                Ok(0) => {
                    let closed = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server has closed the connection",
                    );
                    return Err(self.lost(&closed));
                }
                Ok(_) => {
                    (self.heard, self.probed) = (Instant::now(), false);
                    self.answer()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.reader.shrink();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    fn answer(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.reader.take()? {
            let head = ReplyHead::decode(&frame.head);
            let pending = self.shared.state.lock().pending.remove(&head.correlation);
            // One that nobody waits for belongs to a caller who has given up.
            if let Some(pending) = pending {
                (pending.on_answer)(Ok(Reply { code: head.code, body: frame.body }));
            }
        }
        Ok(())
    }

    /// Nothing was heard for a while: asks, or gives up if that was done already.
    fn probe(&mut self) -> Result<(), Error> {
        if self.probed {
            let silent = io::Error::new(io::ErrorKind::TimedOut, "the server is silent");
            return Err(self.lost(&silent));
        }
        self.probed = true;
        let body = Bytes::from(log_core::codec::encode(&MetricsV1 {}));
        // Any answer will do, a refusal, too.
        let kind = (MetricsV1::KIND.number(), MetricsV1::VERSION);
        self.shared.send(kind, (&[], &body), Until::Answered, Box::new(drop)).map(drop)
    }

    fn lost(&self, error: &io::Error) -> Error {
        unreachable_at(&self.shared.address, error)
    }
}

fn tell_written(written: Vec<Pending>) {
    for pending in written {
        let reply = Reply { code: ErrorCode::Ok.number(), body: Bytes::new() };
        (pending.on_answer)(Ok(reply));
    }
}

/// Ends the connection and tells all that wait for a reply.
struct Teller<'a>(&'a Shared);

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        let (pending, telling, written, error) = {
            let mut state = self.0.state.lock();
            let stopped = || Error::Closed { what: "the runtime" };
            let error = state.over.get_or_insert_with(stopped).clone();
            state.outgoing.clear();
            let telling = std::mem::take(&mut state.telling);
            (std::mem::take(&mut state.pending), telling, state.written, error)
        };
        // In the order in which they were made.
        let mut pending: Vec<_> = pending.into_values().chain(telling).collect();
        pending.sort_unstable_by_key(|pending| pending.ends);
        for pending in pending {
            let sent = pending.ends <= written;
            (pending.on_answer)(Err(Failure { sent, error: error.clone() }));
        }
    }
}
