//! Wire: a blocking connection, with a buffer of what has come, for clients that are small and fast.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::Outcome;
use crate::stopwatch::Stopwatch;

/// Nobody measured here is silent for so long: whoever waits longer has lost something.
const SILENCE: Duration = Duration::from_secs(20);
const BUFFER_BYTES: usize = 1 << 20;

/// The length of the reply at the front of what has come, once all of it is there; an error if it
/// says that something failed.
pub type ReplyLen = fn(&[u8]) -> Outcome<Option<usize>>;

/// One end of a connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(address: SocketAddr) -> Outcome<Wire> {
        Wire::of(TcpStream::connect(address)?)
    }

    /// The end that was accepted, or connected elsewhere.
    ///
    /// # Errors
    /// If it has no connection.
    pub fn of(stream: TcpStream) -> Outcome<Wire> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Wire { stream, buffer: vec![0; BUFFER_BYTES], taken: 0, filled: 0 })
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// If the connection is lost.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// What has come and was not taken yet.
    #[must_use]
    #[inline]
    pub fn received(&self) -> &[u8] {
        &self.buffer[self.taken..self.filled]
    }

    /// Takes that much from the front.
    #[inline]
    pub fn take(&mut self, len: usize) {
        self.taken += len;
    }

    /// Waits for more.
    ///
    /// # Errors
    /// If none comes, at the end of the connection too.
    #[inline]
    pub fn receive(&mut self) -> Outcome<()> {
        self.make_room();
        match self.stream.read(&mut self.buffer[self.filled..])? {
            0 => Err("the other end has closed the connection".into()),
            len => {
                self.filled += len;
                Ok(())
            }
        }
    }

    /// Takes in what has come already, and does not wait.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn receive_what_is_there(&mut self) -> Outcome<()> {
        self.make_room();
        let room = &mut self.buffer[self.filled..];
        match rustix::net::recv(&self.stream, room, RecvFlags::DONTWAIT) {
            Ok((len, _)) => self.filled += len,
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Waits for a whole reply; returns its length, to be taken.
    ///
    /// # Errors
    /// If none comes, or it says that something failed.
    #[inline]
    pub fn reply(&mut self, len_of: ReplyLen) -> Outcome<usize> {
        loop {
            match len_of(self.received())? {
                Some(len) => return Ok(len),
                None => self.receive()?,
            }
        }
    }

    /// Takes the replies that have come already, and does not wait; returns how many there were.
    ///
    /// # Errors
    /// If the connection is lost, or a reply says that something failed.
    pub fn take_replies_that_are_there(&mut self, len_of: ReplyLen) -> Outcome<u64> {
        self.receive_what_is_there()?;
        let mut count = 0;
        while let Some(len) = len_of(self.received())? {
            self.take(len);
            count += 1;
        }
        Ok(count)
    }

    fn make_room(&mut self) {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.filled == self.buffer.len() {
            if self.taken == 0 {
                self.buffer.resize(2 * self.buffer.len(), 0);
            } else {
                self.buffer.copy_within(self.taken..self.filled, 0);
                (self.taken, self.filled) = (0, self.filled - self.taken);
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What is sent, frame by frame, and what is said to each.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'a> {
    /// The frames, which come round again.
    pub frames: &'a [Vec<u8>],
    /// How many are sent.
    pub count: u64,
    /// How many replies there are to one.
    pub replies: usize,
    /// What a reply is.
    pub reply_len: ReplyLen,
    /// How many frames may be on their way without all their replies.
    pub window: usize,
}

/// Sends the frames and waits for all replies; returns how long that took.
///
/// # Errors
/// If the connection is lost, or a reply says that something failed.
///
/// # Panics
/// If there are no frames, or none may be on its way.
pub fn pipelined(wire: &mut Wire, work: &Pipeline<'_>) -> Outcome<Duration> {
    let mut waiting = VecDeque::with_capacity(work.window);
    let mut frames = work.frames.iter().cycle();
    let stopwatch = Stopwatch::start();
    for _ in 0..work.count {
        if waiting.len() == work.window {
            take_replies(wire, work, waiting.pop_front().expect("a window of one or more"))?;
        }
        wire.send(frames.next().expect("they come round again"))?;
        waiting.push_back(work.replies);
    }
    for replies in waiting {
        take_replies(wire, work, replies)?;
    }
    Ok(stopwatch.elapsed())
}

fn take_replies(wire: &mut Wire, work: &Pipeline<'_>, count: usize) -> Outcome<()> {
    for _ in 0..count {
        let len = wire.reply(work.reply_len)?;
        wire.take(len);
    }
    Ok(())
}
