//! Cases of areas D, E, H and I, met by clients of a real server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use integration_tests::server_process::ServerProcess;
use log_client::consumer::{OnCorrupt, OutOfRange};
use log_client::{Client, Consumer, Error, Record};
use log_core::protocol::ErrorCode;
use log_core::record::BATCH_HEADER_BYTES;
use log_core::{FlushPolicy, Partition, StartFrom, TopicConfig, TopicName};
use log_server::{Server, ServerConfig};

use super::{in_time, runtime};
use crate::full_disk::fill;
use crate::system::mount::{Kind, Mounted};
use crate::system::{copy_tree, remove, skip};

const TOPIC: &str = "orders";

/// A server in this process, whose data outlives it.
struct World {
    data: PathBuf,
    server: Server,
}

impl World {
    fn open(data: &Path) -> World {
        let mut config = ServerConfig::local(data);
        config.store.maintenance_every = Duration::from_millis(20);
        let server = Server::bind(config).expect("it starts");
        World { data: data.to_path_buf(), server }
    }

    fn topic(&self, partitions: u32, config: TopicConfig) {
        self.server.store().create_topic(&name(), partitions, config).expect("made");
    }

    fn partition(&self, number: u32) -> Partition {
        let topic = self.server.store().topic(&name()).expect("it is there");
        topic.partition(number).expect("it is sound")
    }

    fn append(&self, number: u32, count: usize) {
        let records = vec![Record::new(b"payload"); count];
        self.partition(number).append(&records).expect("appended");
    }

    async fn client(&self) -> Client {
        Client::connect(self.server.address().to_string()).await.expect("it is served")
    }

    fn stop(self) -> PathBuf {
        self.server.stop(Duration::from_secs(10)).expect("it stops");
        self.data
    }
}

fn name() -> TopicName {
    TopicName::parse(TOPIC).expect("a name")
}

async fn offsets(consumer: &mut Consumer, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let record = in_time("a record", consumer.next()).await.expect("it can be read");
        seen.push(record.expect("it was not stopped").offset);
    }
    seen
}

/// D09: a reader of a topic that is deleted and made again has nothing of the old one.
#[test]
fn d09_a_new_topic_of_the_same_name_is_read_from_its_own_start() {
    let home = tempfile::tempdir().expect("a directory");
    runtime().block_on(async {
        let world = World::open(home.path());
        world.topic(1, TopicConfig::default());
        world.append(0, 900);
        let client = world.client().await;
        let build =
            |group| client.consumer().group(group).topics([TOPIC]).start(StartFrom::Earliest);
        client.admin().commit_offset("h", TOPIC, 0, 900).await.expect("committed");
        let mut old = build("g").build().await.expect("joined");
        offsets(&mut old, 900).await;
        in_time("a commit", old.commit()).await.expect("committed");

        client.admin().delete_topic(TOPIC).await.expect("deleted");
        world.topic(1, TopicConfig::default());
        world.append(0, 10);
        let expected: Vec<u64> = (0..10).collect();
        assert_eq!(offsets(&mut old, 10).await, expected, "who was there before");
        old.close().await.expect("closed");
        let mut new = build("h").build().await.expect("joined");
        assert_eq!(offsets(&mut new, 10).await, expected, "who comes later");
        new.close().await.expect("closed");
        world.stop();
    });
}

/// D14: the log has lost its last records, and the committed offset was more durable.
#[test]
fn d14_a_group_ahead_of_the_log_goes_back_and_it_is_told() {
    let home = tempfile::tempdir().expect("a directory");
    let (data, kept) = (home.path().join("data"), home.path().join("kept"));
    runtime().block_on(async {
        let world = World::open(&data);
        world.topic(1, TopicConfig::default());
        world.append(0, 60);
        let path = world.partition(0).path().to_path_buf();
        world.stop();
        copy_tree(&path, &kept);

        let world = World::open(&data);
        world.append(0, 40);
        let client = world.client().await;
        let build = |client: &Client| {
            client.consumer().group("g").topics([TOPIC]).start(StartFrom::Earliest).build()
        };
        let mut consumer = build(&client).await.expect("joined");
        offsets(&mut consumer, 100).await;
        consumer.close().await.expect("closed");
        world.stop();
        std::fs::remove_dir_all(&path).expect("it is ours");
        copy_tree(&kept, &path);

        let world = World::open(&data);
        let client = world.client().await;
        let mut consumer = build(&client).await.expect("joined");
        let committed = client.admin().committed_offsets("g", None).await.expect("told");
        let places = committed.iter().map(|line| (line.clamped_from, line.position.offset));
        assert_eq!(places.collect::<Vec<_>>(), [(Some(100), 60)]);
        world.append(0, 10);
        assert_eq!(offsets(&mut consumer, 10).await, (60..70).collect::<Vec<u64>>());
        consumer.close().await.expect("closed");
        world.stop();
    });
}

