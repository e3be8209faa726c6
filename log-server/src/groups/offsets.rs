//! Offsets: commit, fetch and reset what groups have committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use log_core::config::{COMMIT_METADATA_LIMIT_BYTES, SETTLED_RANGES_LIMIT};
use log_core::protocol::offsets::{
    CommitOffsetsReplyV1, CommitOffsetsV1, CommitV1, CommittedV1, FetchOffsetsReplyV1,
    FetchOffsetsV1, PositionV1, ResetOffsetsReplyV1, ResetOffsetsV1, ResetV1,
};
use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::GroupOffsets;
use log_core::{Error, GroupName, Offset, StartFrom, Topic, TopicName};

use super::group::{Answer, Commit, Event, Place, stale_topic};
use super::membership::{position, within};
use super::{Coordinator, group_name, owner};
use crate::context::Peer;
use crate::engine;

impl Coordinator {
    /// Commits offsets: each partition by itself.
    ///
    /// # Errors
    /// `GroupInUse` without a member, if there are members; `LimitReached`; `Loading`; `Stopping`.
    pub(crate) async fn commit(
        &self,
        _peer: &Peer,
        request: CommitOffsetsV1,
    ) -> Result<CommitOffsetsReplyV1, Refusal> {
        let name = group_name(&request.group)?;
        within("commits at once", request.commits.len(), self.limits.partitions_max)?;
        let member = request.member.as_ref();
        let owner = member.map(|(member, incarnation)| owner(member, *incarnation));
        let cell = match &owner {
            Some(_) => self.cell(&name)?,
            None => self.cell_or_new(&name)?,
        };
        let mut outcomes = vec![None; request.commits.len()];
        let mut checked = Vec::new();
        for (index, commit) in request.commits.iter().enumerate() {
            match self.check_commit(commit) {
                Ok(commit) => checked.push((index, commit)),
                Err(refusal) => outcomes[index] = Some(refusal),
            }
        }
        let mut indices = Vec::new();
        let asked = self.ask(&cell, |request| {
            // Of a member's commits, the group knows what it has granted.
            checked.retain(|(index, Commit { topic, place, .. })| {
                let current = owner.is_some() || self.is_current(topic, place.topic_id);
                outcomes[*index] = (!current).then(|| stale_topic(topic));
                current
            });
            let commits;
            (indices, commits) = checked.into_iter().unzip();
            Event::Commit { request, owner, commits }
        });
        let answer = asked.await;
        self.forget_if_empty(&cell);
        if let Answer::Each(told) = answer? {
            for (index, outcome) in indices.into_iter().zip(told) {
                outcomes[index] = outcome;
            }
        }
        Ok(CommitOffsetsReplyV1 { outcomes })
    }

    /// Whether this is the topic of that name. Looked at under a group's lock, as [`Self::lines`].
    fn is_current(&self, name: &Arc<str>, id: u128) -> bool {
        self.line(name).is_some_and(|line| line.id == id)
    }

    /// What is to be committed, or why it can't be for its partition.
    fn check_commit(&self, commit: &CommitV1) -> Result<Commit, Refusal> {
        within("bytes of metadata", commit.metadata.len(), COMMIT_METADATA_LIMIT_BYTES)?;
        within("settled ranges", commit.position.settled.len(), SETTLED_RANGES_LIMIT)?;
        check_settled(&commit.position)?;
        let topic = self.store.topic_by_id(commit.topic_id).map_err(refused)?;
        let end = topic.partition(commit.partition).map_err(refused)?.readable_end();
        let last = commit.position.settled.last();
        let highest = last.map_or(commit.position.offset, |(_, end)| *end);
        if highest > end {
            let text = format!(
                "{highest} lies past the end of partition {} of topic {}, which is {end}",
                commit.partition,
                topic.name()
            );
            let refusal = Refusal::new(ErrorCode::OffsetBeyondEnd, text);
            return Err(refusal.with_numbers(&[highest, end]));
        }
        Ok(Commit {
            topic: Arc::from(topic.name().as_str()),
            place: Place { topic_id: commit.topic_id, partition: commit.partition },
            epoch: commit.epoch,
            position: position(&commit.position),
            metadata: Arc::from(commit.metadata.as_str()),
        })
    }

    /// What a group has committed; nothing, if there is no such group.
    ///
    /// # Errors
    /// `UnknownTopic`; `IllegalName`; `Corrupt` if what was committed last may have been lost.
    pub(crate) async fn fetch_offsets(
        &self,
        _peer: &Peer,
        request: FetchOffsetsV1,
    ) -> Result<FetchOffsetsReplyV1, Refusal> {
        self.refuse_unready()?;
        let name = group_name(&request.group)?;
        let topic = request.topic.as_deref().map(|raw| self.topic(raw)).transpose()?;
        let (offsets, topic_id) = (self.offsets.clone(), topic.map(|topic| topic.id()));
        // Who commits holds the same lock, over the disk, too.
        let committed = engine::blocking(move || committed(&offsets, &name, topic_id)).await?;
        Ok(FetchOffsetsReplyV1 { committed })
    }

