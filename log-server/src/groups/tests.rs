//! Tests of the coordinator, over a store in a directory of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log_core::clock::SystemClock;
use log_core::protocol::fetch::GroupReader;
use log_core::protocol::groups::{
    DeleteGroupV1, DescribeGroupV1, GrantV1, HeartbeatReplyV1, HeartbeatV1, HeldV1, JoinGroupV1,
    LeaveGroupV1, ListGroupsV1, MemberV1, ReleasePartitionV1,
};
use log_core::protocol::offsets::{
    CommitOffsetsV1, CommitV1, FetchOffsetsV1, PositionV1, ResetOffsetsV1, StartV1,
};
use log_core::protocol::{ErrorCode, Refusal};
use log_core::{OpenMode, Record, StartFrom, Store, StoreConfig, TopicConfig, TopicName};

use super::{Coordinator, GroupLimits};
use crate::context::Peer;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store with its coordinator; the deadlines of that are driven beside each test.
struct World {
    store: Store,
    coordinator: Arc<Coordinator>,
    peer: Peer,
}

fn limits() -> GroupLimits {
    GroupLimits {
        join_window: Duration::ZERO,
        restart_timeout: Duration::from_millis(300),
        retry_after: Duration::from_millis(50),
        ..GroupLimits::default()
    }
}

async fn open(dir: &Path, limits: GroupLimits) -> World {
    let store = Store::open(dir, StoreConfig::default(), OpenMode::CreateIfMissing).unwrap();
    let coordinator = Coordinator::new(store.clone(), Arc::new(SystemClock::new()), limits);
    let peer =
        Peer { id: 1, client_id: "test".to_owned(), address: "127.0.0.1:9".parse().unwrap() };
    let running = Arc::clone(&coordinator);
    tokio::spawn(async move { running.run().await });
    while coordinator.list(&peer, ListGroupsV1 {}).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    World { store, coordinator, peer }
}

impl World {
    /// A topic of that many partitions, with ten records in each.
    fn topic(&self, name: &str, partitions: u32) -> u128 {
        let name = TopicName::parse(name).unwrap();
        let topic = self.store.create_topic(&name, partitions, TopicConfig::default()).unwrap();
        for partition in topic.partitions() {
            partition.unwrap().append(&[Record::new(b"x"); 10]).unwrap();
        }
        topic.id()
    }

    async fn join(&self, member: &MemberV1, start: StartFrom) -> Result<(), Refusal> {
        let request = JoinGroupV1 {
            member: member.clone(),
            topics: vec!["t".to_owned()],
            start: StartV1::from(start),
            session_timeout: 2_000,
            drain_timeout: 1_000,
            processing_timeout: 60_000,
        };
        self.coordinator.join(&self.peer, request).await.map(|_| ())
    }

    async fn heartbeat(
        &self,
        member: &MemberV1,
        holds: Vec<HeldV1>,
        seen_version: u64,
    ) -> Result<HeartbeatReplyV1, Refusal> {
        let (member, max_wait) = (member.clone(), 5_000);
        let request = HeartbeatV1 { member, holds, seen_version, processing: 0, max_wait };
        self.coordinator.heartbeat(&self.peer, request).await
    }

    /// What a member holds once it is told of `count` grants.
    async fn granted(&self, member: &MemberV1, count: usize) -> HeartbeatReplyV1 {
        let mut seen = 0;
        loop {
            let reply = self.heartbeat(member, Vec::new(), seen).await.unwrap();
            if reply.grants.len() == count {
                return reply;
            }
            seen = reply.version;
        }
    }

    async fn commit(
        &self,
        member: Option<&MemberV1>,
        commits: &[(u128, u32, u64, u64)],
    ) -> Result<Vec<Option<u16>>, Refusal> {
        let commit = |(topic_id, partition, epoch, offset): &(u128, u32, u64, u64)| CommitV1 {
            topic_id: *topic_id,
            partition: *partition,
            epoch: *epoch,
            position: PositionV1::at(*offset),
            metadata: String::new(),
        };
        let request = CommitOffsetsV1 {
            group: "g".to_owned(),
            member: member.map(|member| (member.member.clone(), member.incarnation)),
            commits: commits.iter().map(commit).collect(),
        };
        let reply = self.coordinator.commit(&self.peer, request).await?;
        Ok(reply.outcomes.into_iter().map(|outcome| outcome.map(|why| why.code)).collect())
    }

