//! Rules of a group, one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log_core::StartFrom;
use log_core::protocol::ErrorCode;
use log_core::protocol::groups::{HeartbeatReplyV1, HeldV1};

use super::ms;
use crate::groups::group::{
    Action, Answer, Commit, Event, GRANT_BYTES, Group, GroupRules, Owner, Place, Position,
    Subscription, TopicLine,
};

const SESSION: Duration = Duration::from_secs(10);

/// A group whose writes are durable at once.
struct Durable {
    group: Group,
    forced: usize,
}

impl Durable {
    fn new(join_window: Duration) -> Durable {
        let group = Group::new(GroupRules {
            join_window,
            session_timeout: SESSION,
            drain_timeout: SESSION,
            retry_after: ms(100),
            members_max: 10,
            grants_max_bytes: usize::MAX,
            epoch_floor: 100,
        });
        Durable { group, forced: 0 }
    }

    /// The answer to the event, if it has one.
    fn on(&mut self, event: Event, now: Duration) -> Option<Answer> {
        let mut answered = None;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.group.on(event, now) {
                match action {
                    Action::Write { token, .. } => {
                        events.push(Event::Written { token, outcome: Ok(()) });
                    }
                    Action::Resolve { token, places, .. } => {
                        let found = places.into_iter().map(|place| (place, Ok(7))).collect();
                        events.push(Event::Resolved { token, found });
                    }
                    Action::Answer { answer, .. } => answered = Some(answer),
                    Action::Forced(_) => self.forced += 1,
                    Action::Changed { .. } | Action::Gone { .. } => {}
                }
            }
        }
        answered
    }

    fn join(&mut self, who: &Owner, now: Duration) -> Option<Answer> {
        let name: Arc<str> = Arc::from("t");
        let line = TopicLine { name: Arc::clone(&name), id: 1, partitions: 6 };
        let subscription = Subscription {
            connection: who.incarnation,
            names: BTreeSet::from([name]),
            topics: vec![line],
            start: StartFrom::Latest,
            session_timeout: SESSION,
            drain_timeout: ms(2_000),
            processing_timeout: ms(5_000),
        };
        self.on(Event::Join { request: 1, owner: who.clone(), subscription }, now)
    }

    fn commit_outside(&mut self, place: Place) -> Option<Answer> {
        self.on(outside(place), ms(0))
    }

    fn reply(&self, who: &Owner, now: Duration) -> HeartbeatReplyV1 {
        self.group.reply(who, now).unwrap()
    }

    /// A heartbeat that has acted on the last reply, but for what `holds` changes.
    fn beat(
        &mut self,
        who: &Owner,
        now: Duration,
        processing: Duration,
        holds: impl FnOnce(Vec<HeldV1>) -> Vec<HeldV1>,
    ) -> Option<Answer> {
        let reply = self.reply(who, now);
        let held = reply.grants.iter().map(|grant| HeldV1 {
            topic_id: grant.topic_id,
            partition: grant.partition,
            epoch: grant.epoch,
            draining: grant.revoked_for.is_some(),
        });
        let holds = holds(held.collect());
        let (owner, connection, seen_version) = (who.clone(), who.incarnation, reply.version);
        let request = 1;
        let event =
            Event::Heartbeat { request, owner, connection, holds, seen_version, processing };
        self.on(event, now)
    }
}

/// A commit by somebody outside the group.
fn outside(place: Place) -> Event {
    let commit = Commit {
        topic: Arc::from("t"),
        place,
        epoch: 0,
        position: Position::at(7),
        metadata: Arc::from(""),
    };
    Event::Commit { request: 1, owner: None, commits: vec![commit] }
}

fn who(member: &str, incarnation: u64) -> Owner {
    Owner { member: Arc::from(member), incarnation }
}

fn revoked(reply: &HeartbeatReplyV1) -> usize {
    reply.grants.iter().filter(|grant| grant.revoked_for.is_some()).count()
}

#[test]
fn those_who_join_within_the_window_move_nothing_and_one_more_moves_its_share_alone() {
    let mut group = Durable::new(ms(500));
    let (a, b, c) = (who("a", 1), who("b", 1), who("c", 1));
    group.join(&a, ms(0));
    group.join(&b, ms(400));
    assert!(group.reply(&a, ms(499)).grants.is_empty());
    assert_eq!(group.group.next_deadline(), Some(ms(500)), "a second join does not extend it");
    group.on(Event::Tick, ms(500));
    for member in [&a, &b] {
        let reply = group.reply(member, ms(500));
        assert_eq!((reply.grants.len(), revoked(&reply)), (3, 0));
        assert!(reply.grants.iter().all(|grant| grant.position.offset == 7));
    }
    group.join(&c, ms(600));
    assert_eq!(revoked(&group.reply(&a, ms(600))), 1);
    assert_eq!(revoked(&group.reply(&b, ms(600))), 1);
}

