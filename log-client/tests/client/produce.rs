//! Producing to a server that drops, delays, repeats, cuts and refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use log_client::{Acks, Delivery, Error, Producer, ProducerConfig};
use log_core::protocol::produce::ProduceHead;
use log_core::protocol::{ErrorCode, Refusal, RequestKind};
use log_core::{Codec, Record};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::fake_log::{FakeLog, TOPIC};
use crate::hasty_client;
use crate::server::{Act, Asked, ScriptedServer};

type Shared = Arc<Mutex<FakeLog>>;

/// A server over a log of this many partitions; `spoil` may change what becomes of a produce.
async fn serving(
    partitions: usize,
    mut spoil: impl FnMut(&mut FakeLog, &Asked) -> Option<Act> + Send + 'static,
) -> (ScriptedServer, Shared) {
    let log: Shared = Arc::new(Mutex::new(FakeLog::new(partitions)));
    let served = Arc::clone(&log);
    let server = ScriptedServer::start(move |asked| {
        let mut log = served.lock();
        let produce = asked.kind == RequestKind::Produce.number();
        let spoiled = if produce { spoil(&mut log, &asked) } else { None };
        spoiled.unwrap_or_else(|| log.answer(&asked))
    });
    (server.await, log)
}

fn brief(timeout: Duration) -> ProducerConfig {
    ProducerConfig {
        delivery_timeout: timeout,
        batch_max_bytes: 2_000,
        ..ProducerConfig::default()
    }
}

async fn send_numbers(producer: &Producer, numbers: std::ops::Range<u32>) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for number in numbers {
        let value = number.to_string();
        let record = Record::new(value.as_bytes());
        deliveries.push(producer.send_to(TOPIC, 0, &record).await.unwrap());
    }
    deliveries
}

fn numbers(log: &Shared) -> Vec<u32> {
    let log = log.lock();
    let number = |value: &Vec<u8>| String::from_utf8(value.clone()).unwrap().parse().unwrap();
    log.partitions[0].values.iter().map(number).collect()
}

/// Sends 3,000 records while `spoil` does its worst: all are there once, in order, where they were
/// said to be.
async fn all_arrive(spoil: impl FnMut(&mut FakeLog, &Asked) -> Option<Act> + Send + 'static) {
    let (server, log) = serving(1, spoil).await;
    let client = hasty_client(&server).await;
    let producer = client.producer().with(brief(Duration::from_secs(20))).build().unwrap();
    let deliveries = send_numbers(&producer, 0..3_000).await;
    for (number, delivery) in (0..).zip(deliveries) {
        assert_eq!(delivery.await.unwrap().offset, Some(number));
    }
    assert!(numbers(&log).into_iter().eq(0..3_000));
    producer.close().await.unwrap();
}

#[tokio::test]
async fn records_arrive_in_order_over_a_connection_that_works() {
    all_arrive(|_, _| None).await;
}

#[tokio::test]
async fn records_arrive_once_over_connections_that_are_cut() {
    let mut count = 0;
    all_arrive(move |log, asked| {
        count += 1;
        match count % 7 {
            // Not appended; appended but not told; half told.
            2 => Some(Act::Cut),
            4 => {
                log.answer(asked);
                Some(Act::Cut)
            }
            6 => match log.answer(asked) {
                Act::Reply(body) => Some(Act::CutInReply(body)),
                other => Some(other),
            },
            _ => None,
        }
    })
    .await;
}

#[tokio::test]
async fn records_arrive_once_over_refusals_that_pass_and_repeated_replies() {
    let mut count = 0;
    all_arrive(move |log, asked| {
        count += 1;
        let refuse = |code| Some(Act::Refuse(Refusal::new(code, "not now")));
        match count % 9 {
            1 => refuse(ErrorCode::Loading),
            4 => refuse(ErrorCode::DiskFull),
            6 => refuse(ErrorCode::LimitReached),
            7 => match log.answer(asked) {
                Act::Reply(body) => Some(Act::ReplyTwice(body)),
                other => Some(other),
            },
            _ => None,
        }
    })
    .await;
}

