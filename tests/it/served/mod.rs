//! What the tests of a served log share: producers that note what became of each send, and the log
//! read back from its directory.

mod cases;
mod chaos;
mod kill;
mod network;
mod power_cut;

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use integration_tests::shared_nanos;
use log_client::{Acks, Client, Error, Producer, Record};
use log_core::store::OpenMode;
use log_core::{Store, StoreConfig, TopicName};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// How many sends of a producer may wait for their outcome.
const UNANSWERED_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);
/// Longer than a server is away.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(40);
/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("there are threads")
}

/// What became of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Appended,
    NotAppended,
    Unknown,
}

/// A send that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
    /// When that was told.
    pub(crate) told: u64,
}

/// What one producer sends: its key, and what became of each of its records, by number from 0.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) key: String,
    pub(crate) sends: Vec<Sent>,
}

/// Sends numbered records with one key until it is told to stop; then waits for every outcome.
pub(crate) async fn produce(
    client: Client,
    topic: &'static str,
    key: String,
    acks: Acks,
    stop: watch::Receiver<bool>,
) -> Told {
    let producer = client.producer().acks(acks).delivery_timeout(DELIVERY_TIMEOUT);
    let producer = producer.build().expect("the settings are fine");
    produce_with(&producer, topic, key, stop).await
}

/// The same with a producer that is there.
pub(crate) async fn produce_with(
    producer: &Producer,
    topic: &str,
    key: String,
    mut stop: watch::Receiver<bool>,
) -> Told {
    let mut waiting = std::collections::VecDeque::new();
    let mut told = Told { key, sends: Vec::new() };
    for number in 0.. {
        if *stop.borrow_and_update() {
            break;
        }
        let value = number.to_string();
        let record = Record::new(value.as_bytes()).with_key(told.key.as_bytes());
        match producer.send(topic, &record).await {
            Ok(delivery) => waiting.push_back((number, delivery)),
            Err(error) => told.note(number, Err(error)),
        }
        if waiting.len() > UNANSWERED_MAX
            && let Some((number, delivery)) = waiting.pop_front()
        {
            told.note(number, delivery.await.map(drop));
        }
        if number % 16 == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    for (number, delivery) in waiting {
        told.note(number, delivery.await.map(drop));
    }
    told
}

impl Told {
    fn note(&mut self, number: u64, result: Result<(), Error>) {
        let outcome = match result {
            Ok(()) => Outcome::Appended,
            Err(Error::OutcomeUnknown { .. }) => Outcome::Unknown,
            Err(_) => Outcome::NotAppended,
        };
        self.sends.push(Sent { number, outcome, told: shared_nanos() });
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.sends.iter().filter(|sent| sent.outcome == outcome).count()
    }
}

/// The numbers that are in the log for each key, in its order.
pub(crate) fn stored(data: &Path, topic: &str) -> HashMap<String, Vec<u64>> {
    let store = Store::open(data, StoreConfig::default(), OpenMode::MustExist);
    let store = store.expect("the store opens");
    let topic = store.topic(&TopicName::parse(topic).expect("a name")).expect("it is there");
    let mut numbers: HashMap<String, Vec<u64>> = HashMap::new();
    for partition in topic.partitions() {
        let partition = partition.expect("it is sound");
        let mut next = partition.ends().log_start;
        while next < partition.ends().end {
            let fetched = partition.read(next, 1 << 20).expect("it can be read");
            let visited = fetched.for_each(|record| {
                let text = |bytes: Option<&[u8]>| {
                    String::from_utf8(bytes.expect("it is there").to_vec()).expect("text")
                };
                let number = text(record.value).parse().expect("a number");
                numbers.entry(text(record.key)).or_default().push(number);
            });
            visited.expect("it is sound");
            assert!(fetched.next > next || partition.readable_end() <= next, "it goes on");
            if fetched.next == next {
                break;
            }
            next = fetched.next;
        }
    }
    store.close().expect("it closes");
    numbers
}

/// What was told is what is there: appended once, in order; not appended, not there; unknown, at
/// most once. Returns how many of those told as appended before `until` there are.
pub(crate) fn compare(told: &Told, stored: &HashMap<String, Vec<u64>>, until: u64) -> usize {
    let none = Vec::new();
    let found = stored.get(&told.key).unwrap_or(&none);
    let key = &told.key;
    assert!(found.is_sorted_by(|a, b| a < b), "{key}: out of order, or twice: {found:?}");
    let mut sure = 0;
    for sent in &told.sends {
        let there = found.binary_search(&sent.number).is_ok();
        match sent.outcome {
            Outcome::Appended if sent.told < until => {
                assert!(there, "{key}: {} was acknowledged, and is lost", sent.number);
                sure += 1;
            }
            Outcome::NotAppended => {
                assert!(!there, "{key}: {} was told as not appended, and is there", sent.number);
            }
            _ => {}
        }
    }
    sure
}

/// Waits for it, but not for ever.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what} did not end in {PATIENCE:?}"),
    }
}