#[test]
fn a_join_that_comes_after_its_leave_makes_no_member() {
    let mut group = Durable::new(ms(0));
    let a = who("a", 3);
    group.join(&a, ms(0));
    let leave = Event::Leave { request: 1, owner: a.clone(), connection: 3, keep: None };
    group.on(leave, ms(10));
    group.on(Event::ConnectionClosed { connection: 3 }, ms(20));
    assert!(group.group.is_unused());
    assert_eq!(group.forced, 6, "it had released nothing");
    for late in [&a, &who("a", 2)] {
        let Some(Answer::Refused(refusal)) = group.join(late, ms(30)) else { panic!("{late:?}") };
        assert_eq!((refusal.error_code(), refusal.numbers), (Some(ErrorCode::Fenced), vec![3]));
    }
    assert_eq!(group.join(&who("a", 4), ms(40)), Some(Answer::Done));
}

#[test]
fn a_member_is_granted_no_more_than_its_heartbeats_can_be_told() {
    let mut group = Durable::new(ms(0));
    group.group.rules.grants_max_bytes = 4 * (GRANT_BYTES + "t".len());
    let (a, b) = (who("a", 1), who("b", 2));
    group.join(&a, ms(0));
    assert_eq!(group.reply(&a, ms(0)).grants.len(), 4);
    group.join(&b, ms(10));
    assert_eq!(group.reply(&b, ms(10)).grants.len(), 0, "it is tried again a little later");
    group.on(Event::Tick, ms(110));
    assert_eq!(group.reply(&b, ms(110)).grants.len(), 2);
    let leave = Event::Leave { request: 1, owner: b, connection: 2, keep: None };
    group.on(leave, ms(120));
    group.on(Event::ConnectionClosed { connection: 2 }, ms(130));
    for now in [ms(130), ms(300)] {
        group.on(Event::Tick, now);
        let reply = group.reply(&a, now);
        assert_eq!(reply.grants.len(), 4);
    }
}

#[test]
fn a_group_is_in_use_as_long_as_an_older_run_may_hold_something() {
    let mut group = Durable::new(ms(0));
    let (old, new) = (who("a", 1), who("a", 2));
    group.join(&old, ms(0));
    group.join(&new, ms(10));
    let leave = Event::Leave { request: 1, owner: new.clone(), connection: 2, keep: None };
    assert_eq!(group.on(leave, ms(20)), Some(Answer::Done));
    assert_eq!(group.group.members().count(), 0);
    assert!(!group.group.is_unused(), "the older one's lease has not ended");
    group.on(Event::Tick, SESSION + ms(1));
    assert!(group.group.is_unused());
}

#[test]
fn what_members_call_themselves_stays_on_the_line_that_tells_of_them() {
    let mut group = Durable::new(ms(0));
    let (old, new) = (who("a\nb", 1), who("a\nb", 2));
    let Err(refusal) = group.group.check_member(&new) else { panic!("it has not joined") };
    assert!(refusal.message.contains("a\\nb"), "{refusal}");
    group.join(&new, ms(0));
    let Some(Answer::Refused(refusal)) = group.join(&old, ms(0)) else { panic!("it is older") };
    assert!(refusal.message.contains("a\\nb"), "{refusal}");
}

#[test]
fn one_that_is_stuck_loses_what_it_has_once_it_knows_and_gets_it_back_when_it_is_not() {
    let mut group = Durable::new(ms(0));
    let a = who("a", 1);
    group.join(&a, ms(0));
    assert_eq!(group.reply(&a, ms(0)).grants.len(), 6);
    group.beat(&a, ms(6_000), ms(5_001), |holds| holds);
    assert_eq!((revoked(&group.reply(&a, ms(6_000))), group.forced), (6, 0), "it does not know");
    group.beat(&a, ms(6_010), ms(5_011), |holds| holds);
    assert_eq!((group.reply(&a, ms(6_010)).grants.len(), group.forced), (0, 6));
    group.beat(&a, ms(7_000), ms(0), |holds| holds);
    let reply = group.reply(&a, ms(7_000));
    assert_eq!((reply.grants.len(), revoked(&reply)), (6, 0));
}

#[test]
fn a_grant_that_its_owner_does_not_have_is_given_anew() {
    let mut group = Durable::new(ms(0));
    let a = who("a", 1);
    group.join(&a, ms(0));
    let first = group.reply(&a, ms(0)).grants[5].epoch;
    let forgets = |mut holds: Vec<HeldV1>| {
        holds.pop();
        holds
    };
    group.beat(&a, ms(1_000), ms(0), forgets);
    group.beat(&a, ms(8_000), ms(0), forgets);
    assert_eq!(group.reply(&a, ms(8_000)).grants[5].epoch, first);
    group.beat(&a, ms(11_001), ms(0), forgets);
    let reply = group.reply(&a, ms(11_001));
    assert!(reply.grants[5].epoch > first, "{reply:?}");
    assert_eq!((reply.grants.len(), group.forced), (6, 0));
}

