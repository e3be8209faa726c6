//! ConsumerHandle: what can be done to a consumer from anywhere, while it is being read.

use std::sync::Arc;

use log_core::protocol::offsets::{FetchOffsetsV1, ResolveOffsetV1};
use log_core::{Offset, StartFrom};
use tokio::sync::oneshot;

use super::event::ConsumerEvent;
use super::membership::PartitionId;
use super::record::{ConsumerRecord, Records};
use super::state::Shared;
use crate::error::{Error, Result};
use crate::link::Link;

/// Marks, commits, pauses, seeks and stops a consumer; clones do so from other tasks.
#[derive(Debug, Clone)]
pub struct ConsumerHandle {
    pub(super) shared: Arc<Shared>,
    /// For control calls.
    pub(super) link: Arc<Link>,
}

impl ConsumerHandle {
    /// Marks a record as done, in any order; returns whether that counts: not if its partition has
    /// gone since, and the record will be handed over elsewhere, or again.
    pub fn done(&self, record: &ConsumerRecord) -> bool {
        let offsets = log_core::OffsetRange::new(record.offset, record.offset.saturating_add(1));
        self.finish(record.source, offsets)
    }

    /// Marks a whole run as done; returns whether that counts, as `done` does.
    pub fn done_run(&self, records: &Records) -> bool {
        self.finish(records.source, records.offsets)
    }

    fn finish(&self, source: super::record::Source, offsets: log_core::OffsetRange) -> bool {
        let now = self.shared.now();
        let (counts, wake) = {
            let mut state = self.shared.lock();
            let counts = state.finish(source, offsets, now);
            (counts, std::mem::take(&mut state.wake_fetch))
        };
        if counts == Some(true) {
            self.shared.session.notify_one();
        }
        if wake {
            self.shared.fetch.notify_one();
            self.shared.ready.notify_one();
        }
        counts.is_some()
    }

    /// Persists what is done. The final answer always comes: what may succeed later is tried again
    /// until `commit_timeout`.
    ///
    /// # Errors
    /// `Refused` if a part of it was: `StaleGrant` for a partition that was taken away. `TimedOut`,
    /// `Unreachable`; `OutcomeUnknown` if it was sent; `InvalidArgument` without a group; `Closed`.
    pub async fn commit(&self) -> Result<()> {
        if self.shared.group.is_none() {
            return Err(Error::invalid("a consumer without a group has nowhere to commit to"));
        }
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            let waiters = state.commit_waiters.as_mut();
            waiters.ok_or(Error::Closed { what: "the consumer" })?.push(tell);
        }
        self.shared.commit.notify_one();
        told.await.unwrap_or(Err(Error::Closed { what: "the consumer" }))
    }

    /// Hands over nothing more of a partition, and stops fetching it; returns whether it is read.
    pub fn pause(&self, topic: &str, partition: u32) -> bool {
        self.shared.lock().find(topic, partition).map(|owned| owned.paused = true).is_some()
    }

    /// Goes on with a partition that was paused, or stands still after an error; returns whether
    /// it is read.
    pub fn resume(&self, topic: &str, partition: u32) -> bool {
        let found = {
            let mut state = self.shared.lock();
            let owned = state.find(topic, partition);
            owned.map(|owned| {
                owned.paused = false;
                if std::mem::take(&mut owned.halted) {
                    owned.drop_buffered();
                }
            })
        };
        self.shared.wake_all();
        found.is_some()
    }

    /// Goes on elsewhere in a partition. Forward, what is between counts as done; back, what was
    /// committed stays so.
    ///
    /// # Errors
    /// `InvalidArgument` if the partition is not read here; why the server could not tell the
    /// offset.
    pub async fn seek(&self, topic: &str, partition: u32, to: StartFrom) -> Result<()> {
        let elsewhere = || Error::invalid(format!("{topic}/{partition} is not read here"));
        let source = self.shared.lock().find(topic, partition).map(|owned| owned.source);
        let source = source.ok_or_else(elsewhere)?;
        let offset = resolve(&self.link, source.id, to).await?;
        {
            let mut state = self.shared.lock();
            let owned = state.partitions.get_mut(&source.id);
            let owned = owned.filter(|owned| owned.source == source && !owned.draining);
            owned.ok_or_else(elsewhere)?.seek(offset);
        }
        self.shared.wake_all();
        Ok(())
    }

    /// The offset to be handed over next; none if the partition is not read here.
    #[must_use]
    pub fn position(&self, topic: &str, partition: u32) -> Option<Offset> {
        self.shared.lock().find(topic, partition).map(|owned| owned.tracker.frontier())
    }

    /// The partitions that are read now, by topic and number.
    #[must_use]
    pub fn assignment(&self) -> Vec<(Arc<str>, u32)> {
        let state = self.shared.lock();
        let owned = state.partitions.values().filter(|owned| !owned.draining);
        let mut all: Vec<_> =
            owned.map(|owned| (Arc::clone(&owned.topic), owned.source.id.partition)).collect();
        all.sort_unstable();
        all
    }

    /// What the group has committed, as the server says: the next offset to read.
    ///
    /// # Errors
    /// `InvalidArgument` without a group; why the server has not told.
    pub async fn committed(&self, topic: &str, partition: u32) -> Result<Option<Offset>> {
        let Some(group) = self.shared.group.clone() else {
            return Err(Error::invalid("a consumer without a group has nothing committed"));
        };
        let call = FetchOffsetsV1 { group, topic: Some(topic.to_owned()) };
        let reply = self.link.call(&call, self.link.deadline()).await?;
        let mut committed = reply.committed.into_iter();
        let found = committed.find(|line| line.topic == topic && line.partition == partition);
        Ok(found.map(|line| line.position.offset))
    }

    /// The next thing that has happened to the consumer's partitions. Whoever asks gets it; the
    /// oldest are dropped if nobody does. None once the consumer is closed.
    pub async fn next_event(&self) -> Option<ConsumerEvent> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.shared.lock();
                if let Some(event) = state.events.pop() {
                    return Some(event);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Makes `next` return none from now on, so that whoever reads can close.
    pub fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.wake_all();
    }
}

/// The offset that a way of starting means now.
pub(super) async fn resolve(link: &Link, id: PartitionId, start: StartFrom) -> Result<Offset> {
    if let StartFrom::Offset(offset) = start {
        return Ok(offset);
    }
    let PartitionId { topic_id, partition } = id;
    let call = ResolveOffsetV1 { topic_id, partition, start: start.into() };
    Ok(link.call(&call, link.deadline()).await?.offset)
}
