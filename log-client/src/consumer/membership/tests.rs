//! Membership alone, against a server in arbitrary moods, and against an honest one behind a bad
//! network.

mod honest_server;

use log_core::protocol::Refusal;
use log_core::protocol::groups::ReleasePartitionV1;
use log_core::protocol::offsets::{PositionV1, StartV1};
use proptest::prelude::*;

use super::*;

const SESSION: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const P0: PartitionId = PartitionId { topic_id: 7, partition: 0 };

fn config(member: &str) -> MembershipConfig {
    MembershipConfig {
        member: MemberV1 { group: "g".into(), member: member.into(), incarnation: 100 },
        topics: vec!["orders".into()],
        start: StartV1 { kind: 0, value: 0 },
        session_timeout: SESSION,
        drain_timeout: 5 * SECOND,
        processing_timeout: 60 * SECOND,
    }
}

fn join_reply() -> JoinGroupReplyV1 {
    JoinGroupReplyV1 { heartbeat_every: 3_000, session_timeout: millis(SESSION) }
}

fn grant(id: PartitionId, epoch: u64, revoked_for: Option<u64>) -> GrantV1 {
    GrantV1 {
        topic: "orders".into(),
        topic_id: id.topic_id,
        partition: id.partition,
        epoch,
        position: PositionV1::at(0),
        revoked_for,
    }
}

fn refused(code: ErrorCode, numbers: &[u64]) -> Failure {
    Failure::Refused(Refusal::new(code, "no").with_numbers(numbers))
}

fn reply(version: u64, grants: Vec<GrantV1>) -> HeartbeatReplyV1 {
    HeartbeatReplyV1 { version, grants }
}

/// The number of the heartbeat among these.
fn heartbeat_in(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Heartbeat(call, _) => Some(*call),
        _ => None,
    })
}

fn release_in(actions: &[Action]) -> Option<&ReleasePartitionV1> {
    actions.iter().find_map(|action| match action {
        Action::Release(release) => Some(release),
        _ => None,
    })
}

fn join_in(actions: &[Action]) -> Option<(u64, &JoinGroupV1)> {
    actions.iter().find_map(|action| match action {
        Action::Join(call, join) => Some((*call, join)),
        _ => None,
    })
}

fn leave_in(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Leave(call, _) => Some(*call),
        _ => None,
    })
}

/// A member that holds partition 0 under this epoch, and its newest heartbeat.
fn holding(epoch: u64, now: Duration) -> (Membership, u64) {
    let mut member = Membership::new(config("a"));
    let (call, _) = join_in(&member.on(Event::Tick, now)).map(|(call, _)| (call, ())).unwrap();
    let call = heartbeat_in(&member.on(Event::Joined(call, join_reply()), now)).unwrap();
    let actions =
        member.on(Event::HeartbeatAnswered(call, reply(1, vec![grant(P0, epoch, None)])), now);
    assert!(actions.contains(&Action::Assign(grant(P0, epoch, None))));
    let call = heartbeat_in(&actions).expect("what changed is told at once");
    (member, call)
}

#[test]
fn the_lease_counts_from_when_the_answered_heartbeat_was_sent() {
    let (mut member, call) = holding(1, SECOND);
    let late = 9 * SECOND;
    member.on(Event::HeartbeatAnswered(call, reply(1, vec![grant(P0, 1, None)])), late);
    assert_eq!(member.lease_until(), Some(SECOND + SESSION));
    assert!(member.may_hand_over(P0, 1, SECOND + SESSION - Duration::from_millis(1)));
    assert!(!member.may_hand_over(P0, 1, SECOND + SESSION));
}

#[test]
fn a_revoke_is_never_taken_back_and_its_deadline_stays() {
    let (mut member, call) = holding(1, SECOND);
    let revoked = reply(2, vec![grant(P0, 1, Some(4_000))]);
    let actions = member.on(Event::HeartbeatAnswered(call, revoked), SECOND);
    let deadline = SECOND + Duration::from_millis(3_600);
    assert!(actions.contains(&Action::Drain(P0, 1, deadline)));
    assert!(!member.may_hand_over(P0, 1, SECOND));
    let call = heartbeat_in(&actions).unwrap();
    let again = reply(3, vec![grant(P0, 1, None)]);
    let actions = member.on(Event::HeartbeatAnswered(call, again), 2 * SECOND);
    assert!(!member.may_hand_over(P0, 1, 2 * SECOND) && member.holds()[0].draining);
    assert_eq!(release_in(&actions), None, "something is in hand still");
    assert_eq!(member.on(Event::Tick, deadline), [Action::Expire(P0, 1),]);
    let position = Some(PositionV1::at(5));
    let actions = member.on(Event::Drained(P0, 1, position.clone()), deadline);
    assert_eq!(release_in(&actions).unwrap().position, position);
    let actions = member.on(Event::Released(P0, 1), deadline);
    assert!(actions.contains(&Action::Released(P0, 1)) && member.holds().is_empty());
}

