//! Events: what happens to a consumer's partitions, for those who want to know.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use log_core::{Offset, OffsetRange};

use super::membership::LostReason;
use crate::error::Error;

/// The most events that wait to be asked for; the oldest go first.
const EVENTS_MAX: usize = 1_000;

/// Which partition an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: u32,
}

/// Why records were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// Retention or a trim has removed them.
    Trimmed,
    /// They were removed, and the policy is to go on with what is appended from now on.
    ToLatest,
    /// They are damaged.
    Corrupt,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerEvent {
    /// A partition is read from now on, from this offset.
    Assigned {
        /// Which.
        of: TopicPartition,
        /// From where.
        position: Offset,
    },
    /// A partition moves to another member. Nothing more of it is handed over; what is in hand can
    /// be finished, and committed, for so long.
    Revoking {
        /// Which.
        of: TopicPartition,
        /// For how long.
        time_left: Duration,
    },
    /// A revoked partition was given back; the next member starts where this one has ended.
    Released {
        /// Which.
        of: TopicPartition,
    },
    /// A partition is gone. What is in hand of it will be handed over elsewhere; it can't be
    /// committed.
    Lost {
        /// Which.
        of: TopicPartition,
        /// Why.
        reason: LostReason,
    },
    /// A partition was taken before it was given back: the next member may repeat records that are
    /// done here.
    Forced {
        /// Which.
        of: TopicPartition,
    },
    /// What is done could not be committed when it was due; it is tried again. Told once, until a
    /// commit succeeds.
    CommitFailed {
        /// Why.
        error: Error,
    },
    /// Records were left out.
    Skipped {
        /// Of which partition.
        of: TopicPartition,
        /// Which.
        offsets: OffsetRange,
        /// Why.
        reason: SkipReason,
    },
    /// The log has lost its end, and reading goes on before where it was.
    WentBack {
        /// In which partition.
        of: TopicPartition,
        /// From where.
        from: Offset,
        /// To where.
        to: Offset,
    },
}

#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: VecDeque<ConsumerEvent>,
    /// Whether one was added since this was asked.
    news: bool,
}

impl Events {
    pub(super) fn push(&mut self, event: ConsumerEvent) {
        if self.waiting.len() == EVENTS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(event);
        self.news = true;
    }

    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    pub(super) fn pop(&mut self) -> Option<ConsumerEvent> {
        self.waiting.pop_front()
    }
}
