//! Entry: what is kept for a group and a partition, and how it may change. Plain: no locks, no I/O.
//!
//! - The position: the next offset to read, and the *settled* ranges above it, which are dealt with
//!   though something before them is not.
//! - The *grant*: who holds the partition for the group. Each has an epoch of its own, which never
//!   comes again, so that whoever held the partition before can be told by it.
//!
//! Both are in one record, so that a member's last word on a partition, where it stopped and that
//! it holds it no more, is there as a whole or not at all.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::config::{COMMIT_METADATA_LIMIT_BYTES, MEMBER_ID_LIMIT_BYTES, SETTLED_RANGES_LIMIT};
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::{Offset, OffsetRange};

/// What a group has committed for a partition, and who holds the partition for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: Offset,
    /// What above it is settled already, in order: disjoint, with something between any two.
    pub settled: Arc<[OffsetRange]>,
    /// What was committed, if the log has lost records since and ends before it: `offset` is where
    /// the log ended then. Records after it were never read.
    pub clamped_from: Option<Offset>,
    /// The text that was kept with it.
    pub metadata: Arc<str>,
    /// When it was committed; a change of the grant alone leaves it.
    pub committed_at: Timestamp,
    /// Who holds the partition, if it was ever given to anybody.
    pub grant: Option<Grant>,
}

/// Who holds a partition for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its number: it grows from grant to grant of the partition, and never goes back.
    pub epoch: u64,
    /// Whose it is; none if it was released.
    pub owner: Option<Owner>,
}

/// A member, as far as a grant knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its id, up to [`MEMBER_ID_LIMIT_BYTES`].
    pub member: Arc<str>,
    /// Which of the processes that use the id.
    pub incarnation: u64,
}

/// What a group commits for one partition: the next offset to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetCommit<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// Its id, if it was noted when reading began: a topic that was made anew is told apart.
    pub topic_id: Option<u128>,
    /// The partition.
    pub partition: u32,
    /// The next offset to read.
    pub offset: Offset,
    /// What above it is settled: see [`NewPosition::settled`].
    pub settled: &'a [OffsetRange],
    /// A text that is kept with it, up to [`COMMIT_METADATA_LIMIT_BYTES`].
    pub metadata: &'a str,
}

impl<'a> OffsetCommit<'a> {
    /// One without an id, with nothing settled above it, and without metadata.
    #[must_use]
    pub fn new(topic: &'a TopicName, partition: u32, offset: Offset) -> OffsetCommit<'a> {
        OffsetCommit { topic, topic_id: None, partition, offset, settled: &[], metadata: "" }
    }

    pub(super) fn change(&self, moves: Moves) -> EntryChange<'a> {
        let OffsetCommit { topic, topic_id, partition, offset, settled, metadata } = *self;
        let position = Some(NewPosition { offset, settled, metadata, moves });
        EntryChange { topic, topic_id, partition, position, grant: None }
    }
}

/// A change of what is kept for a group and one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// Its id, if it was noted before: a topic that was made anew is told apart.
    pub topic_id: Option<u128>,
    /// The partition.
    pub partition: u32,
    /// Where the group stands now; none: where it stood.
    pub position: Option<NewPosition<'a>>,
    /// Who holds the partition now; none: who held it. An epoch that was given before may come
    /// only with the owner that it had, or with none.
    pub grant: Option<Grant>,
}

/// Where a group stands in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewPosition<'a> {
    /// The next offset to read.
    pub offset: Offset,
    /// What above it is settled, [`SETTLED_RANGES_LIMIT`] ranges at most: in order, none empty, the
    /// first beginning after `offset`, each of the others after the end of the one before it.
    pub settled: &'a [OffsetRange],
    /// A text that is kept with it, up to [`COMMIT_METADATA_LIMIT_BYTES`].
    pub metadata: &'a str,
    /// Which way it may move.
    pub moves: Moves,
}

/// Which way a position may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// Only on: one that lies before what is committed is refused.
    Forward,
    /// Back, too: records will be read again.
    Anywhere,
}

