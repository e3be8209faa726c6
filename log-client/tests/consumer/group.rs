//! Members of a group: joining, leaving, draining, being lost, with a server that restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log_client::consumer::LostReason;
use log_client::{CommitMode, ConsumerEvent, Error};
use log_core::protocol::ErrorCode;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::world::{
    DRAIN, PATIENCE, Proxy, SESSION, World, by_partition, event, member, next, nothing_more,
    offsets, settled, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn three_members_share_six_partitions_and_every_record_is_read_once() {
    let world = World::new();
    world.topic("orders", 6);
    let client = world.client().await;
    let mut one = member(&client).build().await.unwrap();
    let mut two = member(&client).build().await.unwrap();
    let mut three = member(&client).build().await.unwrap();
    settled(&[&one, &two, &three], 6).await;
    (0..6).for_each(|partition| world.append("orders", partition, 10));
    let mut all = BTreeMap::new();
    for consumer in [&mut one, &mut two, &mut three] {
        all.extend(by_partition(consumer, 20).await);
        nothing_more(consumer).await;
    }
    assert_eq!(all.len(), 6);
    assert!(all.values().all(|seen| *seen == (0..10).collect::<Vec<_>>()), "{all:?}");

    // Who leaves has given back what is done; who stays keeps what it has.
    let kept = one.assignment();
    three.close().await.unwrap();
    settled(&[&one, &two], 6).await;
    assert!(kept.iter().all(|partition| one.assignment().contains(partition)));
    (0..6).for_each(|partition| world.append("orders", partition, 1));
    for consumer in [&mut one, &mut two] {
        assert_eq!(offsets(consumer, 3).await, [10, 10, 10]);
        nothing_more(consumer).await;
    }
}

/// A member that is killed is found out by its silence, and another goes on from its last commit.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_killed_is_replaced() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 10);
    let client = world.client().await;
    let mut killed = member(&client).build().await.unwrap();
    offsets(&mut killed, 5).await;
    killed.handle().commit().await.unwrap();
    drop(killed);
    let mut other = member(&client).build().await.unwrap();
    assert_eq!(next(&mut other).await.offset, 4, "the one in hand was not done");
}

/// D01: a partition that has left and comes back starts where the group is, not the member.
#[tokio::test(flavor = "multi_thread")]
async fn d01_a_partition_that_comes_back_starts_where_the_group_is() {
    let world = World::new();
    world.topic("orders", 2);
    let client = world.client().await;
    let mut a = member(&client).build().await.unwrap();
    settled(&[&a], 2).await;
    (0..2).for_each(|partition| world.append("orders", partition, 100));
    by_partition(&mut a, 200).await;
    // It comes back for more, so that the last one is done.
    nothing_more(&mut a).await;
    let mut b = member(&client).build().await.unwrap();
    settled(&[&a, &b], 2).await;
    let moved = b.assignment()[0].1;
    world.append("orders", moved, 100);
    assert_eq!(offsets(&mut b, 100).await, (100..200).collect::<Vec<_>>());
    b.close().await.unwrap();
    settled(&[&a], 2).await;
    world.append("orders", moved, 1);
    let record = next(&mut a).await;
    assert_eq!((record.partition, record.offset), (moved, 200));
}

/// D02, D03, D16: partitions move while commits are on their way. Each commit is answered, nobody
/// stalls, and the next owner starts just where the last one has ended.
#[tokio::test(flavor = "multi_thread")]
async fn d16_a_release_comes_after_the_last_commit_and_nothing_is_repeated() {
    let world = World::new();
    world.topic("orders", 2);
    let client = world.client().await;
    let every = Duration::from_millis(1);
    let builder = || member(&client).commit(CommitMode::Automatic { every });
    let mut a = builder().build().await.unwrap();
    let mut read: BTreeMap<u32, u64> = BTreeMap::new();
    for round in 0..8 {
        settled(&[&a], 2).await;
        (0..2).for_each(|partition| world.append("orders", partition, 10));
        for (partition, seen) in by_partition(&mut a, 20).await {
            let from = read.get(&partition).copied().unwrap_or(0);
            assert_eq!(seen, (from..from + 10).collect::<Vec<_>>(), "round {round}");
            read.insert(partition, from + 10);
        }
        let mut b = builder().build().await.unwrap();
        let handle = a.handle();
        let commit = tokio::spawn(async move { timeout(PATIENCE, handle.commit()).await });
        nothing_more(&mut a).await;
        assert!(commit.await.unwrap().is_ok(), "a commit is always answered");
        settled(&[&a, &b], 2).await;
        let moved = b.assignment()[0].1;
        world.append("orders", moved, 10);
        let from = read[&moved];
        assert_eq!(offsets(&mut b, 10).await, (from..from + 10).collect::<Vec<_>>());
        read.insert(moved, from + 10);
        b.close().await.unwrap();
    }
}

