//! Group commit: one sync for every append that waits, by thread or by callback.
//!
//! Whoever waits and finds no sync in flight leads one, for all who have appended so far; there is
//! one sync in flight for a partition. A leader lingers, briefly, for as many followers as took
//! part last time: they were just woken, and their next appends are on the way. A callback has no
//! thread, so a background job leads for it.
//!
//! Invariant: `durable_end` grows only here, after a sync that began when all below it was
//! published, and never again once a sync has failed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Shared;
use super::pending::{Pending, SyncFault};
use crate::error::{Error, Result};
use crate::offset::Offset;

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// A leader lingers for at most so many followers: with more, the sync costs each of them less than
/// the waiting does.
const LINGER_GROUP_MAX: usize = 16;

/// Who waits for a sync, and what it must cover.
#[derive(Default)]
pub(super) struct Flush {
    state: Mutex<State>,
    done: Condvar,
    /// How many began to wait since the last sync began.
    arrived: AtomicUsize,
    /// The segments with unsynced bytes, the oldest first; the last may be the active one.
    pending: Mutex<Vec<Arc<Pending>>>,
    /// Set with `State::failed`: what an append looks at.
    latched: AtomicBool,
    /// Whether a background sync was asked for that has not begun.
    asked: AtomicBool,
    /// Whether a background job was asked to lead that has not begun.
    lead_asked: AtomicBool,
}

/// Where callbacks run that a sync has made due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// On this thread: it holds no lock that a callback may want.
    Here,
    /// On a background thread.
    Elsewhere,
}

#[derive(Default)]
struct State {
    syncing: bool,
    /// How many the next leader lingers for.
    group: usize,
    callbacks: Vec<(Offset, Callback)>,
    /// Parked until what they wait for is durable, or until it is theirs to lead.
    threads: Vec<(Offset, Thread)>,
    failed: Option<Error>,
}

impl Flush {
    /// Adds a segment, the newest. Call it before anything of it is published.
    pub(super) fn add(&self, pending: Pending) {
        self.pending.lock().push(Arc::new(pending));
    }

    /// How many segments have unsynced bytes.
    pub(super) fn segments(&self) -> usize {
        self.pending.lock().len()
    }

    /// Says that the newest segment ends before its file's bytes do: nothing more goes into it.
    pub(super) fn abandon_newest(&self) {
        if let Some(newest) = self.pending.lock().last() {
            newest.abandon();
        }
    }

    /// Whether a segment may still be written to, or waits for a sync.
    pub(super) fn holds(&self, segment: &crate::segment::Segment) -> bool {
        self.pending.lock().iter().any(|pending| std::ptr::eq(&**pending.segment(), segment))
    }

    /// Whether bytes that were read back after an unclean stop were not synced since.
    pub(super) fn holds_read_back(&self) -> bool {
        self.pending.lock().iter().any(|pending| pending.is_read_back())
    }

