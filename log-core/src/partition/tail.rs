//! Tail: readers that wait for new records, by thread or by callback.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::offset::Offset;

pub(super) type Callback = Box<dyn FnOnce() + Send>;

/// A callback of [`super::Partition::when_readable`] that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingReader(u64);

/// Who waits for records.
#[derive(Default)]
pub(super) struct Tail {
    /// How many wait, so that an append without any looks at one number only.
    waiting: AtomicUsize,
    readers: Mutex<Readers>,
    changed: Condvar,
}

#[derive(Default)]
struct Readers {
    /// As they came, so that their numbers grow.
    callbacks: Vec<(WaitingReader, Offset, Callback)>,
    next: u64,
}

impl Tail {
    /// Wakes the threads that wait for something below `readable_end`, and returns the callbacks
    /// that do: the caller calls them, without a lock.
    #[inline]
    pub(super) fn due(&self, readable_end: Offset) -> Vec<Callback> {
        // Pairs with the fence in `wait` and `call`: either they see the new end, or this sees them.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.take_due(readable_end)
    }

    #[cold]
    fn take_due(&self, readable_end: Offset) -> Vec<Callback> {
        let mut readers = self.readers.lock();
        let due = readers.callbacks.extract_if(.., |(_, from, _)| *from < readable_end);
        let due: Vec<_> = due.map(|(_, _, callback)| callback).collect();
        self.waiting.fetch_sub(due.len(), Ordering::Relaxed);
        self.changed.notify_all();
        due
    }

    /// Waits until `readable_end()` passes `from`; `false` if `timeout` came first.
    pub(super) fn wait(
        &self,
        from: Offset,
        timeout: Duration,
        readable_end: impl Fn() -> Offset,
        now: impl Fn() -> Duration,
    ) -> bool {
        let deadline = now().saturating_add(timeout);
        let mut readers = self.readers.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let reached = loop {
            if readable_end() > from {
                break true;
            }
            let left = deadline.saturating_sub(now());
            if left.is_zero() {
                break false;
            }
            if self.changed.wait_for(&mut readers, left).timed_out() {
                break readable_end() > from;
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        reached
    }

    /// Calls `then` once `readable_end()` has passed `from`: at once, if it has.
    pub(super) fn call(
        &self,
        from: Offset,
        readable_end: impl Fn() -> Offset,
        then: Callback,
    ) -> Option<WaitingReader> {
        let mut readers = self.readers.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if readable_end() > from {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            drop(readers);
            then();
            return None;
        }
        let waiting = WaitingReader(readers.next);
        readers.next += 1;
        readers.callbacks.push((waiting, from, then));
        Some(waiting)
    }

    /// Drops a callback; `false` if it is gone already.
    pub(super) fn forget(&self, waiting: WaitingReader) -> bool {
        let mut readers = self.readers.lock();
        let Ok(at) = readers.callbacks.binary_search_by_key(&waiting, |(reader, ..)| *reader)
        else {
            return false;
        };
        let forgotten = readers.callbacks.remove(at);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        drop((readers, forgotten));
        true
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail {{ waiting: {} }}", self.waiting.load(Ordering::Relaxed))
    }
}
