//! Membership: what members ask for: join, heartbeat, release, leave.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::groups::{
    HeartbeatReplyV1, HeartbeatV1, HeldV1, JoinGroupReplyV1, JoinGroupV1, LeaveGroupV1,
    MEMBER_ID_MAX_BYTES, MemberV1, ReleasePartitionV1,
};
use log_core::protocol::offsets::PositionV1;
use log_core::protocol::topics::DoneV1;
use log_core::protocol::{ErrorCode, Refusal};
use log_core::{Error, GroupName, StartFrom, TopicName};

use super::cell::{Cell, Session};
use super::group::{Event, GRANT_BYTES, Owner, Place, Position, Subscription};
use super::member_grants::MemberGrants;
use super::{Coordinator, GRANTS_MAX_BYTES, group_name, lock_there, owner};
use crate::context::Peer;

/// A session timeout lasts so many heartbeats.
const HEARTBEATS_PER_SESSION: u32 = 3;

/// The bytes of a range in a position.
const RANGE_BYTES: usize = 16;

impl Coordinator {
    /// Makes the sender a member.
    ///
    /// # Errors
    /// `Fenced`; `UnknownTopic` for one who is new; `LimitReached`; `TooLarge`; `Malformed`;
    /// `IllegalName`; `Loading`; `Stopping`.
    pub(crate) async fn join(
        &self,
        peer: &Peer,
        request: JoinGroupV1,
    ) -> Result<JoinGroupReplyV1, Refusal> {
        let (name, owner) = member_of(&request.member)?;
        let cell = self.cell_or_new(&name)?;
        let outcome = self.join_cell(&cell, peer, &owner, &request).await;
        if outcome.is_err() {
            self.forget_if_empty(&cell);
        }
        outcome
    }

    async fn join_cell(
        &self,
        cell: &Arc<Cell>,
        peer: &Peer,
        owner: &Owner,
        request: &JoinGroupV1,
    ) -> Result<JoinGroupReplyV1, Refusal> {
        let mut subscription = self.subscription(cell, peer, owner, request)?;
        let session_timeout = subscription.session_timeout;
        self.note_connection(peer, &cell.name);
        {
            let mut state = lock_there(cell)?;
            let session = state.sessions.entry(owner.clone());
            let fresh =
                || Session { grants: Arc::new(MemberGrants::default()), peer: peer.clone() };
            session.or_insert_with(fresh).peer = peer.clone();
        }
        let joined = self.ask(cell, |request| {
            subscription.topics = self.lines(&subscription.names);
            Event::Join { request, owner: owner.clone(), subscription }
        });
        let joined = joined.await;
        if let Err(refusal) = joined {
            let mut state = cell.state.lock();
            if state.group.check_member(owner).is_err() {
                state.sessions.remove(owner);
            }
            return Err(refusal);
        }
        let (member, incarnation) = (owner.member.escape_debug(), owner.incarnation);
        let (client, address) = (peer.client_id.escape_debug(), peer.address);
        tracing::info!(group = %cell.name, %member, incarnation, %client, %address, "joined");
        Ok(JoinGroupReplyV1 {
            heartbeat_every: millis(session_timeout / HEARTBEATS_PER_SESSION),
            session_timeout: millis(session_timeout),
        })
    }

