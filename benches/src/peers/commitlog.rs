//! The peer commitlog: segments and an index, one write(2) for each append.

use std::path::Path;
use std::sync::Mutex;

use commitlog::message::{MessageBuf, MessageSet};
use commitlog::{CommitLog, LogOptions, ReadLimit};

use super::Peer;
use crate::Outcome;

const SCAN_BYTES: usize = 1 << 20;
/// Its header in front of each message.
const MESSAGE_HEADER_BYTES: usize = 20;

struct Commitlog(Mutex<CommitLog>);

pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Peer>> {
    Ok(Box::new(Commitlog(Mutex::new(CommitLog::new(LogOptions::new(dir))?))))
}

impl Peer for Commitlog {
    fn append(&mut self, messages: &[&[u8]]) -> Outcome<()> {
        let log = self.0.get_mut().expect("no thread panicked");
        if let [message] = messages {
            log.append_msg(message)?;
            return Ok(());
        }
        let mut buffer = MessageBuf::default();
        for message in messages {
            buffer.push(message).map_err(|error| format!("{error:?}"))?;
        }
        log.append(&mut buffer)?;
        Ok(())
    }

    fn append_durably(&self, _: u64, _: &[u8]) -> Outcome<()> {
        Err("it does not sync".into())
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let log = self.0.lock().expect("no thread panicked");
        let mut next = 0;
        while next < log.next_offset() {
            let messages = log
                .read(next, ReadLimit::max_bytes(SCAN_BYTES))
                .map_err(|error| format!("{error:?}"))?;
            let before = next;
            for message in messages.iter() {
                visit(message.payload());
                next = message.offset() + 1;
            }
            if next == before {
                return Err(format!("it ends at {next}").into());
            }
        }
        Ok(())
    }

    fn read_each(&self, places: &[u64], visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let log = self.0.lock().expect("no thread panicked");
        let mut longest = SCAN_BYTES;
        for &place in places {
            let messages = log
                .read(place, ReadLimit::max_bytes(longest))
                .map_err(|error| format!("{error:?}"))?;
            let message = messages.iter().next().ok_or("it is not there")?;
            // All messages have one length: from now on, one is read.
            longest = MESSAGE_HEADER_BYTES + message.payload().len();
            visit(message.payload());
        }
        Ok(())
    }
}
