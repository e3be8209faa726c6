//! Engine: the side that is measured, driven as whoever embeds it would.

use std::fs;
use std::path::{Path, PathBuf};

use log_core::clock::{Clock, SystemClock};
use log_core::config::{FlushPolicy, StoreConfig, TopicConfig};
use log_core::name::TopicName;
use log_core::partition::Partition;
use log_core::record::{Record, RecordView, encoded_len};
use log_core::store::{OpenMode, Store};

use crate::Outcome;
use crate::stats::{Latencies, Tail};
use crate::stopwatch::Stopwatch;
use crate::work::in_batches;

const TOPIC: &str = "bench";
const TOPICS_DIR: &str = "topics";
/// What one read asks for.
const READ_BYTES: usize = 1 << 20;

/// A store with one topic.
#[derive(Debug)]
pub struct Log {
    store: StoreHandle,
    partitions: Vec<Partition>,
}

/// A store, shown as nothing but that.
struct StoreHandle(Store);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store in {}", self.0.dir().display())
    }
}

impl Log {
    /// A new store, and its topic with that many partitions.
    ///
    /// # Errors
    /// What the store says.
    pub fn create(
        dir: &Path,
        flush: FlushPolicy,
        segment_max_bytes: u64,
        partitions: u32,
    ) -> Outcome<Log> {
        let store = Store::open(dir, StoreConfig::default(), OpenMode::CreateIfMissing)?;
        let config = TopicConfig { flush, segment_max_bytes, ..TopicConfig::default() };
        store.create_topic(&TopicName::parse(TOPIC)?, partitions, config)?;
        Log::of(store)
    }

    /// A store that [`Log::create`] has made.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(dir: &Path) -> Outcome<Log> {
        Log::of(Store::open(dir, StoreConfig::default(), OpenMode::MustExist)?)
    }

    fn of(store: Store) -> Outcome<Log> {
        let topic = store.topic(&TopicName::parse(TOPIC)?)?;
        let partitions = topic.partitions().into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Log { store: StoreHandle(store), partitions })
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Appends the records to a partition, as one batch, and waits as the policy says.
    ///
    /// # Errors
    /// What the partition says.
    #[inline]
    pub fn append(&self, partition: usize, records: &[Record<'_>]) -> Outcome<()> {
        self.partitions[partition].append(records)?;
        Ok(())
    }

    /// Visits every record of the first partition; returns how many bytes of value there were.
    ///
    /// # Errors
    /// What the partition says.
    pub fn scan(&self) -> Outcome<u64> {
        let partition = &self.partitions[0];
        let (mut next, mut value_bytes) = (partition.ends().log_start, 0);
        loop {
            let fetched = partition.read(next, READ_BYTES)?;
            if fetched.is_empty() {
                return Ok(value_bytes);
            }
            fetched.for_each(|record| value_bytes += record.value.map_or(0, <[u8]>::len) as u64)?;
            next = fetched.next;
        }
    }

    /// Reads the record at `offset` of the first partition; returns the length of its value.
    ///
    /// # Errors
    /// What the partition says; if the record is not there.
    pub fn read_one(&self, offset: u64) -> Outcome<usize> {
        let len = |record: RecordView<'_>| record.value.map_or(0, <[u8]>::len);
        let found = self.partitions[0].visit(offset, len)?;
        found.ok_or_else(|| format!("there is no record at offset {offset}").into())
    }

    /// How many syncs of segments there were since the store was opened.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.store.0.metrics().syncs.value()
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// What the store says.
    pub fn close(self) -> Outcome<()> {
        Ok(self.store.0.close()?)
    }

    /// The segments of a store with one partition in `dir`, the oldest first.
    ///
    /// # Errors
    /// If they can't be listed.
    pub fn segment_files(dir: &Path) -> Outcome<Vec<PathBuf>> {
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(TOPIC)
        };
        let topics = listed(&dir.join(TOPICS_DIR))?;
        let topic = topics.into_iter().find(is_ours).ok_or("there is no topic")?;
        let mut files = listed(&topic.join("0"))?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        files.sort();
        Ok(files)
    }
}

fn listed(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?)
}

/// How large segments are where nothing else is said.
#[must_use]
pub fn default_segment_bytes() -> u64 {
    TopicConfig::default().segment_max_bytes
}

/// How many bytes the engine stores for these records, as one batch.
#[must_use]
pub fn stored_bytes(records: &[Record<'_>]) -> u64 {
    encoded_len(records, SystemClock::new().now()) as u64
}

/// Appends `count` records, `at_once` in a batch, to a fresh log with the policy Os; returns how
/// many went in a second, and the log.
///
/// # Errors
/// What the store says.
pub fn append(
    dir: &Path,
    records: &[Record<'_>],
    count: u64,
    at_once: usize,
) -> Outcome<(f64, Log)> {
    let log = Log::create(dir, FlushPolicy::Os, default_segment_bytes(), 1)?;
    let partition = &log.partitions[0];
    let stopwatch = Stopwatch::start();
    in_batches(records, count, at_once, |batch| {
        partition.append(batch)?;
        Ok(())
    })?;
    let rate = stopwatch.rate(count);
    Ok((rate, log))
}

/// Appends `count` records one by one, with the policy Os, and notes how long each took.
///
/// # Errors
/// What the store says.
pub fn append_noting(dir: &Path, records: &[Record<'_>], count: usize) -> Outcome<Tail> {
    let mut latencies = Latencies::with_room(count);
    let log = Log::create(dir, FlushPolicy::Os, default_segment_bytes(), 1)?;
    let partition = &log.partitions[0];
    in_batches(records, count as u64, 1, |record| {
        let stopwatch = Stopwatch::start();
        partition.append(record)?;
        latencies.note(stopwatch.elapsed());
        Ok(())
    })?;
    Ok(latencies.tail())
}
