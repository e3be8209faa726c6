//! Shutdown: how far a stop has gone, and who waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// How far a stop has gone; it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Requests are served.
    Serving,
    /// New requests are refused; what is under way ends.
    Draining,
    /// What is left is cut off.
    Over,
}

/// One for each server.
#[derive(Debug)]
pub(crate) struct Shutdown {
    phase: watch::Sender<Phase>,
    /// The same as a flag, for the hot path.
    draining: AtomicBool,
    open: Mutex<usize>,
    changed: Condvar,
}

impl Shutdown {
    pub(crate) fn new() -> Shutdown {
        let (phase, _) = watch::channel(Phase::Serving);
        Shutdown {
            phase,
            draining: AtomicBool::new(false),
            open: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// Whether new requests are refused.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Goes on to `phase`, unless it is there already.
    pub(crate) fn advance(&self, phase: Phase) {
        self.draining.store(true, Ordering::Release);
        self.phase.send_if_modified(|current| {
            let further = phase > *current;
            *current = phase.max(*current);
            further
        });
    }

    /// Returns once the stop has gone as far as `phase`.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`, so that it can't fail.
        let _ = self.phase.subscribe().wait_for(|current| *current >= phase).await;
    }

    /// Counts a connection, until what this returns is dropped.
    pub(crate) fn connection_opened(&self) -> usize {
        let mut open = self.open.lock();
        *open += 1;
        *open
    }

    /// Counts it no more.
    pub(crate) fn connection_closed(&self) {
        *self.open.lock() -= 1;
        self.changed.notify_all();
    }

    /// Waits until no connection is open, or the timeout has passed; returns how many are.
    pub(crate) fn wait_closed(&self, timeout: Duration) -> usize {
        let mut open = self.open.lock();
        self.changed.wait_while_for(&mut open, |open| *open > 0, timeout);
        *open
    }
}