/// E01, E02, E04: retention has taken all that a producer has written, then its state as well; it
/// goes on, and nothing is there twice.
#[test]
fn e01_e02_e04_a_producer_goes_on_after_the_server_has_forgotten_it() {
    let home = tempfile::tempdir().expect("a directory");
    runtime().block_on(async {
        let world = World::open(home.path());
        let idle = Duration::from_secs(1);
        world.topic(1, TopicConfig { producer_expiry: idle, ..TopicConfig::default() });
        let client = world.client().await;
        let producer = client.producer().build().expect("the settings are fine");
        let send = async |number: u64| {
            let (value, topic) = (number.to_string(), TOPIC);
            let record = Record::new(value.as_bytes());
            let sent = in_time("a send", producer.send_and_wait(topic, &record)).await;
            let appended = sent.expect("appended");
            assert_eq!(appended.offset, Some(number));
        };
        for number in 0..10 {
            send(number).await;
        }
        world.partition(0).trim(10).expect("trimmed");
        send(10).await;
        for number in [11, 12] {
            tokio::time::sleep(idle * 2).await;
            send(number).await;
        }
        assert_eq!(world.partition(0).ends().end, 13);
        producer.close().await.expect("closed");
        world.stop();
    });
}

/// H05: the disk under a server is full. Sends end in time, reading goes on, and so do sends once
/// there is space.
#[test]
fn h05_a_full_disk_under_a_server_refuses_sends_in_time_and_serves_readers() {
    let test = "full disk under a server";
    let mounted = match Mounted::new(Kind::Ext4, 24) {
        Ok(mounted) => mounted,
        Err(why) => return skip(test, &why),
    };
    let ballast = mounted.dir.join("ballast");
    fill(&ballast, &mounted.dir, 8 * 1024 * 1024);
    let timeout = Duration::from_secs(2);
    runtime().block_on(async {
        let world = World::open(&mounted.dir.join("data"));
        world.topic(2, TopicConfig { segment_max_bytes: 1 << 20, ..TopicConfig::default() });
        let mut producers = tokio::task::JoinSet::new();
        for number in 0..8_u8 {
            let client = world.client().await;
            producers.spawn(async move {
                let producer = client.producer().delivery_timeout(timeout);
                let producer = producer.build().expect("the settings are fine");
                let (value, mut appended) = (vec![number; 20_000], 0_usize);
                loop {
                    let record = Record::new(&value).with_key(&value[..1]);
                    let sent = in_time("a send", producer.send_and_wait(TOPIC, &record)).await;
                    match sent {
                        Ok(_) => appended += 1,
                        Err(error) => return (producer, value, appended, error),
                    }
                }
            });
        }
        let ended = in_time("the producers", producers.join_all()).await;
        let mut appended = 0;
        for (_, _, count, error) in &ended {
            assert_eq!(error.code(), Some(ErrorCode::DiskFull), "{error}");
            appended += count;
        }
        assert!(appended > 50, "{appended} is not what the disk has room for");

        let client = world.client().await;
        let consumer =
            client.consumer().assign([0, 1].map(|number| (TOPIC, number, StartFrom::Earliest)));
        let mut consumer = consumer.build().await.expect("assigned");
        offsets(&mut consumer, appended).await;
        remove(&ballast).expect("it is ours");
        for (producer, value, _, _) in ended {
            let record = Record::new(&value).with_key(&value[..1]);
            // The file system itself takes a while to give the space back.
            let goes_on = async { while producer.send_and_wait(TOPIC, &record).await.is_err() {} };
            in_time("a send, with space", goes_on).await;
        }
        offsets(&mut consumer, 8).await;
        consumer.close().await.expect("closed");
        world.stop();
    });
}

