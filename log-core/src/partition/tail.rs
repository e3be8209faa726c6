//! Tail: readers that wait for new records, by thread or by callback.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::offset::Offset;

type Callback = Box<dyn FnOnce() + Send>;

/// Who waits for records.
#[derive(Default)]
pub(super) struct Tail {
    /// How many wait, so that an append without any looks at one number only.
    waiting: AtomicUsize,
    callbacks: Mutex<Vec<(Offset, Callback)>>,
    changed: Condvar,
}

impl Tail {
    /// Tells those who wait for something below `readable_end`.
    #[inline]
    pub(super) fn notify(&self, readable_end: Offset) {
        // Pairs with the fence in `wait` and `call`: either they see the new end, or this sees them.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.notify_waiting(readable_end);
        }
    }

    #[cold]
    fn notify_waiting(&self, readable_end: Offset) {
        let due = {
            let mut callbacks = self.callbacks.lock();
            let due: Vec<_> = callbacks.extract_if(.., |(from, _)| *from < readable_end).collect();
            self.waiting.fetch_sub(due.len(), Ordering::Relaxed);
            self.changed.notify_all();
            due
        };
        for (_, callback) in due {
            callback();
        }
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
        let mut callbacks = self.callbacks.lock();
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
            if self.changed.wait_for(&mut callbacks, left).timed_out() {
                break readable_end() > from;
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        reached
    }

    /// Calls `then` once `readable_end()` has passed `from`: at once, if it has.
    pub(super) fn call(&self, from: Offset, readable_end: impl Fn() -> Offset, then: Callback) {
        let mut callbacks = self.callbacks.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if readable_end() > from {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            drop(callbacks);
            then();
        } else {
            callbacks.push((from, then));
        }
    }

    /// Wakes everybody: the partition is closed, and nothing will come.
    pub(super) fn release_all(&self) {
        self.notify_waiting(Offset::MAX);
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail {{ waiting: {} }}", self.waiting.load(Ordering::Relaxed))
    }
}