    async fn release(
        &self,
        member: &MemberV1,
        grant: &GrantV1,
        offset: u64,
    ) -> Result<(), Refusal> {
        let request = ReleasePartitionV1 {
            member: member.clone(),
            topic_id: grant.topic_id,
            partition: grant.partition,
            epoch: grant.epoch,
            position: Some(PositionV1::at(offset)),
        };
        self.coordinator.release(&self.peer, request).await.map(|_| ())
    }

    async fn leave(&self, member: &MemberV1, keep: Option<u64>) {
        let request = LeaveGroupV1 { member: member.clone(), keep };
        self.coordinator.leave(&self.peer, request).await.unwrap();
    }

    async fn committed(&self) -> Vec<(u32, u64)> {
        let request = FetchOffsetsV1 { group: "g".to_owned(), topic: Some("t".to_owned()) };
        let reply = self.coordinator.fetch_offsets(&self.peer, request).await.unwrap();
        reply.committed.iter().map(|line| (line.partition, line.position.offset)).collect()
    }

    /// Stops as a server does.
    fn close(self) {
        self.coordinator.stop(PATIENCE);
        drop(self.coordinator);
        self.store.close().unwrap();
    }
}

fn member(id: &str, incarnation: u64) -> MemberV1 {
    MemberV1 { group: "g".to_owned(), member: id.to_owned(), incarnation }
}

fn held(reply: &HeartbeatReplyV1, draining: bool) -> Vec<HeldV1> {
    let held = |grant: &GrantV1| HeldV1 {
        topic_id: grant.topic_id,
        partition: grant.partition,
        epoch: grant.epoch,
        draining,
    };
    reply.grants.iter().map(held).collect()
}

fn refused(code: ErrorCode) -> Option<u16> {
    Some(code.number())
}

#[tokio::test]
async fn a_partition_is_drained_before_another_gets_it_and_starts_where_that_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    let id = world.topic("t", 2);
    let (a, b) = (member("a", 1), member("b", 1));
    world.join(&a, StartFrom::Earliest).await.unwrap();
    let first = world.granted(&a, 2).await;
    let epoch = |partition: usize| first.grants[partition].epoch;
    let commits = [(id, 0, epoch(0), 4), (id, 1, epoch(1), 99), (id, 1, epoch(1) + 9, 4)];
    let outcomes = world.commit(Some(&a), &commits).await.unwrap();
    let expected = [None, refused(ErrorCode::OffsetBeyondEnd), refused(ErrorCode::StaleGrant)];
    assert_eq!(outcomes, expected, "each by itself");

    // A heartbeat that waits is answered at once when another joins.
    let waiting = world.heartbeat(&a, held(&first, false), first.version);
    let (reply, joined) = tokio::join!(waiting, world.join(&b, StartFrom::Latest));
    joined.unwrap();
    let reply = reply.unwrap();
    let revoked = reply.grants.iter().find(|grant| grant.revoked_for.is_some()).unwrap();
    assert_eq!(revoked.partition, 1);
    let reader = |who: &MemberV1| GroupReader {
        group: "g".to_owned(),
        member: who.member.clone(),
        incarnation: who.incarnation,
    };
    let grants = world.coordinator.reader(&reader(&a)).unwrap();
    grants.check(id, 0, epoch(0)).unwrap();
    assert!(grants.check(id, 1, epoch(1)).is_err(), "what is revoked is fetched no more");
    world.release(&a, revoked, 7).await.unwrap();
    world.release(&a, revoked, 7).await.expect("repeating it does no harm");

    let second = world.granted(&b, 1).await;
    let grant = &second.grants[0];
    assert_eq!((grant.partition, grant.position.offset), (1, 7));
    assert!(grant.epoch > epoch(1));
    let late = world.commit(Some(&a), &[(id, 1, epoch(1), 9)]).await.unwrap();
    assert_eq!(late, [refused(ErrorCode::StaleGrant)]);
    let refused_group = world.commit(None, &[(id, 0, 0, 9)]).await.unwrap_err();
    assert_eq!(refused_group.error_code(), Some(ErrorCode::GroupInUse));

    let request = DescribeGroupV1 { group: "g".to_owned() };
    let group = world.coordinator.describe(&world.peer, request).await.unwrap();
    assert_eq!(group.members.len(), 2);
    assert_eq!(group.members[0].client_id, "test");
    let lines: Vec<_> = group.partitions.iter().map(|p| (p.owner.as_deref(), p.end)).collect();
    assert_eq!(lines, [(Some("a"), 10), (Some("b"), 10)]);
    assert!(group.partitions.iter().all(|partition| partition.lag_time.is_some()));
    assert_eq!(group.forced, 0);
    world.close();
}

