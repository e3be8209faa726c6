//! Event, Action: what a group is told, and what it wants done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::Refusal;
use log_core::protocol::groups::HeldV1;
use log_core::store::Moves;
use log_core::{Offset, OffsetRange, StartFrom};

/// Names a request until it is answered.
pub type RequestId = u64;
/// Names a write, or a search for positions, until its outcome is told. They grow.
pub type Token = u64;

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The topic's id.
    pub topic_id: u128,
    /// The partition's number.
    pub partition: u32,
}

/// One run of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The member's id.
    pub member: Arc<str>,
    /// Which run of it.
    pub incarnation: u64,
}

/// Where the group stands in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// The next offset to read.
    pub offset: Offset,
    /// What above it is settled.
    pub settled: Arc<[OffsetRange]>,
}

impl Position {
    /// One with nothing settled above it.
    #[must_use]
    pub fn at(offset: Offset) -> Position {
        Position { offset, settled: Arc::default() }
    }
}

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicLine {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: u128,
    /// How many partitions it has.
    pub partitions: u32,
}

/// What a member wants.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The connection it joined on.
    pub connection: u64,
    /// The topics that it reads, those that are not there included.
    pub names: BTreeSet<Arc<str>>,
    /// Those that are there.
    pub topics: Vec<TopicLine>,
    /// Where partitions start for which nothing is committed.
    pub start: StartFrom,
    /// When it counts as gone.
    pub session_timeout: Duration,
    /// How long it may take to release a partition.
    pub drain_timeout: Duration,
    /// How long a record may be in its hands.
    pub processing_timeout: Duration,
}

/// A commit for one partition.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub place: Place,
    /// The epoch of the grant.
    pub epoch: u64,
    /// Where the group stands.
    pub position: Position,
    /// A text that is kept with it.
    pub metadata: Arc<str>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A member joins, or joins again.
    Join {
        /// To be answered.
        request: RequestId,
        /// Who.
        owner: Owner,
        /// What it wants.
        subscription: Subscription,
    },
    /// A member is alive.
    Heartbeat {
        /// To be answered; what the member should hold is [`Group::reply`](super::Group::reply).
        request: RequestId,
        /// Who.
        owner: Owner,
        /// On which connection.
        connection: u64,
        /// What it holds.
        holds: Vec<HeldV1>,
        /// The last reply that it has acted on.
        seen_version: u64,
        /// How long a record has been in its hands.
        processing: Duration,
    },
    /// A member wants to go.
    Leave {
        /// To be answered.
        request: RequestId,
        /// Who.
        owner: Owner,
        /// On which connection.
        connection: u64,
        /// How long what it holds is kept for its next run; none: it drains.
        keep: Option<Duration>,
    },
    /// An owner gives a partition back.
    Release {
        /// To be answered, when it is written.
        request: RequestId,
        /// Who.
        owner: Owner,
        /// What.
        place: Place,
        /// Under which grant.
        epoch: u64,
        /// The final position; none leaves what was committed.
        position: Option<Position>,
    },
    /// Offsets are committed.
    Commit {
        /// To be answered, when they are written.
        request: RequestId,
        /// By an owner, or by somebody outside the group.
        owner: Option<Owner>,
        /// What.
        commits: Vec<Commit>,
    },
    /// Positions are to be set, back, too.
    Reset {
        /// To be answered, when they are written.
        request: RequestId,
        /// Topic, partition and the new offset of each.
        to: Vec<(Arc<str>, Place, Offset)>,
    },
    /// A connection is gone.
    ConnectionClosed {
        /// Which.
        connection: u64,
    },
    /// What there is now of the topics that the group reads; those missing are deleted.
    TopicsChanged {
        /// Those that are there.
        topics: Vec<TopicLine>,
    },
    /// What [`Action::Resolve`] asked for.
    Resolved {
        /// Its token.
        token: Token,
        /// For each partition, the offset, or why there is none.
        found: Vec<(Place, Result<Offset, Refusal>)>,
    },
    /// How [`Action::Write`] ended: all of it is durable, or nothing is written.
    Written {
        /// Its token.
        token: Token,
        /// How.
        outcome: Result<(), Refusal>,
    },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug, Clone)]
pub enum Action {
    /// Write this durably, all or nothing, in the order of these actions.
    Write {
        /// To be told with the outcome.
        token: Token,
        /// What.
        changes: Vec<Change>,
    },
    /// Find the offset that a way of starting means now.
    Resolve {
        /// To be told with the outcome.
        token: Token,
        /// Which way.
        start: StartFrom,
        /// In which partitions.
        places: Vec<Place>,
    },
    /// Answer a request.
    Answer {
        /// Which.
        request: RequestId,
        /// How.
        answer: Answer,
    },
    /// What a member should hold has changed: answer its heartbeat, end its fetches.
    Changed {
        /// Whose.
        owner: Owner,
    },
    /// One is no member any more.
    Gone {
        /// Who.
        owner: Owner,
        /// What it is told.
        why: Refusal,
    },
    /// For those who watch: an owner had not released in time.
    Forced(Forced),
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is not.
    Refused(Refusal),
    /// Each part by itself: none if it is done.
    Each(Vec<Option<Refusal>>),
}

/// A change of what is kept for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub place: Place,
    /// Where the group stands now; none: where it stood.
    pub position: Option<NewPosition>,
    /// Who has the partition now; none: who had it.
    pub grant: Option<NewGrant>,
}

/// A position to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPosition {
    /// The position.
    pub position: Position,
    /// A text that is kept with it.
    pub metadata: Arc<str>,
    /// Which way it may move.
    pub moves: Moves,
}

/// A grant to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGrant {
    /// Its epoch.
    pub epoch: u64,
    /// Whose it is; none: it is released.
    pub owner: Option<Owner>,
}

/// A partition that was taken by force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub place: Place,
    /// From whom.
    pub owner: Owner,
    /// Under which epoch.
    pub epoch: u64,
    /// Why.
    pub why: &'static str,
}