#[test]
fn a_grant_seen_before_is_not_taken_but_given_back() {
    let (mut member, call) = holding(5, SECOND);
    let actions = member.on(Event::HeartbeatAnswered(call, reply(2, vec![])), SECOND);
    assert!(actions.contains(&Action::Lose(P0, 5, LostReason::Taken)));
    let call = heartbeat_in(&actions).unwrap();
    let listed = reply(3, vec![grant(P0, 5, None)]);
    let actions = member.on(Event::HeartbeatAnswered(call, listed), SECOND);
    assert_eq!(release_in(&actions).unwrap().position, None);
    assert!(!member.may_hand_over(P0, 5, SECOND));
    let actions = member.on(Event::Released(P0, 5), SECOND);
    let call = heartbeat_in(&actions).unwrap();
    member.on(Event::HeartbeatAnswered(call, reply(4, vec![grant(P0, 6, None)])), SECOND);
    assert!(member.may_hand_over(P0, 6, SECOND));
}

#[test]
fn only_the_newest_heartbeat_says_what_is_held() {
    let (mut member, first) = holding(1, SECOND);
    let second = heartbeat_in(&member.on(Event::Suspect, 2 * SECOND)).unwrap();
    let actions = member.on(Event::HeartbeatAnswered(first, reply(9, vec![])), 3 * SECOND);
    assert_eq!(actions, [], "it was overtaken");
    assert!(member.may_hand_over(P0, 1, 3 * SECOND));
    let actions = member.on(Event::HeartbeatAnswered(second, reply(9, vec![])), 3 * SECOND);
    assert!(actions.contains(&Action::Lose(P0, 1, LostReason::Taken)));
}

#[test]
fn a_fenced_member_stops_for_good() {
    let (mut member, call) = holding(1, SECOND);
    let failure = refused(ErrorCode::Fenced, &[200]);
    let actions = member.on(Event::HeartbeatFailed(call, failure), SECOND);
    assert_eq!(actions[0], Action::Lose(P0, 1, LostReason::Stopped));
    assert!(matches!(&actions[1], Action::End(Some(_))));
    assert!(member.on(Event::Tick, 99 * SECOND).is_empty() && member.deadline().is_none());
}

#[test]
fn who_was_never_admitted_may_be_newer_once() {
    let mut member = Membership::new(config("a"));
    let (call, _) = join_in(&member.on(Event::Tick, SECOND)).unwrap();
    let failure = || refused(ErrorCode::Fenced, &[500]);
    let actions = member.on(Event::JoinFailed(call, failure()), SECOND);
    let (call, join) = join_in(&actions).unwrap();
    assert_eq!(join.member.incarnation, 601, "above it, by what tells it from others");
    let actions = member.on(Event::JoinFailed(call, failure()), SECOND);
    assert!(matches!(&actions[..], [Action::End(Some(_))]));
}

#[test]
fn two_that_raise_their_incarnations_above_the_same_stay_apart() {
    let raised = |incarnation| {
        let mut config = config("a");
        config.member.incarnation = incarnation;
        let mut member = Membership::new(config);
        let (call, _) = join_in(&member.on(Event::Tick, SECOND)).unwrap();
        member.on(Event::JoinFailed(call, refused(ErrorCode::Fenced, &[500])), SECOND);
        member.member().incarnation
    };
    assert!(raised(100) > 501 && raised(101) > 501, "501 is who comes back after 500");
    assert_ne!(raised(100), raised(101));
}

#[test]
fn an_overtaken_heartbeat_that_denies_something_does_not_prolong_the_lease() {
    let denied = [vec![grant(P0, 1, Some(100))], vec![], vec![grant(P0, 2, None)]];
    for (grants, prolonged) in
        denied.into_iter().map(|grants| (grants, false)).chain([(vec![grant(P0, 1, None)], true)])
    {
        let (mut member, first) = holding(1, SECOND);
        member.on(Event::HeartbeatAnswered(first, reply(1, vec![grant(P0, 1, None)])), SECOND);
        let sent = 2 * SECOND;
        let overtaken = heartbeat_in(&member.on(Event::Tick, sent)).unwrap();
        heartbeat_in(&member.on(Event::Suspect, sent)).unwrap();
        member.on(Event::HeartbeatAnswered(overtaken, reply(2, grants)), sent);
        let until = if prolonged { sent + SESSION } else { SECOND + SESSION };
        assert_eq!(member.lease_until(), Some(until));
    }
}

