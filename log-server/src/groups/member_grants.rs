//! MemberGrants: what a member may fetch, for those who serve its fetches.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use log_core::protocol::{ErrorCode, Refusal};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::group::Place;

type Then = Box<dyn FnOnce() + Send>;

/// What a member may fetch at present.
#[derive(Default)]
pub(crate) struct MemberGrants {
    state: Mutex<State>,
    /// For its heartbeats.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    readable: HashMap<Place, u64>,
    gone: Option<Refusal>,
    next: u64,
    waiting: HashMap<u64, Then>,
}

/// Waits for a change of what a member may fetch, until it is dropped.
#[must_use]
pub(crate) struct WaitingForChange {
    grants: Arc<MemberGrants>,
    number: u64,
}

/// Those to be told of a change, once no lock is held.
#[derive(Default)]
pub(super) struct Told(Vec<Then>);

impl MemberGrants {
    /// Whether the member may fetch this under a grant of this epoch.
    ///
    /// # Errors
    /// `StaleGrant` if that is not granted, or is being taken back; `Fenced` and `UnknownMember` if
    /// it is no member any more.
    pub(crate) fn check(&self, topic_id: u128, partition: u32, epoch: u64) -> Result<(), Refusal> {
        let state = self.state.lock();
        if let Some(why) = &state.gone {
            return Err(why.clone());
        }
        let granted = state.readable.get(&Place { topic_id, partition });
        if granted == Some(&epoch) {
            return Ok(());
        }
        let text = format!("partition {partition} is not granted with epoch {epoch}, or revoked");
        let numbers: Vec<u64> = granted.copied().into_iter().collect();
        Err(Refusal::new(ErrorCode::StaleGrant, text).with_numbers(&numbers))
    }

    /// Has `then` called once at the next change, at once if nothing will change any more, unless
    /// what this returns is dropped before. It must not block.
    pub(crate) fn when_changed(
        self: &Arc<Self>,
        then: impl FnOnce() + Send + 'static,
    ) -> WaitingForChange {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        if state.gone.is_none() {
            state.waiting.insert(number, Box::new(then));
        } else {
            drop(state);
            then();
        }
        WaitingForChange { grants: Arc::clone(self), number }
    }

    pub(super) fn gone(&self) -> Option<Refusal> {
        self.state.lock().gone.clone()
    }

    pub(super) fn set(&self, readable: HashMap<Place, u64>, told: &mut Told) {
        let mut state = self.state.lock();
        state.readable = readable;
        told.0.extend(state.waiting.drain().map(|(_, then)| then));
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn end(&self, why: Refusal, told: &mut Told) {
        self.state.lock().gone = Some(why);
        self.set(HashMap::new(), told);
    }
}

impl Told {
    pub(super) fn tell(self) {
        self.0.into_iter().for_each(|then| then());
    }
}

impl Drop for WaitingForChange {
    fn drop(&mut self) {
        self.grants.state.lock().waiting.remove(&self.number);
    }
}

impl fmt::Debug for MemberGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "MemberGrants {{ readable: {:?}, gone: {:?} }}", state.readable, state.gone)
    }
}

impl fmt::Debug for WaitingForChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitingForChange {{ number: {} }}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn those_who_wait_are_told_once_and_not_when_they_have_gone() {
        let grants = Arc::new(MemberGrants::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let count = || {
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        let first = grants.when_changed(count());
        drop(grants.when_changed(count()));
        let place = Place { topic_id: 7, partition: 1 };
        for _ in 0..2 {
            let mut told = Told::default();
            grants.set(HashMap::from([(place, 5)]), &mut told);
            told.tell();
        }
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(first);
        grants.check(7, 1, 5).unwrap();
        for (partition, epoch) in [(1, 4), (1, 6), (0, 5)] {
            let refused = grants.check(7, partition, epoch).unwrap_err();
            assert_eq!(refused.error_code(), Some(ErrorCode::StaleGrant));
        }
        let why = Refusal::new(ErrorCode::UnknownMember, "gone");
        grants.end(why.clone(), &mut Told::default());
        let _late = grants.when_changed(count());
        assert_eq!(calls.load(Ordering::SeqCst), 2, "nothing will change any more");
        assert_eq!(grants.check(7, 1, 5), Err(why));
    }
}
