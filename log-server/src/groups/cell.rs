//! Cell: a group with those who wait for it: requests to be answered, and members with their peers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use log_core::GroupName;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::group::{Answer, Group, Owner, RequestId};
use super::member_grants::MemberGrants;
use crate::context::Peer;

/// A group, kept.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: GroupName,
    pub(super) state: Mutex<CellState>,
}

#[derive(Debug)]
pub(super) struct CellState {
    pub(super) group: Group,
    pub(super) sessions: HashMap<Owner, Session>,
    /// When it is to be looked at next.
    pub(super) armed: Duration,
    pub(super) phase: Phase,
    requests: HashMap<RequestId, oneshot::Sender<Answer>>,
    next_request: RequestId,
}

/// Whether a group is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    There,
    /// What it has committed is being removed.
    Going,
    /// It is no group any more: look for it again.
    Gone,
}

/// A member, and who it is.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) grants: Arc<MemberGrants>,
    pub(super) peer: Peer,
}

impl Cell {
    pub(super) fn new(name: GroupName, group: Group) -> Arc<Cell> {
        let state = CellState {
            group,
            sessions: HashMap::new(),
            armed: Duration::MAX,
            phase: Phase::There,
            requests: HashMap::new(),
            next_request: 0,
        };
        Arc::new(Cell { name, state: Mutex::new(state) })
    }
}

impl CellState {
    /// A request, and where its answer comes.
    pub(super) fn request(&mut self) -> (RequestId, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        self.next_request += 1;
        self.requests.insert(self.next_request, sender);
        (self.next_request, receiver)
    }

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) {
        if let Some(sender) = self.requests.remove(&request) {
            // Who has asked may be gone.
            let _ = sender.send(answer);
        }
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.group.is_unused() && self.group.slots().next().is_none()
    }
}