#[test]
fn the_drain_deadline_is_fixed_at_the_first_revoke_and_waits_for_the_lease_of_who_does_not_know() {
    for (acknowledges, due) in [(true, 3_000), (false, 11_000)] {
        let mut group = Durable::new(ms(0));
        let (a, b, c) = (who("a", 1), who("b", 1), who("c", 1));
        group.join(&a, ms(0));
        group.beat(&a, ms(1_000), ms(0), |holds| holds);
        group.join(&b, ms(1_000));
        if acknowledges {
            group.beat(&a, ms(1_500), ms(0), |holds| holds);
        }
        // Another change does not begin it anew.
        group.join(&c, ms(2_000));
        let first = group.reply(&a, ms(2_000));
        let left: BTreeSet<_> = first.grants.iter().filter_map(|g| g.revoked_for).collect();
        assert_eq!(left, BTreeSet::from([1_000, 2_000]));
        group.on(Event::Tick, ms(due - 1));
        assert_eq!(group.forced, 0, "{acknowledges}");
        for member in [&b, &c] {
            group.beat(member, ms(due - 1), ms(0), |holds| holds);
        }
        group.on(Event::Tick, ms(due));
        assert!(group.forced >= 3, "{acknowledges}: {}", group.forced);
    }
}

#[test]
fn who_speaks_of_a_deleted_topic_does_no_harm_to_the_one_that_has_its_name() {
    let stale = Place { topic_id: 9, partition: 0 };
    let is_stale = |answer: Option<Answer>| {
        let Some(Answer::Each(outcomes)) = answer else { panic!("{answer:?}") };
        let refused = outcomes.into_iter().next().flatten().unwrap();
        assert_eq!(refused.error_code(), Some(ErrorCode::StaleTopic));
    };
    let mut group = Durable::new(ms(0));
    let live = Place { topic_id: 1, partition: 0 };
    assert_eq!(group.commit_outside(live), Some(Answer::Each(vec![None])));
    is_stale(group.commit_outside(stale));
    let a = who("a", 1);
    group.join(&a, ms(0));
    let reset = Event::Reset { request: 1, to: vec![(Arc::from("t"), stale, 0)] };
    is_stale(group.on(reset, ms(0)));
    assert_eq!(group.reply(&a, ms(0)).grants.len(), 6);
    let places: BTreeSet<u128> = group.group.slots().map(|(place, _)| place.topic_id).collect();
    assert_eq!(places, BTreeSet::from([1]));
}

#[test]
fn a_commit_that_outlives_its_topic_is_not_counted_for_the_next_one() {
    let mut group = Durable::new(ms(0));
    let place = Place { topic_id: 1, partition: 0 };
    let event = outside(place);
    let actions = group.group.on(event, ms(0));
    let written = actions.into_iter().find_map(|action| match action {
        Action::Write { token, .. } => Some(Event::Written { token, outcome: Ok(()) }),
        _ => None,
    });
    group.on(Event::TopicsChanged { topics: Vec::new() }, ms(0));
    // It is seen again, as after a look at the topics that came late.
    let a = who("a", 1);
    group.join(&a, ms(0));
    assert_eq!(group.on(written.unwrap(), ms(1)), Some(Answer::Each(vec![None])));
    assert_eq!(group.reply(&a, ms(1)).grants.len(), 6);
}

#[test]
fn what_a_release_says_is_where_the_next_owner_starts() {
    let mut group = Durable::new(ms(0));
    let (a, b) = (who("a", 1), who("b", 1));
    group.join(&a, ms(0));
    group.join(&b, ms(0));
    let grants = group.reply(&a, ms(10)).grants;
    for grant in grants.iter().filter(|grant| grant.revoked_for.is_some()) {
        let place = Place { topic_id: 1, partition: grant.partition };
        let release = |offset| Event::Release {
            request: 1,
            owner: a.clone(),
            place,
            epoch: grant.epoch,
            position: Some(Position::at(offset)),
        };
        let Some(Answer::Refused(back)) = group.on(release(3), ms(10)) else { panic!() };
        assert_eq!(back.error_code(), Some(ErrorCode::OffsetWentBack));
        assert_eq!(group.on(release(20), ms(10)), Some(Answer::Done));
        assert_eq!(group.on(release(20), ms(10)), Some(Answer::Done), "repeated");
    }
    let reply = group.reply(&b, ms(10));
    assert_eq!((reply.grants.len(), group.forced), (3, 0));
    assert!(reply.grants.iter().all(|grant| grant.position.offset == 20));
}