impl EntryChange<'_> {
    /// Refuses what could be no entry, whatever was there before; `end` is where readers stop.
    pub(super) fn check(&self, group: &GroupName, end: Offset) -> Result<()> {
        let member = self.grant.iter().filter_map(|grant| grant.owner.as_ref());
        for owner in member {
            let (actual, limit) = (owner.member.len(), MEMBER_ID_LIMIT_BYTES);
            within("id of a member, bytes", actual, limit)?;
        }
        let Some(position) = &self.position else { return Ok(()) };
        let metadata = position.metadata.len();
        within("metadata of a commit, bytes", metadata, COMMIT_METADATA_LIMIT_BYTES)?;
        within("number of settled ranges", position.settled.len(), SETTLED_RANGES_LIMIT)?;
        if let Err(why) = check_settled(position.offset, position.settled) {
            return Err(Error::IllegalSettled {
                group: group.to_string(),
                topic: self.topic.clone(),
                partition: self.partition,
                why,
            });
        }
        let highest = position.settled.last().map_or(position.offset, |range| range.end);
        if highest > end {
            return Err(Error::OffsetBeyondEnd {
                group: group.to_string(),
                topic: self.topic.clone(),
                partition: self.partition,
                offset: highest,
                end,
            });
        }
        Ok(())
    }

    /// What the entry becomes; none if there is nothing to change.
    pub(super) fn apply(
        &self,
        group: &GroupName,
        before: Option<&Committed>,
        now: Timestamp,
    ) -> Result<Option<Committed>> {
        if let (Some(held), Some(grant)) = (before.and_then(|b| b.grant.as_ref()), &self.grant)
            && !held.may_become(grant)
        {
            return Err(Error::GrantWentBack {
                group: group.to_string(),
                topic: self.topic.clone(),
                partition: self.partition,
                granted: held.epoch,
                epoch: grant.epoch,
            });
        }
        let kept = || before.and_then(|before| before.grant.clone());
        match (&self.position, before) {
            (Some(position), _) => {
                self.refuse_going_back(group, before, position)?;
                Ok(Some(Committed {
                    offset: position.offset,
                    settled: Arc::from(position.settled),
                    clamped_from: None,
                    metadata: Arc::from(position.metadata),
                    committed_at: now,
                    grant: self.grant.clone().or_else(kept),
                }))
            }
            (None, _) if self.grant.is_none() => Ok(None),
            (None, Some(before)) => {
                Ok(Some(Committed { grant: self.grant.clone(), ..before.clone() }))
            }
            (None, None) => Err(Error::NoPosition {
                group: group.to_string(),
                topic: self.topic.clone(),
                partition: self.partition,
            }),
        }
    }

    fn refuse_going_back(
        &self,
        group: &GroupName,
        before: Option<&Committed>,
        position: &NewPosition<'_>,
    ) -> Result<()> {
        match before {
            Some(before) if position.moves == Moves::Forward && position.offset < before.offset => {
                Err(Error::OffsetWentBack {
                    group: group.to_string(),
                    topic: self.topic.clone(),
                    partition: self.partition,
                    committed: before.offset,
                    offset: position.offset,
                })
            }
            _ => Ok(()),
        }
    }
}

impl Grant {
    /// An epoch is given once: after that, its owner may only go.
    fn may_become(&self, next: &Grant) -> bool {
        next.epoch > self.epoch
            || (next.epoch == self.epoch && (next.owner.is_none() || next.owner == self.owner))
    }
}

impl Committed {
    /// The same within a log that ends at `end`; none if it lies there already. What was settled
    /// past the end is lost: other records will have those offsets.
    pub(super) fn clamped_to(&self, end: Offset) -> Option<Committed> {
        let highest = self.settled.last().map_or(self.offset, |range| range.end);
        if highest <= end {
            return None;
        }
        let left = self.settled.iter().filter(|range| range.start < end);
        let left = left.map(|range| OffsetRange::new(range.start, range.end.min(end)));
        let past = self.offset > end;
        Some(Committed {
            offset: self.offset.min(end),
            settled: left.collect(),
            clamped_from: self.clamped_from.or(past.then_some(self.offset)),
            ..self.clone()
        })
    }

