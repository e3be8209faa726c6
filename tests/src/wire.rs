//! Wire: one connection to a server, byte by byte: what no client library would send.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use log_core::protocol::frame::{FRAME_HEAD_BYTES, FrameReader, ReplyHead};
use log_core::protocol::hello::{HelloReplyV1, HelloV1};
use log_core::protocol::{Call, Refusal, decode_body, encode_call};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const FRAME_LIMIT_BYTES: usize = 256 * 1024 * 1024;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    frames: FrameReader,
    correlation: u32,
}

/// How a call ended that did not succeed.
#[derive(Debug)]
pub enum CallError {
    /// The server has refused it.
    Refused(Refusal),
    /// There was no answer.
    Io(io::Error),
}

impl Wire {
    /// Connects, and says nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(address: SocketAddr) -> io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire { stream, frames: FrameReader::new(FRAME_LIMIT_BYTES), correlation: 0 })
    }

    /// Connects and says hello.
    ///
    /// # Errors
    /// What the system says; `InvalidData` if the server does not want us.
    pub fn greeted(address: SocketAddr) -> io::Result<Wire> {
        let mut wire = Wire::connect(address)?;
        match wire.greet() {
            Ok(_) => Ok(wire),
            Err(CallError::Io(error)) => Err(error),
            Err(CallError::Refused(refusal)) => {
                Err(io::Error::new(ErrorKind::InvalidData, refusal))
            }
        }
    }

    /// Says hello.
    ///
    /// # Errors
    /// As [`Wire::call`].
    pub fn greet(&mut self) -> Result<HelloReplyV1, CallError> {
        let (client_id, software) = ("wire".to_owned(), "tests".to_owned());
        self.call(&HelloV1 { client_id, software })
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends nothing more.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// The next reply; none if the server has closed.
    ///
    /// # Errors
    /// What the system says; `InvalidData` for what is no frame.
    pub fn receive(&mut self) -> io::Result<Option<(ReplyHead, Vec<u8>)>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            let frame = self.frames.take();
            if let Some(frame) = frame.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))? {
                return Ok(Some((ReplyHead::decode(&frame.head), frame.body.to_vec())));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(len) => self.frames.room().extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The replies that come until the server closes.
    ///
    /// # Errors
    /// As [`Wire::receive`]; among them that it does not close.
    pub fn rest(&mut self) -> io::Result<Vec<(ReplyHead, Vec<u8>)>> {
        let mut replies = Vec::new();
        while let Some(reply) = self.receive()? {
            replies.push(reply);
        }
        Ok(replies)
    }

    /// Sends a call, and waits for what answers it.
    ///
    /// # Errors
    /// What came instead.
    pub fn call<C: Call>(&mut self, call: &C) -> Result<C::Reply, CallError> {
        self.correlation += 1;
        let correlation = self.correlation;
        self.send(&encode_call(call, correlation)).map_err(CallError::Io)?;
        loop {
            let received = self.receive().map_err(CallError::Io)?;
            let Some((head, body)) = received else {
                return Err(CallError::Io(ErrorKind::UnexpectedEof.into()));
            };
            if head.correlation == correlation {
                return answer::<C>(head, &body);
            }
        }
    }
}

fn answer<C: Call>(head: ReplyHead, body: &[u8]) -> Result<C::Reply, CallError> {
    let broken = |fault| CallError::Io(io::Error::new(ErrorKind::InvalidData, fault));
    if head.code == 0 {
        return decode_body(body).map_err(broken);
    }
    Err(CallError::Refused(decode_body(body).map_err(broken)?))
}

/// A frame's bytes without its head.
#[must_use]
pub fn body_of(frame: &[u8]) -> &[u8] {
    &frame[FRAME_HEAD_BYTES..]
}