    fn subscription(
        &self,
        cell: &Cell,
        peer: &Peer,
        owner: &Owner,
        request: &JoinGroupV1,
    ) -> Result<Subscription, Refusal> {
        let limits = &self.limits;
        within("topics of a member", request.topics.len(), limits.topics_max)?;
        let start = StartFrom::try_from(request.start);
        let start = start.map_err(|f| Refusal::new(ErrorCode::Malformed, f.to_string()))?;
        let mut names = BTreeSet::new();
        let state = lock_there(cell)?;
        // A member that comes back keeps its place, whatever has become of its topics.
        let is_known = state.group.members().any(|member| *member.member == *owner.member);
        drop(state);
        for raw in &request.topics {
            let topic = TopicName::parse(raw).map_err(|error| Refusal::from(&error))?;
            let name: Arc<str> = Arc::from(raw.as_str());
            if !is_known && self.line(&name).is_none() {
                return Err(Refusal::from(&Error::UnknownTopic(topic)));
            }
            names.insert(name);
        }
        let topics = self.lines(&names);
        let partitions = topics.iter().map(|line| line.partitions as usize).sum();
        within("partitions of a member's topics", partitions, limits.partitions_max)?;
        let session_timeout = Duration::from_millis(request.session_timeout);
        Ok(Subscription {
            connection: peer.id,
            names,
            topics,
            start,
            session_timeout: limits.session_timeout(session_timeout),
            drain_timeout: Duration::from_millis(request.drain_timeout)
                .min(limits.drain_timeout_max),
            processing_timeout: Duration::from_millis(request.processing_timeout),
        })
    }

    /// Notes that a member is alive, and says what it should hold; waits for a change of that, if
    /// the member has acted on all so far.
    ///
    /// # Errors
    /// `UnknownMember`; `Fenced`; `UnknownGroup`; `TooLarge`; `Loading`; `Stopping`.
    pub(crate) async fn heartbeat(
        &self,
        peer: &Peer,
        request: HeartbeatV1,
    ) -> Result<HeartbeatReplyV1, Refusal> {
        let (name, owner) = member_of(&request.member)?;
        within("held partitions", request.holds.len(), self.limits.partitions_max)?;
        let cell = self.cell(&name)?;
        self.notice_topics();
        self.note_connection(peer, &name);
        let (seen_version, holds) = (request.seen_version, request.holds.clone());
        let processing = Duration::from_millis(request.processing);
        let heard = self.ask(&cell, |number| Event::Heartbeat {
            request: number,
            owner: owner.clone(),
            connection: peer.id,
            holds: request.holds,
            seen_version,
            processing,
        });
        heard.await?;
        let (grants, mut wait) = {
            let mut state = lock_there(&cell)?;
            let members = state.group.members().find(|member| *member.member == *owner.member);
            let session = members.map(|member| member.session_timeout);
            let wait = session.map_or(Duration::ZERO, |session| session / HEARTBEATS_PER_SESSION);
            let Some(session) = state.sessions.get_mut(&owner) else {
                return Err(Refusal::new(ErrorCode::UnknownMember, "join the group first"));
            };
            session.peer = peer.clone();
            (Arc::clone(&session.grants), wait)
        };
        wait = wait.min(Duration::from_millis(request.max_wait));
        let mut reply = self.wait_for_change(&cell, &owner, &grants, seen_version, wait).await?;
        forget_known_ranges(&mut reply, &holds);
        keep_ranges_that_fit(&mut reply);
        Ok(reply)
    }

    async fn wait_for_change(
        &self,
        cell: &Cell,
        owner: &Owner,
        grants: &MemberGrants,
        seen_version: u64,
        wait: Duration,
    ) -> Result<HeartbeatReplyV1, Refusal> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let changed = grants.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(why) = grants.gone() {
                return Err(why);
            }
            let reply = cell.state.lock().group.reply(owner, self.clock.monotonic())?;
            if reply.version != seen_version {
                return Ok(reply);
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return cell.state.lock().group.reply(owner, self.clock.monotonic());
            }
        }
    }

    /// Takes a partition back from its owner; done when that is durable.
    ///
    /// # Errors
    /// `StaleGrant`; `Fenced`; `UnknownMember`; `OffsetWentBack`; what kept it from being written.
    pub(crate) async fn release(
        &self,
        _peer: &Peer,
        request: ReleasePartitionV1,
    ) -> Result<DoneV1, Refusal> {
        let (name, owner) = member_of(&request.member)?;
        let cell = self.cell(&name)?;
        let place = Place { topic_id: request.topic_id, partition: request.partition };
        let (epoch, position) = (request.epoch, request.position.as_ref().map(position));
        let released =
            self.ask(&cell, |request| Event::Release { request, owner, place, epoch, position });
        released.await.map(|_| DoneV1 {})
    }

    /// Ends a membership, or begins its end.
    ///
    /// # Errors
    /// `Fenced`; `UnknownGroup`; `Loading`.
    pub(crate) async fn leave(
        &self,
        peer: &Peer,
        request: LeaveGroupV1,
    ) -> Result<DoneV1, Refusal> {
        let (name, owner) = member_of(&request.member)?;
        let cell = self.cell(&name)?;
        self.note_connection(peer, &name);
        let keep = request.keep.map(|keep| Duration::from_millis(keep).min(self.limits.keep_max));
        let connection = peer.id;
        let left = self.ask(&cell, |request| Event::Leave { request, owner, connection, keep });
        left.await?;
        Ok(DoneV1 {})
    }
}

