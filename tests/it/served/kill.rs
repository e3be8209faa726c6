//! Kills: a server under load is killed and started again, and nobody loses, repeats or reorders
//! anything that was acknowledged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_tests::Dice;
use integration_tests::server_process::ServerProcess;
use log_client::{Acks, Client, CommitMode, Consumer};
use log_core::{FlushPolicy, StartFrom, TopicConfig};
use tokio::sync::watch;

use super::{Outcome, Told, compare, in_time, produce, runtime, stored};
use crate::system::{counts, tell};

const PARTITIONS: u32 = 3;
const PRODUCERS: usize = 2;
const TOPICS: [(&str, FlushPolicy, Acks); 2] =
    [("written", FlushPolicy::Os, Acks::Written), ("synced", FlushPolicy::Sync, Acks::Policy)];
/// How often the server is killed in the life of a log.
const KILLS_OF_A_LOG: u64 = 10;

/// What a group has seen: of each partition the offset after the last, and all keys and numbers.
#[derive(Default)]
struct Seen {
    next: HashMap<(Arc<str>, u32), u64>,
    numbers: HashMap<(Arc<str>, String), u64>,
}

#[test]
fn e03_a_server_that_is_killed_loses_nothing_and_repeats_nothing() {
    let mut dice = Dice::new(counts::seed());
    let wanted = counts::server_kills();
    let (mut kills, mut acknowledged) = (0, 0);
    while kills < wanted {
        let now = KILLS_OF_A_LOG.min(wanted - kills);
        acknowledged += life(&mut dice, now);
        kills += now;
    }
    tell(&format!(
        "server kills: {kills}, {acknowledged} acknowledged records, 0 lost, 0 repeated"
    ));
}

/// Returns how many records were acknowledged.
fn life(dice: &mut Dice, kills: u64) -> usize {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let program = env!("CARGO_BIN_EXE_server");
    let mut server = ServerProcess::start(program, &data, &["--log", "error"]);
    let runtime = runtime();
    let (stop, stopped) = watch::channel(false);
    let (producers, consumers, seen) = runtime.block_on(async {
        let client = Client::connect(server.address().to_string()).await.expect("it answers");
        let mut producers = Vec::new();
        for (topic, flush, acks) in TOPICS {
            let config = TopicConfig { flush, ..TopicConfig::default() };
            client.admin().create_topic(topic, PARTITIONS, &config).await.expect("it is new");
            for number in 0..PRODUCERS {
                let key = format!("{topic}-{number}");
                let sends = produce(client.clone(), topic, key, acks, stopped.clone());
                producers.push((topic, tokio::spawn(sends)));
            }
        }
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut consumers = Vec::new();
        for _ in 0..2 {
            let consumer = client.consumer().group("all").topics(TOPICS.map(|(topic, ..)| topic));
            let consumer = consumer.start(StartFrom::Earliest);
            let every = Duration::from_millis(50);
            let consumer = consumer.commit(CommitMode::Automatic { every }).build().await;
            let consumer = consumer.expect("the group takes it in");
            consumers.push(tokio::spawn(consume(consumer, Arc::clone(&seen), stopped.clone())));
        }
        (producers, consumers, seen)
    });
    for _ in 0..kills {
        crate::system::pause(Duration::from_millis(30 + dice.below(250)));
        server.kill();
        server.start_again();
    }
    crate::system::pause(Duration::from_millis(50));
    stop.send_replace(true);
    let told = runtime.block_on(async {
        let mut told: Vec<(&str, Told)> = Vec::new();
        for (topic, sends) in producers {
            told.push((topic, in_time("sends", sends).await.expect("no panic")));
        }
        for consumer in consumers {
            in_time("a consumer", consumer).await.expect("no panic");
        }
        told
    });
    drop(runtime);
    server.terminate(Duration::from_secs(30));
    judge(&data, &told, &seen.lock().expect("no panic"))
}

/// Reads until it is told to stop and then nothing has come for a while.
async fn consume(
    mut consumer: Consumer,
    seen: Arc<Mutex<Seen>>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let wait = if *stopped.borrow_and_update() { 3 } else { 30 };
        let record = tokio::time::timeout(Duration::from_secs(wait), consumer.next()).await;
        match record {
            Ok(record) => {
                let record = record.expect("it goes on").expect("nobody stops it");
                let mut seen = seen.lock().expect("no panic");
                let place = (Arc::clone(&record.topic), record.partition);
                let next = seen.next.entry(place).or_default();
                assert!(record.offset <= *next, "{} left out before {}", next, record.offset);
                *next = (*next).max(record.offset + 1);
                let text = |bytes: Option<bytes::Bytes>| {
                    String::from_utf8(bytes.expect("it is there").to_vec()).expect("text")
                };
                let key = (Arc::clone(&record.topic), text(record.key.clone()));
                let number = text(record.value.clone()).parse::<u64>().expect("a number");
                let last = seen.numbers.entry(key).or_insert(number);
                *last = (*last).max(number);
            }
            Err(_) if wait == 3 => break,
            Err(_) => panic!("nothing came for {wait} s"),
        }
    }
    consumer.close().await.expect("it is closed in order");
}

fn judge(data: &std::path::Path, told: &[(&str, Told)], seen: &Seen) -> usize {
    let mut acknowledged = 0;
    for (topic, told) in told {
        let stored = stored(data, topic);
        acknowledged += compare(told, &stored, u64::MAX);
        assert_eq!(told.count(Outcome::NotAppended), 0, "each is tried for longer than this takes");
        let found = &stored[&told.key];
        // Whoever was told "unknown" may be missing; nobody else.
        let missing = found.last().map_or(0, |last| last + 1) - found.len() as u64;
        let unknown = told.count(Outcome::Unknown) as u64;
        assert!(missing <= unknown, "{topic}: {missing} numbers are missing, {unknown} unknown");
        let last = seen.numbers.get(&(Arc::from(*topic), told.key.clone()));
        assert_eq!(last, found.last(), "the group has seen all of {}", told.key);
    }
    acknowledged
}