#[tokio::test]
async fn d13_owners_keep_what_they_have_over_a_restart_and_void_grants_stay_void() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    let id = world.topic("t", 2);
    let (a, b) = (member("a", 5), member("b", 5));
    world.join(&a, StartFrom::Latest).await.unwrap();
    let first = world.granted(&a, 2).await;
    assert!(first.grants.iter().all(|grant| grant.position.offset == 10), "at the end");
    world.close();

    let world = open(dir.path(), limits()).await;
    // A newcomer gets nothing of it while its owner counts as alive.
    world.join(&b, StartFrom::Earliest).await.unwrap();
    assert!(world.heartbeat(&b, Vec::new(), 0).await.unwrap().grants.is_empty());
    let epoch = first.grants[0].epoch;
    assert_eq!(world.commit(Some(&a), &[(id, 0, epoch, 10)]).await.unwrap(), [None]);
    let unknown = world.heartbeat(&a, held(&first, false), first.version).await.unwrap_err();
    assert_eq!(unknown.error_code(), Some(ErrorCode::UnknownMember));
    // It never joins again: what it had goes to the other, and is void.
    let second = world.granted(&b, 2).await;
    assert!(second.grants.iter().all(|grant| grant.epoch > first.grants[1].epoch));
    assert!(second.grants.iter().all(|grant| grant.position.offset == 10), "fixed at first");
    let late = world.commit(Some(&a), &[(id, 0, epoch, 10)]).await.unwrap();
    assert_eq!(late, [refused(ErrorCode::UnknownMember)]);
    let older = world.join(&member("b", 4), StartFrom::Earliest).await.unwrap_err();
    assert_eq!((older.error_code(), older.numbers), (Some(ErrorCode::Fenced), vec![5]));
    world.close();
}

#[tokio::test]
async fn a_reset_revokes_first_and_a_dry_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    let id = world.topic("t", 1);
    assert_eq!(world.commit(None, &[(id, 0, 0, 6)]).await.unwrap(), [None]);
    let back = world.commit(None, &[(id, 0, 0, 5)]).await.unwrap();
    assert_eq!(back, [refused(ErrorCode::OffsetWentBack)]);
    let a = member("a", 1);
    world.join(&a, StartFrom::Earliest).await.unwrap();
    let first = world.granted(&a, 1).await;
    assert_eq!(first.grants[0].position.offset, 6);

    let reset = |dry_run| ResetOffsetsV1 {
        group: "g".to_owned(),
        topic: "t".to_owned(),
        partitions: Vec::new(),
        to: StartV1::from(StartFrom::Offset(2)),
        dry_run,
    };
    let told = world.coordinator.reset(&world.peer, reset(true)).await.unwrap();
    assert_eq!((told.resets[0].from, &told.resets[0].to), (Some(6), &Ok(2)));
    assert_eq!(world.committed().await, [(0, 6)]);

    let drain = async {
        let holds = held(&first, false);
        let revoked = world.heartbeat(&a, holds, first.version).await.unwrap();
        assert!(revoked.grants[0].revoked_for.is_some());
        world.release(&a, &revoked.grants[0], 8).await.unwrap();
    };
    let (told, ()) = tokio::join!(world.coordinator.reset(&world.peer, reset(false)), drain);
    assert_eq!(told.unwrap().resets[0].to, Ok(2));
    assert_eq!(world.committed().await, [(0, 2)]);
    let again = world.granted(&a, 1).await;
    assert_eq!(again.grants[0].position.offset, 2);
    assert!(again.grants[0].epoch > first.grants[0].epoch);
    world.close();
}