    /// The error of the sync that failed, if one has.
    pub(super) fn failed(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    /// Whether a sync has failed.
    #[inline]
    pub(super) fn is_latched(&self) -> bool {
        self.latched.load(Ordering::Acquire)
    }

    /// Latches: nothing is written or acknowledged any more.
    pub(super) fn fail(&self, error: Error) -> Error {
        self.latched.store(true, Ordering::Release);
        self.state.lock().failed.get_or_insert(sync_failed(error)).clone()
    }
}

impl State {
    /// Wakes the threads that are served; and, before them, one of the others to lead the next
    /// sync: while it lingers, the served ones come back with their next appends. With the lock
    /// held, on purpose: let go, the leader ran ahead with 12 records a sync instead of 15.
    fn wake_threads(&mut self, durable: Offset, failed: bool) {
        let served = self.threads.extract_if(.., |(end, _)| failed || *end <= durable);
        let served: Vec<_> = served.map(|(_, thread)| thread).collect();
        if let Some((_, next)) = self.threads.pop() {
            next.unpark();
        }
        served.iter().for_each(Thread::unpark);
    }
}

impl Shared {
    /// Returns once everything below `end` is durable.
    pub(super) fn wait_durable(&self, end: Offset) -> Result<()> {
        if self.ends.durable() >= end {
            return Ok(());
        }
        self.ends.must_reach(end)?;
        self.flush.arrived.fetch_add(1, Ordering::AcqRel);
        loop {
            let mut state = self.flush.state.lock();
            // A look before the lock would miss a sync that ends in between.
            if self.ends.durable() >= end {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.syncing {
                state.threads.push((end, std::thread::current()));
                drop(state);
                std::thread::park();
            } else {
                // Other people's callbacks are no business of this thread.
                let outcome = self.lead(&mut state, Tell::Elsewhere);
                if self.ends.durable() < end {
                    // The records are there, and may yet become durable.
                    outcome.map_err(sync_failed)?;
                }
            }
            // Most are served when they wake, and need no lock to see it.
            if self.ends.durable() >= end {
                return Ok(());
            }
        }
    }

    /// Syncs whatever is unsynced, markers too.
    pub(super) fn sync_now(&self) -> Result<()> {
        let mut state = self.flush.state.lock();
        while state.syncing {
            self.flush.done.wait(&mut state);
        }
        match &state.failed {
            Some(error) => Err(error.clone()),
            None => self.lead(&mut state, Tell::Elsewhere),
        }
    }

    /// Tells those who wait for what will not come: the partition is closed.
    pub(super) fn release_all(&self, error: &Error) {
        let mut state = self.flush.state.lock();
        let callbacks = std::mem::take(&mut state.callbacks);
        state.wake_threads(Offset::MAX, true);
        drop(state);
        let durable = self.ends.durable();
        let (readers, error) = (self.tail.due(Offset::MAX), error.clone());
        if callbacks.is_empty() && readers.is_empty() {
            return;
        }
        self.context.background.submit(Box::new(move || {
            for (end, then) in callbacks {
                then(if end <= durable { Ok(()) } else { Err(error.clone()) });
            }
            readers.into_iter().for_each(|then| then());
        }));
    }

    /// Has a background job sync, unless one was asked for already.
    pub(super) fn sync_soon(&self) {
        if self.flush.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = self.me.clone();
        self.context.background.submit(Box::new(move || {
            if let Some(shared) = me.upgrade() {
                shared.flush.asked.store(false, Ordering::Release);
                // A failure latches the partition, or is met again by the next append.
                let _ = shared.sync_now();
            }
        }));
    }

    /// Calls `then` once everything below `end` is durable, or can't become so.
    pub(super) fn when_durable(&self, end: Offset, then: Callback) {
        if let Err(error) = self.ends.must_reach(end) {
            return then(Err(error));
        }
        let mut state = self.flush.state.lock();
        if self.ends.durable() >= end {
            drop(state);
            then(Ok(()));
        } else if let Some(error) = state.failed.clone() {
            drop(state);
            then(Err(error));
        } else {
            self.flush.arrived.fetch_add(1, Ordering::AcqRel);
            state.callbacks.push((end, then));
            if !state.syncing {
                self.submit_lead();
            }
        }
    }

    /// Has a background job lead, if somebody waits who has no thread to do it.
    fn submit_lead(&self) {
        if self.flush.lead_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = self.me.clone();
        self.context.background.submit(Box::new(move || {
            let Some(shared) = me.upgrade() else { return };
            shared.flush.lead_asked.store(false, Ordering::Release);
            let mut state = shared.flush.state.lock();
            while !state.syncing && !state.callbacks.is_empty() && state.failed.is_none() {
                // A failure is told to every callback by `finish`.
                let _ = shared.lead(&mut state, Tell::Here);
            }
        }));
    }

    /// Syncs, with the lock let go meanwhile, and tells all who wait for what that covered.
    fn lead(&self, state: &mut MutexGuard<'_, State>, tell: Tell) -> Result<()> {
        state.syncing = true;
        let group = state.group;
        let (outcome, served) = MutexGuard::unlocked(state, || {
            self.linger(group);
            let served = self.flush.arrived.swap(0, Ordering::AcqRel);
            (self.sync_pending().map(|_| ()), served)
        });
        // Those who came meanwhile belong to the next group, and so do those who are served now.
        let group = served + self.flush.arrived.load(Ordering::Acquire);
        state.group = group.min(LINGER_GROUP_MAX);
        self.finish(state, outcome, tell)
    }

    /// Ends the sync in flight: wakes the threads, and calls the callbacks that are due.
    fn finish(
        &self,
        state: &mut MutexGuard<'_, State>,
        outcome: Result<()>,
        tell: Tell,
    ) -> Result<()> {
        state.syncing = false;
        let durable = self.ends.durable();
        // What failed before a sync can be tried again, but those who wait asked for it now.
        let failed = state.failed.clone().or_else(|| outcome.clone().err().map(sync_failed));
        let due: Vec<_> = state
            .callbacks
            .extract_if(.., |(end, _)| *end <= durable || failed.is_some())
            .collect();
        if !state.callbacks.is_empty() {
            self.submit_lead();
        }
        state.wake_threads(durable, failed.is_some());
        self.flush.done.notify_all();
        let follows = self.follows_durable_end();
        let readers = if follows { self.tail.due(durable) } else { Vec::new() };
        if due.is_empty() && readers.is_empty() {
            return outcome;
        }
        let tell_all = move || {
            for (end, then) in due {
                then(if end <= durable { Ok(()) } else { failed.clone().map_or(Ok(()), Err) });
            }
            readers.into_iter().for_each(|then| then());
        };
        match tell {
            Tell::Here => MutexGuard::unlocked(state, tell_all),
            Tell::Elsewhere => self.context.background.submit(Box::new(tell_all)),
        }
        outcome
    }

    /// Gives the followers of the last group the time to come back.
    fn linger(&self, group: usize) {
        if group <= 1 {
            return;
        }
        let began = self.context.clock.monotonic();
        while self.flush.arrived.load(Ordering::Acquire) < group {
            std::thread::yield_now();
            if self.context.clock.monotonic().saturating_sub(began) >= self.context.linger {
                return;
            }
        }
    }

    /// Makes everything durable that is published now, and returns the segments that it covers.
    /// Only one thread at a time gets here.
    fn sync_pending(&self) -> Result<Vec<Arc<Pending>>> {
        // In this order: what is noted as written is published, so it is below `end`; and what is
        // below `end` lies in one of the segments.
        let written = self.unsynced.begin();
        let end = self.ends.end();
        let pending = self.flush.pending.lock().clone();
        for segment in &pending {
            self.context.metrics.syncs.add(1);
            self.outcome(segment.make_durable(&*self.context.disk, &self.dir))?;
        }
        self.unsynced.covered(written);
        self.ends.raise_durable(end);
        Ok(pending)
    }

    fn outcome(&self, outcome: std::result::Result<(), SyncFault>) -> Result<()> {
        match outcome {
            Ok(()) => Ok(()),
            Err(SyncFault::Passing(error)) => Err(error),
            Err(SyncFault::Final(error)) => Err(self.flush.fail(error)),
        }
    }

    /// Syncs the segments that nothing is appended to any more, writes into each that its
    /// successor is durable, and stores its index. Run in the background after a roll.
    pub(super) fn seal(&self) -> Result<()> {
        let mut state = self.flush.state.lock();
        while state.syncing {
            self.flush.done.wait(&mut state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.syncing = true;
        let sealed = MutexGuard::unlocked(&mut state, || self.seal_pending());
        let (outcome, sealed) = match sealed {
            Ok(sealed) => (Ok(()), sealed),
            Err(error) => (Err(error), Vec::new()),
        };
        let outcome = self.finish(&mut state, outcome, Tell::Elsewhere);
        drop(state);
        for pending in sealed {
            // The index may be lost: it is derived. No sync waits for it.
            let _ = pending.segment().store_index();
        }
        outcome
    }

    /// Returns the segments that were sealed.
    fn seal_pending(&self) -> Result<Vec<Arc<Pending>>> {
        // A successor that a roll adds meanwhile is not durable: nobody vouches for it yet.
        let synced = self.sync_pending()?;
        let sealed: Vec<_> = synced.iter().take(synced.len().saturating_sub(1)).cloned().collect();
        for oldest in &sealed {
            let vouched = oldest.vouch_for_successor(self.ends.log_start(), self.ends.durable());
            // Without room for the marker, a later loss of the successor is told less surely.
            match vouched {
                Err(SyncFault::Passing(Error::DiskFull { .. })) => {}
                outcome => self.outcome(outcome)?,
            }
            self.flush.pending.lock().remove(0);
        }
        Ok(sealed)
    }

    /// After a roll: two unsynced segments are enough, so a third one waits for the first.
    pub(super) fn seal_soon(&self) -> Result<()> {
        if self.flush.segments() > 2 {
            return self.seal();
        }
        let shared = self.me.clone();
        self.context.background.submit(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                // A failure latches the partition, or is met again by the next roll.
                let _ = shared.seal();
            }
        }));
        Ok(())
    }
}

/// What is told of a sync that failed: the outcome of what it should have covered is unknown.
pub(super) fn sync_failed(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } => Error::SyncFailed { path, source },
        // File systems that find space late say so at the sync: the same holds then.
        Error::DiskFull { path, .. } => {
            let source = Arc::new(std::io::ErrorKind::StorageFull.into());
            Error::SyncFailed { path, source }
        }
        other => other,
    }
}

