//! Consumers that read partitions alone.

use std::time::Duration;

use log_client::consumer::{OutOfRange, SkipReason};
use log_client::{CommitMode, ConsumerEvent, Error};
use log_core::protocol::ErrorCode;
use log_core::{FlushPolicy, OffsetRange, StartFrom, TopicConfig};
use tokio::time::timeout;

use super::world::{
    PATIENCE, Proxy, World, by_partition, event, next, nothing_more, offsets, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_is_read_from_where_it_is_said() {
    let world = World::new();
    world.topic("orders", 3);
    (0..3).for_each(|partition| world.append("orders", partition, 5));
    let assigned = [
        ("orders", 0, StartFrom::Earliest),
        ("orders", 1, StartFrom::Offset(3)),
        ("orders", 2, StartFrom::Latest),
    ];
    let mut consumer = world.client().await.consumer().assign(assigned).build().await.unwrap();
    let seen = by_partition(&mut consumer, 7).await;
    assert_eq!((&seen[&0], &seen[&1]), (&vec![0, 1, 2, 3, 4], &vec![3, 4]));
    nothing_more(&mut consumer).await;
    world.append("orders", 2, 1);
    let record = next(&mut consumer).await;
    assert_eq!((record.partition, record.offset), (2, 5));
    assert_eq!(
        (record.key.as_deref(), record.value.as_deref()),
        (Some(b"key".as_slice()), Some(b"payload".as_slice()))
    );
    assert!(consumer.commit().await.is_err(), "there is no group");
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_hold_all_records_and_nothing_twice() {
    let world = World::new();
    world.topic("orders", 1);
    (0..50).for_each(|_| world.append("orders", 0, 100));
    let client = world.client().await;
    let builder = client.consumer().assign([("orders", 0, StartFrom::Offset(7))]);
    let mut consumer = builder.prefetch(4 * 1024, 8 * 1024).build().await.unwrap();
    let mut expected = 7;
    while expected < 5_000 {
        let records = consumer.next_batch().await.unwrap().unwrap();
        for record in &records {
            assert_eq!(record.unwrap().offset, expected);
            expected += 1;
        }
    }
    nothing_more(&mut consumer).await;
    assert_eq!(consumer.position("orders", 0), Some(5_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn broadcast_reads_everything_from_the_end() {
    let world = World::new();
    world.topic("orders", 2);
    world.append("orders", 0, 3);
    let client = world.client().await;
    let mut one = client.consumer().topics(["orders"]).broadcast().build().await.unwrap();
    let mut two = client.consumer().topics(["orders"]).broadcast().build().await.unwrap();
    world.append("orders", 0, 1);
    world.append("orders", 1, 1);
    for consumer in [&mut one, &mut two] {
        let seen = by_partition(consumer, 2).await;
        assert_eq!((&seen[&0], &seen[&1]), (&vec![3], &vec![0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_seek_and_stop() {
    let world = World::new();
    world.topic("orders", 2);
    world.append("orders", 0, 10);
    world.append("orders", 1, 2);
    let start = [("orders", 0, StartFrom::Earliest), ("orders", 1, StartFrom::Earliest)];
    let client = world.client().await;
    let mut consumer = client.consumer().assign(start).build().await.unwrap();
    assert!(consumer.pause("orders", 1));
    assert_eq!(offsets(&mut consumer, 4).await, [0, 1, 2, 3]);
    consumer.seek("orders", 0, StartFrom::Offset(8)).await.unwrap();
    assert_eq!(offsets(&mut consumer, 2).await, [8, 9]);
    consumer.seek("orders", 0, StartFrom::Earliest).await.unwrap();
    assert_eq!(offsets(&mut consumer, 10).await, (0..10).collect::<Vec<_>>());
    consumer.seek("orders", 0, StartFrom::Latest).await.unwrap();
    nothing_more(&mut consumer).await;
    assert!(consumer.resume("orders", 1));
    assert_eq!(offsets(&mut consumer, 2).await, [0, 1]);
    assert!(consumer.seek("orders", 7, StartFrom::Latest).await.is_err());
    let handle = consumer.handle();
    let reader = tokio::spawn(async move { consumer.next().await });
    handle.stop();
    assert!(reader.await.unwrap().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_not_there_is_refused_and_a_topic_that_goes_is_told() {
    let world = World::new();
    world.topic("orders", 2);
    let client = world.client().await;
    let absent = client.consumer().assign([("orders", 2, StartFrom::Offset(0))]).build().await;
    assert!(matches!(absent, Err(Error::InvalidArgument { .. })), "{absent:?}");
    let at = [("orders", 1, StartFrom::Earliest)];
    let mut consumer = client.consumer().assign(at).build().await.unwrap();
    nothing_more(&mut consumer).await;
    client.admin().delete_topic("orders").await.unwrap();
    let told = timeout(PATIENCE, consumer.next()).await.unwrap();
    assert_eq!(told.unwrap_err().code(), Some(ErrorCode::StaleTopic));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_due_and_failed_is_told() {
    let mut world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 5);
    let client = world.client().await;
    let commit = CommitMode::Automatic { every: Duration::from_millis(50) };
    let builder = client.consumer().group("billing").assign([("orders", 0, StartFrom::Earliest)]);
    let builder = builder.commit(commit).commit_timeout(Duration::from_millis(200));
    let mut consumer = builder.build().await.unwrap();
    offsets(&mut consumer, 3).await;
    world.stop();
    offsets(&mut consumer, 1).await;
    event(&consumer, |event| matches!(event, ConsumerEvent::CommitFailed { .. })).await;
    world.start();
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed("orders", 0).await.unwrap(), Some(4));
}

/// I01: a consumer whose offset has gone follows its policy, once, and tells what it has skipped.
#[tokio::test(flavor = "multi_thread")]
async fn i01_an_offset_that_retention_has_passed() {
    let world = World::new();
    world.topic("orders", 1);
    (0..12).for_each(|_| world.append("orders", 0, 10));
    world.trim("orders", 0, 100);
    let client = world.client().await;
    let at = [("orders", 0, StartFrom::Offset(10))];

    let mut strict = client.consumer().assign(at).build().await.unwrap();
    let Err(Error::Refused(refusal)) = strict.next().await else { panic!("it is out of range") };
    assert_eq!(refusal.error_code(), Some(ErrorCode::OffsetOutOfRange));
    nothing_more(&mut strict).await;
    strict.seek("orders", 0, StartFrom::Earliest).await.unwrap();
    assert_eq!(next(&mut strict).await.offset, 100);

    let builder = client.consumer().assign(at).on_out_of_range(OutOfRange::Earliest);
    let mut earliest = builder.build().await.unwrap();
    assert_eq!(next(&mut earliest).await.offset, 100);
    let skipped = |offsets, reason| {
        move |event: &ConsumerEvent| {
            matches!(event, ConsumerEvent::Skipped { offsets: told, reason: why, .. }
                if *told == offsets && *why == reason)
        }
    };
    let told = [earliest.next_event().await.unwrap(), earliest.next_event().await.unwrap()];
    let expected = skipped(OffsetRange::new(10, 100), SkipReason::Trimmed);
    assert_eq!(told.iter().filter(|event| expected(event)).count(), 1, "{told:?}");

    let builder = client.consumer().assign(at).on_out_of_range(OutOfRange::Latest);
    let mut latest = builder.build().await.unwrap();
    nothing_more(&mut latest).await;
    world.append("orders", 0, 1);
    assert_eq!(next(&mut latest).await.offset, 120);

    let beyond = [("orders", 0, StartFrom::Offset(500))];
    let builder = client.consumer().assign(beyond).on_out_of_range(OutOfRange::Earliest);
    let mut beyond = builder.build().await.unwrap();
    nothing_more(&mut beyond).await;
    world.append("orders", 0, 1);
    assert_eq!(next(&mut beyond).await.offset, 121, "what is appended at the end was never read");
}

/// I02: after a lost connection, or a restart of the server, it goes on where it was.
#[tokio::test(flavor = "multi_thread")]
async fn i02_a_lost_connection_changes_nothing() {
    let mut world = World::new();
    world.topic("orders", 1);
    (0..100).for_each(|_| world.append("orders", 0, 10));
    let proxy = Proxy::before(&world).await;
    let at = [("orders", 0, StartFrom::Earliest)];
    let builder = proxy.client().await.consumer().assign(at);
    let mut consumer = builder.prefetch(1024, 2048).build().await.unwrap();
    assert_eq!(offsets(&mut consumer, 500).await, (0..500).collect::<Vec<_>>());
    proxy.cut();
    assert_eq!(offsets(&mut consumer, 300).await, (500..800).collect::<Vec<_>>());
    world.restart();
    assert_eq!(offsets(&mut consumer, 200).await, (800..1_000).collect::<Vec<_>>());
    world.append("orders", 0, 1);
    assert_eq!(offsets(&mut consumer, 1).await, [1_000]);
}

/// I07: a reader at the end, a writer at full speed, and segments that roll all the time.
#[tokio::test(flavor = "multi_thread")]
async fn i07_a_reader_at_the_end_meets_every_offset_once() {
    const RECORDS: u64 = 200_000;
    let world = World::new();
    let config = TopicConfig {
        segment_max_bytes: 256 * 1024,
        batch_max_bytes: 128 * 1024,
        record_max_bytes: 64 * 1024,
        flush: FlushPolicy::Os,
        ..TopicConfig::default()
    };
    world.topic_with("orders", 1, config);
    let client = world.client().await;
    let at = [("orders", 0, StartFrom::Latest)];
    let mut consumer = client.consumer().assign(at).build().await.unwrap();
    let writer = std::thread::spawn(move || {
        (0..RECORDS / 10).for_each(|_| world.append("orders", 0, 10));
        world
    });
    for expected in 0..RECORDS {
        assert_eq!(next(&mut consumer).await.offset, expected);
    }
    let world = writer.join().unwrap();
    until("everything was read", || consumer.position("orders", 0) == Some(RECORDS)).await;
    drop(world);
    tokio::time::sleep(Duration::from_millis(1)).await;
}
