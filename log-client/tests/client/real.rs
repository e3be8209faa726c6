//! The client against a server as it is shipped, in the same process.

use std::time::Duration;

use log_client::{Acks, Client, Error, ProducerConfig};
use log_core::protocol::ErrorCode;
use log_core::{FlushPolicy, Partition, Record, TopicConfig, TopicName};
use log_server::{Server, ServerConfig};
use tempfile::TempDir;

struct Running {
    server: Server,
    client: Client,
    _dir: TempDir,
}

async fn running() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::bind(ServerConfig::local(dir.path())).unwrap();
    let client = Client::connect(server.address().to_string()).await.unwrap();
    Running { server, client, _dir: dir }
}

fn partition(running: &Running, topic: &str, number: u32) -> Partition {
    let topic = running.server.store().topic(&TopicName::parse(topic).unwrap()).unwrap();
    topic.partition(number).unwrap()
}

fn values(partition: &Partition) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let mut next = partition.ends().log_start;
    while next < partition.readable_end() {
        let fetched = partition.read(next, 1 << 20).unwrap();
        fetched.for_each(|record| values.push(record.value.unwrap().to_vec())).unwrap();
        next = fetched.next;
    }
    values
}

#[tokio::test]
async fn topics_are_made_changed_and_removed() {
    let running = running().await;
    let admin = running.client.admin();
    let made = admin.create_topic("orders", 2, &TopicConfig::default()).await.unwrap();
    assert_eq!(made.partitions.len(), 2);
    let again = admin.create_topic("orders", 2, &TopicConfig::default()).await;
    assert_eq!(again.unwrap_err().code(), Some(ErrorCode::TopicExists));
    let config = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
    assert_eq!(admin.alter_topic("orders", &config).await.unwrap().config, config);
    assert_eq!(admin.add_partitions("orders", 5).await.unwrap().partitions.len(), 5);
    let listed = admin.list_topics(false).await.unwrap();
    assert_eq!((listed.len(), listed[0].partitions), (1, 5));
    assert!(!admin.metrics().await.unwrap().metrics.is_empty());
    admin.delete_topic("orders").await.unwrap();
    let gone = admin.describe_topic("orders").await;
    assert_eq!(gone.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn records_are_where_they_were_said_to_be_under_every_ack() {
    let running = running().await;
    let admin = running.client.admin();
    admin.create_topic("orders", 1, &TopicConfig::default()).await.unwrap();
    let mut sent = Vec::new();
    for acks in [Acks::Policy, Acks::Written, Acks::Synced, Acks::None] {
        let producer = running.client.producer().acks(acks).build().unwrap();
        for n in 0..50 {
            let value = format!("{acks:?} {n}").into_bytes();
            let appended = producer.send_and_wait("orders", &Record::new(&value)).await.unwrap();
            assert_eq!(appended.offset.is_some(), acks != Acks::None);
            if let Some(offset) = appended.offset {
                assert_eq!(offset, sent.len() as u64);
            }
            sent.push(value);
        }
        producer.close().await.unwrap();
    }
    let there = partition(&running, "orders", 0);
    let late = |_: &i32| there.readable_end() < sent.len() as u64;
    for _ in (0..200).take_while(late) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(values(&there), sent);
}

#[tokio::test]
async fn records_of_a_key_share_a_partition_with_the_embedded_engine() {
    let running = running().await;
    let admin = running.client.admin();
    admin.create_topic("orders", 7, &TopicConfig::default()).await.unwrap();
    let producer = running.client.producer().build().unwrap();
    let topic = running.server.store().topic(&TopicName::parse("orders").unwrap()).unwrap();
    for key in [b"a".as_slice(), b"order-17", b""] {
        let record = Record::new(b"v").with_key(key);
        let remote = producer.send_and_wait("orders", &record).await.unwrap();
        let (embedded, appended) = topic.append(&record).unwrap();
        assert_eq!(
            (remote.partition, remote.offset),
            (embedded, appended.base_offset.checked_sub(1))
        );
    }
}

#[tokio::test]
async fn a_hundred_thousand_records_from_four_tasks_arrive_once_and_in_order() {
    let running = running().await;
    let config = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
    running.client.admin().create_topic("orders", 4, &config).await.unwrap();
    let producer = running.client.producer();
    let producer =
        producer.with(ProducerConfig { batch_max_bytes: 20_000, ..ProducerConfig::default() });
    let producer = producer.build().unwrap();
    let tasks: Vec<_> = (0..4_u32)
        .map(|number| {
            let producer = producer.clone();
            tokio::spawn(async move {
                for n in 0..25_000_u32 {
                    let value = n.to_le_bytes();
                    let sent = producer.send_to("orders", number, &Record::new(&value)).await;
                    drop(sent.unwrap());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    producer.close().await.unwrap();
    for number in 0..4 {
        let there = values(&partition(&running, "orders", number));
        assert!(
            there.into_iter().eq((0..25_000_u32).map(|n| n.to_le_bytes().to_vec())),
            "{number}"
        );
    }
}

#[tokio::test]
async fn conditional_appends_of_two_writers_never_both_win() {
    let running = running().await;
    running.client.admin().create_topic("orders", 1, &TopicConfig::default()).await.unwrap();
    let one = running.client.producer().build().unwrap();
    let two = running.client.producer().build().unwrap();
    for end in 0..20 {
        let record = [Record::new(b"event")];
        let (first, second) = tokio::join!(
            one.append_at("orders", 0, &record, end),
            two.append_at("orders", 0, &record, end)
        );
        let lost = [first, second].into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!(lost[0].code(), Some(ErrorCode::EndConflict));
    }
}

#[tokio::test]
async fn an_unknown_topic_is_told_at_once_and_a_deleted_one_to_what_waits() {
    let running = running().await;
    let producer = running.client.producer().build().unwrap();
    let unknown = producer.send("nowhere", &Record::new(b"v")).await;
    assert_eq!(unknown.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
    let admin = running.client.admin();
    admin.create_topic("orders", 1, &TopicConfig::default()).await.unwrap();
    producer.send_and_wait("orders", &Record::new(b"v")).await.unwrap();
    admin.delete_topic("orders").await.unwrap();
    let deleted = producer.send_and_wait("orders", &Record::new(b"v")).await;
    assert_eq!(deleted.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
    let closed = producer.clone();
    producer.close().await.unwrap();
    let after = closed.send("orders", &Record::new(b"v")).await;
    assert!(matches!(after, Err(Error::Closed { .. })), "{after:?}");
}

#[tokio::test]
async fn a_restart_of_the_server_loses_and_repeats_nothing() {
    let Running { server, client, _dir: dir } = running().await;
    client.admin().create_topic("orders", 1, &TopicConfig::default()).await.unwrap();
    let (address, boot_id) = (server.address(), client.boot_id());
    let producer = client.producer().batch_max_bytes(500).build().unwrap();
    let sending = tokio::spawn(async move {
        for n in 0..20_000_u32 {
            let value = n.to_le_bytes();
            drop(producer.send_to("orders", 0, &Record::new(&value)).await.unwrap());
        }
        producer.close().await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let data = dir.path().to_owned();
    let restart = move || {
        server.stop(Duration::from_secs(5)).unwrap();
        drop(server);
        Server::bind(ServerConfig { listen: address, ..ServerConfig::local(data) }).unwrap()
    };
    let server = tokio::task::spawn_blocking(restart).await.unwrap();
    sending.await.unwrap().unwrap();
    client.admin().list_topics(false).await.unwrap();
    assert_ne!(client.boot_id(), boot_id);
    let running = Running { server, client, _dir: dir };
    let there = values(&partition(&running, "orders", 0));
    assert!(there.into_iter().eq((0..20_000_u32).map(|n| n.to_le_bytes().to_vec())));
}

#[tokio::test]
async fn what_a_topic_does_not_take_is_refused_alone() {
    let running = running().await;
    let admin = running.client.admin();
    let (record_max_bytes, batch_max_bytes) = (8 * 1024, 16 * 1024);
    let config = TopicConfig { record_max_bytes, batch_max_bytes, ..TopicConfig::default() };
    admin.create_topic("orders", 1, &config).await.unwrap();
    let config = ProducerConfig { linger: Duration::from_millis(50), ..ProducerConfig::default() };
    let producer = running.client.producer().with(config).build().unwrap();
    let before = producer.send("orders", &Record::new(b"before")).await.unwrap();
    let large = [7; 10 * 1024];
    let large = Record::new(&large);
    let refused = producer.send("orders", &large).await;
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    let refused = producer.send_batch("orders", None, &[Record::new(&[7; 2_000]); 9]).await;
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    before.await.unwrap();

    // Far more than fits into one batch of the topic.
    let mut deliveries = Vec::new();
    for _ in 0..200 {
        deliveries.push(producer.send("orders", &Record::new(&[1; 1_000])).await.unwrap());
    }
    for delivery in deliveries {
        delivery.await.unwrap();
    }

    // To the byte.
    for length in 8_100..8_192 {
        let value = vec![1; length];
        let record = Record::new(&value);
        let taken = partition(&running, "orders", 0).append(&[record]).is_ok();
        assert_eq!(producer.send_and_wait("orders", &record).await.is_ok(), taken, "{length}");
    }

    admin.alter_topic("orders", &TopicConfig::default()).await.unwrap();
    producer.send_and_wait("orders", &large).await.expect("the topic takes it now");
}
