//! Pump: passes the bytes of one way on, as its fault says.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use log_core::protocol::frame::FrameReader;

use super::faults::{Fault, Way};
use super::{Shared, TICK};

const CHUNK_BYTES: usize = 16 * 1024;
/// Longer frames are not told apart any more, and so not doubled.
const FRAME_LIMIT_BYTES: usize = 256 * 1024 * 1024;

struct Pump<'a> {
    shared: &'a Shared,
    connection: usize,
    way: Way,
    to: TcpStream,
    /// Bytes that have come.
    came: u64,
    /// Finds where frames end; none once it can't.
    frames: Option<FrameReader>,
    /// How many whole frames have come.
    whole: u64,
}

/// Passes bytes on until either side has closed.
pub(super) fn run(
    shared: &Shared,
    connection: usize,
    way: Way,
    mut from: TcpStream,
    to: TcpStream,
) {
    let frames = Some(FrameReader::new(FRAME_LIMIT_BYTES));
    let mut pump = Pump { shared, connection, way, to, came: 0, frames, whole: 0 };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Some(fault) = shared.fault(connection, way) {
        if fault == Fault::Pause {
            shared.wait(TICK);
            continue;
        }
        match from.read(&mut chunk) {
            Ok(0) => {
                // Half closed: the other way goes on.
                let _ = pump.to.shutdown(Shutdown::Write);
                return;
            }
            Ok(len) if pump.pass(&chunk[..len]).is_ok() => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(_) | Err(_) => return shared.close(connection),
        }
    }
}

impl Pump<'_> {
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.came;
        self.came += bytes.len() as u64;
        // What counts is what is in force now: it may have changed while the read waited.
        let fault = self.shared.fault(self.connection, self.way);
        let doubled = self.count_frames(bytes, fault);
        match fault.ok_or(ErrorKind::NotConnected)? {
            Fault::None | Fault::Pause => self.write(bytes),
            Fault::Delay(time) => {
                self.shared.delay(self.connection, time);
                self.write(bytes)
            }
            Fault::Throttle { bytes_per_second } => self.write_slowly(bytes, bytes_per_second),
            Fault::Cut { after } => {
                let left = left(before, after, bytes.len());
                self.write(&bytes[..left])?;
                if left < bytes.len() { Err(ErrorKind::ConnectionReset.into()) } else { Ok(()) }
            }
            Fault::BlackHole { after } => self.write(&bytes[..left(before, after, bytes.len())]),
            Fault::Duplicate { .. } => match doubled {
                Some((at, frame)) => {
                    self.write(&bytes[..at])?;
                    self.write(&frame)?;
                    self.write(&bytes[at..])
                }
                None => self.write(bytes),
            },
        }
    }

    /// Follows the frames. If the one to be doubled ends among these bytes: where, and itself.
    fn count_frames(&mut self, bytes: &[u8], fault: Option<Fault>) -> Option<(usize, Vec<u8>)> {
        let frames = self.frames.as_mut()?;
        frames.room().extend_from_slice(bytes);
        let mut found = None;
        loop {
            match frames.take() {
                Ok(Some(frame)) => {
                    if fault == Some(Fault::Duplicate { frame: self.whole }) {
                        let at = bytes.len().saturating_sub(frames.buffered());
                        found = Some((at, [frame.head.as_slice(), &frame.body].concat()));
                    }
                    self.whole += 1;
                }
                Ok(None) => return found,
                Err(_) => {
                    self.frames = None;
                    return found;
                }
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.shared.has_passed(self.way, bytes.len());
        Ok(())
    }

    fn write_slowly(&mut self, bytes: &[u8], bytes_per_second: u32) -> io::Result<()> {
        let rate = u64::from(bytes_per_second.max(1));
        let step = usize::try_from(rate / 100).unwrap_or(CHUNK_BYTES).max(1);
        for part in bytes.chunks(step) {
            self.write(part)?;
            let time = Duration::from_micros(part.len() as u64 * 1_000_000 / rate);
            self.shared.delay(self.connection, time);
        }
        Ok(())
    }
}

/// How many of `len` bytes still pass if `before` came before them and `after` do in all.
fn left(before: u64, after: u64, len: usize) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX).min(len)
}
