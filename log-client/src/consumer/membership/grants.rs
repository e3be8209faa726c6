//! Grants: what a member holds: each active, then draining, then releasing, then gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log_core::protocol::groups::{GrantV1, HeldV1, MemberV1, ReleasePartitionV1};
use log_core::protocol::offsets::PositionV1;

use super::{Action, DRAIN_MARGIN_MAX, PartitionId, RETRY_FIRST, id_of};

#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) epoch: u64,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone)]
pub(super) enum Stage {
    Active,
    Draining { deadline: Duration, expired: bool },
    Releasing { position: Option<PositionV1>, under_way: bool, retry_at: Duration, known: bool },
}

impl Stage {
    /// Giving back what was never handed on to the user.
    fn refusing(now: Duration) -> Stage {
        Stage::Releasing { position: None, under_way: false, retry_at: now, known: false }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Grants {
    held: BTreeMap<PartitionId, Grant>,
    /// The greatest epoch seen of each partition.
    seen: BTreeMap<PartitionId, u64>,
}

impl Grants {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn is_active(&self, partition: PartitionId, epoch: u64) -> bool {
        let grant = self.held.get(&partition);
        grant.is_some_and(|grant| grant.epoch == epoch && matches!(grant.stage, Stage::Active))
    }

    /// Whether the server says so of all that is active: granted, and not being taken back.
    pub(super) fn are_confirmed(&self, listed: &[GrantV1]) -> bool {
        self.held.iter().filter(|(_, grant)| matches!(grant.stage, Stage::Active)).all(
            |(id, grant)| {
                let is_it = |line: &GrantV1| id_of(line) == *id && line.epoch == grant.epoch;
                listed.iter().any(|line| is_it(line) && line.revoked_for.is_none())
            },
        )
    }

    pub(super) fn held(&self) -> Vec<HeldV1> {
        let held = self.held.iter().map(|(id, grant)| HeldV1 {
            topic_id: id.topic_id,
            partition: id.partition,
            epoch: grant.epoch,
            draining: !matches!(grant.stage, Stage::Active),
        });
        held.collect()
    }

    /// Forgets a grant; whether there was one.
    pub(super) fn remove(&mut self, partition: PartitionId, epoch: u64) -> bool {
        let there = self.held.get(&partition).is_some_and(|grant| grant.epoch == epoch);
        there && self.held.remove(&partition).is_some()
    }

    /// Those in the user's hands that are not there any more. A release under way is not looked at:
    /// its own answer says what became of it.
    pub(super) fn missing_from(
        &self,
        there: &BTreeSet<(PartitionId, u64)>,
    ) -> Vec<(PartitionId, u64)> {
        let held = self.held.iter().filter(|(id, grant)| {
            !matches!(grant.stage, Stage::Releasing { .. }) && !there.contains(&(**id, grant.epoch))
        });
        held.map(|(id, grant)| (*id, grant.epoch)).collect()
    }

    /// Takes one line of what the member should hold; returns whether it was new.
    pub(super) fn follow(
        &mut self,
        grant: GrantV1,
        may_take: bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        let id = id_of(&grant);
        if let Some(held) = self.held.get_mut(&id)
            && grant.epoch <= held.epoch
        {
            let revoked = grant.revoked_for.filter(|_| grant.epoch == held.epoch);
            return match (revoked, &held.stage) {
                (Some(left), Stage::Active) => {
                    held.drain(id, drain_deadline(left, now), actions);
                    true
                }
                _ => false,
            };
        }
        let seen = self.seen.entry(id).or_default();
        let stage = if grant.epoch > *seen && may_take && grant.revoked_for.is_none() {
            Stage::Active
        } else {
            Stage::refusing(now)
        };
        *seen = grant.epoch.max(*seen);
        let assigned = matches!(stage, Stage::Active);
        self.held.insert(id, Grant { epoch: grant.epoch, stage });
        if assigned {
            actions.push(Action::Assign(grant));
        }
        true
    }

    /// Starts to drain what is active.
    pub(super) fn drain_all(&mut self, deadline: Duration, actions: &mut Vec<Action>) {
        for (id, grant) in &mut self.held {
            if matches!(grant.stage, Stage::Active) {
                grant.drain(*id, deadline, actions);
            }
        }
    }

    /// Starts to give back what is in the user's hands, as it was committed last; returns what.
    pub(super) fn abandon_all(&mut self, now: Duration) -> Vec<(PartitionId, u64)> {
        let mut abandoned = Vec::new();
        for (id, grant) in &mut self.held {
            if !matches!(grant.stage, Stage::Releasing { .. }) {
                grant.stage = Stage::refusing(now);
                abandoned.push((*id, grant.epoch));
            }
        }
        abandoned
    }

    /// Forgets everything; returns what was in the user's hands.
    pub(super) fn clear(&mut self) -> Vec<(PartitionId, u64)> {
        let held = std::mem::take(&mut self.held).into_iter();
        let lost = held.filter(|(_, grant)| match grant.stage {
            Stage::Releasing { known, .. } => known,
            _ => true,
        });
        lost.map(|(id, grant)| (id, grant.epoch)).collect()
    }

    pub(super) fn drained(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        position: Option<PositionV1>,
        now: Duration,
    ) {
        let Some(grant) = self.held.get_mut(&partition) else { return };
        if grant.epoch == epoch && matches!(grant.stage, Stage::Draining { .. }) {
            grant.stage =
                Stage::Releasing { position, under_way: false, retry_at: now, known: true };
        }
    }

    /// Whether the user knows of a release that is under way.
    pub(super) fn is_known(&self, partition: PartitionId, epoch: u64) -> bool {
        self.held.get(&partition).is_some_and(|grant| {
            grant.epoch == epoch && matches!(grant.stage, Stage::Releasing { known: true, .. })
        })
    }

    /// Tells of drains whose time is up.
    pub(super) fn expire(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (id, grant) in &mut self.held {
            if let Stage::Draining { deadline, expired } = &mut grant.stage
                && *deadline <= now
                && !*expired
            {
                *expired = true;
                actions.push(Action::Expire(*id, grant.epoch));
            }
        }
    }

    pub(super) fn send_releases(
        &mut self,
        member: &MemberV1,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        for (id, grant) in &mut self.held {
            if let Stage::Releasing { position, under_way, retry_at, .. } = &mut grant.stage
                && !*under_way
                && *retry_at <= now
            {
                *under_way = true;
                actions.push(Action::Release(ReleasePartitionV1 {
                    member: member.clone(),
                    topic_id: id.topic_id,
                    partition: id.partition,
                    epoch: grant.epoch,
                    position: position.clone(),
                }));
            }
        }
    }

    /// A release is to be sent again.
    pub(super) fn release_again(&mut self, partition: PartitionId, epoch: u64, now: Duration) {
        if let Some(grant) = self.held.get_mut(&partition)
            && grant.epoch == epoch
            && let Stage::Releasing { under_way, retry_at, .. } = &mut grant.stage
        {
            (*under_way, *retry_at) = (false, now + 2 * RETRY_FIRST);
        }
    }

    /// When something here is due.
    pub(super) fn deadline(&self, may_release: bool) -> Option<Duration> {
        let deadlines = self.held.values().filter_map(|grant| match &grant.stage {
            Stage::Draining { deadline, expired: false } => Some(*deadline),
            Stage::Releasing { under_way: false, retry_at, .. } if may_release => Some(*retry_at),
            _ => None,
        });
        deadlines.min()
    }
}

impl Grant {
    fn drain(&mut self, id: PartitionId, deadline: Duration, actions: &mut Vec<Action>) {
        self.stage = Stage::Draining { deadline, expired: false };
        actions.push(Action::Drain(id, self.epoch, deadline));
    }
}

/// When a drain ends here, if the server waits for so many milliseconds.
fn drain_deadline(left_millis: u64, now: Duration) -> Duration {
    let left = Duration::from_millis(left_millis);
    now.saturating_add(left - (left / 10).min(DRAIN_MARGIN_MAX))
}