    /// About what a record of it takes in a batch of many.
    pub(super) fn stored_bytes(&self, group: &GroupName) -> u64 {
        const FRAMING: usize = 96;
        const GRANT: usize = 32;
        let owner = self.grant.as_ref().and_then(|grant| grant.owner.as_ref());
        let grant = owner.map_or(0, |owner| GRANT + owner.member.len());
        let settled = self.settled.len() * size_of::<OffsetRange>();
        (FRAMING + group.as_str().len() + self.metadata.len() + settled + grant) as u64
    }
}

/// What is wrong with ranges that should be settled above `offset`.
pub(super) fn check_settled(
    offset: Offset,
    settled: &[OffsetRange],
) -> std::result::Result<(), &'static str> {
    let mut before = offset;
    for range in settled {
        if range.is_empty() {
            return Err("a range is empty");
        }
        if range.start <= before {
            return Err("a range does not begin after what is before it, with something between");
        }
        before = range.end;
    }
    Ok(())
}

fn within(what: &'static str, actual: usize, limit: usize) -> Result<()> {
    if actual <= limit {
        return Ok(());
    }
    Err(Error::TooLarge { what, actual: actual as u64, limit: limit as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(Offset, Offset)]) -> Vec<OffsetRange> {
        pairs.iter().map(|(start, end)| OffsetRange::new(*start, *end)).collect()
    }

    fn grant(epoch: u64, member: Option<&str>) -> Grant {
        let owner = member.map(|member| Owner { member: Arc::from(member), incarnation: 1 });
        Grant { epoch, owner }
    }

    #[test]
    fn settled_ranges_are_sorted_and_apart() {
        for good in [&[][..], &[(6, 7)], &[(6, 7), (8, 9)], &[(9, 20), (30, u64::MAX)]] {
            assert_eq!(check_settled(5, &ranges(good)), Ok(()), "{good:?}");
        }
        for bad in [
            &[(5, 7)][..],
            &[(4, 7)],
            &[(7, 7)],
            &[(8, 7)],
            &[(6, 8), (8, 9)],
            &[(6, 8), (7, 9)],
            &[(10, 12), (6, 7)],
        ] {
            assert!(check_settled(5, &ranges(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_epoch_is_given_once() {
        let held = grant(5, Some("a"));
        for fine in [grant(5, Some("a")), grant(5, None), grant(6, Some("b")), grant(9, None)] {
            assert!(held.may_become(&fine), "{fine:?}");
        }
        for refused in [grant(5, Some("b")), grant(4, Some("a")), grant(0, None)] {
            assert!(!held.may_become(&refused), "{refused:?}");
        }
        assert!(!grant(5, None).may_become(&held), "what was released is not taken back");
        let other = Owner { member: Arc::from("a"), incarnation: 2 };
        assert!(!held.may_become(&Grant { epoch: 5, owner: Some(other) }));
    }

    #[test]
    fn what_lies_past_the_end_is_cut_off() {
        let entry = Committed {
            offset: 10,
            settled: ranges(&[(12, 15), (18, 20)]).into(),
            clamped_from: None,
            metadata: Arc::from("m"),
            committed_at: Timestamp::from_millis(1),
            grant: Some(grant(3, Some("a"))),
        };
        assert_eq!(entry.clamped_to(20), None);
        let cut = |end| entry.clamped_to(end).unwrap();
        assert_eq!(&*cut(19).settled, ranges(&[(12, 15), (18, 19)]));
        assert_eq!(&*cut(18).settled, ranges(&[(12, 15)]));
        assert_eq!((cut(12).settled.len(), cut(12).offset, cut(12).clamped_from), (0, 10, None));
        assert_eq!((cut(9).settled.len(), cut(9).offset, cut(9).clamped_from), (0, 9, Some(10)));
        assert_eq!(cut(9).grant, entry.grant);
        assert_eq!(cut(9).clamped_to(7).unwrap().clamped_from, Some(10), "the first is told");
    }
}