#[tokio::test]
async fn a_deleted_group_or_topic_is_gone_and_epochs_do_not_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    world.topic("t", 1);
    let a = member("a", 1);
    world.join(&a, StartFrom::Earliest).await.unwrap();
    let first = world.granted(&a, 1).await;
    let delete = || DeleteGroupV1 { group: "g".to_owned() };
    let refusal = world.coordinator.delete(&world.peer, delete()).await.unwrap_err();
    assert_eq!(refusal.error_code(), Some(ErrorCode::GroupInUse));
    // It was leaving, and its connection closes: nobody waits for it.
    world.leave(&a, None).await;
    world.coordinator.connection_closed(&world.peer);
    world.coordinator.delete(&world.peer, delete()).await.unwrap();
    let refusal = world.coordinator.delete(&world.peer, delete()).await.unwrap_err();
    assert_eq!(refusal.error_code(), Some(ErrorCode::UnknownGroup));
    assert!(world.committed().await.is_empty());

    let b = member("b", 1);
    world.join(&b, StartFrom::Latest).await.unwrap();
    let second = world.granted(&b, 1).await;
    assert!(second.grants[0].epoch > first.grants[0].epoch);
    let topic = TopicName::parse("t").unwrap();
    world.store.delete_topic(&topic).unwrap();
    world.coordinator.topics_changed();
    assert!(world.granted(&b, 0).await.grants.is_empty());
    let new = world.topic("t", 1);
    world.coordinator.topics_changed();
    let third = world.granted(&b, 1).await;
    assert_eq!((third.grants[0].topic_id, third.grants[0].position.offset), (new, 0));
    let missing = world.store.delete_topic(&topic);
    missing.unwrap();
    let unknown = world.join(&member("c", 1), StartFrom::Latest).await.unwrap_err();
    assert_eq!(unknown.error_code(), Some(ErrorCode::UnknownTopic));
    world.close();
}

#[tokio::test]
async fn what_is_done_to_topics_behind_the_back_of_the_groups_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    world.topic("t", 1);
    let a = member("a", 1);
    world.join(&a, StartFrom::Earliest).await.unwrap();
    world.granted(&a, 1).await;
    world.store.add_partitions(&TopicName::parse("t").unwrap(), 2).unwrap();
    assert_eq!(world.granted(&a, 2).await.grants[1].position.offset, 0);
    world.store.delete_topic(&TopicName::parse("t").unwrap()).unwrap();
    world.granted(&a, 0).await;
    world.close();
}

#[tokio::test]
async fn limits_are_refusals_and_what_was_refused_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let limits = GroupLimits { groups_max: 1, members_max: 1, partitions_max: 3, ..limits() };
    let world = open(dir.path(), limits).await;
    world.topic("t", 1);
    let unknown = MemberV1 { group: "other".to_owned(), ..member("a", 1) };
    let request = JoinGroupV1 {
        member: unknown,
        topics: vec!["missing".to_owned()],
        start: StartV1::from(StartFrom::Latest),
        session_timeout: 1,
        drain_timeout: 1,
        processing_timeout: 1,
    };
    world.coordinator.join(&world.peer, request.clone()).await.unwrap_err();
    world.join(&member("a", 1), StartFrom::Latest).await.expect("the refused group is gone");
    let second = world.join(&member("b", 1), StartFrom::Latest).await.unwrap_err();
    assert_eq!(second.error_code(), Some(ErrorCode::LimitReached));
    let other = world.coordinator.join(&world.peer, request).await.unwrap_err();
    assert_eq!(other.error_code(), Some(ErrorCode::LimitReached));
    let kept = world.granted(&member("a", 1), 1).await;
    let holds = held(&kept, false).repeat(4);
    let much = world.heartbeat(&member("a", 1), holds, 0).await.unwrap_err();
    assert_eq!((much.error_code(), much.numbers), (Some(ErrorCode::TooLarge), vec![4, 3]));
    // Kept for the next run, which gets it at once.
    world.leave(&member("a", 1), Some(60_000)).await;
    world.join(&member("a", 2), StartFrom::Latest).await.unwrap();
    let next = world.granted(&member("a", 2), 1).await;
    assert!(next.grants[0].epoch > kept.grants[0].epoch);
    world.close();
}

#[tokio::test]
async fn a_stop_answers_those_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), limits()).await;
    world.topic("t", 1);
    let a = member("a", 1);
    world.join(&a, StartFrom::Latest).await.unwrap();
    let reply = world.granted(&a, 1).await;
    let waiting = world.heartbeat(&a, held(&reply, false), reply.version);
    let stop = async { world.coordinator.stop(PATIENCE) };
    let (refusal, ()) = tokio::join!(waiting, stop);
    assert_eq!(refusal.unwrap_err().error_code(), Some(ErrorCode::Stopping));
    let late = world.join(&a, StartFrom::Latest).await.unwrap_err();
    assert_eq!(late.error_code(), Some(ErrorCode::Stopping));
}
