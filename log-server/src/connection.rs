//! Connection: one task for each. It reads what has come, handles all frames of it, writes all
//! replies at once, and then waits for whatever comes next.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;

use log_core::protocol::frame::{FrameReader, FrameTooLong, encode_refusal};
use log_core::protocol::hello::HELLO_LIMIT_BYTES;
use log_core::protocol::{ErrorCode, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Duration, Instant, Sleep};

use crate::context::Context;
use crate::metrics::Ending;
use crate::session::Session;

/// The most that is read before replies are written.
const READ_MAX_BYTES: usize = 256 * 1024;
const READ_MIN_BYTES: usize = 8 * 1024;
/// How many pieces a write takes at once.
const SLICES: usize = 64;
/// How many writes follow each other before others have their turn.
const WRITES_MAX: usize = 16;
/// How long a peer is given to read a last word and close, before its connection is cut.
const LINGER: Duration = Duration::from_millis(250);

/// Later than any deadline.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why the wait for something to do has ended.
enum Wake {
    Read(io::Result<usize>),
    Writable(io::Result<()>),
    Poked,
    Deadline,
}

/// Where a connection stands.
struct Connection<'a> {
    context: Arc<Context>,
    session: &'a mut Session,
    frames: FrameReader,
    /// How much room the next read gets.
    read_bytes: usize,
    opened: Instant,
    last_read: Instant,
    /// When something was read or written last.
    last_active: Instant,
    /// Since when bytes wait of which the socket takes none.
    stalled: Option<Instant>,
    /// Since when the peer sends nothing more; it may wait for replies.
    peer_done: Option<Instant>,
    /// What of the gauge of outgoing bytes is ours.
    reported: u64,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(mut stream: TcpStream, session: &mut Session) -> Ending {
    let (reader, writer) = stream.split();
    let now = Instant::now();
    let mut connection = Connection {
        context: Arc::clone(&session.context),
        session,
        frames: FrameReader::new(HELLO_LIMIT_BYTES),
        read_bytes: READ_MIN_BYTES,
        opened: now,
        last_read: now,
        last_active: now,
        stalled: None,
        peer_done: None,
        reported: 0,
    };
    let ending = connection.run(reader, &writer).await;
    if matches!(ending, Ending::Stopped | Ending::Framing | Ending::HelloTimeout | Ending::Idle) {
        drop(connection);
        last_word(stream).await;
    }
    ending
}