/// D04: records from before a partition moved can't be committed by the one that had them.
#[tokio::test(flavor = "multi_thread")]
async fn d04_marks_of_a_partition_that_is_another_s_do_not_count() {
    let world = World::new();
    world.topic("orders", 2);
    (0..2).for_each(|partition| world.append("orders", partition, 10));
    let client = world.client().await;
    let mut a = member(&client).commit(CommitMode::Manual).build().await.unwrap();
    settled(&[&a], 2).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(next(&mut a).await);
    }
    let mut b = member(&client).build().await.unwrap();
    // It does not finish in time: the hand-over is forced.
    settled(&[&a, &b], 2).await;
    let moved = b.assignment()[0].1;
    assert_eq!(offsets(&mut b, 10).await, (0..10).collect::<Vec<_>>());
    b.commit().await.unwrap();
    until("it is gone", || a.position("orders", moved).is_none()).await;
    for record in &held {
        assert_eq!(a.done(record), record.partition != moved);
    }
    a.commit().await.unwrap();
    assert_eq!(a.committed("orders", 1 - moved).await.unwrap(), Some(10));
    assert_eq!(a.committed("orders", moved).await.unwrap(), Some(10));
}

/// D05: what a group has committed is the group's, not the member's.
#[tokio::test(flavor = "multi_thread")]
async fn d05_a_new_member_starts_where_another_has_ended() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 100);
    let client = world.client().await;
    let mut a = member(&client).member_id("a").build().await.unwrap();
    offsets(&mut a, 77).await;
    a.close().await.unwrap();
    let mut c = member(&client).member_id("c").build().await.unwrap();
    assert_eq!(next(&mut c).await.offset, 77);
    let committed = client.admin().committed_offsets("billing", None).await.unwrap();
    assert_eq!(committed.len(), 1);
}

/// D07: members without partitions wait, and take over when others leave.
#[tokio::test(flavor = "multi_thread")]
async fn d07_more_members_than_partitions() {
    let world = World::new();
    world.topic("orders", 3);
    let client = world.client().await;
    let mut members = Vec::new();
    for _ in 0..5 {
        members.push(member(&client).build().await.unwrap());
    }
    settled(&members.iter().collect::<Vec<_>>(), 3).await;
    for remove in [1, 3, 0] {
        members.remove(remove).close().await.unwrap();
        settled(&members.iter().collect::<Vec<_>>(), 3).await;
    }
    client.admin().add_partitions("orders", 8).await.unwrap();
    settled(&members.iter().collect::<Vec<_>>(), 8).await;
}

/// D17: every offset is read once and in order, while members restart one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn d17_a_rolling_restart_reads_everything_once_and_in_order() {
    const RECORDS: u64 = 400;
    let world = World::new();
    world.topic("orders", 4);
    let client = world.client().await;
    let read: Arc<Mutex<BTreeMap<u32, Vec<u64>>>> = Arc::default();
    let run = |rounds: usize| {
        let (client, read) = (client.clone(), Arc::clone(&read));
        async move {
            for round in 0..rounds {
                let mut consumer = member(&client).build().await.unwrap();
                let handle = consumer.handle();
                if round + 1 < rounds {
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(700)).await;
                        handle.stop();
                    });
                }
                while let Some(record) = consumer.next().await.unwrap() {
                    read.lock().entry(record.partition).or_default().push(record.offset);
                    tokio::task::yield_now().await;
                }
                consumer.close().await.unwrap();
            }
        }
    };
    let tasks: Vec<_> = (2..6).map(|rounds| tokio::spawn(run(rounds))).collect();
    for _ in 0..RECORDS / 10 {
        (0..4).for_each(|partition| world.append("orders", partition, 10));
        sleep(Duration::from_millis(50)).await;
    }
    until("everything is read", || read.lock().values().map(Vec::len).sum::<usize>() >= 4 * 400)
        .await;
    tasks.iter().for_each(|task| task.abort());
    for (partition, seen) in read.lock().iter() {
        assert_eq!(*seen, (0..RECORDS).collect::<Vec<_>>(), "partition {partition}");
    }
}

/// I03, I04: a server that restarts is found again; nothing is lost, repeated, or told to the user.
#[tokio::test(flavor = "multi_thread")]
async fn i04_a_restart_of_the_server_is_not_noticed() {
    let mut world = World::new();
    world.topic("orders", 2);
    (0..2).for_each(|partition| world.append("orders", partition, 50));
    let client = world.client().await;
    let mut consumer = member(&client).build().await.unwrap();
    let before = by_partition(&mut consumer, 60).await;
    consumer.commit().await.unwrap();
    world.restart();
    (0..2).for_each(|partition| world.append("orders", partition, 50));
    let after = by_partition(&mut consumer, 140).await;
    for partition in 0..2 {
        let mut seen = before.get(&partition).cloned().unwrap_or_default();
        seen.extend(&after[&partition]);
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
    consumer.commit().await.unwrap();
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_costs_no_partition() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 10);
    let proxy = Proxy::before(&world).await;
    let mut consumer = member(&proxy.client().await).build().await.unwrap();
    assert_eq!(offsets(&mut consumer, 5).await, [0, 1, 2, 3, 4]);
    proxy.cut();
    consumer.commit().await.unwrap();
    proxy.cut();
    assert_eq!(offsets(&mut consumer, 5).await, [5, 6, 7, 8, 9]);
    let handle = consumer.handle();
    consumer.close().await.unwrap();
    while let Some(event) = handle.next_event().await {
        assert!(!matches!(event, ConsumerEvent::Lost { .. }), "{event:?}");
    }
}

