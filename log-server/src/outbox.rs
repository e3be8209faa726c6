//! Outbox: replies that other tasks and threads have for a connection, and what it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context as Cx, Poll, Waker};

use log_core::protocol::{ErrorCode, Outgoing, Refusal, frame};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::metrics::Metrics;

/// What a connection shares with those who answer its requests later.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// How many bytes the replies in `state` have; only set under its lock.
    reply_bytes: AtomicUsize,
    produces: AtomicU32,
    fetches: AtomicU32,
    controls: AtomicU32,
    /// Bytes of requests that wait: of batches until they are appended, of others until their reply.
    waiting_bytes: AtomicUsize,
    /// Whether the peer sends nothing more.
    peer_done: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    replies: Outgoing,
    poked: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// What kind of request waits for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A produce.
    Produce,
    /// A fetch.
    Fetch,
    /// Any other.
    Control,
}

impl Outbox {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Outbox> {
        Arc::new(Outbox {
            state: Mutex::default(),
            reply_bytes: AtomicUsize::new(0),
            produces: AtomicU32::new(0),
            fetches: AtomicU32::new(0),
            controls: AtomicU32::new(0),
            waiting_bytes: AtomicUsize::new(0),
            peer_done: watch::Sender::new(false),
            metrics,
        })
    }

    fn counter(&self, waits: Waits) -> &AtomicU32 {
        match waits {
            Waits::Produce => &self.produces,
            Waits::Fetch => &self.fetches,
            Waits::Control => &self.controls,
        }
    }

    /// Counts a request that is answered later, unless there are `max` already.
    pub(crate) fn begin(
        self: &Arc<Outbox>,
        waits: Waits,
        correlation: u32,
        max: u32,
    ) -> Option<Reply> {
        if self.counter(waits).load(Ordering::Acquire) >= max {
            return None;
        }
        self.counter(waits).fetch_add(1, Ordering::AcqRel);
        Some(Reply { outbox: Arc::clone(self), waits, correlation, bytes: 0, answered: false })
    }

    /// How many requests of a kind wait.
    pub(crate) fn waiting(&self, waits: Waits) -> u32 {
        self.counter(waits).load(Ordering::Acquire)
    }

    /// Whether any request waits.
    pub(crate) fn is_idle(&self) -> bool {
        [Waits::Produce, Waits::Fetch, Waits::Control].iter().all(|kind| self.waiting(*kind) == 0)
    }

    /// How many bytes of requests wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Acquire)
    }

    /// Wakes the connection, so that it looks at what has changed.
    pub(crate) fn poke(&self) {
        self.change(None, |_| ());
    }

    /// Adds to the replies, counts a request as answered, and wakes the connection.
    fn change(&self, answered: Option<Waits>, frames: impl FnOnce(&mut Outgoing)) {
        let mut state = self.state.lock();
        if !state.closed {
            frames(&mut state.replies);
            self.reply_bytes.store(state.replies.len(), Ordering::Release);
            state.poked = true;
        }
        // Not before: who sees that nothing waits any more must see all replies.
        if let Some(waits) = answered {
            self.counter(waits).fetch_sub(1, Ordering::AcqRel);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves replies to `out`, if it is empty; whether there were any.
    pub(crate) fn take(&self, out: &mut Outgoing) -> bool {
        let mut state = self.state.lock();
        if !out.is_empty() || state.replies.is_empty() {
            return false;
        }
        std::mem::swap(out, &mut state.replies);
        self.reply_bytes.store(0, Ordering::Release);
        true
    }

    /// How many bytes of replies wait to be taken.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.reply_bytes.load(Ordering::Acquire)
    }

    /// Ready once the outbox was poked since the last time.
    pub(crate) fn poll_poked(&self, cx: &mut Cx<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.poked) {
            return Poll::Ready(());
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The peer sends nothing more: what waits for something to happen is answered now.
    pub(crate) fn note_peer_done(&self) {
        self.peer_done.send_replace(true);
    }

    /// The connection is over: replies are dropped from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.waker = None;
        state.replies.clear();
        self.reply_bytes.store(0, Ordering::Release);
    }
}

/// The duty to answer one request. Dropped without an answer, it says that the outcome is unknown.
#[derive(Debug)]
pub(crate) struct Reply {
    outbox: Arc<Outbox>,
    waits: Waits,
    correlation: u32,
    bytes: usize,
    answered: bool,
}