#[tokio::test]
async fn records_arrive_whole_on_a_runtime_with_more_threads_and_with_every_codec() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let (server, log) = serving(1, |_, _| None).await;
        let client = hasty_client(&server).await;
        let producer = client.producer().codec(codec).build().unwrap();
        send_numbers(&producer, 0..500).await.into_iter().for_each(drop);
        producer.flush().await.unwrap();
        assert!(numbers(&log).into_iter().eq(0..500));
    }
}

#[tokio::test]
async fn a_refused_batch_fails_alone_and_what_follows_arrives() {
    let (server, log) = serving(1, |_, asked| {
        let poison = asked.body.windows(4).any(|bytes| bytes == b"evil");
        poison.then(|| Act::Refuse(Refusal::new(ErrorCode::TooLarge, "too large")))
    })
    .await;
    let client = hasty_client(&server).await;
    let producer = client.producer().build().unwrap();
    let before = producer.send_batch(TOPIC, Some(0), &[Record::new(b"1")]).await.unwrap();
    let evil = producer.send_batch(TOPIC, Some(0), &[Record::new(b"evil")]).await.unwrap();
    let after = producer.send_batch(TOPIC, Some(0), &[Record::new(b"2")]).await.unwrap();
    assert_eq!(before.await.unwrap().offset, Some(0));
    assert_eq!(evil.await.unwrap_err().code(), Some(ErrorCode::TooLarge));
    assert_eq!(after.await.unwrap().offset, Some(1));
    assert_eq!(numbers(&log), [1, 2]);
}