/// Lets the peer read what was sent: closing over bytes that were not read would take it back.
async fn last_word(mut stream: TcpStream) {
    let gone = async {
        stream.shutdown().await?;
        let mut ignored = [0; 4096];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whatever comes of it, the connection is closed next.
    let _ = tokio::time::timeout(LINGER, gone).await;
}

/// Refuses a connection that is one too many.
pub(crate) async fn turn_away(mut stream: TcpStream, refusal: &Refusal) {
    // No request was read, so that no correlation id is known.
    let frame = encode_refusal(refusal, 0);
    let told = tokio::time::timeout(LINGER, stream.write_all(&frame)).await;
    if matches!(told, Ok(Ok(()))) {
        last_word(stream).await;
    }
}

impl Connection<'_> {
    async fn run(&mut self, mut reader: ReadHalf<'_>, writer: &WriteHalf<'_>) -> Ending {
        let mut armed = self.deadline();
        let mut timer = Box::pin(tokio::time::sleep_until(armed));
        loop {
            if let Err(too_long) = self.handle_frames() {
                self.refuse_framing(too_long);
                let _ = self.flush(writer);
                return Ending::Framing;
            }
            if self.has_woken_readers() {
                // Who waits for the records gets them before who wrote them is answered.
                tokio::task::yield_now().await;
            }
            if self.flush(writer).is_err() {
                return Ending::Broken;
            }
            if self.has_panicked() {
                return Ending::Panicked;
            }
            if let Some(ending) = self.drained() {
                return ending;
            }
            if self.has_work_left() {
                tokio::task::yield_now().await;
                continue;
            }
            let deadline = self.deadline();
            if deadline < armed {
                armed = deadline;
                timer.as_mut().reset(deadline);
            }
            let was_full = self.session.is_full();
            let wake = self.wait(&mut reader, writer, timer.as_mut()).await;
            if was_full {
                // The peer is not to blame for what was not read.
                self.last_read = Instant::now();
            }
            match wake {
                Wake::Read(Ok(0)) => self.note_peer_done(),
                Wake::Read(Ok(bytes)) => self.has_read(bytes),
                Wake::Read(Err(_)) | Wake::Writable(Err(_)) => return Ending::Broken,
                Wake::Writable(Ok(())) | Wake::Poked => {}
                Wake::Deadline => {
                    if let Some(ending) = self.overdue(Instant::now()) {
                        return ending;
                    }
                    armed = self.deadline();
                    timer.as_mut().reset(armed);
                    self.rest();
                }
            }
        }
    }

    async fn wait(
        &mut self,
        reader: &mut ReadHalf<'_>,
        writer: &WriteHalf<'_>,
        timer: Pin<&mut Sleep>,
    ) -> Wake {
        let reads = self.peer_done.is_none() && !self.session.is_full();
        let writes = !self.session.out.is_empty();
        let room = self.frames.room();
        if room.capacity() - room.len() < self.read_bytes {
            room.reserve(self.read_bytes);
        }
        let outbox = &self.session.outbox;
        // A read that is cancelled has read nothing. One that did not fill its room has emptied
        // the socket: the next waits without asking the system again.
        tokio::select! {
            biased;
            () = poll_fn(|cx| outbox.poll_poked(cx)) => Wake::Poked,
            read = reader.read_buf(room), if reads => Wake::Read(read),
            ready = writer.writable(), if writes => Wake::Writable(ready),
            () = timer => Wake::Deadline,
        }
    }

    fn has_read(&mut self, bytes: usize) {
        self.last_read = Instant::now();
        self.last_active = self.last_read;
        if bytes >= self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_MAX_BYTES);
        }
    }

    /// From here on there are only replies to write.
    fn note_peer_done(&mut self) {
        self.peer_done = Some(Instant::now());
        self.session.outbox.note_peer_done();
    }

    fn has_whole_frame(&self) -> bool {
        !matches!(self.frames.whole(), Ok(None))
    }

    /// Whether there is something to do that nothing will wake it for: replies that came while
    /// others were written, or frames that were left while there was no room for replies.
    fn has_work_left(&self) -> bool {
        let session = &*self.session;
        let replies = session.out.is_empty() && session.outbox.reply_bytes() > 0;
        replies || !session.is_full() && self.has_whole_frame()
    }

    fn handle_frames(&mut self) -> Result<(), FrameTooLong> {
        while !self.session.is_full() {
            let Some(frame) = self.frames.peek()? else { break };
            let greeted = self.session.peer.is_some();
            self.session.handle(frame);
            self.frames.advance();
            if !greeted && self.session.peer.is_some() {
                self.frames.set_limit(self.context.config.frame_max_bytes);
            }
        }
        Ok(())
    }

    /// Whether a fetch may have been waiting for what was appended just now.
    fn has_woken_readers(&self) -> bool {
        !self.session.out.is_empty() && self.context.metrics.fetches_parked.value() > 0
    }

    fn refuse_framing(&mut self, too_long: FrameTooLong) {
        let why = format!("{too_long}; the connection is closed");
        let numbers = [u64::from(too_long.length), too_long.limit as u64];
        let refusal = Refusal::new(ErrorCode::TooLarge, why).with_numbers(&numbers);
        // The frame was not read, so that no correlation id is known.
        self.session.refuse(&refusal, 0);
    }

    /// Writes what waits, as far as the socket takes it.
    fn flush(&mut self, writer: &WriteHalf<'_>) -> io::Result<()> {
        let Session { out, outbox, .. } = &mut *self.session;
        for _ in 0..WRITES_MAX {
            if out.is_empty() && !outbox.take(out) {
                break;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = out.fill(&mut slices);
            match writer.try_write_vectored(&slices[..filled]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    out.advance(written);
                    self.stalled = None;
                    self.last_active = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert_with(Instant::now);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.report(self.session.outgoing_bytes() as u64);
        Ok(())
    }

    fn report(&mut self, waiting: u64) {
        if waiting != self.reported {
            self.context.metrics.outgoing_bytes.add(waiting);
            self.context.metrics.outgoing_bytes.sub(self.reported);
            self.reported = waiting;
        }
    }

    /// Whether a task of this connection has panicked; what has ended is forgotten.
    fn has_panicked(&mut self) -> bool {
        while let Some(ended) = self.session.tasks.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                return true;
            }
        }
        false
    }

    /// Why it ends, if the server stops or the peer sends nothing more, and nothing of this
    /// connection is under way any more.
    fn drained(&self) -> Option<Ending> {
        let ending = if self.context.shutdown.is_draining() {
            Ending::Stopped
        } else if self.peer_done.is_some() && !self.has_whole_frame() {
            Ending::PeerClosed
        } else {
            return None;
        };
        let is_idle = self.session.outbox.is_idle() && self.session.outgoing_bytes() == 0;
        is_idle.then_some(ending)
    }

    /// When something is overdue at the earliest.
    fn deadline(&self) -> Instant {
        let config = &self.context.config;
        let hello = self.session.peer.is_none().then(|| self.opened + config.hello_timeout);
        let frame = self.waits_for_frame().then(|| self.last_read + config.frame_timeout);
        let done = self.peer_done.map(|since| since + config.write_timeout);
        let write = self.stalled.map(|since| since + config.write_timeout);
        let rests = self.session.outbox.is_idle() && !self.session.is_full();
        let idle = rests.then(|| self.last_active + config.idle_timeout);
        let never = self.last_active + NEVER;
        [hello, frame, done, write, idle].into_iter().flatten().fold(never, Instant::min)
    }

    /// Whether the rest of a frame is to come.
    fn waits_for_frame(&self) -> bool {
        self.frames.buffered() > 0 && self.peer_done.is_none() && !self.session.is_full()
    }

    fn overdue(&self, now: Instant) -> Option<Ending> {
        let config = &self.context.config;
        let quiet = now.saturating_duration_since(self.last_read);
        if self.peer_done.is_some_and(|since| now >= since + config.write_timeout) {
            Some(Ending::PeerClosed)
        } else if self.stalled.is_some_and(|since| now >= since + config.write_timeout) {
            Some(Ending::SlowReader)
        } else if self.session.peer.is_none() && now >= self.opened + config.hello_timeout {
            Some(Ending::HelloTimeout)
        } else if self.waits_for_frame() && quiet >= config.frame_timeout {
            Some(Ending::FrameTimeout)
        } else if now >= self.last_active + config.idle_timeout
            && self.session.outbox.is_idle()
            && !self.session.is_full()
        {
            Some(Ending::Idle)
        } else {
            None
        }
    }

    /// Gives memory back, and what belongs to topics that may be gone.
    fn rest(&mut self) {
        self.frames.shrink();
        self.read_bytes = READ_MIN_BYTES;
        self.session.partitions.forget_all();
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.report(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use bytes::Bytes;
    use tokio::net::TcpListener;

    use crate::outbox::{Outbox, Waits};

    #[tokio::test]
    async fn a_reply_that_comes_while_the_last_write_of_a_turn_empties_the_rest_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::in_dir(dir.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, (stream, _)) = (client.unwrap(), accepted.unwrap());

        let outbox = Outbox::new(Arc::clone(&context.metrics));
        let mut session = Session::new(Arc::clone(&context), Arc::clone(&outbox), 1, address);
        let pieces = WRITES_MAX * SLICES;
        for _ in 0..pieces {
            session.out.put_shared(Bytes::from_static(b"x"));
        }
        outbox.begin(Waits::Control, 1, 1).unwrap().send(|out| out.put(b"late"));
        // It has woken the connection before the first write.
        poll_fn(|cx| outbox.poll_poked(cx)).await;

        let mut read = vec![0; pieces + 4];
        tokio::select! {
            ending = serve(stream, &mut session) => panic!("{ending:?}"),
            all = client.read_exact(&mut read) => assert_eq!(all.unwrap(), pieces + 4),
        }
        assert!(read.ends_with(b"xlate"));
        context.coordinator.stop(Duration::from_secs(5));
    }
}