/// I05: a slow handler costs nothing as long as heartbeats flow; one that takes longer than it may
/// costs everything, and the record goes to another.
#[tokio::test(flavor = "multi_thread")]
async fn i05_a_slow_handler_is_told_from_one_that_hangs() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 3);
    let client = world.client().await;
    let limit = SESSION * 2;
    let builder = member(&client).processing_timeout(limit);
    let mut slow = builder.build().await.unwrap();
    assert_eq!(next(&mut slow).await.offset, 0);
    sleep(SESSION + SESSION / 2).await;
    assert_eq!(next(&mut slow).await.offset, 1);
    let begun = Instant::now();
    let mut other = member(&client).build().await.unwrap();
    let handle = slow.handle();
    let lost = event(&handle, |event| matches!(event, ConsumerEvent::Lost { .. })).await;
    assert!(matches!(lost, ConsumerEvent::Lost { reason: LostReason::ProcessingTimeout, .. }));
    assert!(begun.elapsed() + Duration::from_millis(100) >= limit);
    assert_eq!(offsets(&mut other, 2).await, [1, 2], "none is skipped");
    other.close().await.unwrap();
    world.append("orders", 0, 1);
    assert_eq!(next(&mut slow).await.offset, 3, "who comes back is a member again");
}

/// I06: what is done can be committed while a partition is being revoked.
#[tokio::test(flavor = "multi_thread")]
async fn i06_a_commit_during_a_revoke_is_taken() {
    let world = World::new();
    world.topic("orders", 3);
    (0..3).for_each(|partition| world.append("orders", partition, 10));
    let client = world.client().await;
    let mut first = member(&client).commit(CommitMode::Manual).build().await.unwrap();
    settled(&[&first], 3).await;
    let mut records = Vec::new();
    for _ in 0..30 {
        records.push(next(&mut first).await);
    }
    let handle = first.handle();
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(member(&client).build().await.unwrap());
        let revoking = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Revoking { .. });
        let ConsumerEvent::Revoking { of, time_left } = event(&handle, revoking).await else {
            unreachable!("it was just asked for")
        };
        assert!(time_left <= DRAIN);
        let marked = records.iter().filter(|record| record.partition == of.partition);
        marked.for_each(|record| assert!(handle.done(record)));
        handle.commit().await.unwrap();
        let released = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Released { .. });
        event(&handle, released).await;
        assert_eq!(handle.committed("orders", of.partition).await.unwrap(), Some(10));
    }
    let all: Vec<_> = std::iter::once(&first).chain(&others).collect();
    settled(&all, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_one_id_the_older_stops() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 2);
    let client = world.client().await;
    let mut older = member(&client).member_id("static").build().await.unwrap();
    assert_eq!(next(&mut older).await.offset, 0);
    let mut newer = member(&client).member_id("static").build().await.unwrap();
    let fenced = timeout(PATIENCE, async {
        loop {
            if let Err(error) = older.next().await {
                return error;
            }
        }
    });
    let Error::Refused(refusal) = fenced.await.unwrap() else { panic!("it is fenced") };
    assert_eq!(refusal.error_code(), Some(ErrorCode::Fenced));
    assert!(older.close().await.is_err());
    next(&mut newer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_a_restart_goes_to_nobody_else() {
    let world = World::new();
    world.topic("orders", 2);
    world.append("orders", 0, 10);
    world.append("orders", 1, 10);
    let client = world.client().await;
    let mut a = member(&client).member_id("a").build().await.unwrap();
    let b = member(&client).member_id("b").build().await.unwrap();
    settled(&[&a, &b], 2).await;
    let held = a.assignment();
    assert_eq!(offsets(&mut a, 4).await, [0, 1, 2, 3]);
    a.leave_keep(PATIENCE).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(b.assignment().len(), 1, "nothing moves");
    let mut a = member(&client).member_id("a").build().await.unwrap();
    assert_eq!(next(&mut a).await.offset, 4);
    assert_eq!(a.assignment(), held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_told() {
    let world = World::new();
    let client = world.client().await;
    let started = Instant::now();
    let built = member(&client).commit_timeout(DRAIN).build().await;
    // A group may wait for a topic to be made; what it may not is hang.
    match built {
        Ok(mut consumer) => {
            world.topic("orders", 1);
            world.append("orders", 0, 1);
            assert_eq!(next(&mut consumer).await.offset, 0);
        }
        Err(error) => assert_eq!(error.code(), Some(ErrorCode::UnknownTopic)),
    }
    assert!(started.elapsed() < PATIENCE);
}
