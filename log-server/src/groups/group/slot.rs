//! Slot: a partition of a group: who has it, or what is just written about it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::Refusal;
use log_core::{Offset, StartFrom};

use super::{GRANT_BYTES, Owner, Place, Position, RequestId, Token};

/// A partition of a group.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) topic: Arc<str>,
    pub(super) hold: Hold,
    /// What is durable.
    pub(super) position: Option<Position>,
    /// The write that `position` is of.
    pub(super) applied: Token,
    /// Where it starts as long as nothing is committed.
    pub(super) start: Option<StartFrom>,
    /// Who shall have it.
    pub(super) target: Option<Arc<str>>,
    /// The member of which an older run has it, or had: the newer one gets it.
    pub(super) kept_for: Option<Arc<str>>,
    /// The last epoch that was given for it, or is just written.
    pub(super) epoch: u64,
    pub(super) released: Option<Released>,
    /// Writes of commits that wait for their sync. No grant follows another before they are through.
    pub(super) commits: BTreeSet<Token>,
    pub(super) reset: Option<Reset>,
    pub(super) retry_at: Option<Duration>,
    /// A write of several partitions failed that this was among: it is written alone.
    pub(super) alone: bool,
}

/// Where a partition is.
#[derive(Debug, Clone)]
pub(super) enum Hold {
    /// Nobody has it.
    Free,
    /// Its first position is looked for, or written.
    Fixing,
    /// A grant is written; nobody was told of it.
    Granting(Owner),
    /// It is granted.
    Held(Held),
    /// It is granted still, and its release is written.
    Releasing(Held, Token),
    /// A new position is written.
    Resetting,
}

/// A grant in force.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) epoch: u64,
    pub(super) revoke: Option<Revoke>,
    /// Its owner was told of the grant and does not say that it has it: it ends then.
    pub(super) absent_until: Option<Duration>,
}

/// A grant that is being taken back. It never stops being so.
#[derive(Debug, Clone)]
pub(super) struct Revoke {
    /// How long the owner may drain.
    pub(super) deadline: Duration,
    /// Until when it may hand records over without knowing of this.
    pub(super) unaware_until: Duration,
    pub(super) acknowledged: bool,
    pub(super) why: Why,
}

/// Why a partition is taken from an owner that has not released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    DrainDeadline,
    SessionOver,
    Superseded,
    Processing,
    ConnectionClosed,
}

/// The last release. After a restart it is not known whose it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) owner: Option<Owner>,
    pub(super) epoch: u64,
}

/// A new position that waits for the partition to be free.
#[derive(Debug, Clone)]
pub(super) struct Reset {
    pub(super) request: RequestId,
    pub(super) to: Offset,
}

/// What is just written, or looked for.
#[derive(Debug, Clone)]
pub(super) enum Pending {
    Resolve(Vec<Place>),
    Fix(Vec<(Place, Position)>),
    Grant(Vec<(Place, Owner, u64)>),
    Release { place: Place, position: Option<Position>, waiting: Vec<RequestId> },
    Commit { request: RequestId, outcomes: Vec<Option<Refusal>>, parts: Vec<Part> },
    Reset { place: Place, request: RequestId, position: Position },
}

/// A part of a commit that is just written.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) place: Place,
    pub(super) position: Position,
}

/// A partition as it is told to others.
#[derive(Debug)]
pub struct SlotView<'a> {
    /// The topic's name.
    pub topic: &'a Arc<str>,
    /// Who has it.
    pub owner: Option<&'a Owner>,
    /// The epoch of its last grant.
    pub epoch: u64,
    /// Whether it is being taken back.
    pub revoking: bool,
    /// What is committed.
    pub position: Option<&'a Position>,
}

impl Slot {
    pub(super) fn new(topic: Arc<str>) -> Slot {
        Slot {
            topic,
            hold: Hold::Free,
            position: None,
            applied: 0,
            start: None,
            target: None,
            kept_for: None,
            epoch: 0,
            released: None,
            commits: BTreeSet::new(),
            reset: None,
            retry_at: None,
            alone: false,
        }
    }

    /// The grant in force.
    pub(super) fn held(&self) -> Option<&Held> {
        match &self.hold {
            Hold::Held(held) | Hold::Releasing(held, _) => Some(held),
            _ => None,
        }
    }

    /// Who has it, or will once that is written.
    pub(super) fn owner(&self) -> Option<&Owner> {
        match &self.hold {
            Hold::Held(held) | Hold::Releasing(held, _) => Some(&held.owner),
            Hold::Granting(owner) => Some(owner),
            _ => None,
        }
    }

    /// What it takes in the reply to a heartbeat, without ranges.
    pub(super) fn grant_bytes(&self) -> usize {
        GRANT_BYTES + self.topic.len()
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.hold {
            Hold::Held(held) | Hold::Releasing(held, _) => Some(held),
            _ => None,
        }
    }

    /// Whether this owner may commit for it: releasing ends that.
    pub(super) fn is_granted(&self, owner: &Owner, epoch: u64) -> bool {
        matches!(&self.hold, Hold::Held(held) if held.owner == *owner && held.epoch == epoch)
    }

    /// Takes what a write has made durable; outcomes may come in another order than writes.
    pub(super) fn apply(&mut self, token: Token, position: Position) {
        if token > self.applied {
            self.applied = token;
            self.position = Some(position);
        }
    }

    pub(super) fn view(&self) -> SlotView<'_> {
        SlotView {
            topic: &self.topic,
            owner: self.held().map(|held| &held.owner),
            epoch: self.epoch,
            revoking: self.held().is_some_and(|held| held.revoke.is_some()),
            position: self.position.as_ref(),
        }
    }
}

impl Pending {
    /// The requests that it answers.
    pub(super) fn requests(&self) -> &[RequestId] {
        match self {
            Pending::Release { waiting, .. } => waiting,
            Pending::Commit { request, .. } | Pending::Reset { request, .. } => {
                std::slice::from_ref(request)
            }
            Pending::Resolve(_) | Pending::Fix(_) | Pending::Grant(_) => &[],
        }
    }
}

impl Revoke {
    /// When it is taken by force.
    pub(super) fn due(&self) -> Duration {
        if self.acknowledged { self.deadline } else { self.deadline.max(self.unaware_until) }
    }
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Why::DrainDeadline => "it was not drained in time",
            Why::SessionOver => "its owner was not heard of in time",
            Why::Superseded => "a newer incarnation of its owner has joined",
            Why::Processing => "its owner had a record in its hands for too long",
            Why::ConnectionClosed => "its owner was leaving and its connection closed",
        }
    }
}