    /// Sets what a group has committed, back, too. What members hold is revoked first.
    ///
    /// # Errors
    /// `UnknownTopic`; `StaleTopic` if it is deleted meanwhile; `IllegalName`; `Malformed`;
    /// `LimitReached`; `Loading`; `Stopping`.
    pub(crate) async fn reset(
        &self,
        _peer: &Peer,
        request: ResetOffsetsV1,
    ) -> Result<ResetOffsetsReplyV1, Refusal> {
        self.refuse_unready()?;
        let name = group_name(&request.group)?;
        let start = StartFrom::try_from(request.to);
        let start = start.map_err(|f| Refusal::new(ErrorCode::Malformed, f.to_string()))?;
        let topic = self.topic(&request.topic)?;
        let mut resets = self.resolve_reset(&name, &topic, &request.partitions, start).await?;
        if request.dry_run {
            return Ok(ResetOffsetsReplyV1 { resets });
        }
        let cell = self.cell_or_new(&name)?;
        let text: Arc<str> = Arc::from(topic.name().as_str());
        let (mut to, mut indices) = (Vec::new(), Vec::new());
        for (index, reset) in resets.iter().enumerate() {
            let Ok(offset) = reset.to else { continue };
            let place = Place { topic_id: topic.id(), partition: reset.partition };
            to.push((Arc::clone(&text), place, offset));
            indices.push(index);
        }
        let mut is_current = true;
        let asked = self.ask(&cell, |request| {
            // A time may have been looked for a long time.
            is_current = self.is_current(&text, topic.id());
            Event::Reset { request, to: if is_current { to } else { Vec::new() } }
        });
        let answer = asked.await;
        self.forget_if_empty(&cell);
        if !is_current {
            return Err(stale_topic(topic.name().as_str()));
        }
        if let Answer::Each(outcomes) = answer? {
            for (index, outcome) in indices.into_iter().zip(outcomes) {
                if let Some(refusal) = outcome {
                    resets[index].to = Err(refusal);
                }
            }
        }
        tracing::info!(group = %name, topic = %topic.name(), "committed offsets were reset");
        Ok(ResetOffsetsReplyV1 { resets })
    }

    /// What a reset would do.
    async fn resolve_reset(
        &self,
        name: &GroupName,
        topic: &Topic,
        partitions: &[u32],
        start: StartFrom,
    ) -> Result<Vec<ResetV1>, Refusal> {
        let wanted: BTreeSet<u32> = match partitions {
            [] => (0..topic.partition_count()).collect(),
            some => some.iter().copied().collect(),
        };
        within("partitions of a reset", wanted.len(), self.limits.partitions_max)?;
        let (offsets, name, topic) = (self.offsets.clone(), name.clone(), topic.clone());
        // A time is looked for in the log.
        engine::blocking(move || {
            let lines = offsets.list(&name).map_err(refused)?;
            let resolve = |partition: u32| {
                let line = lines
                    .iter()
                    .find(|line| line.topic_id == topic.id() && line.partition == partition);
                ResetV1 {
                    partition,
                    from: line.map(|line| line.committed.offset),
                    to: resolve(&topic, partition, start),
                }
            };
            Ok(wanted.into_iter().map(resolve).collect())
        })
        .await
    }

    pub(super) fn topic(&self, raw: &str) -> Result<Topic, Refusal> {
        let name = TopicName::parse(raw).map_err(refused)?;
        self.store.topic(&name).map_err(refused)
    }
}

fn committed(
    offsets: &GroupOffsets,
    group: &GroupName,
    topic_id: Option<u128>,
) -> Result<Vec<CommittedV1>, Refusal> {
    let mut committed = Vec::new();
    for line in offsets.list(group).map_err(refused)? {
        if topic_id.is_some_and(|id| id != line.topic_id) {
            continue;
        }
        // This tells what is in doubt.
        match offsets.fetch(group, &line.topic, line.partition) {
            Ok(_) | Err(Error::UnknownTopic(_)) => {}
            Err(error) => return Err(refused(error)),
        }
        committed.push(CommittedV1 {
            topic: line.topic.as_str().to_owned(),
            topic_id: line.topic_id,
            partition: line.partition,
            position: PositionV1::with_settled(line.committed.offset, &line.committed.settled),
            clamped_from: line.committed.clamped_from,
            metadata: line.committed.metadata.to_string(),
            committed_at: line.committed.committed_at.as_millis(),
        });
    }
    Ok(committed)
}

fn resolve(topic: &Topic, partition: u32, start: StartFrom) -> Result<Offset, Refusal> {
    let found = topic.partition(partition).and_then(|partition| partition.resolve(start));
    found.map_err(refused)
}

/// Refuses ranges that are not what [`PositionV1::settled`] says.
fn check_settled(position: &PositionV1) -> Result<(), Refusal> {
    let mut before = position.offset;
    for (start, end) in &position.settled {
        if *start <= before || *end <= *start {
            let text = format!("settled range {start}..{end} is empty, or not after {before}");
            return Err(Refusal::new(ErrorCode::Malformed, text));
        }
        before = *end;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err by its name")]
pub(super) fn refused(error: Error) -> Refusal {
    Refusal::from(&error)
}
