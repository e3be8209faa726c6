//! Client of the model: obeys the rules for members, and does nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use log_core::protocol::groups::{GrantV1, HeartbeatReplyV1, HeldV1};

use crate::groups::group::{Owner, Place};

/// One process.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) owner: Owner,
    pub(super) topics: Vec<&'static str>,
    pub(super) state: ClientState,
    pub(super) held: BTreeMap<Place, InHand>,
    seen: BTreeMap<Place, u64>,
    pub(super) seen_version: u64,
    /// When the last heartbeat was sent that was answered. Joining does not count.
    pub(super) lease_from: Option<Duration>,
    pub(super) asked_at: Option<Duration>,
    /// Drops all that it holds when it must join again; else it keeps it until it is told.
    pub(super) forgetful: bool,
    /// Leaves with its next step, and keeps or drains.
    pub(super) wants_to_leave: Option<Option<Duration>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientState {
    Joining,
    Member,
    Leaving,
    /// It hands nothing over any more.
    Stopped,
    /// The process is gone.
    Dead,
}

#[derive(Debug, Clone)]
pub(super) struct InHand {
    pub(super) epoch: u64,
    pub(super) cursor: u64,
    pub(super) draining: bool,
    /// A record is with its handler so long.
    pub(super) busy: Option<(Duration, Duration)>,
    pub(super) release_sent: Option<Duration>,
}

impl Client {
    pub(super) fn new(owner: Owner, topics: Vec<&'static str>, forgetful: bool) -> Client {
        Client {
            owner,
            topics,
            state: ClientState::Joining,
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            seen_version: 0,
            lease_from: None,
            asked_at: None,
            forgetful,
            wants_to_leave: None,
        }
    }

    pub(super) fn runs(&self) -> bool {
        !matches!(self.state, ClientState::Stopped | ClientState::Dead)
    }

    /// Whether it would hand a record of this partition to a handler now.
    pub(super) fn may_hand_over(&self, place: Place, now: Duration, session: Duration) -> bool {
        matches!(self.state, ClientState::Member | ClientState::Joining)
            && self.lease_from.is_some_and(|from| now < from + session)
            && self.held.get(&place).is_some_and(|held| !held.draining)
    }

    pub(super) fn holds(&self) -> Vec<HeldV1> {
        let held = |(place, held): (&Place, &InHand)| HeldV1 {
            topic_id: place.topic_id,
            partition: place.partition,
            epoch: held.epoch,
            draining: held.draining,
        };
        self.held.iter().map(held).collect()
    }

    pub(super) fn oldest(&self, now: Duration) -> Duration {
        let busy = self.held.values().filter_map(|held| held.busy);
        busy.map(|(since, _)| now.saturating_sub(since)).max().unwrap_or_default()
    }

    /// Takes what it is told; returns what is new to it.
    pub(super) fn told(&mut self, reply: HeartbeatReplyV1, sent: Duration) -> Vec<GrantV1> {
        self.lease_from = self.lease_from.max(Some(sent));
        if reply.version < self.seen_version {
            return Vec::new();
        }
        self.seen_version = reply.version;
        let place =
            |grant: &GrantV1| Place { topic_id: grant.topic_id, partition: grant.partition };
        let listed: BTreeMap<Place, u64> =
            reply.grants.iter().map(|grant| (place(grant), grant.epoch)).collect();
        self.held.retain(|place, held| listed.get(place) == Some(&held.epoch));
        let mut taken = Vec::new();
        for grant in reply.grants {
            let at = place(&grant);
            if let Some(held) = self.held.get_mut(&at) {
                held.draining |= grant.revoked_for.is_some();
                continue;
            }
            let seen = self.seen.entry(at).or_default();
            if grant.epoch <= *seen {
                continue;
            }
            *seen = grant.epoch;
            let draining = grant.revoked_for.is_some() || self.state == ClientState::Leaving;
            let (epoch, cursor) = (grant.epoch, grant.position.offset);
            self.held
                .insert(at, InHand { epoch, cursor, draining, busy: None, release_sent: None });
            taken.push(grant);
        }
        taken
    }

    pub(super) fn must_join_again(&mut self) {
        if self.state == ClientState::Member {
            self.state = ClientState::Joining;
            self.seen_version = 0;
            if self.forgetful {
                self.held.clear();
            }
        } else if self.state == ClientState::Leaving {
            self.stop();
        }
        self.asked_at = None;
    }

    pub(super) fn stop(&mut self) {
        self.state = ClientState::Stopped;
        self.held.clear();
    }
}