/// How much was written since the last sync, and since when: what bounds the loss under
/// `FlushPolicy::Interval`.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Mutex<Window>);

#[derive(Debug, Default, Clone, Copy)]
struct Window {
    bytes: u64,
    since: Option<Duration>,
    /// Of `bytes`, what the sync in flight does not cover, and since when.
    later: u64,
    later_since: Option<Duration>,
}

impl Unsynced {
    /// Notes `bytes` that were written now, and published.
    pub(super) fn wrote(&self, bytes: u64, now: Duration) {
        let mut window = self.0.lock();
        window.bytes += bytes;
        window.later += bytes;
        window.since.get_or_insert(now);
        window.later_since.get_or_insert(now);
    }

    /// How much is unsynced, and for how long.
    pub(super) fn window(&self, now: Duration) -> (u64, Duration) {
        let window = *self.0.lock();
        (window.bytes, window.since.map_or(Duration::ZERO, |since| now.saturating_sub(since)))
    }

    /// A sync begins: returns what it will cover.
    fn begin(&self) -> u64 {
        let mut window = self.0.lock();
        (window.later, window.later_since) = (0, None);
        window.bytes
    }

    /// A sync that covers `bytes` has ended well.
    fn covered(&self, bytes: u64) {
        let mut window = self.0.lock();
        window.bytes = window.bytes.saturating_sub(bytes);
        window.since = window.later_since;
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flush {{ segments: {} }}", self.segments())
    }
}
