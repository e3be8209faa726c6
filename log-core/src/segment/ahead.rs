//! Ahead: the later parts of a large region, whose bodies are checked while a walk is at the first.
//!
//! The walk after a crash is bound by reading every byte once on one core. Other cores begin in the
//! middle, at the first place that has a batch header made for it, and follow the batches from
//! there. Only what such a batch holds is taken from them as checked; where the batches are, and
//! whether they follow on each other, the walk itself finds out.

use std::sync::Arc;
use std::thread::{self, JoinHandle, available_parallelism};

use super::scan::{find_header, seed_at};
use super::window::POPULATE_BYTES;
use crate::disk::MappedFile;
use crate::record::{BATCH_HEADER_BYTES, BatchView, check_header};

/// The least that a thread is started for.
const PART_MIN_BYTES: u64 = 16 * 1024 * 1024;
/// More cores than these are of no use: memory is not that fast.
const PARTS_MAX: u64 = 4;

/// The parts of a region that are being checked, in order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    parts: Vec<JoinHandle<(u64, u64)>>,
    /// What of the part before the next is known to be sound, as far as the walk has not passed it.
    sound: (u64, u64),
    /// Where the next part begins.
    next: u64,
    part_bytes: u64,
}

impl Ahead {
    /// Checks all but the first part of `[from, end)`.
    pub(super) fn start(map: &Arc<MappedFile>, seed: u32, from: u64, end: u64) -> Ahead {
        let end = end.min(map.len());
        let len = end.saturating_sub(from);
        let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
        let count = cores.min(PARTS_MAX).min(len / PART_MIN_BYTES).max(1);
        let part_bytes = len.div_ceil(count);
        let mut parts = Vec::new();
        for number in (1..count).rev() {
            let (map, from) = (Arc::clone(map), from + number * part_bytes);
            let until = (from + part_bytes).min(end);
            let name = "log-core-ahead".to_owned();
            let check = move || check(&map, seed, from, until);
            // Without a thread, the walk checks the part itself, and all behind it.
            match thread::Builder::new().name(name).spawn(check) {
                Ok(part) => parts.push(part),
                Err(_) => parts.clear(),
            }
        }
        // The last of them is the first that the walk meets.
        Ahead { parts, sound: (0, 0), next: from + part_bytes, part_bytes }
    }

    /// Whether the batch at `position`, of `len` bytes, was found sound; waits for the thread that is
    /// at it. Both must have come the same way: a batch is taken as checked if the walk has met the
    /// first that the thread has met, and each since.
    pub(super) fn has_checked(&mut self, position: u64, len: usize) -> bool {
        while position >= self.next {
            let Some(part) = self.parts.pop() else { break };
            self.next += self.part_bytes;
            self.sound = part.join().unwrap_or_default();
        }
        let (next, end) = self.sound;
        let same = position == next && position < end;
        if same {
            self.sound.0 = position + len as u64;
        }
        same
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for part in self.parts.drain(..) {
            // Nobody wants to know any more; but the map should go with the walk.
            let _ = part.join();
        }
    }
}

/// Follows the batches from the first one in `[from, until)`; returns from where on and up to where
/// they are sound. The last of them may reach over `until`.
fn check(map: &MappedFile, seed: u32, from: u64, until: u64) -> (u64, u64) {
    let mut populated = from;
    let mut populate = |end: u64| {
        while populated < end {
            let step = (populated + POPULATE_BYTES).min(map.len());
            // What can't be read is for the walk to tell.
            if step <= populated || map.populate_for_reading(populated, step).is_err() {
                return false;
            }
            populated = step;
        }
        true
    };
    let search = (from + POPULATE_BYTES).min(until);
    if !populate(search) {
        return (0, 0);
    }
    let Some(at) = find_header(map.slice(from, search), |at| seed_at(seed, from + at)) else {
        return (0, 0);
    };
    let begin = from + at;
    let mut position = begin;
    while position < until && populate(position + BATCH_HEADER_BYTES as u64) {
        let bytes = map.slice(position, map.len());
        let Ok(header) = check_header(bytes, seed_at(seed, position)) else { break };
        let end = position + header.total_len() as u64;
        if end > map.len() || !populate(end) {
            break;
        }
        let sound = BatchView::parse(map.slice(position, end));
        if sound.and_then(|(batch, _)| batch.check_body()).is_err() {
            break;
        }
        position = end;
    }
    (begin, position)
}