#[test]
fn a_late_refusal_of_the_run_that_it_was_does_not_stop_a_member_that_came_back() {
    let (mut member, heartbeat) = holding(1, SECOND);
    member.on(Event::InHand(Some(SECOND)), SECOND);
    let at = 61 * SECOND;
    let leave = leave_in(&member.on(Event::Tick, at)).unwrap();
    member.on(Event::Left(leave), at);
    member.on(Event::Released(P0, 1), at);
    let (call, join) = {
        let actions = member.on(Event::Returned, at);
        let (call, join) = join_in(&actions).unwrap();
        (call, join.clone())
    };
    let late = || refused(ErrorCode::Fenced, &[join.member.incarnation]);
    member.on(Event::HeartbeatFailed(heartbeat, late()), at);
    member.on(Event::ReleaseFailed(P0, 1, late()), at);
    assert!(!member.is_over());
    member.on(Event::Joined(call, join_reply()), at);
    let newer = refused(ErrorCode::Fenced, &[join.member.incarnation + 1]);
    member.on(Event::ReleaseFailed(P0, 1, newer), at);
    assert!(member.is_over());
}

#[test]
fn who_is_forgotten_joins_again_and_keeps_what_still_stands() {
    let (mut member, call) = holding(1, SECOND);
    let failure = refused(ErrorCode::UnknownMember, &[]);
    assert_eq!(member.on(Event::HeartbeatFailed(call, failure), SECOND), []);
    assert!(!member.may_hand_over(P0, 1, SECOND), "not before the server has confirmed it");
    let at = member.deadline().unwrap();
    let (call, _) = join_in(&member.on(Event::Tick, at)).map(|(call, _)| (call, ())).unwrap();
    let call = heartbeat_in(&member.on(Event::Joined(call, join_reply()), at)).unwrap();
    assert!(!member.may_hand_over(P0, 1, at), "a join says nothing of what is held");
    member.on(Event::HeartbeatAnswered(call, reply(1, vec![grant(P0, 1, None)])), at);
    assert!(member.may_hand_over(P0, 1, at));
}

#[test]
fn leaving_drains_and_releases_before_it_is_over() {
    let (mut member, _) = holding(1, SECOND);
    let actions = member.on(Event::Leave { keep: None }, SECOND);
    assert!(actions.contains(&Action::Drain(P0, 1, 6 * SECOND)));
    let leave = leave_in(&actions).unwrap();
    let actions = member.on(Event::Drained(P0, 1, Some(PositionV1::at(3))), SECOND);
    assert_eq!(release_in(&actions), None, "it would come back as long as the leave is unknown");
    let actions = member.on(Event::Left(leave), SECOND);
    assert!(release_in(&actions).is_some());
    let actions = member.on(Event::Released(P0, 1), SECOND);
    assert_eq!(actions, [Action::Released(P0, 1), Action::End(None)]);
}

#[test]
fn what_is_kept_is_not_released() {
    let (mut member, _) = holding(1, SECOND);
    let actions = member.on(Event::Leave { keep: Some(9 * SECOND) }, SECOND);
    let leave = leave_in(&actions).unwrap();
    assert!(!member.may_hand_over(P0, 1, SECOND) && release_in(&actions).is_none());
    let actions = member.on(Event::Left(leave), SECOND);
    assert_eq!(actions.last(), Some(&Action::End(None)));
    assert_eq!(release_in(&actions), None);
}

#[test]
fn a_record_that_takes_too_long_costs_everything_before_the_server_takes_it() {
    let (mut member, _) = holding(1, SECOND);
    member.on(Event::InHand(Some(SECOND)), SECOND);
    let at = 61 * SECOND;
    assert_eq!(member.deadline(), Some(at));
    let actions = member.on(Event::Tick, at);
    assert_eq!(actions[0], Action::Lose(P0, 1, LostReason::ProcessingTimeout));
    let leave = leave_in(&actions).unwrap();
    let actions = member.on(Event::Left(leave), at);
    assert_eq!(release_in(&actions).unwrap().position, None);
    member.on(Event::Released(P0, 1), at);
    assert_eq!((member.deadline(), member.is_over()), (None, false));
    let actions = member.on(Event::Returned, 70 * SECOND);
    assert_eq!(join_in(&actions).unwrap().1.member.incarnation, 101, "100 has left for good");
}

#[test]
fn a_record_that_takes_too_long_is_told_when_its_partition_is_being_released_already() {
    let (mut member, call) = holding(1, SECOND);
    member.on(Event::InHand(Some(SECOND)), SECOND);
    let revoked = reply(2, vec![grant(P0, 1, Some(4_000))]);
    member.on(Event::HeartbeatAnswered(call, revoked), SECOND);
    member.on(Event::Drained(P0, 1, None), 5 * SECOND);
    let actions = member.on(Event::Tick, 61 * SECOND);
    assert!(actions.contains(&Action::Overdue), "nobody would say `Returned`: {actions:?}");
}