impl Reply {
    /// The correlation id of the request.
    pub(crate) fn correlation(&self) -> u32 {
        self.correlation
    }

    /// Returns once the peer sends nothing more: it may be gone, or wait for its replies.
    pub(crate) async fn peer_done(&self) {
        // The sender lives as long as the outbox, so that it can't fail.
        let _ = self.outbox.peer_done.subscribe().wait_for(|done| *done).await;
    }

    /// Counts the bytes of the request that waits with it.
    pub(crate) fn hold_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.outbox.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        if self.waits == Waits::Produce {
            self.outbox.metrics.produce_waiting_bytes.add(bytes as u64);
        }
    }

    /// The batch waits no more, though its reply may.
    pub(crate) fn release_bytes(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.outbox.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
            if self.waits == Waits::Produce {
                self.outbox.metrics.produce_waiting_bytes.sub(bytes as u64);
            }
        }
    }

    /// Answers with whole frames.
    pub(crate) fn send(mut self, frames: impl FnOnce(&mut Outgoing)) {
        self.finish(frames);
    }

    /// Refuses.
    pub(crate) fn refuse(mut self, refusal: &Refusal) {
        self.outbox.metrics.refusal(refusal.code);
        let frame = frame::encode_refusal(refusal, self.correlation);
        self.finish(|out| out.put(&frame));
    }

    /// Ends the duty: nothing is sent.
    pub(crate) fn forget(mut self) {
        self.finish(|_| ());
    }

    fn finish(&mut self, frames: impl FnOnce(&mut Outgoing)) {
        self.answered = true;
        self.release_bytes();
        self.outbox.change(Some(self.waits), frames);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let why = "the server gave the request up before its outcome was known";
        let frame =
            frame::encode_refusal(&Refusal::new(ErrorCode::OutcomeUnknown, why), self.correlation);
        self.finish(|out| out.put(&frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Arc<Outbox> {
        Outbox::new(Arc::new(Metrics::new()))
    }

    #[test]
    fn what_waits_is_counted_and_limited() {
        let outbox = outbox();
        let mut first = outbox.begin(Waits::Produce, 1, 2).unwrap();
        let second = outbox.begin(Waits::Produce, 2, 2).unwrap();
        assert!(outbox.begin(Waits::Produce, 3, 2).is_none());
        assert!(outbox.begin(Waits::Fetch, 3, 2).is_some());
        first.hold_bytes(100);
        assert_eq!(outbox.waiting_bytes(), 100);
        first.send(|out| out.put(b"abc"));
        second.forget();
        assert_eq!((outbox.waiting_bytes(), outbox.is_idle()), (0, true));
    }

    #[test]
    fn a_request_that_is_given_up_is_answered_all_the_same() {
        let outbox = outbox();
        drop(outbox.begin(Waits::Control, 7, 1).unwrap());
        let mut out = Outgoing::new();
        assert!(outbox.take(&mut out));
        let mut reader = frame::FrameReader::new(10_000);
        let mut slices = [std::io::IoSlice::new(&[])];
        out.fill(&mut slices);
        reader.room().extend_from_slice(&slices[0]);
        let reply = frame::ReplyHead::decode(&reader.peek().unwrap().unwrap().head);
        assert_eq!((reply.correlation, reply.code), (7, ErrorCode::OutcomeUnknown.number()));
    }

    #[test]
    fn a_request_waits_until_its_reply_is_there() {
        let outbox = outbox();
        let reply = outbox.begin(Waits::Produce, 1, 1).unwrap();
        reply.send(|out| {
            assert!(!outbox.is_idle(), "a connection that stops would end without the reply");
            out.put(b"reply");
        });
        assert_eq!((outbox.is_idle(), outbox.reply_bytes()), (true, 5));
        let late = outbox.begin(Waits::Produce, 2, 1).unwrap();
        outbox.close();
        late.send(|_| panic!("nobody reads it"));
        assert_eq!((outbox.is_idle(), outbox.reply_bytes()), (true, 0));
    }

    #[test]
    fn replies_wait_until_those_before_them_have_gone() {
        let outbox = outbox();
        outbox.begin(Waits::Produce, 1, 1).unwrap().send(|out| out.put(b"later"));
        let mut out = Outgoing::new();
        out.put(b"now");
        assert!(!outbox.take(&mut out));
        out.advance(3);
        assert!(outbox.take(&mut out));
        assert_eq!((out.len(), outbox.take(&mut Outgoing::new())), (5, false));
    }
}