/// I08: the end is exact after the server was killed, and what comes next is read next.
#[test]
fn i08_the_end_is_exact_after_a_kill() {
    let home = tempfile::tempdir().expect("a directory");
    let data = home.path().join("data");
    let mut server = ServerProcess::start(env!("CARGO_BIN_EXE_server"), &data, &["--log", "error"]);
    runtime().block_on(async {
        let client = Client::connect(server.address().to_string()).await.expect("it is served");
        let config = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
        client.admin().create_topic(TOPIC, 1, &config).await.expect("made");
        let producer = client.producer().build().expect("the settings are fine");
        for round in 1..=3_u64 {
            for number in (round - 1) * 100..round * 100 - 1 {
                let value = number.to_string();
                let record = Record::new(value.as_bytes());
                let sent = in_time("a send", producer.send_and_wait(TOPIC, &record)).await;
                assert_eq!(sent.expect("appended").offset, Some(number));
            }
            server.kill();
            server.start_again();
            let consumer = client.consumer().assign([(TOPIC, 0, StartFrom::Latest)]);
            let mut consumer = in_time("a consumer", consumer.build()).await.expect("assigned");
            let handle = consumer.handle();
            let end = in_time("the end", async {
                loop {
                    match handle.position(TOPIC, 0) {
                        Some(end) => return end,
                        None => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
            });
            let end = end.await;
            assert_eq!(end, round * 100 - 1);
            let last = client.consumer().assign([(TOPIC, 0, StartFrom::Offset(end - 1))]);
            let mut last = last.build().await.expect("assigned");
            assert_eq!(offsets(&mut last, 1).await, [end - 1]);
            let record = Record::new(b"next");
            let next = producer.send_and_wait(TOPIC, &record);
            assert_eq!(in_time("a send", next).await.expect("appended").offset, Some(end));
            assert_eq!(offsets(&mut consumer, 1).await, [end]);
        }
    });
}

/// A batch of one partition is damaged on disk, and another partition can't be opened: what asks
/// for those is refused and told what to do, and the third one is served.
#[test]
fn damage_in_one_partition_is_told_and_the_others_are_served() {
    let home = tempfile::tempdir().expect("a directory");
    runtime().block_on(async {
        let world = World::open(home.path());
        world.topic(3, TopicConfig::default());
        for partition in 0..3 {
            for _ in 0..5 {
                world.append(partition, 2);
            }
        }
        let segment = world.partition(0).segments()[0].path.clone();
        let batch = world.partition(0).read(4, 1).expect("read").bytes;
        let lost = world.partition(1).path().to_path_buf();
        let data = world.stop();
        let mut bytes = std::fs::read(&segment).expect("a segment");
        let head = &batch[..BATCH_HEADER_BYTES];
        let at = bytes.windows(head.len()).position(|window| window == head);
        bytes[at.expect("it is there") + BATCH_HEADER_BYTES] ^= 1;
        std::fs::write(&segment, bytes).expect("damaged");
        std::fs::remove_dir_all(&lost).expect("it is ours");
        std::fs::write(&lost, b"a file where a directory should be").expect("written");

        let world = World::open(&data);
        let client = world.client().await;
        let assign = |partition: u32| {
            let consumer = client.consumer().assign([(TOPIC, partition, StartFrom::Earliest)]);
            consumer.on_out_of_range(OutOfRange::Error)
        };
        let mut strict = assign(0).build().await.expect("assigned");
        assert_eq!(offsets(&mut strict, 4).await, [0, 1, 2, 3]);
        let refused = in_time("an error", strict.next()).await.expect_err("it is damaged");
        assert_eq!(refused.code(), Some(ErrorCode::Corrupt), "{refused}");
        assert!(refused.to_string().contains("4..6 of orders/0"), "{refused}");
        let skipping = assign(0).on_corrupt(OnCorrupt::Skip).build().await;
        let mut skipping = skipping.expect("assigned");
        assert_eq!(offsets(&mut skipping, 8).await, [0, 1, 2, 3, 6, 7, 8, 9]);

        let producer = client.producer().build().expect("the settings are fine");
        let to = async |partition| {
            let record = Record::new(b"more");
            let delivery = producer.send_to(TOPIC, partition, &record).await?;
            in_time("a send", delivery).await
        };
        for partition in [0, 2] {
            assert_eq!(to(partition).await.expect("appended").offset, Some(10));
        }
        let refused = to(1).await.expect_err("it is not there");
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        assert!(refused.to_string().contains("orders"), "it names it: {refused}");
        let mut healthy = assign(2).build().await.expect("assigned");
        assert_eq!(offsets(&mut healthy, 11).await, (0..11).collect::<Vec<u64>>());
        world.stop();
    });
}