#[tokio::test]
async fn what_is_not_answered_ends_as_unknown_at_its_deadline_and_what_was_not_sent_as_late() {
    let (server, _) = serving(1, |_, _| Some(Act::Ignore)).await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig { in_flight_max: 1, ..brief(Duration::from_millis(300)) };
    let producer = client.producer().with(config).build().unwrap();
    let began = Instant::now();
    let mut deliveries = send_numbers(&producer, 0..2).await.into_iter();
    let sent = deliveries.next().unwrap().await;
    assert!(matches!(sent, Err(Error::OutcomeUnknown { .. })), "{sent:?}");
    let waiting = deliveries.next().unwrap().await;
    assert!(matches!(waiting, Err(Error::TimedOut { .. })), "{waiting:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(290) && took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_full_buffer_holds_the_sender_back_until_there_is_room() {
    let gate = Arc::new(Mutex::new(false));
    let open = Arc::clone(&gate);
    let (server, log) = serving(1, move |_, _| {
        (!*open.lock()).then(|| Act::Refuse(Refusal::new(ErrorCode::DiskFull, "full")))
    })
    .await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig { buffer_max_bytes: 10_000, ..brief(Duration::from_secs(10)) };
    let producer = client.producer().with(config).build().unwrap();
    let sending = tokio::spawn(async move {
        let deliveries = send_numbers(&producer, 0..1_000).await;
        producer.flush().await.unwrap();
        deliveries.len()
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!sending.is_finished());
    *gate.lock() = true;
    assert_eq!(timeout(Duration::from_secs(10), sending).await.unwrap().unwrap(), 1_000);
    assert!(numbers(&log).into_iter().eq(0..1_000));
}

#[tokio::test]
async fn what_asks_for_no_answer_waits_in_the_buffer_until_the_socket_has_it() {
    let (go_on, count) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (stalled, counted) = (Arc::clone(&go_on), Arc::clone(&count));
    let (server, _) = serving(1, move |_, _| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        Some(if first { Act::Stall(Arc::clone(&stalled)) } else { Act::Ignore })
    })
    .await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig {
        acks: Acks::None,
        buffer_max_bytes: 1024 * 1024,
        batch_max_bytes: 64 * 1024,
        ..ProducerConfig::default()
    };
    let producer = client.producer().with(config).build().unwrap();
    let value = vec![7; 64 * 1024];
    let record = [Record::new(&value)];
    let mut sent = 0;
    // More than any socket takes.
    while sent < 1_000 {
        let sending = producer.send_batch(TOPIC, Some(0), &record);
        match timeout(Duration::from_millis(300), sending).await {
            Ok(delivery) => drop(delivery.unwrap()),
            Err(_) => break,
        }
        sent += 1;
    }
    assert!((10..1_000).contains(&sent), "{sent}");
    let flushed = timeout(Duration::from_millis(100), producer.flush()).await;
    assert!(flushed.is_err(), "it is not with the socket yet");
    go_on.notify_one();
    timeout(Duration::from_secs(10), producer.close()).await.unwrap().unwrap();
    let arrived = async {
        while count.load(Ordering::SeqCst) < sent {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), arrived).await.expect("nothing was dropped");
}

#[tokio::test]
async fn partitions_take_turns_at_the_servers_limit() {
    let (turns, mut log) = (Arc::new(Mutex::new(Vec::new())), FakeLog::new(3));
    let seen = Arc::clone(&turns);
    let server = ScriptedServer::limited(1, move |asked| {
        if asked.kind == RequestKind::Produce.number() {
            seen.lock().push(ProduceHead::decode(&asked.body).unwrap().0.partition);
        }
        log.answer(&asked)
    });
    let server = server.await;
    let producer = hasty_client(&server).await.producer().build().unwrap();
    producer.send_and_wait(TOPIC, &Record::new(b"1")).await.unwrap();
    turns.lock().clear();
    for _ in 0..10 {
        for partition in 0..3 {
            drop(producer.send_batch(TOPIC, Some(partition), &[Record::new(b"2")]).await.unwrap());
        }
    }
    producer.flush().await.unwrap();
    let turns = turns.lock();
    assert_eq!(turns.len(), 30);
    for window in turns[..24].windows(6) {
        assert!((0..3).all(|partition| window.contains(&partition)), "{turns:?}");
    }
}

#[tokio::test]
async fn who_waits_for_room_waits_no_longer_than_the_delivery_may_take() {
    let (server, _) = serving(1, |_, _| None).await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig {
        buffer_max_bytes: 2_000,
        batch_max_bytes: 500,
        linger: Duration::from_millis(100),
        ..brief(Duration::from_millis(500))
    };
    let producer = client.producer().with(config).build().unwrap();
    let small = {
        let producer = producer.clone();
        tokio::spawn(async move {
            // Room comes and goes all the time, and is never enough for the large one.
            loop {
                drop(producer.send_to(TOPIC, 0, &Record::new(&[1; 300])).await.unwrap());
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let large = producer.send_to(TOPIC, 0, &Record::new(&[2; 1_900])).await;
    small.abort();
    assert!(matches!(large, Err(Error::TimedOut { .. })), "{large:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn dropping_the_producer_ends_every_delivery() {
    let (server, _) = serving(1, |_, _| Some(Act::Ignore)).await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig { in_flight_max: 1, ..brief(Duration::from_secs(10)) };
    let producer = client.producer().with(config).build().unwrap();
    let deliveries = send_numbers(&producer, 0..2).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(producer);
    let mut ended = Vec::new();
    for delivery in deliveries {
        ended.push(timeout(Duration::from_secs(1), delivery).await.unwrap());
    }
    assert!(matches!(ended[0], Err(Error::OutcomeUnknown { .. })), "{:?}", ended[0]);
    assert!(matches!(ended[1], Err(Error::Closed { .. })), "{:?}", ended[1]);
}

#[tokio::test]
async fn a_topic_made_anew_is_found_and_partitions_that_were_added_are_used() {
    let (server, log) = serving(1, |_, _| None).await;
    let client = hasty_client(&server).await;
    let config = ProducerConfig {
        metadata_every: Duration::from_millis(20),
        ..brief(Duration::from_secs(10))
    };
    let producer = client.producer().with(config).build().unwrap();
    let first = producer.send_and_wait(TOPIC, &Record::new(b"1")).await.unwrap();
    assert_eq!((first.partition, first.offset), (0, Some(0)));
    *log.lock() = FakeLog { topic_id: 2, ..FakeLog::new(1) };
    let second = producer.send_and_wait(TOPIC, &Record::new(b"2")).await.unwrap();
    assert_eq!(second.offset, Some(0));
    log.lock().partitions.push(Default::default());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let added = producer.send_to(TOPIC, 1, &Record::new(b"3")).await.unwrap();
    assert_eq!(added.await.unwrap().partition, 1);
}

#[tokio::test]
async fn a_conditional_append_is_never_made_to_another_topic_of_that_name_nor_after_the_close() {
    let (server, log) = serving(1, |_, _| None).await;
    let client = hasty_client(&server).await;
    let producer = client.producer().build().unwrap();
    let records = [Record::new(b"1")];
    producer.append_at(TOPIC, 0, &records, 0).await.unwrap();
    *log.lock() = FakeLog { topic_id: 2, ..FakeLog::new(1) };
    // What was read of the old one says nothing of where the new one ends.
    let stale = producer.append_at(TOPIC, 0, &records, 0).await;
    assert_eq!(stale.unwrap_err().code(), Some(ErrorCode::StaleTopic));
    producer.append_at(TOPIC, 0, &records, 0).await.unwrap();
    let clone = producer.clone();
    producer.close().await.unwrap();
    let late = clone.append_at(TOPIC, 0, &records, 1).await;
    assert!(matches!(late, Err(Error::Closed { .. })), "{late:?}");
}

#[tokio::test]
async fn a_conditional_append_is_made_once_and_a_conflict_is_told() {
    let mut count = 0;
    let (server, log) = serving(1, move |log, asked| {
        count += 1;
        (count == 1).then(|| {
            log.answer(asked);
            Act::Cut
        })
    })
    .await;
    let client = hasty_client(&server).await;
    let producer = client.producer().build().unwrap();
    let records = [Record::new(b"1"), Record::new(b"2")];
    let appended = producer.append_at(TOPIC, 0, &records, 0).await.unwrap();
    assert_eq!((appended.offset, appended.duplicate), (Some(0), true));
    let conflict = producer.append_at(TOPIC, 0, &records, 0).await;
    assert_eq!(conflict.unwrap_err().code(), Some(ErrorCode::EndConflict));
    let next = producer.append_at(TOPIC, 0, &records[..1], 2).await.unwrap();
    assert_eq!((next.offset, next.duplicate), (Some(2), false));
    assert_eq!(numbers(&log), [1, 2, 1]);
}

#[tokio::test]
async fn records_gather_while_a_batch_waits_for_its_reply() {
    let (server, log) = serving(1, |_, _| None).await;
    let client = hasty_client(&server).await;
    let producer = client.producer().build().unwrap();
    producer.send_and_wait(TOPIC, &Record::new(b"0")).await.unwrap();
    let deliveries = send_numbers(&producer, 1..101).await;
    producer.flush().await.unwrap();
    deliveries.into_iter().for_each(drop);
    assert!(numbers(&log).into_iter().eq(0..101));
    let produces = log.lock().produces;
    assert!((3..20).contains(&produces), "{produces}");
}

#[tokio::test]
async fn a_lingering_batch_waits_for_more_and_a_flush_ends_the_wait() {
    let (server, log) = serving(1, |_, _| None).await;
    let client = hasty_client(&server).await;
    let linger = Duration::from_millis(80);
    let producer = client.producer().linger(linger).build().unwrap();
    let began = Instant::now();
    let deliveries = send_numbers(&producer, 0..3).await;
    for delivery in deliveries {
        delivery.await.unwrap();
    }
    assert!(began.elapsed() >= linger);
    assert_eq!(log.lock().produces, 1);
    let long = client.producer().linger(Duration::from_secs(30)).build().unwrap();
    let delivery = send_numbers(&long, 3..4).await.remove(0);
    timeout(Duration::from_secs(3), long.close()).await.unwrap().unwrap();
    assert_eq!(delivery.await.unwrap().offset, Some(3));
}