#[test]
fn a_later_start_is_a_greater_incarnation() {
    let at = |millis: i64| Timestamp::from_millis(1_790_000_000_000 + millis);
    assert!(new_incarnation(at(1), 0) > new_incarnation(at(0), u64::MAX));
    assert_ne!(new_incarnation(at(0), 1 << 60), new_incarnation(at(0), 2 << 60));
}

fn any_failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        3 => Just(Failure::NoAnswer),
        1 => Just(refused(ErrorCode::UnknownMember, &[])),
        1 => Just(refused(ErrorCode::Loading, &[])),
        1 => Just(refused(ErrorCode::StaleGrant, &[])),
    ]
}

fn any_grants() -> impl Strategy<Value = Vec<GrantV1>> {
    let one = (0..3_u32, 0..8_u64, proptest::option::of(0..9_000_u64));
    let one = one.prop_map(|(partition, epoch, revoked)| {
        grant(PartitionId { topic_id: 7, partition }, epoch, revoked)
    });
    proptest::collection::vec(one, 0..4)
}

fn any_event() -> impl Strategy<Value = Event> {
    let call = || 1..60_u64;
    let place = || (0..3_u32, 0..8_u64);
    let id = |partition| PartitionId { topic_id: 7, partition };
    prop_oneof![
        4 => Just(Event::Tick),
        2 => call().prop_map(|call| Event::Joined(call, join_reply())),
        1 => (call(), any_failure()).prop_map(|(call, why)| Event::JoinFailed(call, why)),
        8 => (call(), any_grants())
            .prop_map(|(call, grants)| Event::HeartbeatAnswered(call, reply(call, grants))),
        2 => (call(), any_failure()).prop_map(|(call, why)| Event::HeartbeatFailed(call, why)),
        1 => Just(Event::Suspect),
        3 => place().prop_map(move |(p, epoch)| Event::Drained(id(p), epoch, None)),
        3 => place().prop_map(move |(p, epoch)| Event::Released(id(p), epoch)),
        1 => (place(), any_failure())
            .prop_map(move |((p, epoch), why)| Event::ReleaseFailed(id(p), epoch, why)),
        1 => (0..100_u64).prop_map(|at| Event::InHand(Some(Duration::from_secs(at)))),
        1 => Just(Event::InHand(None)),
        1 => Just(Event::Returned),
        1 => call().prop_map(Event::Left),
        1 => (call(), any_failure()).prop_map(|(call, why)| Event::LeaveFailed(call, why)),
    ]
}

proptest! {
    /// Whatever a server says, in whatever order: epochs grow, what drains is never handed over,
    /// what ends is ended once, and no deadline lies in the past.
    #[test]
    fn nothing_that_a_server_says_breaks_the_rules(
        events in proptest::collection::vec((any_event(), 0..900_u64), 0..150),
    ) {
        let mut member = Membership::new(config("a"));
        let mut now = SECOND;
        let mut newest = 0;
        let mut assigned = BTreeMap::new();
        let mut live = BTreeSet::new();
        for (event, step) in events {
            now += Duration::from_millis(step);
            // Most answers are to the newest call: others would hardly ever be looked at.
            let event = match event {
                Event::HeartbeatAnswered(call, reply) if call > 15 => {
                    Event::HeartbeatAnswered(newest, reply)
                }
                Event::Joined(call, reply) if call > 15 => Event::Joined(newest, reply),
                other => other,
            };
            for action in member.on(event, now) {
                match action {
                    Action::Assign(grant) => {
                        let id = id_of(&grant);
                        let before = assigned.insert(id, grant.epoch);
                        prop_assert!(before < Some(grant.epoch), "{id:?} {before:?}");
                        live.insert((id, grant.epoch));
                    }
                    Action::Drain(id, epoch, _) | Action::Lose(id, epoch, _) => {
                        live.remove(&(id, epoch));
                    }
                    Action::Join(call, _) | Action::Heartbeat(call, _) => newest = call,
                    Action::End(why) => prop_assert!(why.is_some() && member.is_over()),
                    _ => {}
                }
            }
            prop_assert!(member.deadline().is_none_or(|at| at > now));
            for partition in 0..3 {
                for epoch in 0..8 {
                    let id = PartitionId { topic_id: 7, partition };
                    let may = member.may_hand_over(id, epoch, now);
                    prop_assert!(!may || live.contains(&(id, epoch)));
                }
            }
        }
    }
}