/// What a member holds already it does not read again: only what is new comes with its ranges.
fn forget_known_ranges(reply: &mut HeartbeatReplyV1, holds: &[HeldV1]) {
    let key = |held: &HeldV1| (held.topic_id, held.partition, held.epoch);
    let known: HashSet<_> = holds.iter().map(key).collect();
    for grant in &mut reply.grants {
        if known.contains(&(grant.topic_id, grant.partition, grant.epoch)) {
            grant.position.settled = Vec::new();
        }
    }
}

/// A reply that was too large would be so each time. Without a range, its records are read again.
fn keep_ranges_that_fit(reply: &mut HeartbeatReplyV1) {
    let grants = reply.grants.iter().map(|grant| GRANT_BYTES + grant.topic.len()).sum();
    let mut room = GRANTS_MAX_BYTES.saturating_sub(grants) / RANGE_BYTES;
    for grant in &mut reply.grants {
        grant.position.settled.truncate(room);
        room -= grant.position.settled.len();
    }
}

fn member_of(member: &MemberV1) -> Result<(GroupName, Owner), Refusal> {
    let name = group_name(&member.group)?;
    if member.member.is_empty() {
        return Err(Refusal::new(ErrorCode::IllegalName, "the id of a member is empty"));
    }
    within("bytes of a member's id", member.member.len(), MEMBER_ID_MAX_BYTES)?;
    Ok((name, owner(&member.member, member.incarnation)))
}

pub(super) fn within(what: &str, actual: usize, limit: usize) -> Result<(), Refusal> {
    if actual <= limit {
        return Ok(());
    }
    let text = format!("{what}: {actual}, and the limit is {limit}");
    Err(Refusal::new(ErrorCode::TooLarge, text).with_numbers(&[actual as u64, limit as u64]))
}

pub(super) fn position(position: &PositionV1) -> Position {
    Position { offset: position.offset, settled: position.ranges().into() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_core::protocol::groups::GrantV1;
    use log_core::protocol::{CONTROL_LIMIT_BYTES, encode_answer};

    fn grant(topic: &str, ranges: usize) -> GrantV1 {
        GrantV1 {
            topic: topic.to_owned(),
            topic_id: 1,
            partition: 2,
            epoch: 3,
            position: PositionV1 { offset: 4, settled: vec![(5, 6); ranges] },
            revoked_for: Some(7),
        }
    }

    #[test]
    fn a_reply_holds_the_ranges_that_fit_and_all_grants() {
        let mut small = HeartbeatReplyV1 { version: 1, grants: vec![grant("t", 3)] };
        let head = encode_answer(&HeartbeatReplyV1 { version: 1, grants: Vec::new() }, 1).len();
        let all = head + GRANT_BYTES + "t".len() + 3 * RANGE_BYTES;
        assert_eq!(encode_answer(&small, 1).len(), all);
        keep_ranges_that_fit(&mut small);
        assert_eq!(small.grants[0].position.settled.len(), 3);

        let mut large = HeartbeatReplyV1 { version: 1, grants: vec![grant("topic", 1_000); 1_000] };
        keep_ranges_that_fit(&mut large);
        let bytes = encode_answer(&large, 1).len();
        assert!((CONTROL_LIMIT_BYTES - 100..=CONTROL_LIMIT_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(large.grants.len(), 1_000);
    }
}
