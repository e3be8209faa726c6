//! The outside list: what was acknowledged, kept by a process that is not killed, and compared
//! with what a log holds afterwards.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use integration_tests::{key, number_of, record, value};
use log_core::config::StoreConfig;
use log_core::error::Error;
use log_core::name::TopicName;
use log_core::partition::{Partition, RecoveryReport};
use log_core::store::{OpenMode, Store, Topic};

use super::process::Line;

/// What may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing that was acknowledged.
    Nothing,
    /// A suffix.
    Suffix,
    /// Nothing; but on a full disk that copies on write, recovery can't write again what was read
    /// back, so readers wait for what no marker proves.
    Waiting,
}

/// What was acknowledged, by partition.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ledger {
    partitions: BTreeMap<u32, Acknowledged>,
}

#[derive(Debug, Default, Clone)]
struct Acknowledged {
    /// The numbers of records, by offset.
    records: BTreeMap<u64, u64>,
    /// The numbers of records that were lost, as they may be: they must never come back.
    lost: HashSet<u64>,
    trim_tried: u64,
    trim_done: u64,
}

/// What a comparison has found.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Records that are there.
    pub(crate) present: u64,
    /// Of those, the ones that nobody was told of.
    pub(crate) unacknowledged: u64,
    /// Acknowledged records that are missing, as they may be.
    pub(crate) lost: Vec<u64>,
    /// What recovery found.
    pub(crate) reports: Vec<RecoveryReport>,
}

/// The topic that victims append to, if they are not told another.
pub(crate) fn orders() -> TopicName {
    TopicName::parse("orders").expect("a legal name")
}

impl Ledger {
    /// Notes what a victim said.
    pub(crate) fn note(&mut self, said: &[Line]) {
        for line in said {
            match line {
                Line::Ack(ack) => {
                    let partition = self.partitions.entry(ack.partition).or_default();
                    for (offset, number) in (ack.base..ack.end).zip(ack.number..) {
                        let before = partition.records.insert(offset, number);
                        assert!(before.is_none(), "offset {offset} was acknowledged twice");
                    }
                }
                Line::Trim { partition, to } => {
                    self.partitions.entry(*partition).or_default().trim_tried = *to;
                }
                Line::Trimmed { partition, to } => {
                    self.partitions.entry(*partition).or_default().trim_done = *to;
                }
                _ => {}
            }
        }
    }

    /// How many records were acknowledged and not lost.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.partitions.values().map(|partition| partition.records.len() as u64).sum()
    }

    /// Opens the store and compares it with the list.
    pub(crate) fn compare(&mut self, dir: &Path, may_lose: Loss) -> (Compared, Store) {
        let opened = Store::open(dir, StoreConfig::default(), OpenMode::CreateIfMissing);
        let store = opened.expect("the store opens");
        (self.compare_open(&store, may_lose), store)
    }

    /// Appends one record more: the log goes on where it ended.
    pub(crate) fn append_one(&mut self, topic: &Topic) {
        let partition = topic.partition(0).expect("there is one");
        let acknowledged = self.partitions.entry(0).or_default();
        let offset = partition.ends().end;
        // No victim has such a life.
        let number = u64::MAX - offset - acknowledged.lost.len() as u64 * 1_000_000;
        let (key, value) = (key(number), value(number, 100));
        let appended = partition.append(&[record(&key, &value)]).expect("appends go on");
        assert_eq!(appended.base_offset, offset);
        acknowledged.records.insert(offset, number);
    }

    /// Compares an open store with the list.
    pub(crate) fn compare_open(&mut self, store: &Store, may_lose: Loss) -> Compared {
        let mut compared = Compared::default();
        let topic = match store.topic(&orders()) {
            Err(Error::UnknownTopic(_)) if self.acknowledged() == 0 => return compared,
            topic => topic.expect("a topic with acknowledged records is there"),
        };
        for (number, partition) in (0..).zip(topic.partitions()) {
            let partition = partition.expect("the partition opens");
            let acknowledged = self.partitions.entry(number).or_default();
            acknowledged.compare(&partition, may_lose, &mut compared);
        }
        for report in store.reports() {
            let report = report.outcome.expect("every partition opens");
            assert!(!report.needs_attention(), "this is no damage: {report:?}");
            compared.reports.push(report);
        }
        compared
    }
}

impl Acknowledged {
    fn compare(&mut self, partition: &Partition, may_lose: Loss, compared: &mut Compared) {
        let ends = partition.ends();
        let shown = partition.readable_end();
        if may_lose != Loss::Waiting {
            assert_eq!(shown, ends.end, "what recovery keeps is durable: {ends:?}");
        }
        assert!(
            (self.trim_done..=self.trim_tried.max(self.trim_done)).contains(&ends.log_start),
            "trimmed to {}, tried {}: {ends:?}",
            self.trim_done,
            self.trim_tried,
        );
        let stored = read_numbers(partition);
        compared.present += stored.len() as u64;
        let mut seen = HashSet::new();
        for (offset, number) in &stored {
            assert!(seen.insert(*number), "record {number:x} is there twice, once at {offset}");
            assert!(!self.lost.contains(number), "record {number:x} was lost, and is back");
            match self.records.get(offset) {
                Some(expected) => assert_eq!(number, expected, "at {offset}"),
                None => compared.unacknowledged += 1,
            }
        }
        let lost = self.records.split_off(&ends.end);
        if may_lose != Loss::Suffix {
            assert!(lost.is_empty(), "acknowledged and lost: {lost:?}, {ends:?}");
        }
        let there: BTreeMap<u64, u64> = stored.into_iter().collect();
        for (offset, number) in self.records.range(ends.log_start..shown.max(ends.log_start)) {
            assert_eq!(there.get(offset), Some(number), "acknowledged and missing: {offset}");
        }
        if may_lose != Loss::Waiting {
            self.records = there;
        }
        compared.lost.extend(lost.values());
        self.lost.extend(lost.into_values());
    }
}

/// The offset and number of every record, each of which must be as its number says.
pub(crate) fn read_numbers(partition: &Partition) -> Vec<(u64, u64)> {
    let (mut from, mut found) = (partition.ends().log_start, Vec::new());
    loop {
        let fetched = partition.read(from, 1 << 20).expect("everything can be read");
        if fetched.is_empty() {
            assert_eq!(from, partition.readable_end(), "reading goes up to the end");
            return found;
        }
        fetched
            .for_each(|record| {
                let expected =
                    found.last().map_or(partition.ends().log_start, |(last, _)| last + 1);
                assert_eq!(record.offset, expected, "offsets are dense");
                let number = number_of(&record).expect("a record as it was appended");
                found.push((record.offset, number));
            })
            .expect("everything can be read");
        from = fetched.next;
    }
}
