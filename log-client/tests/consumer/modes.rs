//! When what was handed over is done, and committed.

use std::time::Duration;

use log_client::{CommitMode, Error};
use log_core::StartFrom;
use tokio::time::timeout;

use super::world::{PATIENCE, World, member, next, offsets, settled};

/// D10: what is committed is the next offset to read, however it is committed.
#[tokio::test(flavor = "multi_thread")]
async fn d10_ten_records_done_means_that_ten_is_next() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 20);
    let client = world.client().await;

    let mut automatic = member(&client).group("automatic").build().await.unwrap();
    offsets(&mut automatic, 10).await;
    automatic.close().await.unwrap();

    let builder = member(&client).group("manual").commit(CommitMode::Manual);
    let mut manual = builder.build().await.unwrap();
    for _ in 0..10 {
        let record = next(&mut manual).await;
        assert!(manual.done(&record));
    }
    manual.commit().await.unwrap();
    manual.close().await.unwrap();

    let builder = member(&client).group("run").commit(CommitMode::Manual).max_ahead(10);
    let mut runs = builder.build().await.unwrap();
    let records = runs.next_batch().await.unwrap().unwrap();
    assert_eq!((records.offsets().start, records.offsets().end), (0, 10));
    assert!(runs.done_run(&records));
    runs.commit().await.unwrap();
    drop(runs);

    let first = [("orders", 0, StartFrom::Earliest)];
    let mut alone = client.consumer().group("alone").assign(first).build().await.unwrap();
    offsets(&mut alone, 10).await;
    alone.commit().await.unwrap();
    assert_eq!(alone.committed("orders", 0).await.unwrap(), Some(10));
    drop(alone);

    for group in ["automatic", "manual", "run"] {
        let mut again = member(&client).group(group).build().await.unwrap();
        assert_eq!(next(&mut again).await.offset, 10, "{group}");
    }
    let mut alone = client.consumer().group("alone").assign(first).build().await.unwrap();
    assert_eq!(next(&mut alone).await.offset, 10);
    offsets(&mut alone, 9).await;
    alone.commit().await.unwrap();
    assert_eq!(alone.committed("orders", 0).await.unwrap(), Some(20), "the end is legal");
}

/// D11: what the user has marked and not committed stays so, however the consumer ends.
#[tokio::test(flavor = "multi_thread")]
async fn d11_close_commits_nothing_that_the_user_did_not() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 10);
    let client = world.client().await;
    for closes in [true, false] {
        let builder = member(&client).commit(CommitMode::Manual);
        let mut consumer = builder.build().await.unwrap();
        for expected in 0..5 {
            let record = next(&mut consumer).await;
            assert_eq!(record.offset, expected);
            consumer.done(&record);
        }
        let handle = consumer.handle();
        if closes {
            consumer.close().await.unwrap();
        } else {
            drop(consumer);
        }
        assert_eq!(handle.committed("orders", 0).await.unwrap(), Some(0), "closed: {closes}");
        assert!(handle.commit().await.is_err(), "it is closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_tells_that_the_last_commit_was_not_confirmed() {
    let mut world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 10);
    let client = world.client().await;
    let every = Duration::from_secs(3_600);
    let builder = || {
        let quick = member(&client).drain_timeout(Duration::from_millis(500));
        quick.commit(CommitMode::Automatic { every })
    };
    let mut consumer = builder().build().await.unwrap();
    offsets(&mut consumer, 5).await;
    world.stop();
    let closed = consumer.close().await;
    assert!(matches!(closed, Err(Error::OutcomeUnknown { .. })), "{closed:?}");
    world.start();
    let mut consumer = builder().build().await.unwrap();
    offsets(&mut consumer, 5).await;
    consumer.commit().await.unwrap();
    world.stop();
    consumer.close().await.expect("there was nothing to commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_out_of_order_is_not_handed_over_again() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 6);
    let client = world.client().await;
    let builder = member(&client).commit(CommitMode::Manual);
    let mut consumer = builder.build().await.unwrap();
    let mut records = Vec::new();
    for _ in 0..6 {
        records.push(next(&mut consumer).await);
    }
    for at in [4, 0, 2] {
        assert!(consumer.done(&records[at]));
    }
    consumer.commit().await.unwrap();
    consumer.close().await.unwrap();
    let mut again = member(&client).build().await.unwrap();
    assert_eq!(offsets(&mut again, 3).await, [1, 3, 5]);
}

/// D15: what was fetched, or handed over and not done, is not committed.
#[tokio::test(flavor = "multi_thread")]
async fn d15_a_kill_loses_nothing_that_was_not_done() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 500);
    let client = world.client().await;
    let every = Duration::from_millis(50);
    let builder = member(&client).commit(CommitMode::Automatic { every });
    let mut consumer = builder.build().await.unwrap();
    offsets(&mut consumer, 11).await;
    tokio::time::sleep(4 * every).await;
    assert_eq!(consumer.committed("orders", 0).await.unwrap(), Some(10));
    drop(consumer);
    let mut again = member(&client).build().await.unwrap();
    assert_eq!(next(&mut again).await.offset, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_commits_before_it_hands_over() {
    let world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 3);
    let client = world.client().await;
    let builder = || member(&client).commit(CommitMode::AtMostOnce);
    let mut consumer = builder().build().await.unwrap();
    assert_eq!(next(&mut consumer).await.offset, 0);
    assert_eq!(consumer.committed("orders", 0).await.unwrap(), Some(3), "a run at a time");
    drop(consumer);
    world.append("orders", 0, 1);
    let mut again = builder().build().await.unwrap();
    assert_eq!(next(&mut again).await.offset, 3);
}

/// What could not be committed is handed over once it can be.
#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_loses_nothing_to_a_commit_that_fails() {
    let mut world = World::new();
    world.topic("orders", 1);
    world.append("orders", 0, 3);
    let client = world.client().await;
    let builder = member(&client).commit(CommitMode::AtMostOnce);
    let builder = builder.commit_timeout(Duration::from_millis(100));
    let mut consumer = builder.build().await.unwrap();
    settled(&[&consumer], 1).await;
    // It is fetched meanwhile.
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.stop();
    assert!(consumer.next().await.is_err());
    world.start();
    let again = async {
        loop {
            if let Ok(record) = consumer.next().await {
                return record.unwrap().offset;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, again).await.unwrap(), 0);
    assert_eq!(offsets(&mut consumer, 2).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_before_anything_is_sent() {
    let world = World::new();
    let client = world.client().await;
    let long = "x".repeat(70_000);
    let builders = [
        client.consumer(),
        client.consumer().group("billing"),
        client.consumer().group("billing").assign::<&str>([]),
        member(&client).group(long.clone()),
        member(&client).member_id(long),
        member(&client).member_id(""),
        member(&client).session_timeout(Duration::ZERO),
        member(&client).commit(CommitMode::Automatic { every: Duration::ZERO }),
        member(&client).commit(CommitMode::Automatic { every: Duration::MAX }),
        member(&client).drain_timeout(Duration::MAX),
        member(&client).commit_timeout(Duration::MAX),
        member(&client).max_ahead(0),
        member(&client).prefetch(2, 1),
        client
            .consumer()
            .assign([("orders", 0, StartFrom::Earliest)])
            .commit(CommitMode::AtMostOnce),
    ];
    for builder in builders {
        let shown = format!("{builder:?}");
        let built = builder.build().await;
        assert!(matches!(built, Err(Error::InvalidArgument { .. })), "{shown:.200}");
    }
}
